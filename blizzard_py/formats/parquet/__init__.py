"""Parquet files of a lake: their rows and statistics, read within memory limits."""
