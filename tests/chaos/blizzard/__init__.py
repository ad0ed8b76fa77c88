"""Chaos around one source with real processes: writers, daemons, a store, and what kills them.

Writers put files out of order within the grace period, a third of them with old
modification times. Meanwhile ``blizzard run`` and ``penguin run`` are killed, left
down for longer than the grace period, paused and overtaken, and told to stop; jobs take
longer than the grace period; and on S3 answers are lost and requests land late. In the
end every file that appeared within the grace period is in the table exactly once.

    python -m tests.chaos.blizzard --minutes 10 --store s3 --seed 1

The seed decides what is written and what goes wrong. When it does is up to the
machine, so a seed repeats the plan of a run and not each of its moments.
"""
