"""Tables in files: Delta, Iceberg, and directories of Parquet, CSV and JSON.

The driver process pins a version or a listing and chooses files by name, statistics and log. Tasks
read exactly these files, through the project's own storage, and keep the rows of the window.
"""
