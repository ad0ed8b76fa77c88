"""SQLite, read-only, with ADBC."""
