"""A source of rows above a watermark: a table or an API. A `Source`.

**An item** is a task of a window, named by both (`names`). `plan` fixes the bound, asks for the
window's tasks, and puts both into the state, which is saved with the batch that reads them. Nothing
else is planned until all of them are published. So a process that takes over reads the same window
again, and rows that moved above it meanwhile are in a later one.

**The watermark** moves to the window's end in the save that ends the last of its tasks. A
batch holds a whole window (`SourceContext.limits`), and its job reports every task or fails, so one
complete reading is published.

A poll that finds nothing saves nothing: the next window is longer. It costs two statements.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from blizzard_core.errors import SourceError, StateError
from blizzard_core.storage.protocol import Entry
from blizzard_py.connections.protocol import ReadBound, RescansFiles
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.job import FinishedFile, JobFile
from blizzard_py.reading import DedupSpec, Reading, ReadTask, UnitSlice
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import (
    Backlog,
    CheckpointServices,
    PlainWork,
    PollPlan,
    Requested,
    SourceScan,
)
from blizzard_py.sources.records import requested_files
from blizzard_py.sources.story import Story
from blizzard_py.sources.tables import newer_groups, ranges, replacing, windows
from blizzard_py.sources.tables.newer_groups import Since
from blizzard_py.sources.tables.sliced import OWN_ID, SlicedSource
from blizzard_py.sources.tables.story import task_story
from blizzard_py.sources.tables.window_tasks import (
    ChunkWork,
    item_name,
    parse_name,
    progress_of_text,
)
from blizzard_py.state.batch import Batch, Replaced
from blizzard_py.state.column_state import ColumnState, SeenSegment, StoredWindow
from blizzard_py.state.retries import waiting
from blizzard_py.state.seen_rows import SeenRows, segment_path
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.status_notes import SkippedNote
from blizzard_py.state.transitions import done_of

# For the bound and for the tasks, where the window is not planned yet.
STATEMENTS = 2


class WindowSource(SlicedSource):
    """See the module's docstring and `blizzard_py.sources.protocol.Source`."""

    items = "task"
    is_failing = False

    def __init__(
        self, parts: SourceContext, upkeep: CheckpointServices, query_spec: QuerySpec
    ) -> None:
        super().__init__(parts, upkeep, query_spec)
        self._seen = SeenRows(parts.stores.sink, parts.id, 0)
        self._skipped = SkippedNote(parts.stores.sink, parts.id)
        self._bound: ReadBound | None = None  # the last one

    # -- for all readers -----------------------------------------------------------

    def check(self, state: SourceState) -> None:
        known = state.kind.columns
        self._check_publishing(state)
        if self._query_spec.snapshot and known is not None and known.names:
            raise StateError(
                f"{self._where}: is of a source with a watermark, whose rows a snapshot would come"
                f" beside; give this one {OWN_ID} and delete the old rows"
            )
        if state.kind.units is not None:
            raise StateError(
                f"{self._where}: is of a source that is read by work units; give it back its"
                f" `units:`, or give this one {OWN_ID}"
            )
        if known is None:
            if state.position.progress.value is not None:
                raise StateError(
                    f"{self._where}: is of a source of files; give the table or API {OWN_ID}"
                )
            return
        if self._query_spec.replaces and not self._query_spec.snapshot:
            self._check_replaceable(known)
        if known.watermark and set(known.names) != set(self._query_spec.columns):
            was, now = (", ".join(n) or "versions" for n in (known.names, self._query_spec.columns))
            raise StateError(
                f"{self._where}: its watermark is on {was}, the configuration says {now}, which"
                " would read everything again; set it back, or say from where to read with"
                " `blizzard checkpoint set --column`"
            )

    def _check_publishing(self, state: SourceState) -> None:
        """Check that the source still adds or still replaces rows, as its published ones were."""
        if state.kind.units is not None:
            return
        if state.ids.group_seq and not self._query_spec.replaces:
            raise StateError(
                f"{self._where}: its rows were published to be replaced (`snapshot: true` or"
                " `reread: replace`), and would come again beside them; set that back, or give the"
                f" source {OWN_ID} and delete the old rows"
            )
        if self._query_spec.replaces and not state.ids.group_seq and state.summary.totals.rows:
            raise StateError(
                f"{self._where}: its rows were published to stay and say no slice, so `snapshot:"
                " true` and `reread: replace` could not take their place; set that back, or give"
                f" the source {OWN_ID} and delete the old rows"
            )

    def _check_replaceable(self, known: ColumnState) -> None:
        if replacing.is_of_appended_rows(known):
            raise StateError(
                f"{self._where}: what was published before `reread: replace` says no slice, and"
                f" could not be replaced; give the source {OWN_ID} and delete the old rows, or set"
                " reread back"
            )

    def discover(self, state: SourceState, *, full: bool = False) -> SourceScan:  # noqa: ARG002  # one window is all there is
        began = self._clock()
        known, cost = self._preview(state)
        return self._tasks_of(known, began, cost)

    def outlook(self, state: SourceState, batch: Batch) -> SourceState:
        return state if batch.request else _shown(self._moved(state, batch))

    def backlog(self, state: SourceState) -> Backlog:
        """Return how far behind the table is.

        Asks nobody: what is new is not known before a poll.
        """
        known = state.kind.columns or ColumnState()
        since = windows.age_of(known.watermark)
        remaining = len(known.tasks) - len(known.done)
        return Backlog(remaining, since, complete=since is not None)

    def status_fields(self, state: SourceState) -> dict[str, Any]:
        known = state.kind.columns or ColumnState()
        reading = known.window
        return self._shown(state) | {
            "watermark": dict(known.watermark),
            "bound": known.bound or self._query_spec.bound,
            "boundaries": list(known.boundaries),
            "seq": known.seq,
            "covered": [{"from": dict(low), "up_to": dict(high)} for low, high in known.covered],
            "window": None
            if reading is None
            else {"after": dict(reading.after), "up_to": dict(reading.up_to)},
        }

    def explain(self, name: str) -> Story:
        return task_story(name, self._finds, self.check)

    def preview(self, state: SourceState) -> ColumnState:
        """Return what is known, with the window that the next poll reads. Writes nothing."""
        return self._preview(state)[0]

    # -- for the one that owns the checkpoint --------------------------------------

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        self._seen = SeenRows(self._parts.stores.sink, self._parts.id, epoch)
        if state.kind.columns is not None and state.kind.columns.seen:
            self._seen.sweep(state.kind.columns.seen)
        return state

    def plan(self, state: SourceState) -> PollPlan[PlainWork]:
        began = self._clock()
        known, cost = self._preview(state)
        if self._bound is not None:
            self._skipped.keep(self._bound.skipped, self._bound.skipped_files)
        found = self._tasks_of(known, began, cost)
        waits = waiting(state.work.retries, found.scanned.ended)
        work = PlainWork([entry for entry in found.files if entry.path not in waits])
        return PollPlan(state.with_kind(columns=known) if work else state, found, work)

    def requested_items(self, state: SourceState, now: float) -> Requested:
        first, files = requested_files(state, now)
        return Requested(first, ChunkWork(files))

    def job_items(
        self,
        state: SourceState,  # noqa: ARG002  # the seam gives it
        batch: Batch,
    ) -> tuple[list[JobFile], list[FinishedFile]]:
        files, nothing = [], []
        for entry in batch.files:
            _, task = parse_name(entry.path) or (0, "")
            if self._query_spec.replaces and replacing.is_nothing(task):
                nothing.append(FinishedFile(entry.path, "ingested"))
            else:
                files.append(JobFile(entry.path, entry.size))
        return files, nothing

    @contextmanager
    def reading(self, state: SourceState, batch: Batch) -> Iterator[Reading]:
        known, spec = state.kind.columns or ColumnState(), self._query_spec
        if batch.request and spec.replaces:
            raise SourceError(
                "what it reads replaces rows by now, which those of the request would not be"
            )
        tasks = _items_of_chunk(state) if batch.request else _items_of_window(known)
        if not tasks.keys() >= {entry.path for entry in batch.files}:
            raise StateError(f"{self._where}: has a batch and nothing to read; restore it")
        items = {entry.path: tasks[entry.path] for entry in batch.files}
        dedup, slices = DedupSpec(), {}
        if not batch.request and known.slices:
            slices = {
                name: (UnitSlice(replacing.unit_of_task(known, task.name), task),)
                for name, task in items.items()
            }
        elif not batch.request and known.window is not None:
            seen = [(segment_path(self._parts.id, one), one) for one in known.seen]
            dedup = windows.dedup(
                spec, self._parts.ingest.schema.as_read.fields, known.window, seen
            )
        with spec.connection.hold(spec.access) as access:
            yield Reading(access, items, dedup, slices)

    def replacement(
        self,
        state: SourceState,
        batch: Batch,  # noqa: ARG002  # it holds the whole window
        finished: Sequence[FinishedFile],  # noqa: ARG002  # they are ingested together
    ) -> Replaced | None:
        known = state.kind.columns
        if known is None or not known.slices:
            return None
        return replacing.replaced_ranges(self.id, known)

    def advance(
        self,
        state: SourceState,
        batch: Batch,
        work: PlainWork | None,  # noqa: ARG002  # what waits stands in the state
        now: float,  # noqa: ARG002  # the seam gives it
    ) -> SourceState:
        known = state.kind.columns
        if batch.request:
            return _with_chunk(state, batch)
        if known is None or known.window is None:
            return state
        moved = self._moved(state, batch)
        assert moved.kind.columns is not None  # noqa: S101  # it was there
        found = moved.with_kind(columns=self._noted(known, moved.kind.columns, batch))
        if self._query_spec.snapshot:
            read = dt.datetime.fromtimestamp(known.window.planned_ts, dt.UTC)
            return found.with_position(
                progress=progress_of_text(f"read at {read:%F %T} UTC", "Idle")
            )
        return _shown(found)

    def clean_up(self) -> None:
        self._seen.clean_up()

    # -- inside --------------------------------------------------------------------

    def _preview(self, state: SourceState) -> tuple[ColumnState, int]:
        """Return the state, with a window if there are rows, and the number of statements."""
        known = state.kind.columns or ColumnState()
        return (known, 0) if known.window is not None else self._planned(known)

    def _planned(self, known: ColumnState) -> tuple[ColumnState, int]:
        query_spec = self._query_spec
        if query_spec.snapshot:
            return self._sliced(known, self._all()), STATEMENTS
        if self._bound is None and isinstance(query_spec.connection, RescansFiles):
            query_spec.connection.look_again(self._skipped.files())
        bound = query_spec.connection.bound(query_spec.bound_kind, query_spec.settle_secs)
        for warning in self._unheard(bound.warnings):
            self._log.warning("bound", reason=warning)
        self._bound = bound
        planned = windows.plan_window(
            known, query_spec, self._parts.ingest.schema.as_read.fields, bound, self._clock()
        )
        if planned is None:
            return known, 1
        if query_spec.replaces:
            return self._sliced(known, planned), STATEMENTS
        tasks = query_spec.connection.tasks(windows.window_of(planned), query_spec.split)
        return (
            windows.open_window(known, query_spec, planned, tasks) if tasks else known
        ), STATEMENTS

    def _all(self) -> StoredWindow:
        """Return a window of everything; of a versioned table, its current version."""
        now = self._clock()
        if self._query_spec.access.driver not in {"delta", "iceberg"}:
            return StoredWindow("clock", planned_ts=now)
        found = self._query_spec.connection.bound("version", 0)
        return StoredWindow("version", up_to=windows.to_stored(found.value), planned_ts=now)

    def _sliced(self, known: ColumnState, stored: StoredWindow) -> ColumnState:
        """Return the state with a window whose rows replace others, slice by slice."""
        slices = replacing.slices_of(self.id, known, stored, self._query_spec)
        tasks: list[ReadTask] = []
        for place, (_, window) in enumerate(slices):
            found = self._query_spec.connection.tasks(window, self._query_spec.split)
            tasks += replacing.number_tasks(place, found)
        opened = windows.open_window(
            known, self._query_spec, stored, tasks or [replacing.nothing_to_read()]
        )
        return replace(opened, slices=tuple(text for text, _ in slices))

    def _believed(self, state: SourceState, since: Since) -> SourceState:
        return newer_groups.with_columns(state, since, self.id, self._where)

    def _tasks_of(self, known: ColumnState, began: float, cost: int) -> SourceScan:
        entries: tuple[Entry, ...] = ()
        if known.window is not None:
            since = windows.age_of(known.watermark)
            modified = known.window.planned_ts if since is None else since
            entries = tuple(
                Entry(item_name(known.seq, task.name), task.size, modified)
                for task in known.tasks
                if task.name not in known.done
            )
        return self._found(entries, began, cost=cost, needs_rescan=False)

    def _finds(self, state: SourceState, name: str) -> bool:
        return any(entry.path == name for entry in self.discover(state).files)

    def _moved(self, state: SourceState, batch: Batch) -> SourceState:
        known = state.kind.columns
        if known is None:
            return state
        found = (parse_name(entry.path) for entry in done_of(batch))
        names = [task for seq, task in filter(None, found) if seq == known.seq]
        ended = windows.finish_tasks(known, names)
        if known.slices and ended.window is None:
            ended = replacing.with_boundaries(self.id, known, ended)
        return state.with_kind(columns=ended)

    def _noted(self, before: ColumnState, after: ColumnState, batch: Batch) -> ColumnState:
        """Return the state with digests of the batch's published rows, without expired ones."""
        window = before.window
        assert window is not None  # noqa: S101  # the caller has looked
        over = after.window is None

        def expired(segment: SeenSegment) -> bool:
            return over and windows.is_expired(window, segment)

        staged = [mark.staged for mark in batch.results.marks]
        like = SeenSegment("", 1, window.up_to, window.told_by, window.whole)
        seen = self._seen.adding(before.seen, staged, like, expired)
        noted = windows.digests_start(before, window) if over else before.seen_from
        return replace(after, seen=seen, seen_from=noted)


def _items_of_window(known: ColumnState) -> dict[str, ReadTask]:
    return {item_name(known.seq, task.name): task for task in known.tasks}


def _items_of_chunk(state: SourceState) -> dict[str, ReadTask]:
    chunk = None if state.kind.columns is None else state.kind.columns.chunk
    return {} if chunk is None else chunk.items


def _with_chunk(state: SourceState, batch: Batch) -> SourceState:
    """Return the state with a request's chunk covered, if the batch published its last task."""
    known = state.kind.columns
    done = {entry.path for entry in done_of(batch)}
    remaining = {file.path for file in state.work.queue if file.request == batch.request} - done
    items = _items_of_chunk(state).keys()
    if known is None or known.chunk is None or not items & done or items & remaining:
        return state
    return state.with_kind(columns=ranges.with_chunk_done(known, known.chunk))


def _shown(state: SourceState) -> SourceState:
    """Return the state with the watermark as text in its usual field (`Progress.value`)."""
    known = state.kind.columns
    if known is None or (text := windows.text_of(known.watermark)) is None:
        return state
    # A window is all that there was: a poll that finds nothing more has nothing to save.
    progress = progress_of_text(text, "Idle" if known.window is None else "Active")
    return state.with_position(progress=progress)
