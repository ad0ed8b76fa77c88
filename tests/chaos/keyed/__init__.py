"""Random histories of keyed tables beside a dict.

    python -m tests.chaos.keyed --histories 100000            # the pure core, in memory
    python -m tests.chaos.keyed --histories 1000 --delta      # on real Delta tables

`model` draws changes and says what is right, `memory` plays the pure core, and `delta` whole
merges: deaths, rivals, compactions, RESTORE, vacuum and log clean-up.
"""
