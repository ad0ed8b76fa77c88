"""The files a schema is inferred from, and their first lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from blizzard_core.errors import Unavailable
from blizzard_core.settings.formats import FormatSettings, NdjsonOptions
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_py.formats.names import format_of
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import FieldSpec, JobFile, RowSchema
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.failure import ArchiveFound, FileFailed
from blizzard_py.lines.framing import Piece
from blizzard_py.schema.arrow_fields import field_of
from blizzard_py.schema.inference import Inferred

if TYPE_CHECKING:
    from blizzard_py.formats.typed_rows import TypedDecoder

_LINES = NdjsonOptions()
_BOM = b"\xef\xbb\xbf"


def chosen(files: Sequence[Entry], count: int) -> list[Entry]:
    """Return at most ``count`` files, evenly spread: the first, the last and some between.

    Formats change with time, so neighbours show less than distant files.
    """
    if len(files) <= count:
        return list(files)
    if count == 1:
        return [files[-1]]
    last = len(files) - 1
    return [files[round(index * last / (count - 1))] for index in range(count)]


def first_lines(
    storage: Storage, file: Entry, limit: int, settings: FormatSettings = _LINES
) -> list[bytes]:
    """Return the records within the first ``limit`` decompressed bytes of a file, as lines of JSON.

    There are none if the format has fixed columns. A file that is damaged or gone gives the lines
    that could be read, since its verdict is the ingest's. Raises `Unavailable` if the store does
    not answer.
    """
    if settings.fixed_columns:
        return []
    if settings.type != "ndjson":
        return _first_records(storage, file, limit, settings)
    data = bytearray()
    whole = False
    try:
        with opened(storage, JobFile(file.path, file.size)) as blocks:
            for block in blocks:
                data += block
                if len(data) > limit:
                    break
            else:
                whole = True
    except ArchiveFound:
        return _first_records(storage, file, limit, settings)
    except FileFailed as error:
        if error.outcome == "retry":
            raise Unavailable(f"{storage.uri}/{file.path}: {error.reason}") from error
    lines = bytes(data[:limit]).removeprefix(_BOM).split(b"\n")
    return lines if whole else lines[:-1]


def with_file_types(
    found: Inferred, storage: Storage, files: Sequence[Entry], settings: FormatSettings
) -> Inferred:
    """Return inferred columns with the types that the files name, if all of them name one.

    JSON has fewer types than files such as Parquet. Raises `Unavailable` if the store does not
    answer.
    """
    from blizzard_py.formats.typed_rows import TypedDecoder  # noqa: PLC0415  # it loads pandas

    decoder = format_of(settings).decoder(RowSchema(()), tolerant=True, fast=False)
    if not isinstance(decoder, TypedDecoder):
        return found
    named: dict[str, set[FieldSpec]] = {}
    for file in files:
        for spec in _columns_of(storage, file, settings, decoder):
            named.setdefault(spec.name, set()).add(spec)
    known = {name: specs.pop() for name, specs in named.items() if len(specs) == 1}
    # A column without a common form, such as one of odd names, stays JSON text.
    fields = tuple(
        spec if spec.type == "json" else known.get(spec.name, spec) for spec in found.fields
    )
    return replace(found, fields=fields, nulls=found.nulls - known.keys())


def _columns_of(
    storage: Storage, file: Entry, settings: FormatSettings, decoder: TypedDecoder
) -> list[FieldSpec]:
    """Return the columns of a file; none of one that cannot be read."""
    try:
        with SourceFile(storage, JobFile(file.path, file.size)) as opened_file:
            for item in opened_file.pieces(format_of(settings), RowSchema(())):
                if isinstance(item, Piece):
                    types = decoder.rows(item).types.items()
                    return [
                        field_of(pa.field(name, kind))
                        for name, kind in types
                        if not isinstance(kind, pa.JsonType)  # of which each value has its own
                    ]
    except FileFailed as error:
        if error.outcome == "retry":
            raise Unavailable(f"{storage.uri}/{file.path}: {error.reason}") from error
    return []


def _first_records(
    storage: Storage, file: Entry, limit: int, settings: FormatSettings
) -> list[bytes]:
    # Without a declared column all columns are unexpected.
    form, schema = format_of(settings), RowSchema((), evolves=True)
    decoder = form.decoder(schema, tolerant=True, fast=False)
    found: list[bytes] = []
    size = 0
    try:
        with SourceFile(storage, JobFile(file.path, file.size)) as opened_file:
            for item in opened_file.pieces(form, schema):
                if isinstance(item, Piece):
                    for line in decoder.as_lines(item).split(b"\n")[:-1]:
                        size += len(line) + 1
                        if size > limit:
                            return found
                        found.append(line)
    except FileFailed as error:
        if error.outcome == "retry":
            raise Unavailable(f"{storage.uri}/{file.path}: {error.reason}") from error
    return found
