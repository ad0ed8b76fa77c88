"""What Blizzard and Penguin agree on: files, groups, and each one's records for the other."""
