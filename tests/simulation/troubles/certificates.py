"""Certificates of complete partitions, in some plans."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.plan import Plan

# Events after which the log or the state may be older than a marker: people see to these.
UNSUITED = frozenset(
    {"restored", "log_cut", "put_back", "set_aside", "brought_back", "part_lost", "copied", "copy"}
    | {"mirror_lost", "misconfigured", "moved", "original", "checkpoint_lost", "store_clock"}
)


def with_certificates(plan: Plan) -> Plan:
    """Return the plan; in some, partitions without a new file for a while are complete."""
    chance = random.Random(plan.seed * 2 + 7_000_001)
    settings = plan.settings
    unsuited = UNSUITED.intersection(event.kind for event in plan.events)
    if chance.random() > 0.5 or unsuited or not settings.watermark:
        return plan
    after = chance.choice((10.0, 40.0))
    return replace(plan, settings=replace(settings, complete=after))
