"""Keyed tables: the current row of each key, derived from an append-only table of changes."""
