"""Removal or tags of source files whose rows have been in the table for long enough."""
