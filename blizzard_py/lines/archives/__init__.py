"""Zip archives: their directory, and their members as streams."""
