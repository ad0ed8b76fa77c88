"""One source's state: what the checkpoint file holds, in and out of JSON. Pure.

On top of the shared format (`blizzard_py.core.checkpoint`) come:

* ``source``: whose state it is, by names and URI;
* ``in_flight``: the batches between plan and advance, with their phase. In
  phase ``running`` nothing they wrote counts; in phase ``publishing`` everything
  in ``outputs`` and ``letters`` does, and ``finished`` says what became of each source file;
* ``retries``: how often a file has failed in a way that may pass, and until when it waits;
* ``queue``: files to do that no scan finds: late ones, and those of a replay;
* ``sweep``: when the last late sweep began, and how far the one under way has come;
* ``ledger``: the segments that the journal is folded into (`blizzard_py.ledger`);
* ``lateness``: how late files came, by day (`blizzard_py.lateness`);
* ``origin``: the floor that the cold start had, ``""`` if it read everything;
* ``processed``: the segments of the processed set, for a source without watermark;
* ``letters``: dead-letter objects that a replay has taken and not put away yet;
* ``anew_ts``: when an operator had it start over: what replays took before counts no more;
* ``totals``: counts since the pipeline's first batch.

**Names in grace** stand under ``recent`` while they are few. When there are more than
`INLINE_NAMES`, those whose batches the journal has are left out, ``window`` names these
batches, and ``schema_version`` is 2: so a save costs the same however many files a
second are done, and a release that would take the names for not done refuses. So it
does while a committed batch still owes dead letters, which it wrote before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from blizzard_py.core.checkpoint import (
    SCHEMA_VERSION,
    Fields,
    progress_from_json,
    progress_to_json,
)
from blizzard_py.core.errors import StateError
from blizzard_py.core.model import Entry, FinishedFile, StagedLetters
from blizzard_py.core.watermark import Progress
from blizzard_py.lateness import Lateness
from blizzard_py.processed import Segment, segments_from_json, segments_to_json

T = TypeVar("T")
Phase = Literal["running", "publishing"]

# The folder of the table that all of Blizzard's own files are in.
STATE_FOLDER = "_blizzard"
CHECKPOINT_ENDING = "_checkpoint.json"
# The folder of a source's dead letters where a replay puts what it has dealt with.
REPLAYED_FOLDER = "replayed"

# So many names in grace a checkpoint lists at most: about 150 KB.
INLINE_NAMES = 2000
_WINDOW_VERSION = 2

# A checkpoint that was renamed away holds only where to, and its state until that is over.
MOVED_TO = "moved_to"
MOVED_DOCUMENT = "moving"
MOVED_EPOCH = "moved_epoch"

# What is not known here was written by a newer release, which would miss it.
_KEYS = frozenset(
    {
        *("schema_version", "watermark", "partition_watermarks", "last_update_ts"),
        *("partition_depth", "floor", "floors", "recent", "writer", "source", "in_flight"),
        *(
            "retries",
            "queue",
            "sweep",
            "ledger",
            "lateness",
            "origin",
            "processed",
            "letters",
            "totals",
        ),
        *("window", "passed", "anew_ts"),
    }
)


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A staged file and the final path it is published under, relative to the table.

    ``earlier`` are final paths that were planned before a recovery: one who was replaced
    in the middle may still publish under them.
    """

    staged: str
    final: str
    rows: int
    size: int
    output_id: str
    earlier: tuple[str, ...] = ()

    @property
    def finals(self) -> tuple[str, ...]:
        """Every path that it may be found under, once published."""
        return (self.final, *self.earlier)


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch in flight. What has a default is set from ``publishing`` on.

    ``seen_ts`` is when the scan ended that found its files; a later time is safe.
    ``letters`` are the bad records of files that were ingested otherwise, staged.
    ``lettered``: an older release has committed it, which wrote its letters before.
    """

    batch: str
    attempt: int
    phase: Phase
    started_ts: float
    files: tuple[Entry, ...]
    seen_ts: float
    outputs: tuple[PlannedOutput, ...] = ()
    finished: tuple[FinishedFile, ...] = ()
    letters: tuple[StagedLetters, ...] = ()
    committed_ts: float = 0.0
    lettered: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose state it is: names of pipeline and source, and where its files are."""

    pipeline: str
    source: str
    uri: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A file that failed for now: ``count`` times, to be tried again from ``after`` on."""

    count: int
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """The late sweep: when the last one began, and up to which path the one under way has come.

    ``whole`` means that the ledger knows all that was done since a cold start; else, and
    below the origin always, the first sweep notes what it meets, until ``noted``.
    """

    began: float = 0.0
    cursor: str | None = None
    whole: bool = False
    noted: bool = False


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
    """Everything that is known of one source. ``SourceState()`` is a cold start.

    ``window`` are the batches whose files are in grace, with their ``seen_ts``.
    """

    progress: Progress = field(default_factory=Progress)
    in_flight: tuple[Batch, ...] = ()
    retries: Mapping[str, Retry] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    last_update_ts: int | None = None
    queue: tuple[Entry, ...] = ()
    sweep: Sweep = Sweep()
    ledger: tuple[Segment, ...] = ()
    lateness: Lateness = ()
    window: tuple[tuple[str, float], ...] = ()
    origin: str | None = None
    processed: tuple[Segment, ...] | None = None
    letters: tuple[str, ...] = ()
    source: Identity | None = None
    anew_ts: float = 0.0


def under_way(state: SourceState) -> Iterable[str]:
    """The files that a run has taken and has still to do."""
    yield from state.retries
    yield from (entry.path for entry in state.queue)
    yield from (entry.path for batch in state.in_flight for entry in batch.files)


def checkpoint_path(source_id: str) -> str:
    """Where a source's checkpoint is, relative to the table."""
    return f"{STATE_FOLDER}/{source_id}{CHECKPOINT_ENDING}"


def state_to_json(state: SourceState, now: float) -> dict[str, Any]:
    """The checkpoint document, stamped with ``now`` (epoch seconds). What is empty is left out."""
    spilled = _spilled(state)
    document = progress_to_json(state.progress, now, spilled)
    if spilled or any(map(_owes_letters, state.in_flight)):
        document["schema_version"] = max(document["schema_version"], _WINDOW_VERSION)
    sweep = None if state.sweep == Sweep() else msgspec.to_builtins(state.sweep)
    segments = state.processed
    optional: dict[str, Any] = {
        "window": [[batch, seen] for batch, seen in state.window] or None,
        "source": None if state.source is None else msgspec.to_builtins(state.source),
        "in_flight": [_batch_to_json(batch) for batch in state.in_flight] or None,
        "retries": msgspec.to_builtins(state.retries) or None,
        "totals": msgspec.to_builtins(state.totals),
        "processed": None if segments is None else segments_to_json(segments),
        "ledger": segments_to_json(state.ledger) or None,
        "origin": state.origin,
        "anew_ts": state.anew_ts or None,
        "letters": list(state.letters) or None,
        "queue": msgspec.to_builtins(state.queue) or None,
        "sweep": sweep,
        "lateness": [[day, secs] for day, secs in state.lateness] or None,
    }
    return document | {key: value for key, value in optional.items() if value is not None}


def _owes_letters(batch: Batch) -> bool:
    """Whether a batch is committed whose letters an older release takes for written."""
    lettered = any(file.outcome in {"quarantined", "reported"} for file in batch.finished)
    return batch.phase == "publishing" and (lettered or bool(batch.letters))


def _spilled(state: SourceState) -> frozenset[float]:
    """The times of names that the journal has, if there are too many names to list."""
    names = sum(len(known.done) for known in state.progress.partitions.values())
    return frozenset(seen for _, seen in state.window if names > INLINE_NAMES)


def state_from_json(document: Any, where: str) -> SourceState:
    """The state of a checkpoint document. Raises `StateError` naming ``where``.

    Names in grace that the document leaves to the journal are not in it; see
    `blizzard_py.statefile`.
    """
    read = Fields(document, where)
    if MOVED_TO in document:
        raise StateError(f"{where}: {_moved(document)}")
    if isinstance(document, Mapping) and document.get("schema_version") == _WINDOW_VERSION:
        document = {**document, "schema_version": SCHEMA_VERSION}
    progress = progress_from_json(document, where)
    unknown = sorted(set(document) - _KEYS)
    if unknown:
        raise StateError(
            f"{where}: has {', '.join(unknown)}, which this release does not know; a newer one"
            " wrote it, run that one"
        )
    older = read.get("passed", dict)
    # What the timelines of an older release say is no longer asked; what was beside them is.
    kept = read if older is None else Fields(older, f"{where}: passed")
    return SourceState(
        progress,
        tuple(
            _batch_from_json(b, f"{where}: in_flight[{i}]")
            for i, b in enumerate(read.get("in_flight", list) or [])
        ),
        {
            path: _retry_from_json(found, f"{where}: retries[{path!r}]")
            for path, found in (read.get("retries", dict) or {}).items()
        },
        built(Totals, read.get("totals", dict) or {}, f"{where}: totals"),
        read("last_update_ts", int),
        _queue_from_json(kept, where),
        _sweep_from_json(kept, where) if older is None else _sweep_of_timelines(kept),
        _segments(document, "ledger", where) or (),
        tuple((int(day), float(secs)) for day, secs in kept.get("lateness", list) or []),
        tuple((str(batch), float(seen)) for batch, seen in read.get("window", list) or []),
        read.get("origin", str),
        _segments(document, "processed", where),
        tuple(str(letter) for letter in read.get("letters", list) or []),
        None
        if read.get("source", dict) is None
        else built(Identity, document["source"], f"{where}: source"),
        read.get("anew_ts", float) or 0.0,
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


def _segments(document: Any, key: str, where: str) -> tuple[Segment, ...] | None:
    found = document.get(key)
    return None if found is None else segments_from_json(found, f"{where}: {key}")


def _queue_from_json(read: Fields, where: str) -> tuple[Entry, ...]:
    return tuple(
        built(Entry, entry, f"{where}: queue[{i}]")
        for i, entry in enumerate(read.get("queue", list) or [])
    )


def _sweep_of_timelines(passed: Fields) -> Sweep:
    """Of a release that kept no ledger: the sweep that notes what was passed is due at once.

    Until it is over, what comes late looks like what was done before there was a ledger.
    """
    return Sweep(began=passed.get("swept", float) or 0.0, cursor="")


def _sweep_from_json(read: Fields, where: str) -> Sweep:
    return built(Sweep, read.get("sweep", dict) or {}, f"{where}: sweep")


def _retry_from_json(found: Any, where: str) -> Retry:
    if isinstance(found, int):  # as releases wrote it that did not wait
        return Retry(found)
    return built(Retry, found, where)


def built(kind: type[T], fields: Any, where: str) -> T:
    """An object of ``kind`` from a JSON object with its fields and no others, at any depth.

    Raises `StateError`.
    """
    try:
        built = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise StateError(f"{where}: {error}") from error
    unknown = next(_unknown(fields, msgspec.to_builtins(built)), None)
    if unknown is not None:
        raise StateError(f"{where}: has {unknown}, which this release does not know")
    return built


def _unknown(given: Any, taken: Any) -> Iterator[str]:
    """The keys of a JSON value that were not taken over from it."""
    match given, taken:
        case dict(), dict():
            for key, value in given.items():
                if key in taken:
                    yield from _unknown(value, taken[key])
                else:
                    yield str(key)
        case list(), list() | tuple():
            for one, other in zip(given, taken, strict=True):
                yield from _unknown(one, other)


def _batch_to_json(batch: Batch) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(batch)
    if batch.phase == "running":
        for key in ("outputs", "finished", "letters", "committed_ts"):
            del document[key]
    if not batch.lettered:
        del document["lettered"]
    return document


def _batch_from_json(document: Any, where: str) -> Batch:
    if isinstance(document, Mapping) and "started_ts" in document and "seen_ts" not in document:
        # An older release's: the files were seen before the batch began, and later is safe.
        begun = document["started_ts"]
        lettered = document.get("phase") == "publishing"
        document = {**document, "seen_ts": begun, "committed_ts": begun, "lettered": lettered}
    return built(Batch, document, where)
