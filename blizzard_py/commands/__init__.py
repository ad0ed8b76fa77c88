"""Commands of ``blizzard`` that people run by hand, a module for each group."""
