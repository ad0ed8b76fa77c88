"""Single records of a source file, read again: for dead letters that hold only a beginning."""

from __future__ import annotations

from collections.abc import Collection

from blizzard_core.limits import LINE_BYTES
from blizzard_core.settings.formats import FormatSettings
from blizzard_core.storage.protocol import Storage
from blizzard_py.formats.names import format_of
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import JobFile, RowSchema
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.framing import RefusedRecord


def read_records(
    storage: Storage,
    file: JobFile,
    wanted: Collection[int],
    most: int,
    settings: FormatSettings,
) -> dict[int, bytes]:
    """Return the wanted records (by number, from 1) without line ends; missing ones are left out.

    Reads up to the last of them, a piece at a time. Each stored byte of the file may become
    ``most`` (`Expansion`). Raises `FileFailed` if the file cannot be read that far, `ValueError` if
    a wanted record is too long to be ingested.
    """
    form = format_of(settings)
    decoder = form.decoder(RowSchema(()), tolerant=True, fast=False)
    found: dict[int, bytes] = {}
    numbers = sorted(set(wanted), reverse=True)
    before = 0  # numbers of earlier pieces
    with SourceFile(storage, file, Expansion(file.size, most)) as opened_file:
        for item in opened_file.pieces(form, RowSchema(())):
            before += item.skipped
            count = 1 if isinstance(item, RefusedRecord) else item.lines or item.data.count(b"\n")
            chosen = []
            while numbers and numbers[-1] <= before + count:
                chosen.append(numbers.pop())
            if isinstance(item, RefusedRecord):
                if chosen and item.length > len(item.head):
                    raise ValueError(f"line {chosen[0]} is longer than {LINE_BYTES} bytes")
                found |= dict.fromkeys(chosen, item.head)
            elif chosen:
                records = decoder.records(item)
                there = [number for number in chosen if number - before - 1 in records]
                found |= {number: records[number - before - 1][1] for number in there}
            before += count
            if not numbers:
                break
    return found
