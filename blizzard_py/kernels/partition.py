"""Rows to table directories, by the time in a column."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.kernels.failure import FileFailed

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_DIRECTIVE = re.compile(r"%[-_0^#]?.")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def null_directory(template: str) -> str:
    """``key=__HIVE_DEFAULT_PARTITION__`` for every component of the template."""
    keys = (part.partition("=")[0] for part in template.split("/"))
    return "/".join(f"{key}={NULL_PARTITION}" for key in keys)


def directory_at(template: str, when: dt.datetime) -> str:
    """The strftime template at one instant, with years always of four digits."""

    def value(match: re.Match[str]) -> str:
        directive = match[0]
        if directive in {"%Y", "%F"}:  # the C library does not pad years
            rest = when.strftime("-%m-%d") if directive == "%F" else ""
            return f"{when.year:04d}{rest}"
        return when.strftime(directive)

    return _DIRECTIVE.sub(value, template)


def split_by_time(table: pa.Table, column: str, template: str) -> Iterator[tuple[str, pa.Table]]:
    """The table in pieces, one per directory and instant of the template's finest unit.

    Null goes to `null_directory`. Rows keep their order within a piece. The
    template is evaluated once per distinct hour (or day, or minute) and not per
    row. Raises `FileFailed` at stage ``partition`` for a time that no calendar
    has (before year 1 or after 9999).
    """
    # Without its zone, which is UTC, the column needs no time zone database.
    times = table.column(column).cast(pa.timestamp("us"))
    floors = pc.floor_temporal(times, unit=_finest_unit(template)).combine_chunks()
    encoded = floors.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy()
    directories = [
        null_directory(template) if micros is None else _directory(template, column, micros)
        for micros in encoded.dictionary.cast(pa.int64()).to_pylist()
    ]
    if len(directories) <= 1:
        yield from ((directory, table) for directory in directories)
        return
    ordered = table.take(pa.array(np.argsort(codes, kind="stable")))
    start = 0
    for directory, rows in zip(directories, np.bincount(codes).tolist(), strict=True):
        yield directory, ordered.slice(start, rows)
        start += rows


def _directory(template: str, column: str, micros: int) -> str:
    try:
        return directory_at(template, _EPOCH + dt.timedelta(microseconds=micros))
    except OverflowError as error:
        raise FileFailed(
            "partition", f"a value of {column!r} lies outside the years 1 to 9999"
        ) from error


def _finest_unit(template: str) -> str:
    """The coarsest unit that every directive of the template is constant within."""
    codes = {directive[-1] for directive in _DIRECTIVE.findall(template)}
    for unit, finer in (
        ("microsecond", "f"),
        ("second", "STXcsr"),
        ("minute", "MR"),
        ("hour", "HIklpP"),
    ):
        if codes & set(finer):
            return unit
    return "day"
