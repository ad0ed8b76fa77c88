"""Groups of files that replace what was published before: read by number, applied in order."""
