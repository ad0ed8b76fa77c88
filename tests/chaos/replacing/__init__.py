"""Random histories of groups on real Delta tables, with interruptions.

    python -m tests.chaos.replacing --histories 150 --seed 1

`model` holds the expected content of each version, `faults` fails requests, and `history` is one
run: readings, second readings, appends, compactions, deletes, two Penguins, lost mirrors and log
clean-up. Some happen between a Penguin's planning and its commit.
"""
