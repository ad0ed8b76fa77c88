"""Spark as the scheduler of the ingest kernels; the only place that imports pyspark."""

from blizzard_py.engines.spark.engine import SparkEngine, checking_engine
from blizzard_py.engines.spark.gateway import quickly_started

__all__ = ["SparkEngine", "checking_engine", "quickly_started"]
