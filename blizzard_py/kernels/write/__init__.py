"""From Arrow rows to staged Parquet files: by directory, by size, in order."""
