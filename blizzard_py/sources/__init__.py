"""What Blizzard ingests from: the seam (`protocol`) and, in folders, the kinds of sources."""
