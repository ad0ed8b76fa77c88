"""Lines that are certain become columns at once, in a sandbox; `decode` does all others."""
