"""Spark as the scheduler of the ingest kernels.

Spark's Python processes import modules from here and load this one each time, so it loads nothing.
"""
