"""Dates and times before 15 October 1582, where calendars differ. Pure.

Spark before 3.0 and Hive count such days in the Julian calendar; everything else, and Delta, in
the Gregorian one, continued backwards. A file of theirs holds the same number of days for another
date. The conversion keeps the date that their users saw, as Spark's ``datetimeRebaseMode`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.formats.letters import soundness

Calendar = soundness.Calendar
Mode = Literal["error", "corrected", "legacy"]

_FIRST_GREGORIAN = -141_427  # the days from 1970 to 15 October 1582
_JULIAN_DAY_OF_1970 = 2_440_588
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_VERSION = b"org.apache.spark.version"
_LEGACY_DATES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
# Spark wrote Julian dates and times before these versions.
_NEW_DATES, _NEW_INT96 = (3, 0), (3, 1)
_DOUBTFUL = "parquet-mr"  # Hive and old Spark write with it, and so do others

_Days = npt.NDArray[np.int64]


class Calendars(NamedTuple):
    """The calendars of a Parquet file: of dates and times in UTC, and of INT96.

    Times without a zone came after Spark 3.0, so they are always Gregorian.
    """

    dates: Calendar
    int96: Calendar

    def of(self, kind: pa.DataType, physical_type: str) -> Calendar:
        """Return the calendar of a column's values."""
        if physical_type == "INT96":
            return self.int96
        is_local = pa.types.is_timestamp(kind) and kind.tz is None
        return "gregorian" if is_local else self.dates


def calendars_of(metadata: Mapping[bytes, bytes], created_by: str, mode: Mode) -> Calendars:
    """Return the calendars of a Parquet file, by its footer; by ``mode`` if that says nothing."""
    version = metadata.get(_VERSION)
    default: Calendar = "gregorian"
    if version is None and created_by.startswith(_DOUBTFUL):
        default = unnamed_calendar(mode)

    def calendar(key: bytes, new: tuple[int, int]) -> Calendar:
        is_old = version is not None and _release(version) < new
        return "julian" if key in metadata or is_old else default

    return Calendars(calendar(_LEGACY_DATES, _NEW_DATES), calendar(_LEGACY_INT96, _NEW_INT96))


def unnamed_calendar(mode: Mode) -> Calendar:
    """Return the calendar of a file that does not name its own."""
    by_mode: dict[Mode, Calendar] = {"corrected": "gregorian", "legacy": "julian"}
    return by_mode.get(mode, "unknown")


def _release(version: bytes) -> tuple[int, int]:
    """Return the first two numbers of a version; one that has none is a new one."""
    major, _, rest = version.partition(b".")
    minor = rest.partition(b".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else _NEW_INT96


def in_gregorian(values: pa.Array, calendar: Calendar) -> pa.Array:
    """Return dates or times in the Gregorian calendar; other values as they are.

    Raises `ValueError` for an old date in an unknown calendar.
    """
    kind = values.type
    if calendar == "gregorian":
        return values
    if not pa.types.is_date(kind) and not pa.types.is_timestamp(kind):
        return values
    width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    counts = values.view(width).cast(pa.int64())
    day = 1 if pa.types.is_date32(kind) else _DAY[getattr(kind, "unit", "ms")]
    lowest = pc.min(counts).as_py()
    if lowest is None or lowest >= _FIRST_GREGORIAN * day:
        return values
    if calendar == "unknown":
        raise ValueError(
            "is before 1582-10-15 in a file that does not name its calendar; set"
            " format.datetime_rebase_mode to legacy (Hive, Spark 2) or corrected"
        )
    plain = counts.fill_null(0).to_numpy()
    days = plain // day
    moved = np.where(days < _FIRST_GREGORIAN, _same_date(days) - days, 0) * day
    mask = counts.is_null().to_numpy(zero_copy_only=False)
    return pa.array(plain + moved, pa.int64(), mask=mask).cast(width).view(kind)


def _same_date(days: _Days) -> _Days:
    """Return the Gregorian days since 1970 of the dates that these Julian days are.

    A leap day that the Gregorian calendar lacks is the first of March.
    """
    shifted = days + _JULIAN_DAY_OF_1970 + 32_082
    years = (4 * shifted + 3) // 1461
    of_year = shifted - 1461 * years // 4
    months = (5 * of_year + 2) // 153
    of_month = of_year - (153 * months + 2) // 5
    # Years and months count from March of 4801 BC, so leap days are at their ends.
    found: _Days = (
        of_month
        + (153 * months + 2) // 5
        + 365 * years
        + years // 4
        - years // 100
        + years // 400
        - 32_044
        - _JULIAN_DAY_OF_1970
    )
    return found
