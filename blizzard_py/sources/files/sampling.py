"""The files a schema is inferred from, and their first records."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Collection
from dataclasses import dataclass, replace

from blizzard_core.errors import Unavailable
from blizzard_core.settings.formats import FileFormat, NdjsonOptions
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_py.formats.names import format_of
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import FieldSpec, JobFile, RowSchema
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.failure import ArchiveFound, FileFailed
from blizzard_py.lines.framing import Piece
from blizzard_py.schema.file_types import named_columns
from blizzard_py.schema.inference import Inference

_LINES = NdjsonOptions()


@dataclass(frozen=True, slots=True)
class FirstRecords:
    """Records from the beginning of a file as lines of JSON, and the columns that it names.

    ``columns`` are as `Inference.add_columns` takes them, once for each part that differs.
    ``problem`` is why the file cannot be read on.
    """

    lines: list[bytes]
    columns: list[dict[str, FieldSpec | None]]
    problem: str = ""


def add_sample(
    inference: Inference,
    storage: Storage,
    file: Entry,
    limit: int,
    settings: FileFormat,
    skipped: Collection[str] = (),
) -> int:
    """Add the beginning of a file to an inference, and return its size; see `first_records`."""
    found = first_records(storage, file, limit, settings, skipped)
    for columns in found.columns:
        inference.add_columns(columns, file.path)
    if found.problem:
        inference.add_problem(f"{file.path}: {found.problem}")
    for number, line in enumerate(found.lines, 1):
        inference.add(line, f"{file.path}, line {number}")
    return sum(map(len, found.lines))


def first_records(
    storage: Storage,
    file: Entry,
    limit: int,
    settings: FileFormat = _LINES,
    skipped: Collection[str] = (),
) -> FirstRecords:
    """Return the records within the first ``limit`` decompressed bytes of a file.

    Those of ``skipped`` members of an archive are left out.
    There are none if the format has fixed columns. A file that is damaged or gone gives the records
    that could be read and the problem, since its verdict is the ingest's. Raises `Unavailable` if
    the store does not answer.
    """
    found = FirstRecords([], [])
    if settings.fixed_columns:
        return found
    try:
        if settings.type != "ndjson":
            _read_pieces(storage, file, limit, settings, found, skipped)
        else:
            _read_lines(storage, file, limit, found, skipped)
    except FileFailed as error:
        if error.outcome == "retry":
            raise Unavailable(f"{storage.uri}/{file.path}: {error.reason}") from error
        return replace(found, problem=error.reason)
    return found


def _read_lines(
    storage: Storage, file: Entry, limit: int, found: FirstRecords, skipped: Collection[str]
) -> None:
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
        _read_pieces(storage, file, limit, _LINES, found, skipped)
        return
    finally:
        lines = bytes(data[:limit]).removeprefix(BOM_UTF8).split(b"\n")
        found.lines.extend(lines if whole else lines[:-1])


def _read_pieces(
    storage: Storage,
    file: Entry,
    limit: int,
    settings: FileFormat,
    found: FirstRecords,
    skipped: Collection[str],
) -> None:
    # Without a declared column all columns are unexpected.
    form, schema = format_of(settings), RowSchema((), evolves=True)
    decoder = form.decoder(schema, tolerant=True, fast=False)
    size = 0
    with SourceFile(storage, JobFile(file.path, file.size)) as opened_file:
        for item in opened_file.pieces(form, schema):
            if not isinstance(item, Piece) or item.member in skipped:
                continue
            if (columns := named_columns(decoder.columns(item))) not in found.columns:
                found.columns.append(columns)
            for line in decoder.as_lines(item).split(b"\n")[:-1]:
                size += len(line) + 1
                if size > limit:
                    return
                found.lines.append(line)
