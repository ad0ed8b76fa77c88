"""What Penguin remembers of a table, and how that is found again after a restart."""
