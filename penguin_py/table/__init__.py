"""One table between its commits: the view of its log, the polls of its directory, its chores."""
