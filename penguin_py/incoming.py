"""Which files are new, and what their footers say.

A footer costs one ranged GET of the file's last 64 KiB, and one more if it is
longer than that; many are read at the same time, as many as the pool has
threads. On a local disk handing a file to another thread costs more than reading
it, so there they are read one by one. The data itself is never downloaded.

What a file *is* and what the store *answers* are kept apart: a file that is not
sound Parquet is rejected for good, one that could not be read stays pending and
holds the watermark below itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_py.core.errors import NotFound, StorageError, Unavailable
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Storage
from penguin_py.model import Footer, Rejection

TAIL_BYTES = 1 << 16
# Magic at both ends and the footer's length: no Parquet file is shorter.
SHORTEST_BYTES = 12
MAGIC = b"PAR1"
# What to do about files that `Names` left out.
REMEDY = "file_pattern does not take these names; if no other engine writes here, widen it"
OUTPUT_ID_KEY = b"blizzard.output_id"
# Where Arrow's writer notes types that Parquet has none for.
ARROW_KEY = b"ARROW:schema"


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be read just now, and why."""

    entry: Entry
    error: StorageError


@dataclass(frozen=True, slots=True)
class Footers:
    """What became of a list of files; each is in exactly one of the four."""

    sound: tuple[Footer, ...]
    rejected: tuple[Rejection, ...]
    failed: tuple[Failure, ...]
    gone: tuple[Entry, ...]


def accepts(file_pattern: str) -> Callable[[str], bool]:
    """Whether a path's last component is a file name that the pattern takes whole."""
    pattern = re.compile(file_pattern)
    return lambda path: pattern.fullmatch(path.rpartition("/")[2]) is not None


class Names:
    """The same question asked of a listing; remembers the Parquet that it turned away."""

    def __init__(self, accept: Callable[[str], bool]) -> None:
        self._accept = accept
        self.left_out: list[str] = []

    def __call__(self, path: str) -> bool:
        """Whether the path is taken."""
        taken = self._accept(path)
        if not taken and path.endswith(".parquet"):
            self.left_out.append(path)
        return taken


class _Schemas:
    """Arrow schemas of Parquet ones. Files that arrive together are alike, so one is kept.

    What is kept is replaced in one step: threads may share it.
    """

    def __init__(self) -> None:
        self._latest: tuple[pq.ParquetSchema, bytes | None, pa.Schema] | None = None

    def of(self, metadata: pq.FileMetaData, pairs: Mapping[bytes, bytes]) -> pa.Schema:
        """The schema as Arrow reads it: of the Parquet columns and what the writer noted."""
        columns, note = metadata.schema, pairs.get(ARROW_KEY)
        latest = self._latest
        if latest is not None and latest[1] == note and latest[0].equals(columns):
            return latest[2]
        found = columns.to_arrow_schema()
        self._latest = (columns, note, found)
        return found


def read_footers(storage: Storage, entries: Sequence[Entry], pool: Executor | None) -> Footers:
    """Read all footers, at the same time if there is a ``pool``; in the order of ``entries``.

    A file that was removed since it was listed is ``gone``: there is nothing to
    commit and nothing to wait for.
    """
    schemas = _Schemas()

    def outcome(entry: Entry) -> Footer | Rejection | Failure | None:
        return _outcome(storage, entry, schemas)

    results = list(map(outcome, entries) if pool is None else pool.map(outcome, entries))
    return Footers(
        tuple(r for r in results if isinstance(r, Footer)),
        tuple(r for r in results if isinstance(r, Rejection)),
        tuple(r for r in results if isinstance(r, Failure)),
        tuple(e for e, r in zip(entries, results, strict=True) if r is None),
    )


def _outcome(
    storage: Storage, entry: Entry, schemas: _Schemas
) -> Footer | Rejection | Failure | None:
    try:
        return _read_footer(storage, entry, schemas)
    except NotFound:
        return None
    except StorageError as error:
        return Failure(entry, error)


def _read_footer(storage: Storage, entry: Entry, schemas: _Schemas) -> Footer | Rejection:
    """One file's footer, or why it has none. Raises `StorageError`."""
    size = entry.size
    if size < SHORTEST_BYTES:
        return _rejected(entry, f"is not Parquet: {size} bytes is too short")
    tail = _tail(storage, entry, min(size, TAIL_BYTES))
    if tail[-4:] != MAGIC:
        return _rejected(entry, "is not Parquet or is cut off: it does not end with PAR1")
    length = int.from_bytes(tail[-8:-4], "little")
    if length + SHORTEST_BYTES > size:
        return _rejected(entry, "is cut off: its footer is said to be longer than the file")
    if length + 8 > len(tail):
        tail = _tail(storage, entry, length + 8)
    try:
        # What `pq.read_metadata` is built on, without the rest of it: half the time.
        reader = pq.ParquetReader()
        reader.open(pa.BufferReader(tail))
        metadata = reader.metadata
        pairs = metadata.metadata or {}
        schema = schemas.of(metadata, pairs)
    except (pa.ArrowException, OSError, ValueError) as error:
        return _rejected(entry, f"has an unreadable Parquet footer: {' '.join(str(error).split())}")
    data_end = size - length - 8
    if _last_byte(metadata) > data_end:
        return _rejected(entry, "is cut off: its footer points past the end of its data")
    output_id = pairs.get(OUTPUT_ID_KEY)
    return Footer(
        entry, schema, metadata, None if output_id is None else output_id.decode("utf-8", "replace")
    )


def _rejected(entry: Entry, reason: str) -> Rejection:
    return Rejection(entry, "read", reason)


def _tail(storage: Storage, entry: Entry, count: int) -> bytes:
    data = storage.read_range(entry.path, entry.size - count, entry.size)
    if len(data) != count:
        raise Unavailable(f"{storage.uri}/{entry.path}: changed while it was read")
    return data


def _last_byte(metadata: pq.FileMetaData) -> int:
    """Where the last column chunk ends, by the footer."""
    end = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                start = min(start, chunk.dictionary_page_offset)
            end = max(end, start + chunk.total_compressed_size)
    return end
