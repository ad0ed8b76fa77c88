"""Polls of a part of a bucket: ``include`` as ranges to list, beside a filter of all names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.discovery_cases import NOW, all_done
from benchmarks.s3_stand_in import StandIn
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Listing
from blizzard_core.watermark.name_range import NameRange
from blizzard_core.watermark.progress import Progress
from blizzard_core.watermark.scan import scan
from blizzard_core.watermark.selection import NameSelection
from blizzard_py.sources.files.listing import listing_within

HEADER = ["include", "files", "LIST filtered", "a poll", "cold filtered", "cold start"]
_BUCKET = "tenants"
_TENANTS = 50
# Patterns, and the tenants that they select.
_CASES = (("tenant=17/**", 1), ("tenant={03,17,42}/**", 3))


@dataclass(frozen=True, slots=True)
class SelectionCost:
    """LIST requests of a poll with nothing new, and of a cold start, by a filter and by ranges."""

    include: str
    selected: int
    files: int
    filtered: tuple[int, int]
    narrowed: tuple[int, int]

    def cells(self) -> list[str]:
        """Return a row of the table."""
        poll, cold = zip(self.filtered, self.narrowed, strict=True)
        return [self.include, f"{self.files:,}", *(f"{each:,}" for each in (*poll, *cold))]

    def problems(self) -> Iterator[str]:
        """Yield what is worse than promised."""
        if self.narrowed[0] > self.selected:
            yield f"include {self.include}: {self.narrowed[0]} LISTs a poll"


def measure_selections(server: StandIn, files: int) -> Iterator[SelectionCost]:
    """Yield the cost of each case with so many files."""
    names = [
        f"tenant={tenant:02}/{number:07}.json"
        for tenant in range(_TENANTS)
        for number in range(files // _TENANTS)
    ]
    server.load(_BUCKET, dict.fromkeys(names, NOW))
    storage = open_storage(f"s3://{_BUCKET}", server.options)
    for include, selected in _CASES:
        selection = NameSelection((include,))
        done = all_done(Progress(depth=1), [name for name in names if selection.takes(name)])
        narrowed = listing_within(storage, NameRange(), selection, lambda _path: True)
        yield SelectionCost(
            include,
            selected,
            files,
            _costs(storage, done, selection),
            _costs(narrowed, done, selection),
        )


def _costs(listing: Listing, done: Progress, selection: NameSelection) -> tuple[int, int]:
    """Return the requests of a poll and of a cold start."""
    states = (done, Progress())
    poll, cold = (
        scan(listing, state, lambda entry: selection.takes(entry.path), 8).requests
        for state in states
    )
    return poll, cold
