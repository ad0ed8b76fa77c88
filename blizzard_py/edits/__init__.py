"""Manual changes of a source's state: set, reset, rebuild, rename.

Each first takes over the checkpoint, which fences a running daemon, and keeps a backup.
"""
