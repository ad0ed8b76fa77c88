"""Columns: their types in all forms, and how they are told from records."""
