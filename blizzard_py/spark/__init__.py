"""Spark as the scheduler of the ingest kernels; the only place that imports pyspark."""

from blizzard_py.spark.engine import SparkEngine

__all__ = ["SparkEngine"]
