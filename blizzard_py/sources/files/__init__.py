"""Files that arrive in an object store or a directory."""
