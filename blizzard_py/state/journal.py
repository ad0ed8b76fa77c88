"""The journal: one small object per batch, with the outcome of each of its files.

``_blizzard/journal/{source id}/{batch}.json`` (`BatchDocument`; docs/reference/state.md shows one)
is written after the commit point and before any output of the batch is published. Its name is the
batch's id and its content is what was committed. So another process that finishes the batch writes
the same content again. A file is done if and only if the journal, or the ledger that it was folded
into (`blizzard_py.state.ledger`), contains it.

``seen_ts`` is the end of the scan that found the files. ``size``, ``modified`` and the optional
``version`` are those of the listing (`Entry`). With ``staged`` and ``letters`` the object describes
the complete batch, so a lost checkpoint of a batch in publication can be rebuilt
(`blizzard_py.edits.rebuild`). Optional keys are missing if they are empty.

A process that takes a batch over gives its outputs new final names. It also writes the object as
``{batch}~{number of take-overs}.json``: a delayed write of the earlier process cannot undo that
(`latest`). The outcomes of files are the same in each of these objects. A reader of outcomes uses
``{batch}.json``, or another one if that is lost.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import groupby, islice
from typing import Any

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import parsed
from blizzard_core.errors import NotFound, StateError
from blizzard_core.handover.published import first_name
from blizzard_core.storage.protocol import Entry, Storage, join, listed
from blizzard_core.text import JSON_REFUSALS
from blizzard_core.threads import ThreadPool
from blizzard_core.watermark.progress import CLOCK_STEP_SECS
from blizzard_py.job import ROWS_UNKNOWN, FinishedFile, Outcome, StagedBadRecords
from blizzard_py.state.batch import Batch, BatchResults, PlannedGroup, PlannedOutput
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.stream_state import QueryBatch

KEPT_SECS = 30 * 86_400

# Objects that are read and held at the same time, by a daemon and for people.
_READ_TOGETHER, _DOCUMENTS_TOGETHER = 64, 8

# What every file of an object has of its outcome.
_FILE_KEYS = ("path", "outcome", "rows", "bad_rows", "error", "stage")

REMEDY = "restore it as it was written: without it nobody knows what became of its files"


class RecordFile(msgspec.Struct, frozen=True):
    """A file of a batch: its outcome, and its size and time when it was listed."""

    path: str
    outcome: Outcome
    size: int
    modified: float
    stage: str = ""

    @property
    def is_ingested(self) -> bool:
        """Return whether its records are rows of the batch."""
        return self.outcome == "ingested"

    @property
    def is_unknown(self) -> bool:
        """Return whether it was given up: it is unknown whether its rows are in the table."""
        return self.stage == ROWS_UNKNOWN


class Record(msgspec.Struct, frozen=True):
    """The part of a journal object that most readers need. There may be many thousands.

    With a ``group`` its files had been ingested before: one that fails keeps its earlier rows.
    """

    batch: str
    started_ts: float
    finished_ts: float
    files: tuple[RecordFile, ...]
    seen_ts: float
    group: dict[str, Any] | None = None
    request: str = ""

    @property
    def done(self) -> list[RecordFile]:
        """The files that are done: all but those that wait for another try."""
        return [file for file in self.files if file.outcome != "retry"]

    @property
    def done_paths(self) -> list[str]:
        """The paths of these files."""
        return [file.path for file in self.done]


_RECORDS = msgspec.json.Decoder(Record)


def _record(raw: bytes, where: str) -> Record:
    """Return the record in an object. Raises `StateError`."""
    if b"\\u" not in raw:  # no half of a surrogate pair, see `parsed`
        with suppress(*JSON_REFUSALS):
            return _RECORDS.decode(raw)
    # It takes three times as long, and finds the place of an error.
    return decode_document(Record, parsed(raw, where), where, REMEDY, open_=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDocument(FinishedFile):
    """A file with its outcome, and its size and time in the listing."""

    size: int
    modified: float
    version: str = ""


@dataclass(frozen=True, slots=True)
class BatchDocument:
    """An object of the journal."""

    batch: str
    attempt: int
    started_ts: float
    finished_ts: float
    files: tuple[FileDocument, ...]
    outputs: tuple[PlannedOutput, ...]
    seen_ts: float
    letters: tuple[StagedBadRecords, ...]
    names_root: str = ""
    group: PlannedGroup | None = None
    event_time: QueryBatch | None = None
    request: str = ""


class Journal:
    """The journal of one source."""

    def __init__(self, storage: Storage, source_id: str, concurrency: int = 8) -> None:
        self._storage = storage
        self._folder = StatePaths(source_id).journal
        self._concurrency = concurrency

    @property
    def where(self) -> str:
        """The URI of its folder, for messages."""
        return f"{self._storage.uri}/{self._folder}"

    def write(self, batch: Batch) -> None:
        """Write the batch's object. A repeated call writes the same content."""
        results = batch.results
        document = {
            "batch": batch.batch,
            "attempt": batch.attempt,
            "started_ts": batch.started_ts,
            "finished_ts": results.committed_ts,
            "seen_ts": batch.seen_ts,
            "files": list(_files_of(batch)),
            "outputs": results.outputs,
            "letters": results.letters,
        }
        optional = {
            "names_root": results.names_root,
            "group": results.group,
            "event_time": results.settled,
            "request": batch.request,
        }
        document |= {key: value for key, value in optional.items() if value}
        text = json.dumps(msgspec.to_builtins(document), ensure_ascii=False)
        data = text.encode("utf-8", "surrogatepass")
        earlier_names = max((len(each.earlier) for each in batch.results.outputs), default=0)
        if earlier_names:
            self._storage.put_atomic(self._path(f"{batch.batch}~{earlier_names:04d}"), data)
        self._storage.put_atomic(self._path(batch.batch), data)

    def batches(self) -> Iterator[str]:
        """Return the ids of all batches, with one page in memory at a time."""
        return (batch for batch, _ in self.list_batches())

    def batches_from(self, batch: str) -> list[str]:
        """Return the ids from ``batch`` on, in order. The cost depends on their number."""
        return [found for found, _ in latest(self._entries(batch))]

    def latest_commit(self, now: float) -> float:
        """Return ``now``, or when the last batch was committed, if later.

        A start over ignores all earlier batches and counts all later ones. A store gives times in
        whole seconds, and its clock may have been put back. So ``now`` alone could lie before an
        existing batch.
        """
        recent = [batch for batch, at in self.list_batches() if at >= now - CLOCK_STEP_SECS]
        return max([now, *(record.finished_ts for record in self.read(recent))])

    def list_batches(self) -> Iterator[tuple[str, float]]:
        """Yield all batches, each with the store's time of its object."""
        for batch, entry in latest(self._entries()):
            yield batch, entry.modified

    def _entries(self, after: str = "") -> Iterator[Entry]:
        return listed(self._storage, f"{self._folder}/{after}", f"{self._folder}0")

    def read(self, batches: Iterable[str]) -> Iterator[Record]:
        """Yield the records of these batches in the given order, without missing ones.

        Raises `StateError` naming an object that is not understood, `StorageError`.
        """
        for path, raw in self._raws(map(self._path, batches), _READ_TOGETHER):
            yield _record(raw, f"{self._storage.uri}/{path}")

    def read_committed(self, batches: Iterable[str]) -> Iterator[Batch]:
        """Yield these batches as they were committed, in the given order, without missing ones.

        Raises as `read` does.
        """
        wanted = list(batches)
        if not wanted:
            return
        newest = {batch: entry.path for batch, entry in latest(self._entries(min(wanted)))}
        paths = (newest[batch] for batch in wanted if batch in newest)
        for document, where in self._documents(paths):
            yield _batch(decode_document(BatchDocument, document, where, REMEDY))

    def documents(self, batches: Iterable[str]) -> Iterator[BatchDocument]:
        """Yield the complete documents of these batches in the given order, without missing ones.

        Raises as `read` does.
        """
        for document, where in self._documents(map(self._path, batches)):
            yield decode_document(BatchDocument, document, where, REMEDY, open_=True)

    def documents_or_errors(
        self, entries: Iterable[Entry]
    ) -> Iterator[tuple[Entry, BatchDocument | StateError]]:
        """Yield each existing object of ``entries``, or the error that makes it unreadable."""
        places = {entry.path: entry for entry in entries}
        for path, raw in self._raws(places, _DOCUMENTS_TOGETHER):
            where = f"{self._storage.uri}/{path}"
            try:
                document = parsed(raw, where)
                found = decode_document(BatchDocument, document, where, REMEDY, open_=True)
            except StateError as error:
                yield places[path], error
            else:
                yield places[path], found

    def prune(self, now: float, folded: Iterable[str]) -> int:
        """Delete ``folded`` batches that are older than thirty days. Return how many.

        Both the time in the name and the store's time of the object count; ``now`` is the store's.
        Names come from a machine's clock, which may have been a month behind. If it was ahead,
        later names follow on from there, and a name ahead of ``now`` proves nothing.
        """
        limit = now - KEPT_SECS
        first, last = first_name(limit), first_name(now)
        old = {batch for batch in folded if not first <= batch < last}
        entries = [e for e in self._entries() if _batch_of(e.path) in old] if old else []
        old -= {_batch_of(entry.path) for entry in entries if entry.modified >= limit}
        doomed = [entry.path for entry in entries if _batch_of(entry.path) in old]
        for path in reversed(doomed):  # the one without ~ last: pruning finds batches by it
            self._storage.delete(path)
        return len(old)

    def _documents(self, paths: Iterable[str]) -> Iterator[tuple[Any, str]]:
        """Yield the objects of batches, each with its URI."""
        for path, raw in self._raws(paths, _READ_TOGETHER):
            where = f"{self._storage.uri}/{path}"
            yield parsed(raw, where), where

    def _raws(self, paths: Iterable[str], together: int) -> Iterator[tuple[str, bytes]]:
        remaining = iter(paths)
        with ThreadPool(max_workers=self._concurrency) as pool:
            while some := list(islice(remaining, together)):
                for path, raw in zip(some, pool.map(self._raw, some), strict=True):
                    if raw is not None:
                        yield path, raw

    def _raw(self, path: str) -> bytes | None:
        try:
            return self._storage.read(path)
        except NotFound:
            # Pruned meanwhile, or lost. A process that took the batch over has left a copy.
            stem = path.removesuffix(".json")
            raws = (self._raw(e.path) for e in listed(self._storage, f"{stem}~", f"{stem}\x7f"))
            return next((raw for raw in raws if raw is not None), None)

    def _path(self, batch: str) -> str:
        return join(self._folder, f"{batch}.json")


def latest(entries: Iterable[Entry]) -> Iterator[tuple[str, Entry]]:
    """Yield each batch of a journal's listing, in order, with its valid object.

    It is that of the last take-over: ``~`` sorts behind ``.json``.
    """
    written = (entry for entry in entries if entry.path.endswith(".json"))
    for batch, objects in groupby(written, lambda entry: _batch_of(entry.path)):
        yield batch, deque(objects, maxlen=1)[0]


def _batch_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json").partition("~")[0]


def _files_of(batch: Batch) -> Iterator[dict[str, Any]]:
    listed = {entry.path: entry for entry in batch.files}
    for file in batch.results.finished:
        entry = listed[file.path]
        optional = {"version": entry.version, "row_groups": file.row_groups}
        yield {
            **{key: getattr(file, key) for key in _FILE_KEYS},
            "size": entry.size,
            "modified": entry.modified,
            **{key: value for key, value in optional.items() if value},
        }


def _batch(found: BatchDocument) -> Batch:
    return Batch(
        found.batch,
        found.attempt,
        "publishing",
        found.started_ts,
        tuple(
            Entry(file.path, file.size, file.modified, version=file.version) for file in found.files
        ),
        found.seen_ts,
        request=found.request,
        results=BatchResults(
            outputs=found.outputs,
            finished=tuple(map(_finished, found.files)),
            letters=found.letters,
            committed_ts=found.finished_ts,
            group=found.group,
            names_root=found.names_root,
            settled=found.event_time,
        ),
    )


def _finished(file: FileDocument) -> FinishedFile:
    return FinishedFile(**{each.name: getattr(file, each.name) for each in fields(FinishedFile)})


def moment_of(name: str) -> float:
    """Return when a UUIDv7 was made, as its name says."""
    return (uuid.UUID(name).int >> 80) / 1000
