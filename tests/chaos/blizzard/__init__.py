"""Chaos run around one source with real processes: writers, daemons, a store, and faults.

Writers put files out of order within the grace period, a third of them with old
modification times. Meanwhile ``blizzard run`` and ``penguin run`` are killed, replaced while
they are paused, stopped, and left down for longer than the grace period. Jobs take longer than
the grace period. On S3 answers are lost and requests land late. In the end every file that
appeared within the grace period is in the table exactly once.

    python -m tests.chaos.blizzard --minutes 10 --store s3 --seed 1

The seed decides the files and the faults; the machine decides their exact times. So a seed
repeats the plan of a run, and not each of its moments.
"""
