"""Databases that only a JDBC driver reaches: planned here, read by Spark."""
