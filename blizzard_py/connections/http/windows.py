"""A window as request parameters: the values that are sent, one range after another. Pure.

A window's end is sent as ``to``, so the parameter's format must be able to express it. An end of
12:00:00.5 sent in whole seconds would lose half a second. So ends, also inner ones, are lowered to
the format's tick before they are fixed (`lowered`). An end that was fixed elsewhere is refused if
it lies between two ticks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_core.limits import REQUEST_RANGES
from blizzard_core.settings.http_sources import PushEnd, PushSettings
from blizzard_py.connections.http.calls import Value
from blizzard_py.connections.http.model import HttpSource, tick
from blizzard_py.connections.http.record_filter import cut_of, floored
from blizzard_py.connections.sent_values import param, sent_to
from blizzard_py.reading import Window
from blizzard_py.slices.cutting import ranges

_NUMBERS = frozenset({"timestamp", "timestamp_ms"})


@dataclass(frozen=True, slots=True)
class RequestRange:
    """One task's request parameters, and the records that it leaves out (`record_filter`)."""

    sent: Mapping[str, Value] = field(default_factory=dict)
    cut: Mapping[str, str] = field(default_factory=dict)


def lowered(value: Any, end: PushEnd | None) -> Any:
    """Return the highest value not above this one that ``end`` can express.

    Times without a zone are UTC.
    """
    if end is None or not isinstance(value, dt.datetime):
        return value
    if value.tzinfo is None:
        return floored(value.replace(tzinfo=dt.UTC), end).replace(tzinfo=None)
    return floored(value, end)


def pieces(source: HttpSource, window: Window, *, is_split: bool = True) -> Sequence[RequestRange]:
    """Return the request of each task; one without parameters if nothing is pushed.

    Empty if the window ends before it begins. Raises `SourceError` for an end that cannot be sent,
    for values that are no times, and for more than 10,000 ranges.
    """
    mark = source.watermark
    if mark is None:
        return (RequestRange(),)
    push, split = mark.push, mark.split if is_split else None
    low, up_to = window.low.get(source.column), window.up_to.get(source.column)
    if push.to is not None and lowered(up_to, push.to) != up_to:
        raise SourceError(
            f"the window's end {up_to} cannot be sent as '{push.to.format}' in"
            f" '{push.to.param}', which has steps of {tick(push.to)}; set a coarser end"
        )
    if split is None or push.to is None:
        is_read = window.low == window.after and not window.inclusive
        cut = cut_of(source, low, up_to, is_read=is_read)
        return (RequestRange(_values(push, low, up_to), cut),)
    start = low if low is not None else split.first
    found: list[RequestRange] = []
    for a, b in _ranges(start, up_to, split.unit):
        first, end = lowered(a, push.to) if found else a, lowered(b, push.to)
        if not found or first != end:
            found.append(RequestRange(_values(push, first, end), cut_of(source, first, end)))
    return found


def _ranges(start: Any, up_to: Any, unit: str) -> Sequence[tuple[Any, Any]]:
    if up_to is None:
        raise SourceError("a window without an end cannot be split")
    found = ranges(start, up_to, unit)
    if len(found) > REQUEST_RANGES:
        raise SourceError(
            f"the window would have {len(found):,} ranges of a {unit}, more than"
            f" {REQUEST_RANGES:,}; set a longer split.unit"
        )
    return found


def _values(push: PushSettings, low: Any, up_to: Any) -> Mapping[str, Value]:
    sent: dict[str, Value] = {}
    if low is not None:
        sent[push.from_.param] = _spelt(param(low, push.from_.format), push.from_.format, push)
    if push.to is not None and up_to is not None:
        last = sent_to(up_to, push.to.inclusive)
        sent[push.to.param] = _spelt(param(last, push.to.format), push.to.format, push)
    return sent


def _spelt(text: str, kind: str, push: PushSettings) -> Value:
    """Return a number of seconds as a number in JSON, and as text everywhere else."""
    if push.advanced.in_ != "body" or kind not in _NUMBERS:
        return text
    number = float(text)
    return int(number) if number.is_integer() else number
