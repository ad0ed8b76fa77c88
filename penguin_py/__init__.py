"""Penguin: commits the Parquet files that arrive in a table's directory to its Delta log.

Promise: every file is committed once or quarantined with a reason. No file is skipped in silence,
and no row becomes visible twice.
"""
