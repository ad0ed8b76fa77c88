"""Blizzard: finds new NDJSON files, has Spark turn them into Parquet, publishes them.

The layers are in ``docs/design/architecture.md``, the batch protocol in
``docs/design/protocol.md``.
"""
