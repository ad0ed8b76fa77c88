"""Decompression of streams, one module for each way in which a codec cuts its streams."""
