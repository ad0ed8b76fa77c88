"""The core of both daemons: storage, settings, watermarks, checkpoints, the poll loop.

Promise: nothing in here imports pyspark or deltalake, and nothing in here knows which
of the two daemons is running. ``blizzard_py`` and ``penguin_py`` import this package
and never each other.
"""
