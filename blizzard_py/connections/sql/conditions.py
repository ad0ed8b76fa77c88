"""The SQL condition of a window: all rows in it, and none beyond it.

With several columns a row is due once *any* of them lies in the window (`either`). It is not due
yet if another column lies beyond the window (`none_beyond`), because that column's window would
read it again. Null is above nothing and below nothing, so it neither makes a row due nor holds it
back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from blizzard_py.connections.literals import column_name, literal
from blizzard_py.reading import Window

Bounds = Mapping[str, Any] | None
Named = Callable[[str], str]


def window_where(
    window: Window,
    columns: Iterable[str],
    dialect: str = "",
    filter: str | None = None,  # noqa: A002  # as in `blizzard_py.columns`
    named: Named = column_name,
) -> str:
    """Return the condition of a planned window; empty if there is no column.

    ``columns`` are all watermark columns. A column without a bound had no value when the bound was
    fixed, so any value it has now is beyond the window. ``named`` returns a name's text; with
    knowledge of the server it quotes the name, so that its case counts. Raises `SourceError` for a
    column name that is not allowed in a statement and `WatermarkError` for such a value.
    """
    names = list(columns)
    operators = (">=" if window.inclusive else ">", "<=")
    low = {name: window.low.get(name) for name in names}
    up_to = {name: window.up_to.get(name) for name in names}
    bounded = {name: low[name] for name in names if up_to[name] is not None}
    found = either(bounded, up_to, operators, dialect, named)
    unset = [f"{named(name)} IS NULL" for name in names if up_to[name] is None]
    if window.nulls_first and names:
        nulls = " AND ".join(f"{named(name)} IS NULL" for name in names)
        found = f"{found} OR ({nulls})" if found else nulls
    capped = none_beyond(valued(up_to), dialect, "<=", named) if len(names) > 1 else ""
    return all_of([found, capped, *unset], filter)


def valued(bounds: Bounds) -> dict[str, Any]:
    """Return the bounds that have a value."""
    return {name: value for name, value in (bounds or {}).items() if value is not None}


def either(
    lower: Bounds,
    upper: Bounds,
    operators: tuple[str, str],
    dialect: str,
    named: Named = column_name,
) -> str:
    """Return the OR of the columns' windows, each of two bounds or one."""
    low, high = valued(lower), valued(upper)
    above, below = operators
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


def none_beyond(
    bounds: Mapping[str, Any], dialect: str, below: str, named: Named = column_name
) -> str:
    """Return the condition that no column lies beyond its bound."""
    names = [(named(name), literal(value, dialect)) for name, value in bounds.items()]
    return " AND ".join(f"({name} {below} {value} OR {name} IS NULL)" for name, value in names)


def all_of(conditions: Iterable[str], extra: str | None) -> str:
    """Return the AND of all non-empty conditions, in parentheses where needed."""
    parts = [part for part in conditions if part]
    user = (extra or "").strip()
    if not user:
        return parts[0] if len(parts) == 1 else " AND ".join(f"({part})" for part in parts)
    return " AND ".join(f"({part})" for part in [*parts, closed(user)])


def closed(text: str) -> str:
    """Return foreign SQL so that a parenthesis may follow, even after a comment."""
    return f"{text}\n" if "--" in text or "#" in text else text
