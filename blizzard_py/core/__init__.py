"""What both daemons stand on: state, storage, configuration, the poll loop.

Promise: nothing in here imports pyspark or deltalake, and nothing in here
knows which of the two daemons is running. Penguin imports this package and no
other part of ``blizzard_py``.
"""
