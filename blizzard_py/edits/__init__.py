"""Changes of a source's state by hand: set, reset, rebuild, rename.

Each takes the checkpoint over first, which fences a running daemon, and keeps the old
one beside the new.
"""
