"""Spark as the scheduler of the ingest kernels; the only place that imports pyspark.

Spark's Python processes import modules from here, and load this one with each: it loads nothing.
"""
