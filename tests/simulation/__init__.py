"""Deterministic simulator: the real pipelines of both daemons against an adversary.

Only the product's own logic is real. Simulated are the store, clocks, threads, processes, the
writers of files, other writers of the table, and the operators. One seed is one plan (`plan`) and
one history (`run`). After every run the promise is checked (`check`).

Penguin's own OPTIMIZE and VACUUM are left out, since delta-rs does them:
`tests/penguin_py/test_maintenance.py` tests them.

    python -m tests.simulation --seeds 10000 --from 1
"""
