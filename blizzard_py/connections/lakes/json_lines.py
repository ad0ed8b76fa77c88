"""Directories of NDJSON files as a source: each file is scanned, lines are filtered.

Tasks pass lines unchanged to the line parser. So numbers keep their digits, and types and bad
records are those of every other JSON source. A line that is no JSON object has no watermark. It is
read once, with the window of the file's highest value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_core.storage.protocol import Storage
from blizzard_py.connections.lakes.declared_columns import (
    DeclaredColumn,
    declare_columns,
    watermark_columns,
)
from blizzard_py.connections.lakes.directory import DirectoryConnection
from blizzard_py.connections.lakes.file_facts import FileFacts
from blizzard_py.connections.lakes.file_plan import PlannedFile, files_of, window_of
from blizzard_py.connections.lakes.filters import Filter, parse
from blizzard_py.connections.lakes.locations import StorageCache, storage_options, translate_errors
from blizzard_py.connections.lakes.text_files import (
    RangeCollector,
    accepted,
    blocks,
    filter_columns,
)
from blizzard_py.connections.lakes.window import RowWindow
from blizzard_py.connections.lakes.window_rows import check_unchanged
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.job import FieldSpec
from blizzard_py.lines.codecs.names import CODEC_ENDINGS
from blizzard_py.lines.framing import Piece, RefusedRecord, framed
from blizzard_py.reading import Access, BoundKind

_KINDS = (".json", ".ndjson", ".jsonl")
_SAMPLE_BYTES = 1 << 20
# Invalid JSON that hides no watermark: NaN and infinity, and half a surrogate pair.
_ODD = (
    re.compile(rb"(?<=[\s:,\[-])(?:NaN|Infinity)(?=[\s,\]}])"),
    re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"),
)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_whole = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class JsonForm:
    """The format NDJSON as a `Form`."""

    columns: Sequence[DeclaredColumn]
    driver: str = "json"
    endings: tuple[str, ...] = tuple(
        kind + end for kind in _KINDS for end in ("", *CODEC_ENDINGS.values())
    )
    bounds: tuple[BoundKind, ...] = ("rows",)
    has_schema: bool = False

    def facts(self, storage: Storage, file: PlannedFile, columns: Sequence[str]) -> FileFacts:
        """Scan the file once; without columns read only the beginning, for names and types."""
        if not columns:
            return FileFacts(_sampled(storage, file), {}, {})
        tally = RangeCollector(self.columns)
        check_unchanged(storage, file)
        with blocks(storage, file) as found:
            for chunk in framed(found):
                if isinstance(chunk, Piece):
                    lines = _lines(chunk.data, self.columns)
                    tally.add(lines.arrays, lines.unread)
                    tally.bad += len(lines.bad)
                else:
                    tally.bad += 1
        check_unchanged(storage, file)
        schema = pa.schema([(each.name, each.type) for each in self.columns])
        return FileFacts(schema, tally.orders, tally.ranges, tally.unread_in_all)

    def extra(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}


def connect(access: Access, selection: ReadSelection) -> DirectoryConnection:
    """Return the NDJSON files of a directory."""
    form = JsonForm(watermark_columns(selection))
    return DirectoryConnection(access, selection, form)


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """Yield the lines of the window, unchanged. A `Reader`."""
    stores = StorageCache(storage_options(access))
    window = window_of(spec)
    condition = parse(spec["filter"])
    columns = declare_columns(filter_columns(window, condition), fields)
    for file in files_of(spec):
        storage = stores.at(file.name.root)
        with translate_errors("a planned file"):
            check_unchanged(storage, file)
            with blocks(storage, file) as found:
                yield from _filter_lines(framed(found), window, condition, columns, file)
            check_unchanged(storage, file)


def _filter_lines(
    chunks: Iterator[Piece | RefusedRecord],
    window: RowWindow | None,
    condition: Filter | None,
    columns: Sequence[DeclaredColumn],
    file: PlannedFile,
) -> Iterator[bytes]:
    for chunk in chunks:
        if isinstance(chunk, RefusedRecord):
            if file.has_bad:
                # JSON has no null byte, so the rest of the line is a bad record.
                yield chunk.head + b"\0\n"
        elif not columns:
            yield chunk.data
        else:
            lines = _lines(chunk.data, columns)
            arrays = dict(zip([each.name for each in columns], lines.arrays, strict=True))
            keep = accepted(window, condition, arrays, len(lines.good), file.name.path)
            found = [
                line for line, keeps in zip(lines.good, keep.to_pylist(), strict=True) if keeps
            ]
            if file.has_bad:
                found += lines.bad
            if found:
                yield b"\n".join(found) + b"\n"


@dataclass(frozen=True, slots=True)
class _Lines:
    """A chunk's records, each column's values in them, and the lines that are not records."""

    good: list[bytes]
    arrays: list[pa.Array]
    bad: list[bytes]
    unread: int


def _lines(data: bytes, columns: Sequence[DeclaredColumn]) -> _Lines:
    good: list[bytes] = []
    bad: list[bytes] = []
    values: list[list[Any]] = [[] for _ in columns]
    unread = 0
    for line in data.split(b"\n"):
        if not line or line.isspace():
            continue
        members = _read(line)
        if members is None:
            bad.append(line)
            continue
        good.append(line)
        for column, found in zip(columns, values, strict=True):
            raw = members.get(column.name)
            value = column.of_json(raw)
            unread += value is None and raw is not None and bytes(raw) != b"null"
            found.append(value)
    arrays = [column.array(found) for column, found in zip(columns, values, strict=True)]
    return _Lines(good, arrays, bad, unread)


def _read(line: bytes, odd: Sequence[re.Pattern[bytes]] = _ODD) -> dict[str, msgspec.Raw] | None:
    """Return the members of a record; None for a line that is none."""
    try:
        return _members.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read(odd[0].sub(b"0", line), odd[1:]) if odd else None


def _sampled(storage: Storage, file: PlannedFile) -> pa.Schema:
    """Return names and types of a file's first lines."""
    import pyarrow.json as pj  # noqa: PLC0415  # for this alone

    with blocks(storage, file) as found:
        first = next((chunk for chunk in framed(found, _SAMPLE_BYTES)), None)
    if not isinstance(first, Piece):
        return pa.schema([])
    try:
        for line in first.data.split(b"\n"):
            # Arrow recurses as deep as a line is nested, and ends the process if its stack is too
            # small. This decoder stops at a thousand levels.
            if line and not line.isspace():
                _whole.decode(line)
        return pj.read_json(pa.BufferReader(first.data)).schema
    except (pa.ArrowInvalid, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(
            f"{storage.uri}/{file.name.path}: its first lines are not NDJSON"
        ) from error
