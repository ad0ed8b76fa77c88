"""A source's state as its checkpoint file holds it, in and out of JSON. Pure.

On top of the shared format (`blizzard_core.checkpoint.document`) come:

* ``source``: whose state it is, by names and URI, and the range of names that it is for;
* ``in_flight``: the batches between plan and advance, with their phase. In
  phase ``running`` nothing they wrote counts; in phase ``publishing`` everything
  in ``outputs`` and ``letters`` does, and ``finished`` says what became of each source file;
* ``retries``: how often a file has failed in a way that may pass, and until when it waits;
* ``queue``: files to do that no scan finds: late ones, and those of a ``request``;
* ``ahead``: partitions of which a request took files before scans reach them;
* ``reached``: the lowest name that a request brought from below the ``origin``;
* ``sweep``: when the last late sweep began, and how far the one under way has come;
* ``ledger``: the segments that the journal is folded into (`blizzard_py.state.ledger`);
* ``lateness``: how late files came, by day (`blizzard_py.state.lateness`);
* ``origin``: the floor that the cold start had, ``""`` if it read everything;
* ``processed``: the segments of the processed set, for a source without watermark;
* ``anew_ts``: when an operator had it start over: what was done before counts no more;
* ``columns``: of a source that is asked for rows, what was read of it (`column_state`);
* ``units``: of a source that is read by work units, what is known of each
  (`blizzard_py.slices.units.state`);
* ``group_seq``: the number of the source's last group (`blizzard_core.handover.groups`);
* ``replacing``: of the ``queue`` those files that take the place of what they had before;
* ``stream``: of a pipeline over event time, where its query is (`stream_state`);
* ``unexpected``: fields without a column that were told, so that each is told once;
* ``sources``: of a pipeline whose sources share batches, the state of each by its name
  (`blizzard_py.state.composite_state`);
* ``committed``: the newest commit point (`blizzard_py.state.fence_record`);
* ``last_output``: the highest name of an output; names rise whatever a clock says;
* ``unfolded``: what the journal must hold (`blizzard_py.state.journal_tally`);
* ``requests``: what operators asked for, and how it went (`blizzard_py.requests.progress`);
* ``former``: the places that files of the source had before, which rows may name;
* ``totals``: counts since the pipeline's first batch.

**Names in grace** stand under ``recent`` while they are few. When there are more than
`INLINE_NAMES`, those whose batches the journal has are left out, ``window`` names these
batches, and ``schema_version`` is 2: so a save costs the same however many files a
second are done, and a reader that would take the names for not done refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
from blizzard_core.checkpoint.writer import Writer
from blizzard_core.errors import StateError
from blizzard_py.requests.progress import RequestState
from blizzard_py.slices.units.state import UnitsState, checked, units_to_json
from blizzard_py.state.column_state import ColumnState, columns_to_json
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.lateness import Lateness
from blizzard_py.state.processed_set import Segment, segments_to_json
from blizzard_py.state.source_state import (
    Batch,
    CommitPoint,
    Identity,
    QueuedFile,
    Retry,
    SourceState,
    Sweep,
    ToReplace,
    Totals,
    checkpoint_path,
)
from blizzard_py.state.stream_state import StreamState, stream_to_json

# So many names in grace a checkpoint lists at most: about 150 KB.
INLINE_NAMES = 2000
_WINDOW_VERSION = 2

# A checkpoint that was renamed away holds only where to, and its state until that is over.
MOVED_TO = "moved_to"
MOVED_DOCUMENT = "moving"
MOVED_EPOCH = "moved_epoch"

# What stands instead of a source's own state where it shares one with others: whose checkpoint.
SHARED = "shared_checkpoint"

_REMEDY = "restore it as it was saved, or make it again with `blizzard checkpoint rebuild`"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDocument(ProgressDocument):
    """The checkpoint as `decode_document` reads it. Other keys belong to another release."""

    writer: Writer | None = None
    source: Identity | None = None
    in_flight: tuple[Batch, ...] | None = None
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


def state_to_json(state: SourceState, now: float) -> dict[str, Any]:
    """The checkpoint document, stamped with ``now`` (epoch seconds). What is empty is left out."""
    spilled = _spilled(state)
    document = progress_to_json(state.progress, now, spilled)
    if spilled:
        document["schema_version"] = max(document["schema_version"], _WINDOW_VERSION)
    sweep = None if state.sweep == Sweep() else _sweep_to_json(state.sweep)
    segments = state.processed
    optional: dict[str, Any] = {
        "window": [[batch, seen] for batch, seen in state.window] or None,
        "source": None if state.source is None else state.source.document(),
        "in_flight": [_batch_to_json(batch) for batch in state.in_flight] or None,
        "retries": msgspec.to_builtins(state.retries) or None,
        "totals": msgspec.to_builtins(state.totals),
        "processed": None if segments is None else segments_to_json(segments),
        "ledger": segments_to_json(state.ledger) or None,
        "origin": state.origin,
        "anew_ts": state.reset_ts or None,
        "columns": None if state.columns is None else columns_to_json(state.columns),
        "group_seq": state.group_seq or None,
        "replacing": msgspec.to_builtins(state.replacing) or None,
        "units": None if state.units is None else units_to_json(state.units),
        "stream": None if state.stream is None else stream_to_json(state.stream),
        "sources": {n: state_to_json(each, now) for n, each in state.members.items()} or None,
        "former": list(state.former) or None,
        "committed": asdict(state.committed) if state.committed.number else None,
        "unfolded": None if state.unfolded is None else asdict(state.unfolded),
        "last_batch": state.last_batch or None,
        "last_output": state.last_output or None,
        "requests": msgspec.to_builtins(state.requests) or None,
        "unexpected": list(state.unexpected) or None,
        "queue": [_queued_to_json(file) for file in state.queue] or None,
        "ahead": list(state.ahead) or None,
        "reached": state.reached or None,
        "sweep": sweep,
        "lateness": [[day, secs] for day, secs in state.lateness] or None,
    }
    return document | {key: value for key, value in optional.items() if value is not None}


def _sweep_to_json(sweep: Sweep) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(sweep)
    empty = [key for key in ("before", "changed", "last_changed") if not found[key]]
    return {key: value for key, value in found.items() if key not in empty}


def _spilled(state: SourceState) -> frozenset[float]:
    """The times of names that the journal has, if there are too many names to list."""
    names = sum(len(known.done) for known in state.progress.partitions.values())
    return frozenset(seen for _, seen in state.window if names > INLINE_NAMES)


def state_from_json(document: Any, where: str) -> SourceState:
    """The state of a checkpoint document. Raises `StateError` naming ``where``.

    Names in grace that the document leaves to the journal are not in it; see
    `blizzard_py.state.checkpoint_file`.
    """
    if isinstance(document, Mapping) and MOVED_TO in document:
        raise StateError(f"{where}: {_moved(document)}")
    if isinstance(document, Mapping) and SHARED in document:
        raise StateError(f"{where}: {_shared(document)}")
    check_version(document, where, (*PROGRESS_VERSIONS, _WINDOW_VERSION))
    found = decode_document(CheckpointDocument, document, where, _REMEDY)
    return SourceState(
        progress_of(found, where, _REMEDY),
        found.in_flight or (),
        found.retries or {},
        found.totals or Totals(),
        found.last_update_ts,
        found.queue or (),
        found.sweep or Sweep(),
        found.ledger or (),
        found.lateness or (),
        found.window or (),
        found.origin,
        found.processed,
        found.source,
        found.anew_ts or 0.0,
        found.columns,
        found.group_seq or 0,
        found.replacing or {},
        None if found.units is None else checked(found.units, f"{where}: units"),
        found.stream,
        found.former or (),
        found.last_batch or "",
        found.last_output or "",
        found.unexpected or (),
        {n: state_from_json(d, f"{where}: sources.{n}") for n, d in (found.sources or {}).items()},
        found.committed or CommitPoint(),
        found.unfolded,
        found.requests or {},
        found.ahead or (),
        found.reached or "",
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


def _batch_to_json(batch: Batch) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(batch)
    if batch.phase == "running":
        for key in ("outputs", "finished", "letters", "committed_ts"):
            del document[key]
    if not batch.marks:
        del document["marks"]
    if batch.group is None:
        del document["group"]
    if not batch.names_root:
        del document["names_root"]
    if batch.settled is None:
        del document["settled"]
    if not batch.request:
        del document["request"]
    return document


def _queued_to_json(file: QueuedFile) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(file)
    if not file.request:
        del document["request"]
    return document
