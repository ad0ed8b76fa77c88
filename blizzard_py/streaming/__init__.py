"""Pipelines over event time: Spark Structured Streaming behind our own discovery and commit point.

A batch is ingested as usual, into staging that is never published. Then it is offered to one
long-running query. The query's output is the batch's output. The modules:

* `state_archive` keeps the query's checkpoint directory in objects that a saved state names;
* `source`, `operators` and `query` are Spark's part;
* `jobs` runs the steps in order, and recovers.
"""
