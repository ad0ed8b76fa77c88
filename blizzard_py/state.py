"""One source's state: what the checkpoint file holds, in and out of JSON. Pure.

On top of the shared format (`blizzard_py.core.checkpoint`) come:

* ``in_flight``: the batches between plan and advance, with their phase. In
  phase ``running`` nothing they wrote counts; in phase ``publishing`` everything
  in ``outputs`` does, and ``finished`` says what became of each source file;
* ``retries``: how often a file has failed in a way that may pass;
* ``passed``: what scans have passed and when, to tell late files (`blizzard_py.late`);
* ``origin``: the floor that the cold start had, ``""`` if it read everything;
* ``processed``: the segments of the processed set, for a source without watermark;
* ``totals``: counts since the pipeline's first batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from blizzard_py.core.checkpoint import Fields, progress_from_json, progress_to_json
from blizzard_py.core.errors import StateError
from blizzard_py.core.model import Entry, FinishedFile
from blizzard_py.core.watermark import Progress
from blizzard_py.late import Passed, Timeline
from blizzard_py.processed import Segment, segments_from_json, segments_to_json

Phase = Literal["running", "publishing"]

# The folder of the table that all of Blizzard's own files are in.
STATE_FOLDER = "_blizzard"


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A staged file and the final path it is published under, relative to the table."""

    staged: str
    final: str
    rows: int
    size: int
    output_id: str


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch in flight. ``outputs`` and ``finished`` are set from ``publishing`` on."""

    batch: str
    attempt: int
    phase: Phase
    started_ts: float
    files: tuple[Entry, ...]
    outputs: tuple[PlannedOutput, ...] = ()
    finished: tuple[FinishedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the first batch; ``bytes`` are the source files' stored bytes.

    ``bad_rows`` are records in the dead-letter queue, whose files were ingested.
    """

    batches: int = 0
    files: int = 0
    quarantined: int = 0
    rows: int = 0
    bytes: int = 0
    outputs: int = 0
    bad_rows: int = 0


@dataclass(frozen=True, slots=True)
class SourceState:
    """Everything that is known of one source. ``SourceState()`` is a cold start."""

    progress: Progress = field(default_factory=Progress)
    in_flight: tuple[Batch, ...] = ()
    retries: Mapping[str, int] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    last_update_ts: int | None = None
    passed: Passed = field(default_factory=Passed)
    origin: str | None = None
    processed: tuple[Segment, ...] | None = None


def state_to_json(state: SourceState, now: float) -> dict[str, Any]:
    """The checkpoint document, stamped with ``now`` (epoch seconds)."""
    document = progress_to_json(state.progress, now)
    if state.in_flight:
        document["in_flight"] = [_batch_to_json(batch) for batch in state.in_flight]
    if state.retries:
        document["retries"] = dict(state.retries)
    document["totals"] = asdict(state.totals)
    if state.processed is not None:
        document["processed"] = segments_to_json(state.processed)
    if state.origin is not None:
        document["origin"] = state.origin
    if state.passed != Passed():
        document["passed"] = asdict(state.passed)
    return document


def state_from_json(document: Any, where: str) -> SourceState:
    """The state of a checkpoint document. Raises `StateError` naming ``where``."""
    progress = progress_from_json(document, where)
    read = Fields(document, where)
    in_flight = read.get("in_flight", list) or []
    retries = read.get("retries", dict) or {}
    totals = read.get("totals", dict) or {}
    if not all(isinstance(count, int) for count in retries.values()):
        raise StateError(f"{where}: retries holds something that is not a count")
    try:
        known = Totals(**totals)
    except TypeError as error:
        raise StateError(f"{where}: totals has keys that are not known here") from error
    return SourceState(
        progress,
        tuple(_batch_from_json(b, f"{where}: in_flight[{i}]") for i, b in enumerate(in_flight)),
        retries,
        known,
        read("last_update_ts", int),
        _passed_from_json(read.get("passed", dict) or {}, f"{where}: passed"),
        read.get("origin", str),
        None
        if document.get("processed") is None
        else segments_from_json(document["processed"], f"{where}: processed"),
    )


def _passed_from_json(document: Any, where: str) -> Passed:
    read = Fields(document, where)
    try:
        return Passed(
            {p: _timeline(found) for p, found in (read.get("partitions", dict) or {}).items()},
            _timeline(read.get("floors", list) or []),
            read.get("listed", float) or 0.0,
            read.get("ahead", float) or 0.0,
            read.get("swept", float) or 0.0,
            {path: float(at) for path, at in (read.get("known", dict) or {}).items()},
            tuple(Entry(**entry) for entry in read.get("queue", list) or []),
            tuple((int(day), float(secs)) for day, secs in read.get("lateness", list) or []),
        )
    except (TypeError, ValueError) as error:
        raise StateError(f"{where}: {error}") from error


def _timeline(found: list[Any]) -> Timeline:
    return tuple((str(name), float(at)) for name, at in found)


def _batch_to_json(batch: Batch) -> dict[str, Any]:
    document = asdict(batch)
    if batch.phase == "running":
        del document["outputs"], document["finished"]
    return document


def _batch_from_json(document: Any, where: str) -> Batch:
    read = Fields(document, where)
    phase = read("phase", str)
    try:
        match phase:
            case "running" | "publishing":
                return Batch(
                    read("batch", str),
                    read("attempt", int),
                    phase,
                    read("started_ts", float),
                    tuple(Entry(**entry) for entry in read("files", list)),
                    tuple(PlannedOutput(**o) for o in read.get("outputs", list) or []),
                    tuple(FinishedFile(**f) for f in read.get("finished", list) or []),
                )
            case _:
                raise StateError(f"{where}: phase {phase!r} is not running or publishing")
    except TypeError as error:
        raise StateError(f"{where}: {error}") from error
