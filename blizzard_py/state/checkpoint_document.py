"""A source's state as its checkpoint file holds it, in and out of JSON. Pure.

On top of the shared format (`blizzard_core.checkpoint.document`) come:

* ``source``: the source of this state: its names, its URI and its range of file names;
* ``in_flight``: the batches between plan and advance, with their phase. In
  phase ``running`` nothing they wrote counts. In phase ``publishing`` everything
  in ``outputs`` and ``letters`` counts, and ``finished`` has the outcome of each source file;
* ``retries``: how often a file has failed with a temporary error, and until when it waits;
* ``queue``: pending files that no scan finds: late files, and those of a ``request``;
* ``ahead``: partitions whose files a request took before scans reach them;
* ``reached``: the lowest name that a request ingested from below the ``origin``;
* ``sweep``: when the last late sweep began, and how far the one under way has come;
* ``ledger``: the segments that the journal is folded into (`blizzard_py.state.ledger`);
* ``lateness``: how late files came, by day (`blizzard_py.state.lateness`);
* ``origin``: the floor that the cold start had, ``""`` if it read everything;
* ``processed``: the segments of the processed set, for a source without watermark;
* ``anew_ts``: when an operator let the source start over; earlier batches do not count;
* ``columns``: the position of a query source with windows (`column_state`);
* ``units``: the state of each work unit, for a source with units
  (`blizzard_py.slices.units.state`);
* ``group_seq``: the number of the source's last group (`blizzard_core.handover.groups`);
* ``replacing``: files of the ``queue`` that replace their earlier rows;
* ``stream``: the state of a pipeline's query over event time (`stream_state`);
* ``unexpected``: fields without a column that were reported, so that each is reported once;
* ``sources``: the state of each source by its name, if sources share batches
  (`blizzard_py.state.composite_state`);
* ``committed``: the newest commit point (`blizzard_py.state.fence_record`);
* ``last_output``: the highest name of an output; names rise whatever a clock says;
* ``unfolded``: what the journal must hold (`blizzard_py.state.journal_tally`);
* ``requests``: operators' requests and their progress (`blizzard_py.requests.progress`);
* ``complete``: counts of partitions, and completions (`blizzard_py.state.completeness`);
* ``cleaning``: progress of the cleaning of source files
  (`blizzard_py.state.cleaning_state`);
* ``former``: earlier places of the source's files, which rows may name;
* ``totals``: counts since the pipeline's first batch.

**Names in grace** are listed under ``recent`` if they are at most `INLINE_NAMES`. Otherwise names
whose batches are in the journal are left out, ``window`` names these batches, and
``schema_version`` is 2. So the cost of a save does not depend on the number of files a second. An
old reader refuses version 2; it would take these names for new files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import (
    PROGRESS_VERSIONS,
    ProgressDocument,
    check_version,
    progress_of,
    progress_to_json,
)
from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.errors import StateError
from blizzard_core.storage.protocol import Entry
from blizzard_py.requests.progress import RequestState
from blizzard_py.slices.units.state import UnitsState, check_units, units_to_json
from blizzard_py.state.batch import Batch, BatchResults, Phase
from blizzard_py.state.cleaning_state import CleaningState, cleaning_to_json
from blizzard_py.state.column_state import ColumnState, columns_to_json
from blizzard_py.state.completeness import Completeness
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.lateness import Lateness
from blizzard_py.state.processed_set import Segment, segments_to_json
from blizzard_py.state.source_state import (
    CommitPoint,
    Identity,
    IssuedIds,
    KindState,
    LateFileState,
    PendingWork,
    Position,
    ProcessedNames,
    QueuedFile,
    Retry,
    SourceState,
    Summary,
    Sweep,
    ToReplace,
    Totals,
    checkpoint_path,
)
from blizzard_py.state.stream_state import StreamState, stream_to_json

# A checkpoint lists at most this many names in grace: about 150 KB.
INLINE_NAMES = 2000
_WINDOW_VERSION = 2

# A renamed checkpoint holds only its new name, and its state until the rename is complete.
MOVED_TO = "moved_to"
MOVED_DOCUMENT = "moving"
MOVED_EPOCH = "moved_epoch"

# The key of a source that shares a checkpoint: its value is the id of that checkpoint.
SHARED = "shared_checkpoint"

_REMEDY = "restore it as it was saved, or make it again with `blizzard checkpoint rebuild`"


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightDocument(BatchResults):
    """A batch in flight. Its results stand beside its other values."""

    batch: str
    attempt: int
    phase: Phase
    started_ts: float
    files: tuple[Entry, ...]
    seen_ts: float
    request: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDocument(ProgressDocument):
    """The checkpoint as `decode_document` reads it. Unknown keys belong to another release."""

    writer: Writer | None = None
    source: Identity | None = None
    in_flight: tuple[InFlightDocument, ...] | None = None
    retries: dict[str, Retry] | None = None
    totals: Totals | None = None
    queue: tuple[QueuedFile, ...] | None = None
    sweep: Sweep | None = None
    ledger: tuple[Segment, ...] | None = None
    lateness: Lateness | None = None
    window: tuple[tuple[str, float], ...] | None = None
    origin: str | None = None
    processed: tuple[Segment, ...] | None = None
    anew_ts: float | None = None
    columns: ColumnState | None = None
    group_seq: Annotated[int, msgspec.Meta(ge=0)] | None = None
    replacing: dict[str, ToReplace] | None = None
    units: UnitsState | None = None
    stream: StreamState | None = None
    former: tuple[str, ...] | None = None
    last_batch: str | None = None
    last_output: str | None = None
    unexpected: tuple[str, ...] | None = None
    sources: dict[str, Any] | None = None
    committed: CommitPoint | None = None
    unfolded: JournalTally | None = None
    requests: dict[str, RequestState] | None = None
    ahead: tuple[str, ...] | None = None
    reached: str | None = None
    complete: Completeness | None = None
    cleaning: CleaningState | None = None


def state_to_json(state: SourceState, now: float) -> dict[str, Any]:
    """Return the checkpoint document, stamped with ``now`` (epoch seconds), without empty keys."""
    spilled = _spilled(state.position)
    document = progress_to_json(state.position.progress, now, spilled)
    if spilled:
        document["schema_version"] = max(document["schema_version"], _WINDOW_VERSION)
    position, work, ids, kind = state.position, state.work, state.ids, state.kind
    sweep, segments = state.late_files.sweep, state.names.processed
    optional: dict[str, Any] = {
        "window": [[batch, seen] for batch, seen in position.window] or None,
        "source": None if state.source is None else state.source.document(),
        "in_flight": [_batch_to_json(batch) for batch in work.in_flight] or None,
        "retries": msgspec.to_builtins(work.retries) or None,
        "totals": msgspec.to_builtins(state.summary.totals),
        "processed": None if segments is None else segments_to_json(segments),
        "ledger": segments_to_json(state.names.ledger) or None,
        "origin": position.origin,
        "anew_ts": position.reset_ts or None,
        "columns": None if kind.columns is None else columns_to_json(kind.columns),
        "group_seq": ids.group_seq or None,
        "replacing": msgspec.to_builtins(work.replacing) or None,
        "units": None if kind.units is None else units_to_json(kind.units),
        "stream": None if kind.stream is None else stream_to_json(kind.stream),
        "sources": {n: state_to_json(each, now) for n, each in kind.members.items()} or None,
        "complete": None if state.complete is None else msgspec.to_builtins(state.complete),
        "cleaning": cleaning_to_json(state.cleaning),
        "former": list(state.former) or None,
        "committed": asdict(ids.committed) if ids.committed.number else None,
        "unfolded": None if state.names.unfolded is None else asdict(state.names.unfolded),
        "last_batch": ids.last_batch or None,
        "last_output": ids.last_output or None,
        "requests": msgspec.to_builtins(work.requests) or None,
        "unexpected": list(state.summary.unexpected) or None,
        "queue": [_queued_to_json(file) for file in work.queue] or None,
        "ahead": list(position.ahead) or None,
        "reached": position.reached or None,
        "sweep": None if sweep == Sweep() else _sweep_to_json(sweep),
        "lateness": [[day, secs] for day, secs in state.late_files.lateness] or None,
    }
    return document | {key: value for key, value in optional.items() if value is not None}


def _sweep_to_json(sweep: Sweep) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(sweep)
    empty = [key for key in ("before", "changed", "last_changed") if not found[key]]
    return {key: value for key, value in found.items() if key not in empty}


def _spilled(position: Position) -> frozenset[float]:
    """Return the times of names that only the journal has, if there are too many to list."""
    names = sum(len(known.done) for known in position.progress.partitions.values())
    return frozenset(seen for _, seen in position.window if names > INLINE_NAMES)


def state_from_json(document: Any, where: str) -> SourceState:
    """Return the state of a checkpoint document. Raises `StateError` naming ``where``.

    It lacks the names in grace that only the journal has (`blizzard_py.state.checkpoint_file`).
    """
    if isinstance(document, Mapping) and MOVED_TO in document:
        raise StateError(f"{where}: {_moved(document)}")
    if isinstance(document, Mapping) and SHARED in document:
        raise StateError(f"{where}: {_shared(document)}")
    check_version(document, where, (*PROGRESS_VERSIONS, _WINDOW_VERSION))
    found = decode_document(CheckpointDocument, document, where, _REMEDY)
    return SourceState(
        source=found.source,
        former=found.former or (),
        position=Position(
            progress_of(found, where, _REMEDY),
            window=found.window or (),
            origin=found.origin,
            reset_ts=found.anew_ts or 0.0,
            ahead=found.ahead or (),
            reached=found.reached or "",
        ),
        work=PendingWork(
            in_flight=tuple(map(_batch, found.in_flight or ())),
            retries=found.retries or {},
            queue=found.queue or (),
            replacing=found.replacing or {},
            requests=found.requests or {},
        ),
        ids=IssuedIds(
            group_seq=found.group_seq or 0,
            last_batch=found.last_batch or "",
            last_output=found.last_output or "",
            committed=found.committed or CommitPoint(),
        ),
        names=ProcessedNames(
            ledger=found.ledger or (), processed=found.processed, unfolded=found.unfolded
        ),
        late_files=LateFileState(sweep=found.sweep or Sweep(), lateness=found.lateness or ()),
        kind=KindState(
            columns=found.columns,
            units=None if found.units is None else check_units(found.units, f"{where}: units"),
            stream=found.stream,
            members={
                n: state_from_json(d, f"{where}: sources.{n}")
                for n, d in (found.sources or {}).items()
            },
        ),
        summary=Summary(
            totals=found.totals or Totals(),
            last_update_ts=found.last_update_ts,
            unexpected=found.unexpected or (),
        ),
        complete=found.complete,
        cleaning=found.cleaning,
    )


def _shared(document: Mapping[str, Any]) -> str:
    home = checkpoint_path(str(document[SHARED]))
    return (
        f"its state is in {home}, with that of the other sources of its query over event time,"
        " and neither their number nor their names may change; set sources and query back, or give"
        " the source another `id:`, and the pipeline another table"
    )


def _moved(document: Mapping[str, Any]) -> str:
    target = document[MOVED_TO]
    if MOVED_DOCUMENT in document:
        return (
            f"is being renamed to {target} and nobody may run on it; run the same `blizzard rename`"
            " again, it goes on where it was"
        )
    return (
        f"was renamed to {target}: its state is in {checkpoint_path(str(target))}; use the new"
        f" names in the configuration, or give the source `id: {target}`"
    )


def _batch(found: InFlightDocument) -> Batch:
    values = {each.name: getattr(found, each.name) for each in fields(found)}
    results = BatchResults(**{each.name: values.pop(each.name) for each in fields(BatchResults)})
    return Batch(results=results, **values)


def _batch_to_json(batch: Batch) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(batch)
    document |= document.pop("results")
    if batch.phase == "running":
        for key in ("outputs", "finished", "letters", "committed_ts"):
            del document[key]
    document["files"] = [_without_empty(file, "version") for file in document["files"]]
    for file in document.get("finished", ()):
        if not file["row_groups"]:
            del file["row_groups"]
    return _without_empty(document, "marks", "group", "names_root", "settled", "request")


def _queued_to_json(file: QueuedFile) -> dict[str, Any]:
    return _without_empty(msgspec.to_builtins(file), "request", "version")


def _without_empty(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value or key not in keys}
