"""Partition values from a file's path, typed by the table's columns. Pure.

Delta stores partition values as text in the log, and every reader parses them by the column's
type. delta-rs writes an invalid value and notices only afterwards; then no reader can open the
table. So a value is parsed here, before anything is written, and is logged in one canonical form.
Some readers take it from the path, so a path has one spelling for a value as well.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from blizzard_core.handover.outputs import NULL_PARTITION
from blizzard_core.table.schema_fit import PARTITION_TYPES, SchemaMismatch

NOT_TEXT = "its path is not valid UTF-8, so no Delta log can name it; rename it"

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)"
)
# Some readers take keys and values from the path as it stands, where these are patterns
# or separators; a value can be percent-encoded.
_MISREAD = re.compile(r"[*=]")


def columns_of(path: str) -> tuple[str, ...]:
    """Return the partition columns of a ``key=value/…/file`` path. Raises `SchemaMismatch`."""
    names = [_key_and_text(folder)[0] for folder in path.split("/")[:-1]]
    for name in names:
        if [other.lower() for other in names].count(name.lower()) > 1:
            raise SchemaMismatch(
                f"its path has the partition column {name!r} twice, or in two cases"
            )
    return tuple(names)


def partition_values(path: str, columns: Mapping[str, pa.DataType]) -> dict[str, str | None]:
    """Return the path's partition values in canonical form. Raises `SchemaMismatch`.

    ``columns`` are the table's partition columns in order. A missing value
    (Hive's name for null) is None.
    """
    folders = path.split("/")[:-1]
    if len(folders) != len(columns):
        raise SchemaMismatch(
            f"lies {_levels(len(folders))} deep, but the table "
            + (f"is partitioned by {', '.join(columns)}" if columns else "is not partitioned")
        )
    values: dict[str, str | None] = {}
    for folder, (name, kind) in zip(folders, columns.items(), strict=True):
        key, text = _key_and_text(folder)
        if key != name:
            raise SchemaMismatch(
                f"directory {folder!r} should be {name}=…, the table's partition column"
            )
        values[name] = None if text == NULL_PARTITION else _canonical(name, text, kind)
    return values


def check_addressable(path: str) -> None:
    """Raise `SchemaMismatch` for a name that a store can hold and Delta readers cannot open."""
    if _CONTROL.search(path):
        raise SchemaMismatch("its name holds a control character, which Delta readers cannot open")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise SchemaMismatch("its path holds an empty component, which Delta readers cannot open")
    if ":" in path.split("/", 1)[0]:
        raise SchemaMismatch("its path starts like a URI (`:`), which Delta readers cannot open")


def is_text(path: str) -> bool:
    """Return whether the path is valid Unicode: local names may hold any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _levels(count: int) -> str:
    return (
        "at the table's root, 0 directories"
        if count == 0
        else f"{count} director" + ("y" if count == 1 else "ies")
    )


def _key_and_text(folder: str) -> tuple[str, str]:
    key, equals, text = folder.partition("=")
    if not key or not equals:
        raise SchemaMismatch(f"directory {folder!r} is not of the form key=value")
    try:
        names = unquote(key, errors="strict"), unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise SchemaMismatch(f"directory {folder!r} is not valid percent-encoded UTF-8") from None
    if not text:
        raise SchemaMismatch(
            f"directory {folder!r} has no value, which readers take for null or for an empty"
            f" text; write {key}={NULL_PARTITION} for null"
        )
    if _MISREAD.search(names[0]) or _MISREAD.search(text):
        raise SchemaMismatch(
            f"directory {folder!r} has a bare `*` or `=`, which readers misread; encode it"
        )
    return names


def _canonical(name: str, text: str, kind: pa.DataType) -> str:
    """Return ``text`` as Delta writes a value of this type."""
    parsed: str | None = None
    if pa.types.is_string(kind):
        parsed = text
    elif pa.types.is_signed_integer(kind):
        parsed = _integer(text, kind)
    elif pa.types.is_date32(kind):
        parsed = _date(text)
    elif pa.types.is_timestamp(kind):
        parsed = _timestamp(text, zoned=kind.tz is not None)
    elif pa.types.is_boolean(kind):
        parsed = text.lower() if text.lower() in ("true", "false") else None
    else:
        raise SchemaMismatch(
            f"partition column {name!r} has type {kind}, which is not supported here"
        )
    if parsed is None:
        raise SchemaMismatch(f"partition value {name}={text!r} is not a valid {_spoken(kind)}")
    return parsed


def _spoken(kind: pa.DataType) -> str:
    if pa.types.is_date32(kind):
        return "date (YYYY-MM-DD)"
    if pa.types.is_timestamp(kind):
        return "timestamp (YYYY-MM-DD HH:MM:SS)"
    return str(kind)


def _integer(text: str, kind: pa.DataType) -> str | None:
    if not _WHOLE.fullmatch(text):
        return None
    number, limit = int(text), 1 << (kind.bit_width - 1)
    return str(number) if -limit <= number < limit else None


def _date(text: str) -> str | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        return dt.date.fromisoformat(text).isoformat()
    except ValueError:
        return None


def _timestamp(text: str, *, zoned: bool) -> str | None:
    """Format a moment in UTC as ISO 8601: readers cast a text without zone in their session's."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(f"{match[1]}T{match[2]}")
    except ValueError:
        return None
    if zoned:
        return moment.isoformat(timespec="microseconds") + "Z"
    return moment.isoformat(sep=" ", timespec="microseconds")


def typed_columns(
    names: Sequence[str], configured: Mapping[str, str] | None
) -> dict[str, pa.DataType]:
    """Return types for the partition columns of a new table; the default is string."""
    given = configured or {}
    return {name: PARTITION_TYPES[given.get(name, "string")] for name in names}
