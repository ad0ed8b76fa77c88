"""Fence records: the newest commit point of a source, kept outside of the state folder.

``_blizzard_fence/{source id}.json``::

    {"epoch": 7, "number": 41, "batch": "01a2099c-11af-7131-a11b-c78d875f9b40",
     "range": {"first": "date=2023-01-01", "last": ""}}

The state folder can be lost, or restored from a copy, while its published rows stay. So each
take-over writes its epoch here. Each commit point writes its number and batch before any output of
that batch is published. A checkpoint that is older than its record is stale and may not start.

**The write is conditional** on the version that this process wrote last. So a process that slept
while others published is refused, even if the checkpoint that it knows was restored meanwhile.

**Numbers, not times**, decide: the commit points of a source are counted from 1, only once.
``range`` is the source's range of names, if it has one; otherwise only the checkpoint has it.
``moved_to`` is the source id that the state was renamed to. The object
``{source id}~moved.json`` beside the record repeats it, because a record may be restored together
with its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import parsed
from blizzard_core.errors import Conflict, FencedError, NotFound
from blizzard_core.storage.protocol import Storage, listed
from blizzard_core.watermark.name_range import NameRange
from blizzard_py.state.source_state import CommitPoint

FENCE_FOLDER = "_blizzard_fence"
_MOVED = "~moved"

# Each older process writes at most once after our take-over.
_TAKE_TRIES = 5

_REMEDY = "restore it, or delete it if the checkpoint is known to be the newest"


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """The highest recorded epoch and the newest recorded commit point of a source."""

    epoch: int = 0
    number: int = 0
    batch: str = ""
    moved_to: str = ""
    range: NameRange | None = None

    @property
    def commit_point(self) -> CommitPoint:
        """The newest commit point, to be copied into a checkpoint."""
        return CommitPoint(self.number, self.batch)


def fence_path(source_id: str) -> str:
    """Return where a source's record lies, relative to the table."""
    return f"{FENCE_FOLDER}/{source_id}.json"


def moved_path(source_id: str) -> str:
    """Return the path of the object that records a rename, relative to the table."""
    return f"{FENCE_FOLDER}/{source_id}{_MOVED}.json"


def recorded_ids(sink: Storage) -> Iterator[str]:
    """Return the ids of sources that have a record. Raises `StorageError`."""
    for entry in listed(sink, f"{FENCE_FOLDER}/", f"{FENCE_FOLDER}0"):
        name = entry.path.removeprefix(f"{FENCE_FOLDER}/")
        source_id = name.removesuffix(".json")
        if source_id != name and not source_id.endswith(_MOVED):
            yield source_id


def with_move(sink: Storage, source_id: str, record: FenceRecord | None) -> FenceRecord | None:
    """Return the record, completed by a rename that only the second object records.

    Costs a LIST. Raises `StateError` if that object is invalid, `StorageError`.
    """
    path = moved_path(source_id)
    if not any(listed(sink, path.removesuffix(".json"), f"{path}0")):
        return record
    raw = sink.read(path)
    where = f"{sink.uri}/{path}"
    moved = decode_document(FenceRecord, parsed(raw, where), where, _REMEDY).moved_to
    return replace(record or FenceRecord(), moved_to=moved)


def contradiction(known: CommitPoint, record: FenceRecord) -> str | None:
    """Return how a record contradicts the commit point of a checkpoint, None if it does not.

    The checkpoint may be one ahead: it is saved first.
    """
    if record.moved_to:
        return f"the state was renamed to {record.moved_to}"
    if record.number > known.number:
        return (
            f"batch {record.batch} is commit point {record.number}, and the checkpoint ends at"
            f" number {known.number}"
        )
    if record.number and known.number - record.number > 1:
        return (
            f"batch {record.batch} is the newest, commit point {record.number}, and the checkpoint"
            f" goes on to number {known.number}: parts of the table's folder are of another moment"
        )
    same = record.batch == (known.batch if record.number == known.number else known.before)
    if record.number and not same:
        return f"commit point {record.number} is batch {record.batch}, which it does not know"
    return None


class FenceFile:
    """The record of one source, as its owner reads and writes it."""

    def __init__(self, sink: Storage, source_id: str, names: NameRange | None = None) -> None:
        self._names = names
        self._sink = sink
        self._source_id = source_id
        self._path = fence_path(source_id)
        self._where = f"{sink.uri}/{self._path}"
        self._version: str | None = None
        self._epoch = 0
        self._written = FenceRecord()

    @property
    def where(self) -> str:
        """The URI of the record, for messages."""
        return self._where

    def read(self) -> FenceRecord | None:
        """Return the record, None if there is none. The next write replaces this version only.

        Raises `StateError` if it is invalid, `StorageError`.
        """
        try:
            raw, self._version = self._sink.read_versioned(self._path)
        except NotFound:
            self._version = None
            return None
        return decode_document(FenceRecord, parsed(raw, self._where), self._where, _REMEDY)

    def take(self, epoch: int, known: CommitPoint) -> None:
        """Record that ``epoch`` has begun, for the owner of a checkpoint at ``known``.

        A process of an older epoch may have written the same commit point since `read`. Raises
        `FencedError` if any other process wrote, `StorageError`.
        """
        self._epoch = epoch
        for _ in range(_TAKE_TRIES):
            try:
                return self._write(FenceRecord(epoch, known.number, known.batch, range=self._names))
            except FencedError:
                found = self.read()
                if found is None or found.epoch >= epoch or contradiction(known, found):
                    raise
        raise FencedError(f"{self._where}: others write it again and again; this one stops")

    def check(self) -> None:
        """Raise `FencedError` if another process has taken the source over since `take`.

        This also works if the checkpoint was restored meanwhile. Raises as `read` does.
        """
        if not self._epoch:
            return
        record = FenceFile(self._sink, self._source_id).read()
        if record is not None and record.epoch > self._epoch:
            raise self._fenced(self._epoch)

    def advance(self, point: CommitPoint) -> None:
        """Record a saved commit point. Raises as `take` does."""
        if (self._written.number, self._written.batch) != (point.number, point.batch):
            self._write(FenceRecord(self._epoch, point.number, point.batch, range=self._names))

    def announce(self, target: str) -> None:
        """Record, beside the record, that the state moves to another name. Raises `StorageError`.

        Call it before a process can run under the new name. From now on a restored older
        checkpoint is refused.
        """
        moved = json.dumps({"moved_to": target}).encode()
        self._sink.put_atomic(moved_path(self._source_id), moved)

    def move(self, target: str) -> None:
        """Record that the state has another name now. Raises as `take` does."""
        self.announce(target)
        self._write(replace(self.read() or FenceRecord(), moved_to=target))

    def _write(self, record: FenceRecord) -> None:
        data = json.dumps({k: v for k, v in asdict(record).items() if v}).encode()
        try:
            self._version = self._sink.put_if(self._path, data, self._version)
        except Conflict:
            # Our own write, whose answer was lost, or that of a process that took over.
            try:
                raw, version = self._sink.read_versioned(self._path)
            except NotFound:
                raw, version = b"", ""
            if raw != data:
                raise self._fenced(record.epoch) from None
            self._version = version
        self._written = record

    def _fenced(self, epoch: int) -> FencedError:
        return FencedError(
            f"{self._where}: another process has published, or taken the source over, since"
            f" epoch {epoch} began; this one stops, and a new start looks at both"
        )
