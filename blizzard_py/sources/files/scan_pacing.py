"""The scans of one source at their times: its schedule, and the LIST requests that it has made.

All of it is in memory. A start scans everything.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from blizzard_core.log import get_logger
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Listing, ListingPage, NameTest, Range
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import Progress
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.discovery import Discovery
from blizzard_py.sources.files.file_names import selection_of
from blizzard_py.sources.files.late_file_sweep import is_under_way
from blizzard_py.sources.files.scan_schedule import (
    BESIDE_SHARE,
    HOUR_SECS,
    NextScan,
    ScanFindings,
    ScanLimits,
    Schedule,
    after_scan,
    next_scan,
)
from blizzard_py.state.source_state import SourceState

# How often the log says that the budget is used up.
_TELL_SECS = 3600.0
# The wait after a slice of a sweep that listed nothing: a sweep rests after a failure.
_REST_SECS = 60.0


def limits_of(source: SourceSettings) -> ScanLimits | None:
    """Return the limits of a source's schedule.

    None: each poll scans everything, or notifications decide.
    """
    budget = source.lists_per_hour
    if source.notifications is not None:
        return None
    if budget is None and source.advanced.full_scan_interval is None:
        return None
    return ScanLimits(
        budget,
        source.poll_interval,
        source.advanced.full_scan_interval,
        source.advanced.max_tracked_partitions,
        selection_of(source).ranges(),
    )


class CountedListing:
    """A listing that counts its requests. Thread-safe. A `Listing`."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._lock = threading.Lock()
        self._requests = 0

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """See `Listing`."""
        return self._counted(self._listing.list_range(after, until))

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        """See `Listing`."""
        pages = self._listing.list_ranges(ranges, may_be_wanted)
        return None if pages is None else self._counted(pages)

    def take(self) -> int:
        """Return the requests since the last call."""
        with self._lock:
            requests, self._requests = self._requests, 0
        return requests

    def _counted(self, pages: Iterator[ListingPage]) -> Iterator[ListingPage]:
        for page in pages:
            with self._lock:
                self._requests += page.requests
            yield page


S = TypeVar("S")


class ScanPacing(ABC, Generic[S]):
    """The scans of one source at their times, as far as this process has kept them."""

    # The most pages of a slice of a sweep; None: as where each poll scans everything.
    pages: int | None = None
    # When the last hint of a file came that scans have passed, by the store's clock.
    passed = 0.0

    def __init__(self, parts: SourceContext) -> None:
        self._monotonic: Callable[[], float] = parts.monotonic
        self._activity = parts.activity
        self._slice_at = 0.0

    @abstractmethod
    def start_over(self) -> None:
        """Scan everything next: after a start, a take-over or an error."""

    @abstractmethod
    def due(self, state: SourceState, start: Progress) -> S | None:
        """Return the scan from ``start`` that is due, with the present time; None if none is."""

    @abstractmethod
    def scanned(self, scan: S, found: Discovery, state: SourceState) -> None:
        """Record the scan that was due. ``state`` is the one that it began with."""

    def may_sweep(self) -> bool:
        """Return whether the next slice of a sweep may be listed."""
        return self._monotonic() >= self._slice_at

    @abstractmethod
    def swept(self) -> None:
        """Record a slice of a sweep."""

    @abstractmethod
    def next_at(self, state: SourceState) -> float:
        """Return when the next scan is due, or the next slice of a sweep if that is earlier."""


class PacedScans(ScanPacing[NextScan]):
    """Scans within a budget of LIST requests, or at configured intervals."""

    def __init__(self, parts: SourceContext, limits: ScanLimits, listing: CountedListing) -> None:
        super().__init__(parts)
        self.pages = limits.pages
        self._limits = limits
        self._listing = listing
        self._schedule = Schedule(at=parts.monotonic())
        self._told_at: float | None = None
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def start_over(self) -> None:
        self._schedule = self._schedule.started_over()

    def due(self, state: SourceState, start: Progress) -> NextScan | None:
        now = self._charge_listed()
        following = self._next(state, start, now)
        return replace(following, at=now) if following.at <= now else None

    def scanned(self, scan: NextScan, found: Discovery, state: SourceState) -> None:  # noqa: ARG002  # what it found tells all
        now = self._charge_listed()
        depth = found.progress.depth or 0
        partitions = {split(e.path, depth)[0] for e in (*found.files, *found.young)}
        is_cut = found.scanned.until is not None
        result = ScanFindings(found.requests, is_cut, partitions, found.progress)
        self._schedule = after_scan(self._schedule, scan, result, now)

    def swept(self) -> None:
        """Charge the requests of a slice. The next one waits until they are paid."""
        requests = self._listing.take()
        now = self._charge(requests)
        if self._limits.budget is not None:
            paid = HOUR_SECS * requests / (self._limits.budget * BESIDE_SHARE)
            self._slice_at = now + (paid if requests else _REST_SECS)

    def next_at(self, state: SourceState) -> float:
        """See `ScanPacing`. Without a budget a slice comes with each scan."""
        now = self._charge_listed()
        following = self._next(state, state.position.progress, now)
        if following.is_late:
            self._warn(following, now)
        if self._activity is not None:
            every = following.intervals
            late_secs = following.at - now if following.is_late else 0.0
            self._activity.paced(self._limits.budget, every.hot, every.complete, late_secs)
        is_between = is_under_way(state) and self._limits.budget is not None
        return min(following.at, self._slice_at) if is_between else following.at

    def _next(self, state: SourceState, start: Progress, now: float) -> NextScan:
        is_sweeping = is_under_way(state)
        return next_scan(self._schedule, self._limits, start, now, is_sweeping=is_sweeping)

    def _charge_listed(self) -> float:
        """Charge the requests that were made; return the present time."""
        return self._charge(self._listing.take())

    def _charge(self, requests: int) -> float:
        now = self._monotonic()
        self._schedule = self._schedule.charged(self._limits, requests, now)
        if self._activity is not None:
            self._activity.listed(requests)
        return now

    def _warn(self, following: NextScan, now: float) -> None:
        """Say, once an hour at most, that scans wait."""
        if self._told_at is not None and now - self._told_at < _TELL_SECS:
            return
        self._told_at = now
        self._log.warning(
            "list_budget_exhausted",
            budget=round(self._limits.budget or 0),
            debt=round(self._schedule.debt),
            next_scan_in_secs=round(following.at - now, 1),
        )
