"""Random histories of groups on real Delta tables, with whatever may come between.

    python -m tests.chaos.replacing --histories 150 --seed 1

`model` says what each version must hold, `faults` is what goes wrong with each request, and
`history` is one run: readings and readings again, appends, compactions and deletes, also
between a Penguin's look and its commit, two Penguins, lost mirrors, log clean-up.
"""
