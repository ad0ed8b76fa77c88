"""The state file: its format, and the rule of one writer."""
