"""Tables that are files: Delta, Iceberg, and directories of Parquet, CSV and JSON.

The driver pins a version or a listing and chooses files by name, statistics and log; tasks read
exactly those, through the project's own storage, and keep the rows of the window.
"""
