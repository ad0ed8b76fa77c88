"""Scans of hot ranges only, in some plans."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.plan import DAY, START, TEMPLATES, Event, Plan, Settings, directory, event


def with_covers(plan: Plan) -> Plan:
    """Return the plan; in some, most scans are of hot ranges only.

    Some scan everything only when they start.
    """
    chance = random.Random(plan.seed * 2 + 3_000_001)
    if not plan.settings.watermark or chance.random() > 0.4:
        return plan
    full_scan = chance.choice((100.0, 250.0, DAY, DAY))
    settings = replace(
        plan.settings,
        full_scan=full_scan,
        budget=chance.choice((None, None, 20_000)),
    )
    if full_scan < DAY or settings.layout not in TEMPLATES:
        return replace(plan, settings=settings)
    # The partition stays open, and grace is longer than a range is hot.
    settings = replace(settings, tracked=64, lookback=None, grace=60.0, poll=15.0)
    added = list(_cold_files(settings, plan.length))
    events = tuple(sorted((*plan.events, *added), key=lambda found: found.at))
    return replace(
        plan, settings=settings, events=events, length=added[-1].at + settings.grace + 100.0
    )


def _cold_files(settings: Settings, at: float) -> Iterator[Event]:
    """Yield files of a partition behind which a newer one is hot.

    A start finds the second file. The third one sorts below it, and comes within its grace period.
    """
    old = directory(settings.layout, START + at)
    newer = directory(settings.layout, START + at + DAY)
    yield _write(old, at, at)
    yield _write(newer, at + 2, at + 2)
    second = at + 2 * settings.grace + 100.0
    yield _write(old, second, second)
    yield event(second + 5, "kill", who="blizzard", secs=5.0)
    yield _write(old, second + 20 + 0.75 * settings.grace, second - 5)


def _write(folder: str, at: float, named: float) -> Event:
    path = f"{folder}{int(START + named)}-cold{int(at)}.ndjson"
    return event(at, "write", path=path, manner="cold", rows=1)
