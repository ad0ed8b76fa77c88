"""Sources with notifications, in some plans."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.plan import DAY, Plan


def with_hints(plan: Plan) -> Plan:
    """Return the plan; in some, notifications say where to scan.

    Where they are never lost, only starts scan everything.
    """
    chance = random.Random(plan.seed * 2 + 5_000_001)
    settings = plan.settings
    if chance.random() > 0.3:
        return plan
    full_scan = chance.choice((100.0, 250.0, DAY, DAY))
    return replace(
        plan,
        settings=replace(settings, hints=True, budget=None, full_scan=full_scan),
    )
