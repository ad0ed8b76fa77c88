"""Columns: their types in all forms, and their inference from records."""
