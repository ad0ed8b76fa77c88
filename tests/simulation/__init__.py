"""A deterministic simulator: the real pipelines of both daemons against an adversary.

Everything that is not the product's own logic is simulated: the store, clocks, threads,
processes, the writers of files, other writers of the table and the people. (Left out are
Penguin's own OPTIMIZE and VACUUM, which are delta-rs's; `tests/penguin_py/test_maintenance.py` has
them.) One seed is one plan (`plan`) and one history (`run`). After every run the promise is
checked (`check`).

    python -m tests.simulation --seeds 10000 --from 1
"""
