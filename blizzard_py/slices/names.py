"""The names of slices: the text in `_unit` by which their rows are replaced. Pure.

Each row names its slice in the column `blizzard_core.handover.groups.UNIT_COLUMN`::

    {source}/{part_from}/{value}/{slice_from}       a work unit's
    {source}/{slice_from}                           a column window's
    {source}/                                       a snapshot's

Ranges use text order, which is that of UTF-8 bytes. Times are in UTC with a fixed width. In values
``/`` and ``%`` are encoded, so every text that begins with ``{key}/`` belongs to that unit. The
character ``0`` follows ``/``: a reading from ``low`` replaces the half-open range
``[{key}/{low}, {key}0)``.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, date, datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

from blizzard_core.errors import UnitError
from blizzard_py.slices.compare import shown
from blizzard_py.slices.instants import stamp

Range = tuple[str, str]

# Longer values would make the text of every row long. They are cut and get a digest.
_LONGEST_BYTES = 80
_KEPT_CHARACTERS = 40
_DIGEST_DIGITS = 32

# Digits that hold every integer of 128 bits.
_WIDTH = 39

# Rounds nothing.
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


def unit_slice(source_id: str, part_from: datetime, name: str, slice_from: datetime) -> str:
    """Return what `_unit` holds in the rows of one slice of a work unit."""
    return f"{unit_prefix(source_id, part_from, name)}/{stamp(slice_from)}"


def unit_range(source_id: str, part_from: datetime, name: str, low: datetime) -> Range:
    """Return what a reading of a work unit from ``low`` replaces."""
    key = unit_prefix(source_id, part_from, name)
    return f"{key}/{stamp(low)}", f"{key}0"


def column_slice(source_id: str, slice_from: Any) -> str:
    """Return what `_unit` holds in the rows of a slice that begins at a watermark's value.

    None is before all values. Within one type, text order is the values' order. Raises `UnitError`
    for values without an order, and for numbers of more than 39 digits before the point.
    """
    return f"{source_id}/{_ordered(slice_from)}"


def snapshot_range(source_id: str) -> Range:
    """Return what a full refresh replaces: all slices, whatever they begin with."""
    return f"{source_id}/", f"{source_id}0"


def unit_prefix(source_id: str, part_from: datetime, name: str) -> str:
    """Return how `_unit` begins in the rows of a work unit, up to the last ``/``."""
    return f"{source_id}/{stamp(part_from)}/{_value(name)}"


def _value(name: str) -> str:
    """Return a unit's name, short and without ``/``. Only digests contain ``%.``."""
    data = name.encode()
    if len(data) <= _LONGEST_BYTES:
        return _encoded(name)
    digest = hashlib.sha256(data).hexdigest()[:_DIGEST_DIGITS]
    return f"{_encoded(name[:_KEPT_CHARACTERS])}%.{digest}"


def _encoded(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _ordered(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return zoned.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _number(value)
    raise UnitError(f"a slice cannot begin at {shown(value)}")


def _number(value: float | Decimal) -> str:
    """Return text that sorts as the number does: sign, 39 digits, then the decimals.

    The digits of a negative number are its complement, so they rise as well.
    """
    exact = Decimal(value)
    if not exact.is_finite() or exact.copy_abs() >= 10**_WIDTH:  # abs() would round
        raise UnitError(f"a slice cannot begin at {shown(value)}")
    whole = math.floor(exact)
    rest = _EXACT.subtract(exact, Decimal(whole)).normalize(_EXACT)
    digits = f"1{whole:0{_WIDTH}d}" if whole >= 0 else f"0{10**_WIDTH + whole:0{_WIDTH}d}"
    return digits + f"{rest:f}"[1:] if rest else digits
