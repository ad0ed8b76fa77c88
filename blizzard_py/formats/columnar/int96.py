"""Times of INT96 columns, which old Spark, Hive and Impala write.

Arrow makes a time of any 12 bytes: it lets far years overflow in nanoseconds, cuts digits in
microseconds, and takes an impossible time of day for a plausible one. So these columns are read as
bytes, by a footer that calls them so, and are converted here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.table.row_groups import with_schema
from blizzard_core.table.thrift import INTEGERS, encode_int, read_int
from blizzard_py.formats.nested_arrays import by_column, leaf_rows, map_leaves_with
from blizzard_py.schema.types import FIRST_DAY, LAST_DAY

_STORED = pa.binary(12)
_NANOS, _DAY = "nanoseconds", "julian_day"
_LAYOUT = np.dtype([(_NANOS, "<i8"), (_DAY, "<i4")])
_JULIAN_DAY_OF_1970 = 2_440_588
_DAY_MICROS = 86_400_000_000
_DAY_NANOS = _DAY_MICROS * 1000
# What `as_texts` writes.
_SHOWN = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{9})|(-?\d{1,10}) (-?\d{1,19})", re.ASCII
)
# Of Parquet's schema: numbers of fields, and physical types.
_TYPE, _LENGTH, _LOGICAL = 1, 2, frozenset({6, 7, 8, 10})
_INT96, _FIXED = 3, 7
# What 64 bits of microseconds hold in days, and 64 bits of nanoseconds in microseconds.
_MOST_DAYS = (1 << 63) // _DAY_MICROS - 1
_MOST_MICROS = (1 << 63) // 1000 - 1

_Bools = npt.NDArray[np.bool_]


def int96_columns(file: pq.ParquetFile) -> dict[str, tuple[bool, ...]]:
    """Return the columns with such values, and which of their flat columns these are."""
    stored = file.metadata.schema
    places = range(len(stored))
    if not any(stored.column(at).physical_type == "INT96" for at in places):
        return {}
    return by_column(
        file.schema_arrow, lambda at, _kind: stored.column(at).physical_type == "INT96", False
    )


def with_bytes(footer: bytes) -> bytes:
    """Return the footer with columns of 12 bytes instead of INT96.

    Raises `SchemaMismatch` or `IndexError` for one that is no footer.
    """
    return with_schema(footer, _element)


def _element(fields: dict[int, tuple[int, bytes]]) -> None:
    kind, value = fields.get(_TYPE, (0, b""))
    if kind in INTEGERS and read_int(value, 0)[0] == _INT96:
        for number in _LOGICAL:
            fields.pop(number, None)
        fields[_TYPE] = kind, encode_int(_FIXED)
        fields[_LENGTH] = kind, encode_int(_STORED.byte_width)


@dataclass(slots=True)
class ReadTimes:
    """A column with its times in microseconds; null where a row is in ``bad``.

    Rows in ``precise`` are bad for their nanoseconds, and have values of no other fault.
    """

    array: pa.Array
    bad: dict[int, str] = field(default_factory=dict)
    precise: set[int] = field(default_factory=set)


def read_times(array: pa.Array, flags: Sequence[bool], *, cuts_nanoseconds: bool) -> ReadTimes:
    """Return a column with the times that its stored values are.

    ``flags`` are of `int96_columns`. Raises `pa.ArrowInvalid` for values of another length.
    """
    impossible: dict[int, _Stored] = {}
    digits: dict[int, _Stored] = {}

    def leaf(values: pa.Array, told: tuple[int, bool]) -> pa.Array:
        at, is_time = told
        if not is_time:
            return values
        stored = _Stored.of(values)
        if (stored.valid & ~stored.possible).any():
            impossible[at] = stored
        if not cuts_nanoseconds and stored.has_digits.any():
            digits[at] = stored
            return stored.micros(stored.possible & ~stored.has_digits)
        return stored.micros(stored.possible)

    found = ReadTimes(map_leaves_with(array, list(enumerate(flags)), leaf))
    if impossible or digits:
        rows = list(leaf_rows(array))
        for at, stored in impossible.items():
            where = np.flatnonzero(stored.valid & ~stored.possible)
            for row, why in zip(rows[at][where].tolist(), stored.texts(where), strict=True):
                found.bad.setdefault(row, f"there is no such time: {why}")
        for at, stored in digits.items():
            precise = rows[at][stored.has_digits].tolist()
            found.precise.update(row for row in precise if row not in found.bad)
        for row in found.precise:
            found.bad[row] = "has nanoseconds, which would be lost"
    return found


def cut_times(array: pa.Array, flags: Sequence[bool]) -> pa.Array:
    """Return a column with its times cut to microseconds, null for impossible ones."""
    return read_times(array, flags, cuts_nanoseconds=True).array if flags else array


def with_nanoseconds(array: pa.Array, flags: Sequence[bool]) -> pa.Array:
    """Return a column with its times in nanoseconds.

    Raises `ValueError` for an impossible time, and for one beyond the years 1677 to 2262.
    """
    return _mapped(array, flags, _Stored.nanos)


def as_numbers(array: pa.Array, flags: Sequence[bool]) -> pa.Array:
    """Return a column with its days and nanoseconds as they are stored."""
    return _mapped(array, flags, _Stored.numbers)


def as_texts(array: pa.Array, flags: Sequence[bool]) -> pa.Array:
    """Return a column with its times as ISO texts, impossible ones as day and nanoseconds."""
    return _mapped(array, flags, _Stored.shown)


def from_texts(array: pa.Array, flags: Sequence[bool]) -> pa.Array:
    """Return the stored values that `as_texts` shows. Raises `ValueError` for another text."""
    return map_leaves_with(
        array, flags, lambda values, is_time: _stored_of(values) if is_time else values
    )


def _stored_of(texts: pa.Array) -> pa.Array:
    found: list[bytes | None] = []
    for text in texts.to_pylist():
        if text is None:
            found.append(None)
            continue
        match = _SHOWN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r:.100} is no time of INT96")
        date, hours, minutes, seconds, digits, day_number, of_day = match.groups()
        if date:
            whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
            number = int(np.datetime64(date, "D").astype(np.int64)) + _JULIAN_DAY_OF_1970
            pair = whole * 1_000_000_000 + int(digits), number
        else:
            pair = int(of_day), int(day_number)
        found.append(np.array([pair], _LAYOUT).tobytes())
    return pa.array(found, _STORED)


def _mapped(
    array: pa.Array, flags: Sequence[bool], change: Callable[[_Stored], pa.Array]
) -> pa.Array:
    return map_leaves_with(
        array, flags, lambda values, is_time: change(_Stored.of(values)) if is_time else values
    )


@dataclass(frozen=True, slots=True)
class _Stored:
    """Stored values: the days since 1970 and nanoseconds of a day."""

    days: npt.NDArray[np.int64]
    of_day: npt.NDArray[np.int64]
    valid: _Bools

    @staticmethod
    def of(values: pa.Array) -> _Stored:
        if values.type != _STORED:
            raise pa.ArrowInvalid("INT96 values that do not have 12 bytes")
        size = _STORED.byte_width
        buffer = values.buffers()[1] if len(values) else b""
        pairs = np.frombuffer(buffer, _LAYOUT, len(values), values.offset * size)
        days = pairs[_DAY].astype(np.int64) - _JULIAN_DAY_OF_1970
        valid = np.asarray(values.is_valid())
        return _Stored(days, pairs[_NANOS].astype(np.int64), valid)

    @property
    def possible(self) -> _Bools:
        found: _Bools = (
            self.valid
            & (self.of_day >= 0)
            & (self.of_day < _DAY_NANOS)
            & (np.abs(self.days) <= _MOST_DAYS)
        )
        return found

    @property
    def has_digits(self) -> _Bools:
        found: _Bools = self.possible & (self.of_day % 1000 != 0)
        return found

    def micros(self, wanted: _Bools) -> pa.Array:
        """Return the wanted times, and null for others."""
        counts = np.where(wanted, self.days * _DAY_MICROS + self.of_day // 1000, 0)
        return pa.array(counts, pa.int64(), mask=~wanted).view(pa.timestamp("us"))

    def nanos(self) -> pa.Array:
        micros = self.days * _DAY_MICROS + self.of_day // 1000
        if (self.valid & ~(self.possible & (np.abs(micros) < _MOST_MICROS))).any():
            raise ValueError("cannot be nanoseconds since 1970")
        counts = np.where(self.valid, self.days * _DAY_NANOS + self.of_day, 0)
        return pa.array(counts, pa.int64(), mask=~self.valid).view(pa.timestamp("ns"))

    def shown(self) -> pa.Array:
        is_time = (self.of_day >= 0) & (self.of_day < _DAY_NANOS)
        is_time &= (self.days >= FIRST_DAY) & (self.days <= LAST_DAY)
        days = np.where(is_time, self.days, 0).astype("datetime64[D]")
        nanos = np.where(is_time, self.of_day, 0).astype("datetime64[ns]")
        dates, times = np.datetime_as_string(days).tolist(), np.datetime_as_string(nanos).tolist()
        raw = zip((self.days + _JULIAN_DAY_OF_1970).tolist(), self.of_day.tolist(), strict=True)
        texts = [
            f"{date}{time[len(date) :]}" if fits else f"{pair[0]} {pair[1]}"
            for date, time, fits, pair in zip(dates, times, is_time.tolist(), raw, strict=True)
        ]
        return pa.array(texts, pa.string(), mask=~self.valid)

    def numbers(self) -> pa.Array:
        days = pa.array(self.days + _JULIAN_DAY_OF_1970)
        return pa.StructArray.from_arrays(
            [days, pa.array(self.of_day)], [_DAY, _NANOS], mask=pa.array(~self.valid)
        )

    def texts(self, where: npt.NDArray[np.intp]) -> list[str]:
        days = (self.days[where] + _JULIAN_DAY_OF_1970).tolist()
        pairs = zip(days, self.of_day[where].tolist(), strict=True)
        return [f"day {day:,} of INT96 and {nanos:,} ns" for day, nanos in pairs]
