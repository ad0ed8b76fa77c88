"""Blizzard: finds new NDJSON files, has Spark turn them into Parquet, publishes them.

The promise, the batch protocol and the layers are in ``docs/design/architecture.md``.
"""
