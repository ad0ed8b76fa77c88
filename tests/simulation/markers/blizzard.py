"""Blizzard with a small source: the product's protocol, state and completions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.errors import NotFound
from blizzard_core.log import get_logger
from blizzard_core.settings.document import ErrorSettings
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, Range, listed
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.progress import CLOCK_STEP_SECS, Lowest, ScanTimes, is_new
from blizzard_py.ingest.batch_loop import BatchLoop
from blizzard_py.ingest.batch_runner import BatchRunner, Ingesting
from blizzard_py.ingest.completion_mirror import CompletionMirror
from blizzard_py.ingest.jobs import Jobs
from blizzard_py.ingest.publish import OutputIdGenerator
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.ingest.start import Start
from blizzard_py.job import (
    FieldSpec,
    FinishedFile,
    IngestSettings,
    OutputLayout,
    Place,
    RowSchema,
    StagedOutput,
)
from blizzard_py.sources.context import SourceContext, Stores
from blizzard_py.sources.files.advance import FileWork, FloorRules, end_scan, finish_batch
from blizzard_py.sources.files.discovery import Discovery
from blizzard_py.sources.files.late_file_outcomes import LateFiles
from blizzard_py.sources.files.replacements import Replacements
from blizzard_py.sources.files.source import FileSource
from blizzard_py.sources.ignored_names import NONE_SKIPPED
from blizzard_py.sources.protocol import CheckpointServices, PollPlan, Requested
from blizzard_py.sources.stale import World, require_current
from blizzard_py.state.batch import Batch, BatchResults
from blizzard_py.state.fence_record import FenceFile
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import SourceState, checkpoint_path, queue_file, under_way
from blizzard_py.state.transitions import as_journaled, name_outputs, prepare_batch
from tests.simulation.quiet import Quiet
from tests.support.flat_settings import settings_of

if TYPE_CHECKING:
    from tests.simulation.markers.world import MarkerWorld
    from tests.simulation.store import Client

PIPELINE, SOURCE = "events", "main"
SOURCE_ID = f"{PIPELINE}_{SOURCE}"
RAW, LAKE = "s3://raw", "s3://lake"
# Names are settled by the next scan: grace periods are the other simulator's.
GRACE = -CLOCK_STEP_SECS
_INGEST = IngestSettings(
    source=Place(RAW),
    sink=Place(LAKE),
    schema=RowSchema((FieldSpec("row", "string", nullable=True),)),
    layout=OutputLayout("snappy", file_bytes=1 << 20, partition_template=""),
)
_ERRORS = ErrorSettings()
_SETTINGS = {
    late: settings_of(
        SourceSettings,
        source_uri=RAW,
        compression="none",
        complete_after="1ms",
        late_files=late,
    )
    for late in ("ingest", "report")
}


class _Meter:
    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_arguments, **_more: None


def context(
    lake: Client, raw: Client, clock: Callable[[], float], late_files: str
) -> SourceContext:
    """Return the product's parts of the source."""
    return SourceContext(
        PIPELINE,
        SOURCE,
        _SETTINGS[late_files],
        _ERRORS,
        _INGEST,
        Stores(raw, lake, lake),
        None,  # type: ignore[arg-type]  # there are no jobs
        1,
        clock,
        clock,
        meter=_Meter(),  # type: ignore[arg-type]  # counts nothing
        activity=Quiet("blizzard", lambda _text: None),  # type: ignore[arg-type]  # shows nothing
    )


class LateFilesByJournal(LateFiles):
    """Late files by the journal alone: there are no ledger and no slices."""

    def __init__(self, parts: SourceContext, upkeep: CheckpointServices) -> None:
        self._parts = parts
        self._source = parts.files
        self._upkeep = upkeep
        self._listing = parts.stores.source
        self._ledger = _Meter()  # type: ignore[assignment]  # keeps nothing
        self._sweep = SimpleNamespace(late_among=self._late_among)  # type: ignore[assignment]
        self._log = get_logger()

    def load(self, epoch: int) -> None:
        """Forget nothing."""

    def go_on(self, state: SourceState, _pages: int | None = None) -> SourceState:
        late = self._late_among(state, list(listed(self._listing, "", None)))
        return self._dealt_with(state, late) if late else state

    def _read_ledger(self, state: SourceState) -> None:
        """Read nothing."""

    def _folded(self, state: SourceState) -> SourceState:
        return state

    def _late_among(self, state: SourceState, entries: list[Entry]) -> list[Entry]:
        journal = Journal(self._parts.stores.sink, self._parts.id, 1)
        done: set[str] = set()
        for record in journal.read(journal.batches()):
            done.update(record.done_paths)
        done.update(under_way(state.work))
        progress = state.position.progress
        return [e for e in entries if e.path not in done and not is_new(progress, e.path)]

    def _dealt_with(self, state: SourceState, late: Any) -> SourceState:
        if late and self._source.late_files != "ingest":
            return self._commit(state, late, GRACE, self._upkeep.clock())
        queue = (*state.work.queue, *map(queue_file, late))
        return self._upkeep.save(state.with_work(queue=queue))


class _Source(FileSource):
    """Files below a root: the product's, but for how it lists them."""

    def __init__(
        self, world: MarkerWorld, parts: SourceContext, upkeep: CheckpointServices
    ) -> None:
        self._world = world
        self._parts = parts
        self._source = parts.files
        self._storage = self._listing = parts.stores.source
        self._scans = None
        self._upkeep = upkeep
        self._clock = upkeep.clock
        self._late = LateFilesByJournal(parts, upkeep)
        self._replacements = Replacements(parts)
        self._log = get_logger()

    def check(self, state: SourceState) -> None:
        """Accept every state."""

    def reconcile(self, state: SourceState, world: World) -> SourceState:
        return require_current(state, self._parts, world)

    def plan(self, state: SourceState) -> PollPlan[FileWork]:
        world, began = self._world, self._clock()
        progress = replace(state.position.progress, depth=1)
        part = None if world.chance.random() > 0.3 else world.chance.choice(world.partitions)
        after, until = ("", None) if part is None else (f"{part}/", f"{part}0")
        files = tuple(e for e in listed(self._listing, after, until) if is_new(progress, e.path))
        cover = None if part is None else Ranges((Range(after, until),))
        scanned = ScanTimes(began, self._clock(), cover=cover)
        found = Discovery(files, (), 1, len(files), scanned, NONE_SKIPPED, progress)
        rules = FloorRules(GRACE, world.plan.tracked, None)
        state = end_scan(state, progress, [e.path for e in files], scanned, rules)
        if state.position.origin is None:
            state = state.with_position(origin="")
        if world.chance.random() < 0.2:
            state = self._late.go_on(state)
        state = self._completed(state, found)
        queued = {entry.path for entry in state.work.queue}
        late = [entry.entry for entry in state.work.queue]
        fresh = [entry for entry in files if entry.path not in queued]
        return PollPlan(state, found, FileWork([*late, *fresh], len(late), (), 1))

    def requested_items(self, _state: SourceState, _now: float) -> Requested:
        return Requested()

    def _moved(self, state: SourceState, batch: Batch, lowest: Lowest, now: float) -> SourceState:
        return finish_batch(state, batch, lowest, now)

    def clean_up(self) -> None:
        """Write nothing aside."""

    discover = backlog = name_lookup = _hinted_names = _learned = _status_of = None  # type: ignore[assignment]


class _Records:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def write(self, _state: SourceState, batch: Batch) -> None:
        self._journal.write(batch)

    def journal_batches(self, flying: tuple[Batch, ...]) -> list[Batch]:
        return list(self._journal.read_committed(batch.batch for batch in flying))

    def tidy(self, batch: Batch) -> None:
        """Leave nothing behind."""


class _Batches(BatchRunner):
    """Batches whose job is one object in staging."""

    def __init__(
        self, parts: SourceContext, source: _Source, upkeep: CheckpointServices, jobs: Any
    ) -> None:
        self._parts = parts
        self._jobs = jobs
        self._activity = parts.activity  # type: ignore[assignment]  # shows nothing
        self._source = source
        self._save = upkeep.save
        self._fence = upkeep.fence
        self._now = upkeep.clock
        self.reset_ts = 0.0
        self._epoch = upkeep.epoch
        self._sink = parts.stores.sink
        self._records = _Records(Journal(self._sink, parts.id, 1))  # type: ignore[assignment]
        self._names = OutputIdGenerator()
        self._tolerance = _Meter()  # type: ignore[assignment]  # counts nothing
        self.bytes_per_sec = None
        self._log = get_logger()

    def resolve_settings(self, files: Any) -> Any:
        """Infer nothing."""

    def as_journaled(self, state: SourceState) -> SourceState:
        if not state.work.in_flight:
            return state
        return as_journaled(state, self._records.journal_batches(state.work.in_flight))

    def clear_older(self) -> None:
        """Leave staging alone: nothing looks at it."""

    def start(self, _state: SourceState, batch: Batch) -> Ingesting:
        return Ingesting(batch, self._parts.clock(), Future())

    def abandon(self, ingesting: Ingesting) -> None:
        """No job runs."""

    def prepare(self, state: SourceState, ingesting: Ingesting) -> tuple[SourceState, Batch, float]:
        batch = ingesting.batch
        rows, finished = [], []
        for entry in batch.files:
            try:
                rows.append([entry.path, self._parts.stores.source.read(entry.path).decode()])
                finished.append(FinishedFile(entry.path, "ingested", 1))
            except NotFound:
                finished.append(FinishedFile(entry.path, "quarantined"))
        output_id = f"{self._parts.name}/{batch.batch}/{batch.attempt}/0"
        staged = f"_blizzard/staging/{self._parts.id}/{self._epoch():08d}/{output_id}.parquet"
        outputs = []
        if rows:
            self._sink.put_atomic(staged, json.dumps({"id": output_id, "rows": rows}).encode())
            outputs.append(StagedOutput(staged, "", len(rows), 1, output_id))
        state, names = self._fresh(state, len(outputs))
        named = name_outputs(outputs, names)
        results = BatchResults(named, tuple(finished), committed_ts=self._now())
        ready = prepare_batch(state, batch, results)
        return (*ready, 0.0)


class _Start(Start):
    def first_document(self) -> Any:
        from blizzard_py.state.checkpoint_document import state_to_json  # noqa: PLC0415

        return state_to_json(self._cold(), self.parts.clock())


class Blizzard(SourcePipeline):
    """One incarnation of the source's daemon; ``cycle`` is the product's."""

    def __init__(self, world: MarkerWorld, lake: Client, raw: Client) -> None:
        parts = context(lake, raw, world.clock, world.plan.late_files)
        self.parts = parts
        self.pipeline, self.source_name = PIPELINE, SOURCE
        self.checkpoint_path = checkpoint_path(parts.id)
        self._where = self.checkpoint_path
        self.meter, self.activity = parts.meter, parts.activity  # type: ignore[assignment]
        self._clock = _WorldClock(world)  # type: ignore[assignment]  # one time for all
        self._file = FencedFile(lake, self.checkpoint_path)
        self._completions = CompletionMirror(lake, parts.id, self._file.check)
        self._certifies = True
        self._fence = FenceFile(lake, parts.id)
        services = CheckpointServices(
            self._save,
            self._clock,
            lambda: self._file.epoch,
            lambda state: self._fence.advance(state.ids.committed),
            lambda *batch: self._batches.finish(*batch),  # noqa: PLW0108  # made below
            lambda: self.activity,
        )
        self.source = source = _Source(world, parts, services)
        self._cleaning = SimpleNamespace(start_over=lambda: None, run=lambda state, _stop: state)  # type: ignore[assignment]
        self._requests_only = False
        self._taken = lambda: None
        self._start = _Start(parts, source, self._clock)
        self._requests = None
        self._jobs = Jobs(parts.engine)
        self._batches = _Batches(parts, source, services, self._jobs)
        self._loop = BatchLoop(parts, self._batches, services, lambda: False)
        self._items = "files"
        self._note = _Meter()  # type: ignore[assignment]  # written for people
        self._is_store_away = False
        self._next_at = None
        self._state = None
        self._log = get_logger()

    def check(self, state: SourceState) -> None:
        """Accept every state."""


class _WorldClock:
    def __init__(self, world: MarkerWorld) -> None:
        self._world = world

    def set(self, _now: float) -> None:
        """Keep the time."""

    def __call__(self) -> float:
        return self._world.clock()


def journal_of(data: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield the output ids of a journal object, with the files of its batch."""
    record = json.loads(data)
    paths = [file["path"] for file in record["files"]]
    for output in record["outputs"]:
        yield output["output_id"], paths
