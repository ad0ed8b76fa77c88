"""Unfinished plan: the random generator, the current time and the run's settings."""

from __future__ import annotations

import random

from tests.simulation.plan import (
    DAY,
    DEPTHS,
    FLAT_KEYS,
    Event,
    Layout,
    Settings,
    event,
)


class Drawing:
    """The state of a drawing: its chance, its time, and what it has drawn."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed * 2 + 1)
        self.settings = settings(self.chance)
        self.events: list[Event] = []
        self.now = 0.0
        self.written: list[str] = []
        self.count = 0

    def add(self, at: float, kind: str, **what: object) -> None:
        self.events.append(event(at, kind, **what))

    def one_in(self, count: float) -> bool:
        return self.chance.random() * count < 1


def settings(chance: random.Random) -> Settings:
    """Small limits, so that each is met."""
    layouts: tuple[Layout, ...] = ("days", "hours", "regions", "region_days", "flat")
    layout = chance.choices(layouts, (5, 3, 2, 1, 1))[0]
    depth = None if chance.random() < 0.6 else DEPTHS[layout]
    dated = layout in {"days", "hours"}
    lookback = chance.choice((None, None, 1, 3)) if dated else None
    # Of more families of dates than may be tracked and one, the others are left apart.
    tracked = (2, 2, 3, 64) if layout == "region_days" else (1, 2, 3, 64)
    skews = (0.0, 0.0, 0.0, -3.0, 2.0, 40.0, 30 * DAY)
    return Settings(
        layout=layout,
        sources=chance.choices((1, 2), (5, 2))[0],
        depth=depth,
        lookback=lookback,
        tracked=chance.choice(tracked),
        grace=chance.choice((20.0, 60.0, 120.0)),
        min_age=chance.choice((0.0, 0.0, 0.0, 15.0)),
        batch_files=chance.choice((1, 2, 3, 5)),
        poll=chance.choice((15.0, 30.0, 50.0)),
        sweep=chance.choice((200.0, 400.0)),
        late_files=chance.choices(("quarantine", "ingest", "report"), (6, 3, 1))[0],
        watermark=chance.random() < 0.9,
        max_retries=chance.choice((0, 2, 3, 9)),
        partitioned=dated and chance.random() < 0.3,
        page_keys=chance.choice((2, 3, 5, 50)),
        store_skew=chance.choice(skews),
        commit_files=chance.choice((2, 5, 1000)),
        penguin_tracked=chance.choice((1, 2, 64)),
        reconcile=chance.choice((200.0, 400.0)),
        log_interval=chance.choice((None, 3, 5)),
        log_clean_up=chance.random() < 0.5,
        # While the depth is unknown a scan takes more than what says that there is none.
        scan_files=chance.choice((50_000, 3 if depth is not None else FLAT_KEYS + 1)),
        log_kept=chance.choice((600.0, 3600.0)),
        inline_names=chance.choice((2000, 2)),
        versions_kept=chance.choice((100, 2)),
    )
