"""The state file: its format, and one writer for each."""
