"""Plan of a run: the settings and a list of events. Data only.

A plan is drawn from a seed (`draw`). Each event has its own time and depends on no other, so
`shrink` can leave any of them out.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Literal

# Noon of a day in the middle of winter.
START = 1_706_443_200.0
DAY = 86_400.0
# After so many files and no directory a source is flat, where scans are bounded low.
FLAT_KEYS = 5

Layout = Literal["days", "hours", "regions", "region_days", "flat"]

DEPTHS: dict[Layout, int] = {"days": 1, "hours": 2, "regions": 1, "region_days": 2, "flat": 0}
TEMPLATES: dict[Layout, str] = {"days": "date=%Y-%m-%d", "hours": "date=%Y-%m-%d/hour=%H"}


@dataclass(frozen=True)
class Settings:
    """The configuration of both daemons and the nature of the store. Times in seconds."""

    layout: Layout = "days"
    sources: int = 1
    depth: int | None = None
    lookback: int | None = None
    tracked: int = 64
    grace: float = 60.0
    min_age: float = 0.0
    batch_files: int = 3
    poll: float = 20.0
    sweep: float = 600.0
    late_files: str = "quarantine"
    watermark: bool = True
    max_retries: int = 3
    partitioned: bool = False
    page_keys: int = 5
    store_skew: float = 0.0
    commit_files: int = 1000
    penguin_tracked: int = 64
    reconcile: float = 600.0
    log_interval: int | None = None
    log_clean_up: bool = False
    # Limits of the product that are set low, so that small runs meet them.
    scan_files: int = 50_000
    inline_names: int = 2000
    versions_kept: int = 100
    # Seconds between complete scans, if not every poll is one; and LIST requests an hour.
    full_scan: float | None = None
    budget: int | None = None
    # Whether messages say where new files are.
    hints: bool = False
    # Whether two or more Blizzards share the sources.
    replicas: bool = False
    # Seconds after the last new file of a partition until it may be complete; None: never.
    complete: float | None = None
    # Seconds from the look at the table until a source file is removed; None: never. And whether
    # it is copied to an archive first.
    clean: float | None = None
    archives: bool = False
    # How long the log's entries are kept behind a log checkpoint: longer than any daemon is
    # paused, since one that sleeps longer could commit where an older entry has been.
    log_kept: float = 3600.0
    # Whether the configuration names another place than the files were at.
    moved: bool = False
    # What sources are called before their number, and whether they have an `id:` that stays.
    called: str = "s"
    has_id: bool = False
    # Sources whose state `blizzard rename` has taken to another name.
    carried: tuple[int, ...] = ()


@dataclass(frozen=True)
class Event:
    """An action ``at`` seconds after the start. ``what`` depends on the kind."""

    at: float
    kind: str
    what: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.what)[name]

    def get(self, name: str, otherwise: Any = None) -> Any:
        """One of its particulars."""
        return dict(self.what).get(name, otherwise)

    def __str__(self) -> str:
        particulars = ", ".join(f"{name}={value!r}" for name, value in self.what)
        return f"{self.kind}({particulars})"


def event(at: float, kind: str, **what: Any) -> Event:
    """Return an event; particulars that are None are left out."""
    return Event(round(at, 3), kind, tuple((n, v) for n, v in what.items() if v is not None))


@dataclass(frozen=True)
class Plan:
    """Plan of a run. ``seed`` decides the rest: the order of tasks and the time of each I/O."""

    seed: int
    settings: Settings
    events: tuple[Event, ...]
    length: float

    @property
    def longest_grace(self) -> float:
        """The longest grace period of the plan."""
        changed = (event["grace"] for event in self.events if event.kind == "regraced")
        return max([self.settings.grace, *changed])

    @property
    def depth(self) -> int:
        """Number of components of a partition."""
        settings = self.settings
        return DEPTHS[settings.layout] if settings.depth is None else settings.depth


def source_uri(number: int, *, moved: bool = False) -> str:
    """Return the URI of a source's files; ``moved``: the wrong one of a bad configuration."""
    return f"s3://moved-{number}" if moved else f"s3://raw-{number}"


def moment(at: float) -> dt.datetime:
    """Return a virtual time."""
    return dt.datetime.fromtimestamp(at, dt.UTC)


def directory(layout: Layout, at: float, region: str = "eu") -> str:
    """Return the folder, with its slash, for a file of this time."""
    if layout == "flat":
        return ""
    if layout == "regions":
        return f"region={region}/"
    if layout == "region_days":
        return f"region={region}/{moment(at):date=%Y-%m-%d}/"
    return moment(at).strftime(TEMPLATES[layout]) + "/"
