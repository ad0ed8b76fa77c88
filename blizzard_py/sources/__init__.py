"""Sources of Blizzard: the seam (`protocol`) and, in folders, the kinds of sources."""
