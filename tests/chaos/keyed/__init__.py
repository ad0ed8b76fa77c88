"""Random histories of keyed tables beside a dict.

    python -m tests.chaos.keyed --histories 100000                # the pure core, in memory
    python -m tests.chaos.keyed --histories 10000 --store local   # whole merges on Delta tables
    python -m tests.chaos.keyed --histories 1000 --store s3
    python -m tests.chaos.keyed --deaths --store s3               # at each request in turn
    python -m tests.chaos.keyed --large                           # more rows than one merge takes
    python -m tests.chaos.keyed --mutants                         # who notices each

`model` draws changes and says what is right, `memory` plays the pure core, and `delta` whole
merges: deaths, lost answers, rivals at any request, compactions, RESTORE, vacuum, log clean-up,
rebuilds by other settings. `every_request` has fixed stories with one fault at each request, and
`mutants` the faults of the product that histories must notice.
"""
