"""The scans of one source with notifications: its hints, and its files that are still to be done.

All of it is in memory. A start scans everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from blizzard_core.redact import redacted
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.environment import GCS_SCHEMES, S3_SCHEMES
from blizzard_core.storage.opening import scheme_of
from blizzard_core.storage.protocol import Entry, is_hidden
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import Progress, is_new, is_passed
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.discovery import Discovery
from blizzard_py.sources.files.file_names import accepts
from blizzard_py.sources.files.hint_schedule import (
    HintedScan,
    HintLimits,
    HintSchedule,
    Wishes,
    complete_interval,
    next_scan,
)
from blizzard_py.sources.files.late_file_sweep import is_under_way
from blizzard_py.sources.files.list_budget import span_text
from blizzard_py.sources.files.listing import outside
from blizzard_py.sources.files.scan_pacing import ScanPacing
from blizzard_py.state.source_state import SourceState

if TYPE_CHECKING:
    from blizzard_core.notifications.inbox import Hint, HintInbox, HintKind

# A file that is older when a complete scan finds it should have had a hint.
_UNHINTED_SECS = 120.0
# The least time between two wake-ups by hints that need no scan.
_USELESS_SECS = 1.0


def hint_limits(source: SourceSettings) -> HintLimits | None:
    """Return the limits of a source's schedule; None without notifications."""
    found, complete = source.notifications, source.complete_interval
    if found is None or complete is None:
        return None
    tracked = source.advanced.max_tracked_partitions
    return HintLimits(found.advanced.pause, complete, source.poll_interval, tracked)


def notification_notes(source: SourceSettings) -> Iterator[str]:
    """Yield what notifications decide, and what they make likelier."""
    limits = hint_limits(source)
    if source.notifications is None or limits is None:
        return
    queue = redacted(source.notifications.uri)
    yield (
        f"scans where messages of {queue} name new files, every {span_text(limits.pause)} at most,"
        f" and everything every {span_text(limits.complete)}"
    )
    writes_in_place = scheme_of(source.uri) not in S3_SCHEMES | GCS_SCHEMES
    if writes_in_place and not source.advanced.min_age:
        yield (
            "with notifications a file may be scanned while it is written: set advanced.min_age,"
            " unless writers rename files when they are complete"
        )


class HintedNames(Protocol):
    """The progress of a source, by names."""

    @property
    def progress(self) -> Progress:
        """Return the progress."""

    def part_of(self, path: str) -> str | None:
        """Return the part whose scan finds a path; None if only a complete one does."""

    def is_tracked(self, part: str) -> bool:
        """Return whether forged hints cannot name many such parts."""

    def kind_without_scan(self, path: str) -> HintKind | None:
        """Return why a path needs no scan; None if it does."""

    def still_open(self, paths: Mapping[str, float]) -> dict[str, float]:
        """Return the paths that are still to be done, with their values."""


@dataclass(frozen=True, slots=True)
class NamesByWatermark:
    """Names in partitions. A `HintedNames`."""

    progress: Progress

    def part_of(self, path: str) -> str | None:
        """Return the path's partition, if it is of the full, known depth: others have no range."""
        partition = split(path, self.progress.depth or 0)[0]
        is_full = bool(partition) and partition.count("/") + 1 == self.progress.depth
        return partition if is_full else None

    def is_tracked(self, part: str) -> bool:
        return part in self.progress.partitions

    def kind_without_scan(self, path: str) -> HintKind | None:
        if self.progress.depth is None or is_new(self.progress, path):
            return None
        return "passed" if is_passed(self.progress, path) else "doubled"

    def still_open(self, paths: Mapping[str, float]) -> dict[str, float]:
        return {path: at for path, at in paths.items() if is_new(self.progress, path)}


class HintedScans(ScanPacing[HintedScan]):
    """Scans of the parts that notifications name, and complete ones."""

    def __init__(
        self,
        parts: SourceContext,
        inbox: HintInbox,
        limits: HintLimits,
        names_of: Callable[[SourceState], HintedNames],
        clock: Callable[[], float],
    ) -> None:
        """``clock`` is the store's, by which files wait for another try."""
        super().__init__(parts)
        self._parts = parts
        self._inbox = inbox
        self._limits = limits
        self._names_of = names_of
        self._clock = clock
        self._accepts = accepts(parts.files)
        self._schedule = HintSchedule(hinted=parts.monotonic())
        # A complete scan has ended.
        self._is_covered = False
        # Hints to be followed, by part; under None those that need a complete scan.
        self._hints: dict[str | None, list[Hint]] = {}
        # Hints whose part was scanned, and has files that are to be done.
        self._followed: dict[str | None, list[Hint]] = {}
        # Files that scans have found, with the time at which each can be done.
        self._found: dict[str, float] = {}
        self._wants_all = False

    def start_over(self) -> None:
        self._schedule = self._schedule.started_over()
        self._is_covered = False
        self._found = {}

    def due(self, state: SourceState, start: Progress) -> HintedScan | None:  # noqa: ARG002  # its names have it
        hints = self._inbox.take()
        self._sort(hints, self._names_of(state))
        self._wants_all = self._inbox.take_wanted() or self._wants_all
        now = self._monotonic()
        following = self._next(state, now)
        if following.at <= now:
            return replace(following, at=now)
        if hints:
            # They need no scan. Each cycle reads whether there are requests, so more of them are
            # not to wake the source at once.
            allowed_at = self._schedule.latest + self._limits.pause
            self._inbox.hold_until(max(allowed_at, now + _USELESS_SECS))
        return None

    def scanned(self, scan: HintedScan, found: Discovery, state: SourceState) -> None:
        names = self._names_of(state.with_position(progress=found.progress))
        entries = (*found.files, *found.young)
        is_cut = found.scanned.until is not None
        if scan.parts is None:
            self._count_unhinted(entries, found, names)
        kept = {
            path: at
            for path, at in self._found.items()
            if is_cut or not _lists(scan, names.part_of(path))
        }
        self._found = kept | self._times(found)
        parts = {names.part_of(entry.path) for entry in entries}
        self._follow(scan, parts, names, is_cut=is_cut)
        schedule = replace(self._schedule, latest=scan.at, is_cut=is_cut)
        if scan.parts is None:
            tracked = len(found.progress.partitions)
            schedule = replace(schedule, complete=None if is_cut else scan.at, tracked=tracked)
            if not is_cut:
                self._is_covered, self._wants_all = True, False
        self._schedule = schedule
        self._inbox.hold_until(scan.at + self._limits.pause)

    def swept(self) -> None:
        """Let the next slice wait for the pause."""
        self._slice_at = self._monotonic() + self._limits.pause

    def next_at(self, state: SourceState) -> float:
        """See `ScanPacing`. At the latest it is a poll's time: sweeps and requests begin then."""
        now = self._monotonic()
        at = min(self._next(state, now).at, now + self._limits.poll)
        if self._activity is not None:
            problem = self._inbox.problem
            interval = complete_interval(self._schedule, self._limits, is_up=problem is None)
            self._activity.paced(None, self._limits.pause, interval)
            self._activity.notifications.sleeps(is_asleep=self._schedule.is_asleep)
        return min(at, self._slice_at) if is_under_way(state) else at

    def _next(self, state: SourceState, now: float) -> HintedScan:
        names = self._names_of(state)
        self._found = names.still_open(self._found)
        ahead = now - self._clock()
        waits: dict[str, float] = {}
        odd_at = float("inf")
        for path, at in self._found.items():
            retry = state.work.retries.get(path)
            due = at if retry is None else max(at, retry.after + ahead)
            part = names.part_of(path)
            if part is None:
                odd_at = min(odd_at, due)
            else:
                waits[part] = min(due, waits.get(part, due))
        hinted = frozenset(part for part in self._hints if part is not None)
        wishes = Wishes(
            hinted,
            frozenset(part for part in hinted if not names.is_tracked(part)),
            waits,
            odd_at,
            self._wants_all or None in self._hints,
            self._inbox.problem is None,
        )
        return next_scan(self._schedule, self._limits, names.progress, wishes, now)

    def _times(self, found: Discovery) -> dict[str, float]:
        """Return what a scan found, with the time at which each file can be done."""
        now, min_age = self._monotonic(), self._parts.files.advanced.min_age
        ended = found.scanned.ended
        # The age of a file that is dated ahead of now counts from the first scan that saw it.
        young = {
            e.path: now + min(min_age, max(0.0, e.modified + min_age - ended)) for e in found.young
        }
        return dict.fromkeys((e.path for e in found.files), now) | young

    def _sort(self, hints: Sequence[Hint], names: HintedNames) -> None:
        """Keep the hints that need a scan, and acknowledge the others."""
        acknowledged: list[Hint] = []
        known = {hint.path for hint in self._all_hints()}
        for hint in hints:
            kind = self._kind_without_scan(hint, names)
            if kind is not None:
                acknowledged.append(hint)
                if kind == "passed":
                    self.passed = self._clock()
            else:
                kind = "doubled" if hint.path in known or hint.path in self._found else "fresh"
                self._hints.setdefault(names.part_of(hint.path), []).append(hint)
                known.add(hint.path)
            if kind in {"fresh", "doubled"}:
                self._schedule = self._schedule.with_hint(hint.came)
            self._inbox.count(kind, 1)
        self._inbox.acknowledge(acknowledged)

    def _kind_without_scan(self, hint: Hint, names: HintedNames) -> HintKind | None:
        if is_hidden(hint.path) or not self._accepts(hint.path):
            return "ignored"
        if outside(self._parts.identity.range, hint.path):
            return "ignored"
        return names.kind_without_scan(hint.path)

    def _follow(
        self,
        scan: HintedScan,
        found: Collection[str | None],
        names: HintedNames,
        *,
        is_cut: bool,
    ) -> None:
        """Acknowledge the hints of scanned parts in which there was nothing to do.

        The others wait for a save, or for a later scan that finds nothing. By ``names`` a hint may
        be in another part than when it came, because the scan has found the depth.
        """
        hints: list[Hint] = []
        for kept in (self._followed, self._hints):
            for part in [each for each in kept if _lists(scan, each)]:
                hints += kept.pop(part)
        for hint in hints:
            part = names.part_of(hint.path)
            if is_cut:  # what lies behind the limit was not listed
                self._hints.setdefault(part, []).append(hint)
            elif part not in found:
                self._inbox.acknowledge([hint])
            elif self._inbox.is_open(hint):
                self._followed.setdefault(part, []).append(hint)

    def _count_unhinted(
        self, entries: Sequence[Entry], found: Discovery, names: HintedNames
    ) -> None:
        """Count the files that a complete scan found though no hint had told of them."""
        self._sort(self._inbox.take(), names)
        if not self._is_covered or self._inbox.problem is not None:
            return
        told = {hint.path for hint in self._all_hints()}
        newest = found.scanned.ended - _UNHINTED_SECS
        unhinted = sum(
            entry.modified < newest and entry.path not in told and entry.path not in self._found
            for entry in entries
        )
        if unhinted and self._activity is not None:
            self._activity.notifications.unhinted(unhinted)
        if unhinted and self._monotonic() >= self._schedule.silent_at:
            self._schedule = replace(self._schedule, is_asleep=True)

    def _all_hints(self) -> Iterable[Hint]:
        for kept in (self._hints, self._followed):
            for hints in kept.values():
                yield from hints


def _lists(scan: HintedScan, part: str | None) -> bool:
    return scan.parts is None or part in scan.parts


def hinted_scans(
    parts: SourceContext, names_of: Callable[[SourceState], HintedNames], clock: Callable[[], float]
) -> HintedScans | None:
    """Return the scans of a source with notifications; None without."""
    limits = hint_limits(parts.files)
    if limits is None or parts.hints is None:
        return None
    return HintedScans(parts, parts.hints, limits, names_of, clock)
