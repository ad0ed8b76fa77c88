"""New files and their footers.

A footer costs one ranged GET of the file's last 64 KiB, and one more if it is longer. Many are
read concurrently, up to the pool's threads; long ones are read one after the other. Their memory
is limited, since a hostile footer takes thirty times its length: files beyond the limit are left
for the next batch. On a local disk a thread hand-over costs more than a read, so files are read
one by one. The data itself is never downloaded.

Bad files and store failures are handled differently. A file that is not sound Parquet is rejected
for good. A file that could not be read stays pending and holds the watermark below itself.
"""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import NotFound, StorageError, Unavailable
from blizzard_core.handover import outputs as handover
from blizzard_core.limits import FOOTER_BYTES, FOOTER_ITEMS, FOOTERS_DECODED_BYTES, OUTPUT_ID_BYTES
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.table.extent import check_extent
from blizzard_core.table.footer_check import FooterCheck
from blizzard_core.table.schema_fit import SchemaMismatch, check_note
from penguin_py.intake.file_contract import (
    ARROW_KEY,
    MOST_DECODED,
    check_calendar,
    check_columns,
    check_rows,
    decoded_bytes,
    noted,
)
from penguin_py.intake.naming import is_grouped
from penguin_py.model import Footer, Rejection

TAIL_BYTES = 1 << 16
# Magic at both ends and the footer's length: no Parquet file is shorter.
SHORTEST_BYTES = 12
MAGIC = b"PAR1"
# The remedy for files that `Names` left out.
REMEDY = "advanced.file_pattern does not take these names; if no other engine writes here, widen it"
OUTPUT_ID_KEY = handover.OUTPUT_ID_KEY.encode()
# Decoded footers are reference cycles. Beyond this size they are collected explicitly, before
# more is decoded.
LARGE_BYTES = 16 << 20
# Footers that are held at once.
AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be read just now, and why."""

    entry: Entry
    error: StorageError


@dataclass(frozen=True, slots=True)
class Footers:
    """The outcomes of a list of files; each file is in exactly one of the five.

    ``unread`` files were not read, because earlier footers fill the memory limit.
    ``memory_bytes`` is the memory of the sound footers.
    """

    sound: tuple[Footer, ...]
    rejected: tuple[Rejection, ...]
    failed: tuple[Failure, ...]
    missing: tuple[Entry, ...]
    unread: tuple[Entry, ...] = ()
    memory_bytes: int = 0


def accepts(file_pattern: str) -> Callable[[str], bool]:
    """Return whether a path's last component is a file name that the pattern takes whole.

    Files of groups are never taken: only their manifests make them known.
    """
    pattern = re.compile(file_pattern)
    return lambda path: (
        pattern.fullmatch(path.rpartition("/")[2]) is not None and not is_grouped(path)
    )


class Names:
    """A filter of listed files by name that remembers the Parquet files that it turned away."""

    def __init__(self, accept: Callable[[str], bool]) -> None:
        self._accept = accept
        self.excluded: list[str] = []

    def __call__(self, entry: Entry) -> bool:
        """Return whether the file is taken."""
        path = entry.path
        is_accepted = self._accept(path)
        if not is_accepted and path.endswith(".parquet") and not is_grouped(path):
            self.excluded.append(path)
        return is_accepted


@dataclass(frozen=True, slots=True)
class _Known:
    """A Parquet schema with its note, found to be fine, and what Arrow reads it as."""

    columns: pq.ParquetSchema
    note: bytes | None
    schema: pa.Schema


class _Reading:
    """The shared state of the readers of one list of files. Thread-safe.

    Files that arrive together are alike, so one schema is stored. It is replaced in one step. Long
    footers are read one by one.
    """

    def __init__(self) -> None:
        self._latest: _Known | None = None
        self.check = FooterCheck()
        self.long_ones = threading.Lock()
        self._counting = threading.Lock()
        self.memory_bytes = 0
        self._dropped = 0

    def is_full(self, length: int) -> bool:
        """Return whether a footer of this length may exceed the limit; the first one never does."""
        return (
            self.memory_bytes > 0
            and self.memory_bytes + MOST_DECODED * length > FOOTERS_DECODED_BYTES
        )

    def keep(self, size: int) -> None:
        """Count the memory of a footer that stays in memory."""
        with self._counting:
            self.memory_bytes += size

    def drop(self, size: int) -> None:
        """Count the memory of a dropped footer; collect garbage if it adds up."""
        with self._counting:
            self._dropped += size
            if self._dropped > LARGE_BYTES:
                self._dropped = 0
                gc.collect()

    def schema_of(self, metadata: pq.FileMetaData, pairs: Mapping[bytes, bytes]) -> pa.Schema:
        """Return the schema of the columns and the writer's note. Raises `SchemaMismatch`."""
        columns, note = metadata.schema, pairs.get(ARROW_KEY)
        known = self._latest
        if known is None or known.note != note or not known.columns.equals(columns):
            check_columns(metadata, note)
            found = columns.to_arrow_schema()
            check_extent(found)
            if note is not None:
                check_note(noted(note), found)
            known = _Known(columns, note, found)
            self._latest = known
        return known.schema


def read_footers(storage: Storage, entries: Sequence[Entry], pool: Executor) -> Footers:
    """Read all footers in ``pool``, in the order of ``entries``.

    A file that was removed since the listing is ``missing``, and nothing waits for it.
    """
    reading = _Reading()

    def outcome(entry: Entry) -> Footer | Rejection | Failure | _Outcome:
        return _outcome(storage, entry, reading)

    results = list(pool.map(outcome, entries))
    paired = list(zip(entries, results, strict=True))
    return Footers(
        tuple(r for r in results if isinstance(r, Footer)),
        tuple(r for r in results if isinstance(r, Rejection)),
        tuple(r for r in results if isinstance(r, Failure)),
        tuple(entry for entry, r in paired if r is _Outcome.MISSING),
        tuple(entry for entry, r in paired if r is _Outcome.UNREAD),
        reading.memory_bytes,
    )


def read_portions(storage: Storage, entries: Sequence[Entry], pool: Executor) -> Iterator[Footers]:
    """Yield all footers in portions. Raises the `StorageError` of a file that cannot be read."""
    while entries:
        found = read_footers(storage, entries[:AT_ONCE], pool)
        if found.failed:
            raise found.failed[0].error
        yield found
        entries = [*found.unread, *entries[AT_ONCE:]]


class _Outcome(Enum):
    MISSING = auto()
    UNREAD = auto()


def _outcome(
    storage: Storage, entry: Entry, reading: _Reading
) -> Footer | Rejection | Failure | _Outcome:
    try:
        return _read_footer(storage, entry, reading)
    except NotFound:
        return _Outcome.MISSING
    except StorageError as error:
        return Failure(entry, error)
    except SchemaMismatch as misfit:
        return Rejection(entry, "read", str(misfit))


def _read_footer(
    storage: Storage, entry: Entry, reading: _Reading
) -> Footer | Rejection | _Outcome:
    """Read one file's footer, or reject it. Raises `SchemaMismatch` and `StorageError`."""
    size = entry.size
    if size < SHORTEST_BYTES:
        raise SchemaMismatch(f"is not Parquet: {size} bytes is too short")
    if reading.is_full(0):
        return _Outcome.UNREAD
    tail = _tail(storage, entry, min(size, TAIL_BYTES))
    if tail[-4:] != MAGIC:
        raise SchemaMismatch("is not Parquet or is cut off: it does not end with PAR1")
    length = int.from_bytes(tail[-8:-4], "little")
    if length + SHORTEST_BYTES > size:
        raise SchemaMismatch("is cut off: its footer is said to be longer than the file")
    if length > FOOTER_BYTES:
        raise SchemaMismatch(
            f"has a footer of {length:,} bytes; at most {FOOTER_BYTES:,} are read."
            " Write it with fewer and larger row groups"
        )
    if length + 8 <= len(tail):
        return _decoded(entry, tail, length, reading)
    with reading.long_ones:
        if reading.is_full(length):
            return _Outcome.UNREAD
        if MOST_DECODED * length > LARGE_BYTES:
            gc.collect()  # an earlier one, which nobody needs, may still be in memory
        return _decoded(entry, _tail(storage, entry, length + 8), length, reading)


def _decoded(entry: Entry, tail: bytes, length: int, reading: _Reading) -> Footer | Rejection:
    """Decode the footer at the end of ``tail``, or reject it. Raises `SchemaMismatch`."""
    reading.check(tail[-8 - length : -8], entry.size - length - 8)
    metadata = None
    try:
        # The core of `pq.read_metadata`, in half the time.
        reader = pq.ParquetReader()
        reader.open(pa.BufferReader(tail), thrift_container_size_limit=FOOTER_ITEMS)
        metadata = reader.metadata
        found = _checked(entry, metadata, reading)
        reading.keep(decoded_bytes(metadata, length))
        return found
    except SchemaMismatch as misfit:
        rejection = Rejection(entry, "schema", str(misfit))
    except (pa.ArrowException, OSError, ValueError) as error:
        text = " ".join(str(error).split())
        rejection = Rejection(entry, "read", f"has an unreadable Parquet footer: {text}")
    most = MOST_DECODED * length
    reading.drop(most if metadata is None else decoded_bytes(metadata, length))
    return rejection


def _checked(entry: Entry, metadata: pq.FileMetaData, reading: _Reading) -> Footer:
    """Return the footer if it is sound. Raises `SchemaMismatch`."""
    pairs = metadata.metadata or {}
    schema = reading.schema_of(metadata, pairs)
    check_rows(metadata, entry.size)
    check_calendar(metadata, schema, pairs)
    output_id = pairs.get(OUTPUT_ID_KEY)
    if output_id is not None and len(output_id) > OUTPUT_ID_BYTES:
        raise SchemaMismatch(
            f"carries a {OUTPUT_ID_KEY.decode()} of {len(output_id):,} bytes; Blizzard's have"
            f" {OUTPUT_ID_BYTES:,} at most"
        )
    return Footer(
        entry, schema, metadata, None if output_id is None else output_id.decode("utf-8", "replace")
    )


def _tail(storage: Storage, entry: Entry, count: int) -> bytes:
    data = storage.read_range(entry.path, entry.size - count, entry.size)
    if len(data) != count:
        raise Unavailable(f"{storage.uri}/{entry.path}: changed while it was read")
    return data
