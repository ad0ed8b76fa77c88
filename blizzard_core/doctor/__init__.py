"""Checks of everything that can be known before the first batch."""
