"""Read bounds over lakes: pinned versions and highest values. Pure, except for its arguments.

With the bound ``version`` a watermark is ``{"version": n, "table": id}``. Both are compared with
the table before anything is planned. A table that went back, or was replaced by another one, stops
the source.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes import filters
from blizzard_py.connections.lakes.column_maximum import ColumnMaximum, KnownFile
from blizzard_py.connections.placeholders import LAKE, in_sql, names_in
from blizzard_py.connections.protocol import ReadBound, ReadSelection, without_values
from blizzard_py.reading import BoundKind, Window
from blizzard_py.slices.calendars import lowest_wall
from blizzard_py.slices.column_order import ColumnOrder
from blizzard_py.slices.windows import last_full_tick

# Any time; only the filter's columns are needed.
_SAMPLE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)

VERSION = "version"
TABLE = "table"


@dataclass(frozen=True, slots=True)
class Pinned:
    """The version that a window ends with, and the id of its table."""

    version: int
    table: str


def pinned(window: Window) -> Pinned | None:
    """Return the version that the window ends with; None if it ends by columns."""
    version, table = window.up_to.get(VERSION), window.up_to.get(TABLE)
    if isinstance(version, int) and isinstance(table, str):
        return Pinned(version, table)
    return None


def check_same_table(window: Window, end: Pinned, table: str, what: str) -> int | None:
    """Return the version that the window begins after, None for a first window.

    Raises `SourceError` if the table is not the watermark's table, or went back.
    """
    remedy = (
        "; to read it from the beginning: `blizzard checkpoint reset`, to continue at its end:"
        f" `blizzard checkpoint set --column {VERSION}={end.version}"
        f" --column {TABLE}='\"{table}\"'`"
    )
    known = {window.low.get(TABLE, table), end.table}
    if known != {table}:
        raise SourceError(
            f"{what}: was recreated since the watermark was stored (its id is {table}, was"
            f" {min(known - {table})}){remedy}"
        )
    start = window.low.get(VERSION)
    if start is None:
        return None
    if isinstance(start, bool) or not isinstance(start, int):
        raise SourceError(f"{what}: the stored version is not an integer{remedy}")
    if start > end.version:
        raise SourceError(
            f"{what}: is at version {end.version}, the stored watermark at {start}: the table was"
            f" rolled back or recreated{remedy}"
        )
    return start


def highest_bound(
    kind: BoundKind,
    files: Sequence[KnownFile],
    orders: Mapping[str, ColumnOrder],
    maxima: Mapping[str, ColumnMaximum],
) -> ReadBound:
    """Return the highest value of each column among the rows of these files."""
    found = {name: maxima[name].of(files) for name in orders}
    value = {name: orders[name].value(key) for name, key in found.items() if key is not None}
    is_odd = bool(files and orders and not value)
    odd = (without_values(orders),) if is_odd else ()
    return ReadBound(kind, value, warnings=odd, skipped=odd)


def clock_bound(
    orders: Mapping[str, ColumnOrder],
    now: dt.datetime,
    settle_secs: float,
    zone: dt.tzinfo = dt.UTC,
) -> ReadBound:
    """Return the time ``settle_secs`` ago, for columns of times and dates.

    Dates and times without a zone are in ``zone``. Raises `SourceError` for other columns.
    """
    moment = now - dt.timedelta(seconds=settle_secs)
    value: dict[str, object] = {}
    for name, order in orders.items():
        if order.order not in {"time", "date"}:
            raise SourceError(f"column {name} is {order.type} and has no clock; use bound: max")
        naive = order.order == "date" or not order.type.tz
        own = lowest_wall(moment, zone) if naive else moment
        value[name] = last_full_tick(own, str(order.type))
    return ReadBound(
        "clock", value, warnings=(f"rows that arrive {settle_secs:g} s late are missed",)
    )


def plain_selection(selection: ReadSelection) -> ReadSelection:
    """Return the selection with values for its placeholders, so that its filter can be parsed.

    Raises `SourceError` for a filter that only databases can evaluate.
    """
    samples = dict.fromkeys(names_in(selection.filter), _SAMPLE)
    plain = replace(selection, filter=in_sql(selection.filter, samples, LAKE))
    filters.parse(plain.filter)  # raises for what is not understood
    return plain


def utc_now() -> dt.datetime:
    """Return the machine's time."""
    return dt.datetime.now(dt.UTC)


def selected_columns(selection: ReadSelection) -> list[str]:
    """Return every column that is needed: declared, watermark's and filter's columns."""
    condition = filters.parse(selection.filter)
    declared = [each.name for each in selection.fields]
    return [*declared, *selection.columns, *(condition.columns if condition else ())]
