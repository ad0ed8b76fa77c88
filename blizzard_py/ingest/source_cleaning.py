"""The cleaning of a source's files by the owner of its checkpoint, while the source is idle.

A run looks into the table's log first: only that finds rows that have left the table, whose files
stay. The state is saved before any file is touched, which also proves that this process owns the
checkpoint, and after the run. A run that takes long looks again.

A failure of the cleaning is logged and does not hold up the source.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from uuid_utils import uuid7

from blizzard_core.daemon import StopEvent
from blizzard_core.errors import Cancelled, StateError, StorageError, Unavailable
from blizzard_core.log import get_logger
from blizzard_core.settings.store_use import CleanSettings
from blizzard_core.storage.protocol import is_bare
from blizzard_py.cleaning.cleaner import (
    FILES_A_LIST,
    FILES_A_READING,
    Cleaner,
    CleaningPlaces,
    leave_files,
)
from blizzard_py.cleaning.commit_check import check_commits, check_log, end_of_log
from blizzard_py.cleaning.eligible import (
    COMMIT_CHECK_SECS,
    after_absence,
    after_log,
    cleaning_notes,
    due_through,
    is_commit_check_due,
)
from blizzard_py.cleaning.lists import CLEANING_OUTCOMES, CleaningLists, Outcome
from blizzard_py.requests.progress import is_over
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import CheckpointServices
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import NO_BATCH, CleaningState, SourceState, under_way

# An archived file takes some eight requests. At 20 ms each, 10,000 files an hour take up less than
# half of the source's idle time, and nobody is in a hurry.
FILES_AN_HOUR = 10_000
PAUSE_SECS = 3600 * FILES_A_LIST / FILES_AN_HOUR
# A run looks whether it still owns the checkpoint after so many files or seconds, and whether rows
# have left the table after so many seconds. So a process that was paused removes one file at most.
_FILES_A_CHECK = 20
_SECS_A_CHECK = 10.0
_SECS_A_LOOK = 60.0
# Batches whose outputs are searched for in the log together. It bounds memory.
_BATCHES_A_LOOK = 200


class SourceCleaning:
    """The cleaning of one source."""

    def __init__(
        self, parts: SourceContext, services: CheckpointServices, check: Callable[[], None]
    ) -> None:
        """Create it; ``check`` raises `FencedError` if another process owns the checkpoint."""
        self._parts = parts
        self._services = services
        self._clock = services.clock
        self._save = services.save
        self._check = check
        files = parts.source.as_files
        self._settings = None if files is None else files.clean
        self._journal = Journal(parts.stores.sink, parts.id, parts.concurrency)
        self._cleaner: Cleaner | None = None
        self._next_at = 0.0
        # When the log is looked at again, whatever is due.
        self._look_at = 0.0
        self._has_looked = False
        self._reported = ""
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def start_over(self) -> None:
        """Forget what was read, after a take-over or an error."""
        self._cleaner = None

    def run(self, state: SourceState, stop: StopEvent) -> SourceState:
        """Clean some files if that is due; return the saved state.

        Raises what saving raises. If ``stop`` is set meanwhile, as for a replica that has to
        release the source, the run is cut off, and the next owner goes on.
        """
        if self._parts.monotonic() < self._next_at:
            return state
        if self._settings is None:
            return self._end(state)
        has_request = any(not is_over(each.state) for each in state.work.requests.values())
        return (
            state if state.work.in_flight or has_request else self._run(state, self._settings, stop)
        )

    def _run(self, state: SourceState, settings: CleanSettings, stop: StopEvent) -> SourceState:
        try:
            looked = self._look(state, settings)
        except (StorageError, StateError) as error:
            return self._failed(state, error)
        if looked != state.cleaning:
            state = self._save(replace(state, cleaning=looked))
        self._has_looked = True
        try:
            cleaned, counts = self._clean(state, looked, settings, stop)
        except Cancelled:
            return state
        except (StorageError, StateError) as error:
            return self._failed(state, error)
        self._next_at = self._parts.monotonic() + PAUSE_SECS
        if cleaned != looked:
            state = self._save(replace(state, cleaning=cleaned))
        self._report(counts)
        notes = cleaning_notes(
            state.cleaning, state.ids.last_batch, self._clock(), is_dry_run=settings.dry_run
        )
        self._services.activity().shows_cleaning(notes)
        return state

    def _end(self, state: SourceState) -> SourceState:
        """Return the saved state without a cleaning; a later one begins with later batches."""
        if state.cleaning is None:
            return state
        try:
            self._leave_files(CleaningLists(self._parts.stores.sink, self._parts.id))
        except (StorageError, StateError) as error:
            return self._failed(state, error)
        return self._save(replace(state, cleaning=None))

    def _leave_files(self, lists: CleaningLists) -> None:
        self._check()
        leave_files(lists, self._parts.stores.source)

    def _look(self, state: SourceState, settings: CleanSettings) -> CleaningState:
        """Return the progress of the cleaning after a look at the table, if one is due."""
        known, last, now = state.cleaning, state.ids.last_batch, self._clock()
        if known is None:
            # Earlier batches do not count: an operator may have had their files come again.
            newest = max(self._journal.batches(), default="")
            begun = CleaningState(done=max(newest, "" if last == NO_BATCH else last))
            return after_log(begun, end_of_log(self._parts.stores.sink), "", now)
        if not self._has_looked:
            known = after_absence(known, now)
        is_due = last != NO_BATCH and is_commit_check_due(known, last, now)
        # Of a log that is cleaned up, a source with few files would otherwise see a gap. And only
        # the time between two looks is known to have passed.
        is_long_ago = bool(known.commit_checks) and self._parts.monotonic() >= self._look_at
        has_more = due_through(known, now, settings.after) > known.done
        if not (is_due or is_long_ago or has_more):
            return known
        self._look_at = self._parts.monotonic() + COMMIT_CHECK_SECS
        while True:
            ids = self._unseen(known) if is_due else []
            batches = list(self._journal.read_committed(ids))
            sink, concurrency = self._parts.stores.sink, self._parts.concurrency
            looked = check_commits(sink, known, batches, last, now, concurrency)
            if not ids or looked.seen_through <= known.seen_through:
                return looked
            known = looked

    def _unseen(self, known: CleaningState) -> list[str]:
        """Return the next batches that were not seen in the table."""
        there = self._journal.batches_from(known.seen_through)
        return [batch for batch in there if batch > known.seen_through][:_BATCHES_A_LOOK]

    def _clean(
        self, state: SourceState, known: CleaningState, settings: CleanSettings, stop: StopEvent
    ) -> tuple[CleaningState, Counter[Outcome]]:
        """Return the progress after a run, and the number of files by outcome."""
        now, stores = self._clock(), self._parts.stores
        through = due_through(known, now, settings.after)
        lists = CleaningLists(stores.sink, self._parts.id)
        is_first = self._cleaner is None
        if self._cleaner is None:
            places = CleaningPlaces(stores.source, stores.archive, settings.put_tag)
            self._cleaner = Cleaner(lists, self._journal, places, settings.after)
            # Series that exist from the start let a rule see the first event.
            self._services.activity().cleaned(Counter(dict.fromkeys(CLEANING_OUTCOMES, 0)))
        elif through <= known.done:
            return known, Counter()
        if is_bare(stores.source):
            self._cleaner = None  # the next run is the first one again
            return known, Counter()  # maybe a disk that is not mounted
        barred = frozenset(under_way(state.work))
        if settings.dry_run:
            if is_first:  # an earlier setting may have begun a list, and put tags
                self._leave_files(lists)
            if self._reported != through:
                chosen = self._cleaner.choose(known, now, barred, FILES_A_READING)
                self._log.info("cleaning_dry_run", files=len(chosen.files), through=through)
            self._reported = through
            return known, Counter()

        check = self._new_check(known, stop)
        return self._cleaner.run(known, now, barred, str(uuid7()), check)

    def _new_check(self, known: CleaningState, stop: StopEvent) -> Callable[[], None]:
        """Return what a run calls before each removal. It raises if nothing more may be removed."""
        files, checked_at = 0, -math.inf
        looked_at = self._parts.monotonic()

        def check() -> None:
            nonlocal files, checked_at, looked_at
            if stop.is_set():
                raise Cancelled(f"{self._parts.name}: the cleaning goes on after the next start")
            now = self._parts.monotonic()
            if not files % _FILES_A_CHECK or now - checked_at >= _SECS_A_CHECK:
                self._check()
                files, checked_at = 0, now
            files += 1
            if now - looked_at >= _SECS_A_LOOK:
                sink = self._parts.stores.sink
                if check_log(sink, known, self._parts.concurrency).lost != frozenset():
                    raise Unavailable(
                        f"{sink.uri}: rows were removed while files were cleaned; the next run sees"
                        " which files stay"
                    )
                looked_at = now

        return check

    def _failed(self, state: SourceState, error: Exception) -> SourceState:
        self._cleaner = None
        self._next_at = self._parts.monotonic() + PAUSE_SECS
        self._services.activity().shows_cleaning((), str(error))
        self._log.warning(
            "cleaning_failed",
            error=str(error),
            remedy="the source goes on, and no further file is cleaned until this works",
        )
        return state

    def _report(self, counts: Counter[Outcome]) -> None:
        if not counts:
            return
        self._services.activity().cleaned(counts)
        if counts["changed"] or counts["archive_differs"]:
            self._log.warning("files_cleaned", **dict(counts))
        else:
            self._log.info("files_cleaned", **dict(counts))
