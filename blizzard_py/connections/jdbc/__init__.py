"""Databases with only a JDBC driver: planned here, read by Spark."""
