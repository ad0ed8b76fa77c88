"""Pipelines over event time: Spark Structured Streaming behind our own discovery and commit point.

A batch is ingested as any other, into staging that nobody publishes. Then it is offered to one
long-running query, and what that emits is the batch's output. The modules:

* `state_archive` keeps the query's checkpoint directory in objects that a save of ours names;
* `source`, `operators` and `query` are Spark's side of it;
* `jobs` puts the steps in order, and recovers.
"""
