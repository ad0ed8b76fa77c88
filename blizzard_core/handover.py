"""What Blizzard writes into files and paths and Penguin reads out of them again."""

from __future__ import annotations

# The key of a Parquet file's metadata that says which task of which batch wrote it.
OUTPUT_ID_KEY = "blizzard.output_id"

# What stands for null in a directory's name, in Hive and everywhere since.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
