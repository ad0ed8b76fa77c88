"""Penguin: commits the Parquet files that arrive in a table's directory to its Delta log.

Promise: every file is committed once or quarantined with a reason; none is
passed over in silence, and no row becomes visible twice.
"""
