"""The table directories of rows, by their columns' values.

Directories are in Hive's form: ``key=value`` with percent-encoding, so that any text can be a value
and every byte of a path is ASCII. A value that cannot be read back unchanged is refused here, since
a wrong partition value in a table cannot be undone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.handover.outputs import NULL_PARTITION
from blizzard_core.limits import COMPONENT_BYTES
from blizzard_py.job import PartitionRule
from blizzard_py.lines.failure import FileFailed

_DIRECTIVE = re.compile(r"%[-_0^#]?.")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Codes = npt.NDArray[np.int64]


class Unplaceable(FileFailed):
    """Some rows have no directory; ``reasons`` by their numbers within the table."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("partition", reasons[min(reasons)])
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class RowDirectories:
    """The directory of row ``i`` is ``directories[codes[i]]``; each occurs at least once."""

    directories: tuple[str, ...]
    codes: Codes


def null_directory(template: str) -> str:
    """Return ``key=__HIVE_DEFAULT_PARTITION__`` for every component of the template."""
    keys = (part.partition("=")[0] for part in template.split("/"))
    return "/".join(f"{key}={NULL_PARTITION}" for key in keys)


def directory_at(template: str, when: dt.datetime) -> str:
    """Return the strftime template at one instant, with years of four digits."""

    def value(match: re.Match[str]) -> str:
        directive = match[0]
        if directive in {"%Y", "%F"}:  # the C library does not pad years
            rest = when.strftime("-%m-%d") if directive == "%F" else ""
            return f"{when.year:04d}{rest}"
        return when.strftime(directive)

    return _DIRECTIVE.sub(value, template)


def value_directory(key: str, value: Any) -> str:
    """Return ``key=value`` for a value itself, as Penguin reads it back. Raises `ValueError`.

    Null and the empty string, which Delta treats as equal, become Hive's name for null.
    """
    name = quote(key, safe="")
    if value is None or value == "":
        return f"{name}={NULL_PARTITION}"
    if value == NULL_PARTITION:
        raise ValueError(f"{key!r} is {NULL_PARTITION}, which readers treat as null")
    directory = f"{name}={quote(_text(value), safe='')}"
    if len(directory) > COMPONENT_BYTES:
        raise ValueError(
            f"a value of {key!r} takes {len(directory)} bytes as a directory,"
            f" and file systems take {COMPONENT_BYTES}"
        )
    return directory


def place_rows(table: pa.Table, rules: Sequence[PartitionRule]) -> RowDirectories:
    """Return each row's directory. Raises `Unplaceable` with all rows that have none.

    A directory is made once per distinct value (or hour, or day), not once per row.
    """
    faults: dict[int, str] = {}
    directories: list[str] = [""]
    codes: Codes = np.zeros(table.num_rows, np.int64)
    for rule in rules:
        names, more = _by_rule(table, rule, faults)
        # At most as many pairs as rows remain, so the product stays small.
        pairs, codes = np.unique(codes * len(names) + more, return_inverse=True)
        heads, tails = np.divmod(pairs, len(names)) if names else (pairs, pairs)
        directories = [
            f"{directories[head]}/{names[tail]}".lstrip("/")
            for head, tail in zip(heads.tolist(), tails.tolist(), strict=True)
        ]
    if faults:
        raise Unplaceable(faults)
    return RowDirectories(tuple(directories), codes)


def without_moved(table: pa.Table, rules: Sequence[PartitionRule]) -> pa.Table:
    """Return the table without columns whose values are only in the directory."""
    moved = [rule.column for rule in rules if rule.moves]
    return table.drop_columns(moved) if moved else table


def _by_rule(
    table: pa.Table, rule: PartitionRule, faults: dict[int, str]
) -> tuple[list[str], Codes]:
    """Return the rule's directories and each row's; rows without one go to ``faults``."""
    column = table.column(rule.column)
    if rule.template:
        # Without its zone (UTC) the column needs no time zone database.
        times = column.cast(pa.timestamp("us"))
        column = pc.floor_temporal(times, unit=_finest_unit(rule.template)).cast(pa.int64())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    codes: Codes = encoded.indices.to_numpy().astype(np.int64)
    kind = table.schema.field(rule.column).type
    names: dict[str, int] = {}  # two values may share a name: null and the empty string
    numbers: list[int] = []
    for code, value in enumerate(encoded.dictionary.to_pylist()):
        try:
            name = _directory(rule, kind, value)
        except ValueError as error:
            name = ""
            for row in np.flatnonzero(codes == code).tolist():
                faults.setdefault(row, str(error))
        numbers.append(names.setdefault(name, len(names)))
    return list(names), np.array(numbers, np.int64)[codes]


def _directory(rule: PartitionRule, kind: pa.DataType, value: Any) -> str:
    try:
        if value is not None and pa.types.is_timestamp(kind):
            value = _EPOCH + dt.timedelta(microseconds=value)
        elif value is not None and pa.types.is_date(kind):
            value = (_EPOCH + dt.timedelta(days=value)).date()
    except OverflowError as error:
        raise ValueError(f"a value of {rule.column!r} lies outside the years 1 to 9999") from error
    if not rule.template:
        return value_directory(rule.key, value)
    return null_directory(rule.template) if value is None else directory_at(rule.template, value)


def _text(value: Any) -> str:
    """Return a value as Delta writes partition values."""
    match value:
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            micros = f".{value.microsecond:06d}" if value.microsecond else ""
            return f"{value.date().isoformat()} {value:%H:%M:%S}{micros}"
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)


def _finest_unit(template: str) -> str:
    """Return the coarsest unit within which every directive of the template is constant."""
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
