"""What a Delta table takes: of its log's declarations, and of the columns of files. Pure.

Both daemons ask here: Penguin of each file before it commits it, Blizzard of a pipeline's
columns before the first file is made.
"""
