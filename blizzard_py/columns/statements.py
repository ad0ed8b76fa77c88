"""The SQL that reads a window: what lies in it, and nothing that lies beyond it.

With several columns a row is due once *any* of them lies in the window (`where`), and not yet
if another lies beyond it (`cap`): it would be read again by the window that this one is in.
Null is above nothing and below nothing, so it neither makes a row due nor holds it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_py.columns.literals import column_name, literal
from blizzard_py.reading import Window

Bounds = Mapping[str, Any] | None
Named = Callable[[str], str]

LOWER_OPS = (">", ">=")
UPPER_OPS = ("<", "<=")


def operator(asked: Any, known: Sequence[str]) -> str:
    """The operator that was asked for if it is known, else the first of those."""
    return next((op for op in known if op == asked), known[0])


def where(
    lower: Bounds,
    upper: Bounds = None,
    lower_op: str = ">",
    upper_op: str = "<",
    dialect: str = "",
    filter: str | None = None,  # noqa: A002  # the documented name
) -> str:
    """The condition "some column lies within its bounds", and the filter; empty if there is none.

    Columns without both bounds do not count. Unknown operators mean the defaults. ``dialect``
    is `postgresql`, `mysql`, `sqlite`, `oracle`, `sqlserver`, `spark` or `duckdb`. Raises
    `SourceError` for a column name that may not stand in a statement and `WatermarkError` for a
    value that cannot.
    """
    either = _either(lower, upper, lower_op, upper_op, dialect)
    return _all_of([either], filter)


def cap(upper: Bounds, dialect: str = "", upper_op: str = "<=") -> str:
    """The second half of a window: no column beyond its bound. Empty for a single column."""
    bounds = _given(upper)
    return _none_beyond(bounds, dialect, upper_op) if len(bounds) > 1 else ""


def query(
    table: str | None = None,
    sql: str | None = None,
    schema: str | None = None,
    lower: Bounds = None,
    upper: Bounds = None,
    lower_op: str = ">",
    upper_op: str = "<",
    dialect: str = "",
    filter: str | None = None,  # noqa: A002  # the documented name
) -> str | None:
    """The statement for table or query; None for a whole table, which needs no statement.

    ``sql`` counts if both are given; it is wrapped, and stays as it is if nothing restricts
    it. Raises as `where` does, and `SourceError` without table and query.
    """
    columns = {**_given(lower), **_given(upper)}
    capped = _none_beyond(_given(upper), dialect, upper_op) if len(columns) > 1 else ""
    either = _either(lower, upper, lower_op, upper_op, dialect)
    condition = _all_of([either, capped], filter)
    inner = (sql or "").strip().rstrip(";").rstrip()
    if inner:
        return _selected(f"({closed(inner)}) t1", condition) if condition else inner
    if not table:
        raise SourceError("there is neither a table nor a query to read")
    name = f"{schema}.{table}" if schema else table
    return _selected(name, condition) if condition else None


def window_where(
    window: Window,
    columns: Iterable[str],
    dialect: str = "",
    filter: str | None = None,  # noqa: A002  # as above
    named: Named = column_name,
) -> str:
    """The condition for all of a planned window; empty if there is no column.

    ``columns`` are all watermark columns. One without a bound had no value when the bound was
    fixed, so whatever it has by now is beyond the window. ``named`` makes a name's text:
    whoever knows the server quotes it, so that its letters count. Raises as `where` does.
    """
    names = list(columns)
    lower_op = ">=" if window.inclusive else ">"
    low = {name: window.low.get(name) for name in names}
    up_to = {name: window.up_to.get(name) for name in names}
    bounded = {name: low[name] for name in names if up_to[name] is not None}
    either = _either(bounded, up_to, lower_op, "<=", dialect, named)
    unset = [f"{named(name)} IS NULL" for name in names if up_to[name] is None]
    if window.nulls_first and names:
        nulls = " AND ".join(f"{named(name)} IS NULL" for name in names)
        either = f"{either} OR ({nulls})" if either else nulls
    capped = _none_beyond(_given(up_to), dialect, "<=", named) if len(names) > 1 else ""
    return _all_of([either, capped, *unset], filter)


def _selected(origin: str, condition: str) -> str:
    return f"SELECT * FROM {origin} WHERE {condition}"  # noqa: S608  # the operator's own SQL


def _given(bounds: Bounds) -> dict[str, Any]:
    return {name: value for name, value in (bounds or {}).items() if value is not None}


def _either(
    lower: Bounds,
    upper: Bounds,
    lower_op: str,
    upper_op: str,
    dialect: str,
    named: Named = column_name,
) -> str:
    """The OR of the columns' windows, each of two bounds or one."""
    low, high = _given(lower), _given(upper)
    above, below = operator(lower_op, LOWER_OPS), operator(upper_op, UPPER_OPS)
    parts = []
    for name in {**low, **high}:
        column = named(name)
        within = []
        if name in low:
            within.append(f"{column} {above} {literal(low[name], dialect)}")
        if name in high:
            within.append(f"{column} {below} {literal(high[name], dialect)}")
        parts.append(f"({' AND '.join(within)})" if len(within) > 1 else within[0])
    return " OR ".join(parts)


def _none_beyond(
    bounds: Mapping[str, Any], dialect: str, upper_op: str, named: Named = column_name
) -> str:
    below = operator(upper_op, UPPER_OPS)
    names = [(named(name), literal(value, dialect)) for name, value in bounds.items()]
    return " AND ".join(f"({name} {below} {value} OR {name} IS NULL)" for name, value in names)


def _all_of(conditions: Iterable[str], extra: str | None) -> str:
    """The AND of all that is not empty, each in parentheses where that changes anything."""
    parts = [part for part in conditions if part]
    user = (extra or "").strip()
    if not user:
        return parts[0] if len(parts) == 1 else " AND ".join(f"({part})" for part in parts)
    return " AND ".join(f"({part})" for part in [*parts, closed(user)])


def closed(text: str) -> str:
    """Foreign SQL that a parenthesis may follow: a comment at its end must not swallow that."""
    return f"{text}\n" if "--" in text or "#" in text else text
