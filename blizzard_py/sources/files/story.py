"""The story of one file, from state, settings and the store. Writes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from blizzard_core.settings.base import format_seconds
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.text import iso
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import Progress, closed_by, is_new
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.discovery import PartitionSelector
from blizzard_py.sources.story import Compared, Lateness, Passed, Verdict, Waiting
from blizzard_py.state.checkpoint_file import read_ledger, read_names
from blizzard_py.state.ledger import Settled
from blizzard_py.state.source_state import SourceState, Sweep
from blizzard_py.state.transitions import is_below_origin


@dataclass(frozen=True, slots=True)
class FileStatus(ABC):
    """A file in a state, from whose ``progress`` the next poll would start."""

    parts: SourceContext
    state: SourceState
    progress: Progress
    entry: Entry

    @property
    def comparison(self) -> Compared | None:
        progress, partition = self.progress, self.place[0]
        known = None if partition is None else progress.partitions.get(partition)
        return Compared(
            progress.state,
            progress.depth,
            known.watermark if known else None,
            known.before if known else None,
            _floor_of(progress, self.entry.path),
            progress.value,
        )

    @property
    def place(self) -> tuple[str | None, str | None]:
        if self.progress.depth is None:
            return None, None
        return split(self.entry.path, self.progress.depth)

    @abstractmethod
    def is_new(self) -> bool:
        """See `ItemStatus`."""

    def next_poll(self) -> Waiting:
        entry, source, now = self.entry, self.parts.files, self.parts.clock()
        if not PartitionSelector(self.progress, source, now).take(entry.path):
            reason = (
                "in a partition that is not looked at: its name says a time further ahead than"
                f" max_ahead: {format_seconds(source.advanced.max_ahead)},"
                " or it is odd, and too many are;"
                " `blizzard ingest` takes the file all the same"
            )
            return Waiting("apart", reason)
        ripe = entry.modified + source.advanced.min_age
        if source.advanced.min_age and ripe > now:
            wait = format_seconds(source.advanced.min_age)
            reason = f"younger than min_age: {wait}; taken from {iso(ripe)} on"
            return Waiting("min_age", reason, until_ts=ripe)
        return Waiting("poll", "new; the next poll finds it")

    @abstractmethod
    def verdict(self, journal_start: Callable[[], float | None]) -> Passed:
        """See `ItemStatus`."""


class WatermarkFileStatus(FileStatus):
    """Of a source whose names sort in time."""

    def is_new(self) -> bool:
        return is_new(self.progress, self.entry.path)

    def verdict(self, journal_start: Callable[[], float | None]) -> Passed:
        path, state = self.entry.path, self.state
        settled = read_ledger(self.parts.stores.sink, self.parts.id).outcome_of(path)
        below = is_below_origin(state.position.origin, path)
        if settled == "none" or (settled is None and state.late_files.sweep.whole and not below):
            late = lateness(settled, self.parts.files, state.late_files.sweep)
            return Passed("late", late.reason, late)
        return Passed(*explain_unlisted(state, self.progress, path, journal_start()))


class SetFileStatus(FileStatus):
    """Of a source that keeps the set of names done."""

    def is_new(self) -> bool:
        names = read_names(self.parts.stores.sink, self.parts.id)
        return bool(names.unseen([self.entry.path]))

    def verdict(self, journal_start: Callable[[], float | None]) -> Passed:
        return Passed("done", f"in the set of files done; {_journal_reach(journal_start())}")


def _floor_of(progress: Progress, path: str) -> str | None:
    """Return the floor that closes the path or may close it later: its head's or the source's."""
    own = [its for head, its in progress.floors.items() if path.startswith(f"{head}/")]
    return closed_by(progress, path) or max(own, key=order_key, default=progress.floor)


def lateness(settled: Settled | None, source: SourceSettings, sweep: Sweep) -> Lateness:
    """Return what is to become of a file that scans have passed and no batch has settled."""
    interval = source.advanced.late_sweep_interval
    what = "appeared where scans had passed already"
    if settled is not None:
        then = "a sweep has dealt with it, and its batch has left the journal; it stays out"
    elif not interval:
        then = "no sweep looks for it, since late_sweep_interval is 0; it stays out"
    else:
        action = {
            "report": "report it and leave it out",
            "quarantine": "write a dead letter for it",
            "ingest": "ingest it",
        }[source.late_files]
        due = f" (due {iso(sweep.began + interval)})" if sweep.began else ""
        then = f"the next sweep{due} will {action}"
    return Lateness(source.late_files, f"{what}; {then}. `blizzard ingest` takes it now")


def explain_unlisted(
    state: SourceState, progress: Progress, path: str, journal_start: float | None
) -> tuple[Verdict, str]:
    """``done`` or ``closed``, and why, for a file that no poll finds and no journal holds."""
    reach = _journal_reach(journal_start)
    partition, name = split(path, progress.depth or 0)
    known = progress.partitions.get(partition)
    if known is not None:
        where = (
            f"among the names of {partition!r} done within the grace period"
            if name in known.done
            else f"not above {known.before!r}, where scans of {partition!r} start"
        )
        return "done", f"{where}; {reach}"
    origin = progress.floor if progress.state == "Initial" else state.position.origin
    if origin is None:
        why = f"ingested before, or left out by the cold start; {reach}"
    elif origin and order_key(path) <= order_key(f"{origin}/"):
        why = f"left out by the cold start, which begins at {origin!r}; a backfill takes it in"
    else:
        why = f"ingested before; {reach}"
    return (
        "closed",
        f"in a partition below the floor {closed_by(progress, path)!r}, which no poll lists; {why}",
    )


def _journal_reach(journal_start: float | None) -> str:
    if journal_start is None:
        return "there is no journal"
    return f"the journal, which begins at {iso(journal_start)}, does not hold it"
