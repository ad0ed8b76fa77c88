"""The first line of a file of letters: what their rows need beside their values. Pure.

::

    ["letters", {"letters": "rows", "columns": {"id": "int64", "at": "timestamp[ns, tz=UTC]"},
                 "calendars": {"at": ["unknown"]}, "unread": ["note"]}]

A row is an object, so no row can be taken for a header, whatever its columns are called.
``columns`` have the types of the file. ``unread`` names its other columns, which the letters lack;
it is true if they are too many to be named. Formats may have other members. Records of a table of
texts have ``around`` instead: what their file says around its records, such as the header of CSV.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from blizzard_core.limits import LETTER_BYTES, LETTER_COLUMNS, ROW_BYTES
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.letters.soundness import values_per_row
from blizzard_py.job import RowSchema

_KIND, ROWS, SHEET, TEXT, REFUSED = "letters", "rows", "sheet", "text", "refused"
# Names beyond these bytes are left out, since each letter has the header.
_NAMES_BYTES = 32 << 10
FROM_SOURCE = "replay them with --from-source"
_TOO_LARGE = "was too large for its letters; bring their records to the source again"


def header_text(kind: str, members: Mapping[str, Any], unread: Sequence[str] = ()) -> bytes:
    """Return a header of ``kind``. One that would be refused, or is too long, says only that."""
    is_short = sum(map(len, unread)) <= _NAMES_BYTES and len(unread) <= LETTER_COLUMNS
    some: Any = unread if is_short else True
    line = _line({_KIND: kind, **members, **({"unread": some} if unread else {})})
    if len(line) <= ROW_BYTES and header_of(line) is not None:
        return line
    return _line({_KIND: kind, "too_large": True})


def _line(members: Mapping[str, Any]) -> bytes:
    return json.dumps([_KIND, members], ensure_ascii=False).encode("utf-8", "backslashreplace")


class _Found(NamedTuple):
    """A line as a header: with members, with a ``fault``, or with neither if it is none."""

    members: Mapping[str, Any] | None = None
    values: int = 0
    fault: str = ""


def header_of(line: bytes) -> Mapping[str, Any] | None:
    """Return the members of a sound header; None for another line."""
    return _found(line).members


def values_of(line: bytes) -> int:
    """Return how many values a row behind this header may have."""
    return _found(line).values


def header_fault(line: bytes) -> str:
    """Return why a line is no sound header, with the remedy; nothing for a line that is none."""
    return _found(line).fault


def _found(line: bytes) -> _Found:
    return _parsed(line) if len(line) <= LETTER_BYTES else _Found()


@lru_cache(maxsize=8)
def _parsed(line: bytes) -> _Found:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return _Found()
    match found:
        case ["letters", {"letters": "rows" | "sheet" | "text", "too_large": True}]:
            return _Found(fault=f"the header of its letters {_TOO_LARGE}")
        case ["letters", {"letters": "rows" | "sheet" | "text" | "refused" as kind} as members]:
            try:
                return _Found(members, values_per_row(kind, members))
            except ValueError as error:
                then = "discard them, and bring their file again"
                return _Found(fault=f"the header of its letters {error}; {then}")
    return _Found()


def text_header(around: bytes) -> bytes:
    """Return a header of kind `TEXT`."""
    return header_text(TEXT, {"around": around.decode("utf-8", "surrogateescape")})


def is_refused(line: bytes) -> bool:
    """Return whether a line is the header of records that no replay can read."""
    return (header_of(line) or {}).get(_KIND) == REFUSED


def around_of(line: bytes) -> bytes | None:
    """Return what a header of kind `TEXT` has around its records; None for another line."""
    header = header_of(line) or {}
    around = header.get("around") if header.get(_KIND) == TEXT else None
    return around.encode("utf-8", "surrogateescape") if isinstance(around, str) else None


def unread_column(line: bytes, schema: RowSchema) -> str:
    """Return why letters with this header cannot be replayed, if they lack a column of their file.

    There is nothing to say of another line.
    """
    header = header_of(line) or {}
    unread = header.get("unread", ())
    names = [spec.name for spec in schema.fields]
    if unread is True:
        known = header.get("columns", {})
        lacking = [name for name in names if name not in known]
    elif schema.evolves or schema.unexpected_fields == "capture":
        lacking = list(unread)
    else:
        there = set(unread)
        lacking = [name for name in names if name in there]
    if not lacking:
        return ""
    return f"its letters have no column {lacking[0]!r}, which was not read from the file"


def contents_of(letters: Sequence[DeadLetter]) -> list[bytes]:
    """Return the contents of files of these letters, one for each header, or for none."""
    groups: dict[bytes, list[bytes]] = {}
    for letter in letters:
        groups.setdefault(letter.header, []).append(letter.raw)
    return [
        b"".join(line + b"\n" for line in ([header, *rows] if header else rows))
        for header, rows in groups.items()
    ]
