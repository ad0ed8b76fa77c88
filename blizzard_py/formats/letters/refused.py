"""Letters of which no replay can make rows. They come again as they are, each by itself. Pure.

A file of them has a header of its own, and a line for each letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.letters.header import (
    REFUSED,
    header_fault,
    header_of,
    header_text,
    is_refused,
)
from blizzard_py.formats.protocol import NO_OFFSET
from blizzard_py.lines.failure import bounded
from blizzard_py.lines.framing import RefusedRecord, framed


def refusal(letter: DeadLetter, *, of_table: bool) -> str:
    """Return why no row can be made of a letter, with the remedy; nothing if it may be one.

    Letters ``of_table`` without a header are lines of NDJSON.
    """
    if letter.truncated:
        return (
            f"its letter has only {len(letter.raw):,} of its {letter.length:,} bytes; bring the"
            " record to its source again, changed or in a new file, and discard the letter"
        )
    if fault := header_fault(letter.header):
        return fault
    if letter.header:
        is_sound = header_of(letter.header) is not None and not is_refused(letter.header)
        return "" if is_sound else "its letter has a header that is none; discard the letter"
    if not of_table:
        return "its letter has no header; discard it, and bring its file again"
    is_header = header_of(letter.raw) is not None or header_fault(letter.raw)
    return "is no object, but a header of letters" if is_header else ""


def refused_content(letters: Sequence[tuple[DeadLetter, str]]) -> bytes:
    """Return a file of letters, each with the reason why it is refused."""
    lines = [_line(letter, why) for letter, why in letters]
    return b"".join(line + b"\n" for line in (header_text(REFUSED, {}), *lines))


def _line(letter: DeadLetter, why: str) -> bytes:
    document = {
        "error": why,
        "length": max(letter.length, len(letter.raw) + letter.truncated),
        "header": letter.header.decode("utf-8", "surrogateescape"),
        "raw": letter.raw.decode("utf-8", "surrogateescape"),
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")


def refused_records(blocks: Iterable[bytes]) -> Iterator[RefusedRecord]:
    """Yield the letters of a file that `refused_content` has made."""
    skipped, is_header = 1, True
    for item in framed(blocks):
        if isinstance(item, RefusedRecord):
            found = [replace(item, offset=NO_OFFSET)]
        else:
            found = [_record(line) for line in item.data.split(b"\n")[is_header:-1]]
        for record in found:
            yield replace(record, skipped=skipped)
            skipped = 0
        is_header = False


def _record(line: bytes) -> RefusedRecord:
    try:
        found = json.loads(line)
        raw, header = (found[key].encode("utf-8", "surrogateescape") for key in ("raw", "header"))
        length, why = int(found["length"]), bounded(found["error"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        return RefusedRecord(NO_OFFSET, len(line), line, "is no letter that was refused")
    return RefusedRecord(NO_OFFSET, max(length, len(raw)), raw, why, header=header)
