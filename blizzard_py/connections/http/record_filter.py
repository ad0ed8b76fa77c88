"""Records that an API returns although they belong to another window. Pure.

A record is dropped only if another window certainly has it:

* If the start was sent coarser than it is (``date`` for 11:59:58): records from what was sent up to
  the start. They were read before.
* Without ``push.to``: records above the window's end, since the next window starts below them. Also
  records exactly at a window's start (a time or a day), since the window before has read up to its
  end.

Everything else is the API's own answer. A record below the sent start, or without a time in the
column, is kept.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from blizzard_core.settings.http_sources import PushParam
from blizzard_core.settings.schema import TimeUnit
from blizzard_py.connections.http.model import HttpSource, tick
from blizzard_py.job import FieldSpec
from blizzard_py.slices.iso import IsoText

RecordFilter: TypeAlias = Callable[[Sequence[Raw]], Sequence[Raw]]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY = dt.timedelta(days=1)
_TICK = dt.timedelta(microseconds=1)
_UNITS: Mapping[TimeUnit, dt.timedelta] = {
    "s": dt.timedelta(seconds=1),
    "ms": dt.timedelta(milliseconds=1),
    "us": dt.timedelta(microseconds=1),
}


def cut_of(source: HttpSource, low: Any, up_to: Any, *, is_read: bool = False) -> dict[str, str]:
    """Return the cut of a task as ISO text: ``sent``, ``low``, ``up_to``; often empty.

    ``is_read``: the window before went up to ``low``.
    """
    push = source.push
    if push is None:
        return {}
    found = {}
    start, end = _moment(low), _moment(up_to)
    if start is not None:
        first, sent = start, floored(start, push.from_)
        if is_read and push.to is None:  # records at the start itself were read, too
            first += _TICK if isinstance(low, dt.datetime) else _DAY
        if sent < first:
            found = {"sent": sent.isoformat(), "low": first.isoformat()}
    if push.to is None and end is not None:
        found["up_to"] = end.isoformat()
    return found


def floored(value: dt.datetime, sent: PushParam) -> dt.datetime:
    """Return the highest time not above this one that the parameter can express."""
    return value - (value - _EPOCH) % tick(sent)


def record_filter(cut: Mapping[str, str], column: str, fields: Sequence[FieldSpec]) -> RecordFilter:
    """Return the filter that keeps a task's own records of a page; ``column`` may be a path."""
    if not cut:
        return lambda records: records
    sent, low, up_to = (
        dt.datetime.fromisoformat(cut[name]) if name in cut else None
        for name in ("sent", "low", "up_to")
    )
    read = _reading(column, _unit(column, fields))

    def belongs_here(record: Raw) -> bool:
        at = read(record)
        if at is None:
            return True
        if sent is not None and low is not None and sent <= at < low:
            return False
        return up_to is None or at <= up_to

    return lambda records: [record for record in records if belongs_here(record)]


def _reading(column: str, unit: TimeUnit) -> Callable[[Raw], dt.datetime | None]:
    """Return a function that reads the column's time from a record, None if it cannot be read."""
    kind: Any = Any
    for name in reversed(column.split(".")):
        member = ("value", kind, msgspec.field(name=name, default=None))
        kind = msgspec.defstruct("Level", [member])
    decoder = msgspec.json.Decoder(kind)
    depth = column.count(".") + 1

    def read(record: Raw) -> dt.datetime | None:
        try:
            value: Any = decoder.decode(record)
            for _ in range(depth):
                value = None if value is None else value.value
            return _time(value, unit)
        except (msgspec.DecodeError, OverflowError, ValueError, RecursionError):
            return None

    return read


def _time(value: Any, unit: TimeUnit) -> dt.datetime | None:
    if isinstance(value, str):
        form = IsoText.of(value)
        return None if form is None else form.moment()
    if unit == "iso" or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _EPOCH + value * _UNITS[unit]


def _unit(column: str, fields: Sequence[FieldSpec]) -> TimeUnit:
    """Return the unit in which the declared field states times."""
    unit: TimeUnit = "iso"
    for name in column.split("."):
        found = next((spec for spec in fields if spec.name == name), None)
        if found is None:
            return "iso"
        unit, fields = found.unit, found.children
    return unit


def _moment(value: Any) -> dt.datetime | None:
    """Return a watermark's value as a time.

    A date is its midnight in UTC. A time without a zone is UTC.
    """
    if isinstance(value, str):
        form = IsoText.of(value)
        return None if form is None else form.moment()
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    return None
