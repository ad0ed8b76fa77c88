"""Connections to tables and APIs: the driver process plans, Spark tasks read."""
