"""The contract of Blizzard and Penguin: files, groups, and each one's records for the other."""
