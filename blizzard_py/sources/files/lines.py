"""Single records of a source file, read again: for dead letters that hold only a beginning."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from blizzard_core.limits import LINE_BYTES
from blizzard_core.settings.formats import FileFormat
from blizzard_core.storage.protocol import Storage
from blizzard_py.formats.names import format_of
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import JobFile, RowSchema
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.framing import RefusedRecord

_ALL_COLUMNS = RowSchema(())


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record without its line end, and its file's header if it cannot be read without it."""

    raw: bytes
    header: bytes


def read_records(
    storage: Storage,
    file: JobFile,
    wanted: Collection[int],
    most: int,
    settings: FileFormat,
    schema: RowSchema = _ALL_COLUMNS,
) -> dict[int, FoundRecord]:
    """Return the wanted records (by number, from 1); missing ones are left out.

    Reads up to the last of them, a piece at a time. Formats that store columns read those of
    ``schema``. Each stored byte of the file may become ``most`` (`Expansion`). Raises `FileFailed`
    if the file cannot be read that far, `ValueError` if a wanted record is too long to be ingested.
    """
    form = format_of(settings)
    decoder = form.decoder(schema, tolerant=True, fast=False)
    found: dict[int, FoundRecord] = {}
    numbers = sorted(set(wanted), reverse=True)
    before = 0  # numbers of earlier pieces
    with SourceFile(storage, file, Expansion(file.size, most)) as opened_file:
        for item in opened_file.pieces(form, schema):
            before += item.skipped
            count = 1 if isinstance(item, RefusedRecord) else item.lines or item.data.count(b"\n")
            chosen = []
            while numbers and numbers[-1] <= before + count:
                chosen.append(numbers.pop())
            if isinstance(item, RefusedRecord):
                if chosen and item.length > len(item.head):
                    limit = LINE_BYTES if item.length > LINE_BYTES else len(item.head)
                    raise ValueError(f"line {chosen[0]} is longer than {limit} bytes")
                found |= dict.fromkeys(chosen, FoundRecord(item.head, item.header))
            elif chosen:
                records = decoder.records(item)
                there = [number for number in chosen if number - before - 1 in records]
                for number in there:
                    _, raw, header = records[number - before - 1]
                    found[number] = FoundRecord(raw, header)
            before += count
            if not numbers:
                break
    return found
