"""Incoming files: their footers, the contract for them, and their owners."""
