"""The state of a source: its checkpoint and everything that stands beside it.

`transitions` decides what follows, purely; the other modules read, write and look up.
"""
