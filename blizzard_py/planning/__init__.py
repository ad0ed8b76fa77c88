"""What comes next, and where to: batches, ranges, table directories. Pure."""
