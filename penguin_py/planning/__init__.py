"""What a commit will hold, and what is remembered of those before it, also after a restart."""
