"""The content of a commit, and the memory of those before it, also after a restart."""
