"""Requests: orders of operators that the owner of a source executes.

A command puts a request into the source's mailbox and rings its bell (`mailbox`). The owner alone
reads it, accepts it by a save of its checkpoint (`progress`), executes it between batches, and
puts an end record after the save that ended it. `document` is the stored form of all three.

This lies below `blizzard_py.state`, because a checkpoint holds the progress of its requests.
"""
