"""The content of the next commit, and the memory of earlier ones, also after a restart."""
