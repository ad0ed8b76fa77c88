"""The late sweep: a full listing at a low rate, for files that no poll would find.

It compares names, not times. A file is late if its name is below the scan start, and neither
progress, ledger nor queue has it. It appeared after the scan that passed its name. (Or it was
passed before there was a ledger; the first sweep after an upgrade records such files and does not
report them.)

It runs in slices, a fixed number of pages with each poll, and handles the findings of a slice
before the next. So polls continue, memory is bounded, and a failed listing costs a warning. The
checkpoint has the position, and a restart continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blizzard_core.checkpoint.digests import Digests, np
from blizzard_core.limits import FIRST_PAGE_KEYS
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, Listing, is_hidden, order_key
from blizzard_core.text import counted
from blizzard_core.watermark.paths import partition_key, split
from blizzard_core.watermark.progress import Progress, is_new
from blizzard_py.job import FinishedFile, Outcome
from blizzard_py.sources.files.file_names import accepts_file, selection_of
from blizzard_py.state.lateness import auto_grace
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.source_state import SourceState, Sweep
from blizzard_py.state.transitions import is_below_origin

# Pages of the full listing that one poll adds: 50,000 names.
SLICE_PAGES = 50
# So many late files are dealt with at once.
LATE_AT_ONCE = 5000
# How often the journal is folded where there is no sweep that does it.
FOLD_SECS = 86_400.0
# After a listing that failed the sweep rests so long, or its interval if that is shorter.
REST_SECS = 3600.0
# A hint of a late file brings the next sweep forward, to this time after the last one.
HINTED_SECS = 6 * 3600.0


def is_due(state: SourceState, source: SourceSettings, now: float, hinted: float = 0.0) -> bool:
    """Return whether to go on with a sweep or begin one.

    The first interval begins with the first poll. If a cold start left history out, the first sweep
    is due at once: later files there must not count as history. ``hinted`` is when the last hint of
    a file came that scans had passed.
    """
    if state.position.progress.state == "Initial":
        return False
    began, interval = state.late_files.sweep.began, interval_of(source)
    if hinted > began and sweeps(source):
        interval = min(interval, HINTED_SECS)
    return is_under_way(state) or now - began >= interval


def is_under_way(state: SourceState) -> bool:
    """Return whether a sweep has slices left to list now; before the first file it waits."""
    return state.late_files.sweep.cursor is not None and state.position.progress.state != "Initial"


def interval_of(source: SourceSettings) -> float:
    """Return the seconds between sweeps; without sweeps the journal is folded once a day."""
    return source.advanced.late_sweep_interval if sweeps(source) else FOLD_SECS


def sweeps(source: SourceSettings) -> bool:
    """Return whether late files are looked for at all: without a watermark none can be late."""
    return source.use_watermark and source.advanced.late_sweep_interval > 0


def lists(source: SourceSettings) -> bool:
    """Return whether the source is listed for the ledger to forget what is gone.

    Without a watermark each poll lists everything anyhow; where someone wants no sweeps
    nothing is listed and the ledger keeps every name.
    """
    return sweeps(source) or not source.use_watermark


def grace_of(source: SourceSettings, state: SourceState, now: float) -> float:
    """Return the grace period in seconds, as configured or from the measured lateness."""
    configured = source.grace_period
    return auto_grace(state.late_files.lateness, now) if configured == "auto" else configured


def start_sweep(state: SourceState, now: float) -> SourceState:
    """Return the state of a source after its first files, with its first sweep due."""
    origin = state.position.origin
    sweep = Sweep(began=now, cursor="" if origin else None, whole=True, noted=not origin)
    return state.with_late_files(sweep=sweep)


@dataclass(frozen=True, slots=True)
class Slice:
    """The listing of one slice of the sweep, and its findings.

    ``late`` are late files to handle. ``unrecorded`` are files done before there was a ledger.
    ``history`` are new files below the origin; they are left to a backfill, whenever they came.
    ``listed`` are all files that belong to the source by name. The next slice starts at ``cursor``,
    None after the last.
    """

    late: tuple[Entry, ...]
    unrecorded: tuple[str, ...]
    history: tuple[str, ...]
    cursor: str | None
    listed: tuple[Entry, ...] = ()


class LateSweep:
    """The sweep of one source, as far as this process has taken part in it."""

    def __init__(self, storage: Listing, source: SourceSettings, ledger: Ledger) -> None:
        self._storage = storage
        self._ledger = ledger
        self._looks_for_late = sweeps(source)
        # What a selection hides from the listing may still be there, and be selected again.
        self._lists_all = selection_of(source).lists_all
        self._accept = accepts_file(source)
        # Digests of listed names take 80 bytes each. So a sweep collects them only if the sweep
        # before has found more names in the ledger than at the source.
        self._listed: list[Digests] | None = None
        self._forgetting = False
        self._files: int | None = None
        self._resting_until = 0.0

    def may_go_on(self, now: float) -> bool:
        """Return whether it does not rest after a failure."""
        return now >= self._resting_until

    def rest(self, now: float, interval: float) -> None:
        """Pause the sweep after a failed listing."""
        self._resting_until = now + min(REST_SECS, interval)

    def next_slice(self, state: SourceState, pages: int | None = None) -> Slice:
        """List on from where the sweep is. Raises `StorageError`; writes nothing."""
        most = SLICE_PAGES if pages is None else min(pages, SLICE_PAGES)
        start = state.late_files.sweep.cursor or ""
        if not start:
            self._listed = [] if self._forgetting else None
            self._files = 0
        entries: list[Entry] = []
        cursor: str | None = None
        for number, page in enumerate(self._storage.list_range(start, None), 1):
            if number > most and entries:
                cursor = entries[-1].path
                break
            entries += page.entries
            # A short page is the last one. Behind a full one, to ask for more would cost a page
            # that the next slice lists again.
            if number == most and page.entries and page.keys >= FIRST_PAGE_KEYS:
                cursor = entries[-1].path
                break
        # A listed file exists: its name may have been processed under another ending.
        if self._files is not None:
            self._files += len(entries)
        if self._listed is not None:
            self._listed.append(self._ledger.digests_listed([entry.path for entry in entries]))
        wanted = [e for e in entries if self._accept(e) and not is_hidden(e.path)]
        if not self._looks_for_late:
            return Slice((), (), (), cursor, tuple(wanted))
        return self._sorted(state, wanted, cursor)

    def over(self, cleaned: Callable[[], int] = int) -> Digests | None:
        """End the sweep; return its digests for the ledger, or None if they are incomplete.

        ``cleaned`` returns how many files were cleaned: the ledger keeps their names.
        """
        listed, files = self._listed, self._files
        self._listed = self._files = None
        # Unknown if another process listed the first slices.
        self._forgetting = (
            files is not None
            and self._lists_all
            and self._ledger.outgrows(files)
            and self._ledger.outgrows(files + cleaned())
        )
        return None if listed is None else np.concatenate(listed)

    @property
    def has_outgrown(self) -> bool:
        """Return whether the sweep that is over found that the ledger outgrows the source."""
        return self._forgetting

    def late_among(self, state: SourceState, entries: Sequence[Entry]) -> list[Entry]:
        """Return the files that no scan would find, that nobody processed and that are no history.

        The ledger must have everything of the journal.
        """
        passed = self._passed(state, [e for e in entries if self._accept(e)])
        return [
            passed[path]
            for path in self._ledger.unprocessed(list(passed))
            if not is_below_origin(state.position.origin, path)
        ]

    def _passed(self, state: SourceState, wanted: Sequence[Entry]) -> dict[str, Entry]:
        """Return the files that no scan would find and that are not queued, by path."""
        queued = {entry.path for entry in state.work.queue}
        return {
            entry.path: entry
            for entry in wanted
            if entry.path not in queued and is_passed(state, entry.path)
        }

    def _sorted(self, state: SourceState, wanted: Sequence[Entry], cursor: str | None) -> Slice:
        passed = self._passed(state, wanted)
        unsettled = self._ledger.unprocessed(list(passed))
        below = [path for path in unsettled if is_below_origin(state.position.origin, path)]
        late = [path for path in unsettled if not is_below_origin(state.position.origin, path)]
        known: tuple[str, ...] = ()
        history = tuple(self._ledger.not_history(below))
        if not state.late_files.sweep.whole:
            known, late = tuple(late), []
        if len(late) > LATE_AT_ONCE:
            # The checkpoint lists them until they are dealt with: the rest is the next slice's.
            late = sorted(late, key=order_key)[:LATE_AT_ONCE]
            cursor = late[-1]
        if cursor is not None:
            wanted = [entry for entry in wanted if order_key(entry.path) <= order_key(cursor)]
        found = tuple(passed[path] for path in late)
        return Slice(found, known, history, cursor, tuple(wanted))


def is_passed(state: SourceState, path: str) -> bool:
    """Return whether no scan would find the file, and nothing that is known waits for it."""
    progress = state.position.progress
    if is_new(progress, path) or path in state.work.retries:
        return False
    partition, name = split(path, progress.depth or 0)
    known = progress.partitions.get(partition)
    # A scan start that is in grace is an original's: no batch of ours has done it.
    return known is None or name not in known.done or name == known.before


def partitions_behind(progress: Progress, path: str) -> int:
    """Return how many tracked partitions sort above a late file's."""
    low = partition_key(split(path, progress.depth or 0)[0])
    return sum(partition_key(partition) > low for partition in progress.partitions)


def verdicts(
    late: Sequence[Entry], source: SourceSettings, grace: float
) -> tuple[FinishedFile, ...]:
    """Return the outcomes of late files by ``late_files``, in a batch that ingests nothing."""
    outcome: Outcome = "quarantined" if source.late_files == "quarantine" else "reported"
    error = (
        "appeared where scans had passed already, later than the grace period of"
        f" {grace:g} s or below a closed partition; `blizzard replay` or `blizzard ingest`"
        " takes it in"
    )
    return tuple(FinishedFile(entry.path, outcome, error=error, stage="late") for entry in late)


def changed_notes(state: SourceState) -> list[str]:
    """Return a note if files were changed after they were ingested."""
    sweep = state.late_files.sweep
    if not sweep.changed:
        return []
    changes = (
        f"{counted(sweep.changed, 'change')} of files after they were ingested, the last that was"
        f" found of {sweep.last_changed}: nothing more of them was read. `blizzard backfill"
        " --replace` reads such a file in the place of its rows"
    )
    return [changes]
