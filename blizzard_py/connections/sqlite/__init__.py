"""SQLite by ADBC, read-only."""
