"""The files a schema is inferred from, and their first lines."""

from __future__ import annotations

from collections.abc import Sequence

from blizzard_core.errors import Unavailable
from blizzard_core.settings.formats import FormatSettings, NdjsonOptions
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_py.formats.names import format_of
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import JobFile, RowSchema
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.failure import ArchiveFound, FileFailed
from blizzard_py.lines.framing import Piece

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
