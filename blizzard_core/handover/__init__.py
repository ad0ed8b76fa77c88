"""The contract between Blizzard and Penguin: files, groups, and the records they share."""
