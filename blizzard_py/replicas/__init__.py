"""Replicas: several daemons that share the sources of one configuration.

Leases only decide who works. Rows are safe whatever they say: the fence of the checkpoint
(`blizzard_core.checkpoint.fenced_writer`) refuses each save of a replica that lost its source. So a
wrong view costs a batch, and never a row.
"""
