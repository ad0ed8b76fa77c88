"""A Delta table: what it takes, and which of its commits brought which files.

Both daemons ask here what its log's declarations and columns take: Penguin of each file before it
commits it, Blizzard of a pipeline's columns before the first file is made.
"""
