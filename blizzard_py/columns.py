"""Column watermarks as an API for a user's own programs: pure, and not used by the daemon itself.

A **watermark** is a dict, column → the highest value that was read. All calls here are
functions of their arguments (but for a default clock, and for `load` and `save`, which call
what they are given): they open nothing and keep nothing. Times without a zone are UTC.

Errors are `BlizzardError` s: `WatermarkError` for watermarks that cannot be read, written or
compared, `ConfigurationError` for settings that make no sense, `SourceError` for what a source
cannot be asked. What the daemon shares with its users is in `blizzard_py.slices`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Protocol

from blizzard_core.errors import ConfigurationError, SourceError, WatermarkError
from blizzard_py.connections.lakes.date_folders import folder_time, folders
from blizzard_py.connections.sent_values import param, sent_to
from blizzard_py.connections.sql.conditions import all_of, closed, either, none_beyond, valued
from blizzard_py.slices import lookback
from blizzard_py.slices.compare import Watermark, advanced, order, shown
from blizzard_py.slices.cutting import Chunk, chunks, instant_of, ranges
from blizzard_py.slices.notation import deserialize, is_empty, serialize

__all__ = [
    "ConfigurationError",
    "SourceError",
    "WatermarkError",
    "advanced",
    "cap",
    "chunks",
    "closing_day",
    "deserialize",
    "effective",
    "folder_time",
    "folders",
    "high",
    "is_empty",
    "load",
    "look_back",
    "param",
    "params",
    "query",
    "ranges",
    "remaining",
    "rows",
    "save",
    "sent_to",
    "serialize",
    "shift",
    "stored",
    "where",
]

Bounds = Mapping[str, Any] | None
Backward = Mapping[str, Any]
Row = Mapping[str, Any]

_PREFIX = "backward_"
_LOWER, _UPPER = (">", ">="), ("<", "<=")


class Provider(Protocol):
    """Keeps one text for each id, and never looks into it."""

    def get_watermark(self, id: str, /) -> str | None:  # noqa: A002  # the reference's name
        """Return the stored text; None if there is none."""

    def update_watermark(self, id: str, text: str, /, **ids: Any) -> Any:  # noqa: A002  # as above
        """Keep the text. ``ids`` tell what wrote it: `job_id` and `dataflow_run_id` at least."""


def stored(text: str | bytes | None) -> dict[str, Any] | None:
    """Return the watermark that was stored; None if nothing was.

    Raises `WatermarkError` for all else that is no JSON object, the empty text included: what
    cannot be read must never mean "read everything".
    """
    return None if text is None else deserialize(text, strict=True)


def load(provider: Provider, id: str) -> dict[str, Any] | None:  # noqa: A002  # the documented name
    """Return the stored watermark; None if nothing is stored.

    Raises `WatermarkError` for whatever the provider raises, and if the text cannot be read.
    """
    try:
        return stored(provider.get_watermark(id))
    except WatermarkError:
        raise
    except Exception as error:  # anything: the provider is foreign code
        raise WatermarkError(f"Failed to load watermark {id!r}: {error}") from error


def save(
    provider: Provider,
    id: str,  # noqa: A002  # as above
    wm: Watermark | None,
    *,
    job_id: Any = None,
    dataflow_run_id: Any = None,
    **ids: Any,
) -> None:
    """Have the provider keep the watermark. All ids are handed on to it, those that are None too.

    Raises `WatermarkError` for whatever the provider raises, and, before it is asked, if the
    watermark cannot be written.
    """
    text = serialize(wm)
    try:
        provider.update_watermark(id, text, job_id=job_id, dataflow_run_id=dataflow_run_id, **ids)
    except WatermarkError:
        raise
    except Exception as error:  # anything: the provider is foreign code
        raise WatermarkError(f"Failed to save watermark {id!r}: {error}") from error


# -- look-backs ---------------------------------------------------------------------------


def look_back(connection: Backward | None, source: Backward | None = None) -> dict[str, int] | None:
    """Return the look-back of a source: its own, which replaces the connection's as a whole.

    Both are settings with ``backward: {days: 2}`` or ``backward_days: 2``, the first of which
    wins; 0 switches it off. None if there is none. Raises `ConfigurationError` for what is
    negative, fractional or unknown.
    """
    for settings in (source, connection):
        found = _configured(settings)
        if found is not None:
            return {unit: amount for unit, amount in found.items() if amount} or None
    return None


def shift(v: Any, b: Backward | None) -> Any:
    """Return the value moved back by ``b``, as `blizzard_py.slices.lookback.shift` does.

    Raises `ConfigurationError` as `look_back` does.
    """
    return lookback.shift(v, _amounts(b))


def closing_day(now: date, day: int, months: int = 0, years: int = 0) -> Any:
    """Return what is open at ``now``: since the first of last month, behind ``day`` of this one.

    Less ``months`` and ``years``; midnight UTC (without a zone if ``now`` has none). Raises
    `ConfigurationError` for a day outside 1 to 31.
    """
    day = _amount("closing_day", day)
    if not day:
        raise ConfigurationError(f"closing_day is a day of the month, not {day}")
    back = {"months": _amount("months", months), "years": _amount("years", years)}
    return lookback.closing_day(now, day, back)


def effective(wm: Watermark | None, b: Backward | None, now: date | None = None) -> dict[str, Any]:
    """Return the lower bound: each value moved back by ``b``, none ever above the stored one.

    ``closing_day`` counts from ``now`` (default: this moment, UTC) and takes the place of days
    and hours. Raises `ConfigurationError` as `look_back` does.
    """
    return lookback.effective(wm, _amounts(b), now)


def _amounts(b: Backward | None) -> dict[str, int]:
    """Return the amounts of a look-back alone, in which every key counts."""
    if isinstance(b, Mapping) and any(str(key).startswith("backward") for key in b):
        return _configured(b) or {}
    return _nested(b)


def _configured(settings: Backward | None) -> dict[str, int] | None:
    """Return the amounts of the settings, zeros included; None if there are none."""
    if settings is None:
        return None
    found = {u: _amount(u, settings[u]) for u in lookback.UNITS if settings.get(u) is not None}
    for key, value in settings.items():
        if str(key).startswith(_PREFIX) and value is not None:
            unit = str(key).removeprefix(_PREFIX)
            found[unit] = _amount(unit, value)
    found |= _nested(settings.get("backward"))
    if not found and isinstance(settings.get("watermark"), Mapping):
        return _configured(settings["watermark"])
    return found or None


def _nested(value: Any) -> dict[str, int]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {unit: _amount(unit, amount) for unit, amount in value.items() if amount is not None}
    if isinstance(value, int) and value == 0:  # switched off: says so for every unit
        return dict.fromkeys(lookback.UNITS, 0)
    raise ConfigurationError(f"backward is written as {{days: 2}}, not {shown(value)}")


def _amount(unit: Any, value: Any) -> int:
    if unit not in lookback.UNITS:
        known = ", ".join(lookback.UNITS)
        raise ConfigurationError(f"backward knows {known}, not {shown(unit)}")
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value, re.ASCII):
        value = int(value)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not 0 <= value < 10**9:
        raise ConfigurationError(f"backward: {unit} is a whole number, 0 or more: {shown(value)}")
    if unit == "closing_day" and value > 31:
        raise ConfigurationError(f"closing_day is a day of the month, not {shown(value)}")
    return int(value)


# -- what a source is asked ---------------------------------------------------------------


def where(
    lower: Bounds,
    upper: Bounds = None,
    lower_op: str = ">",
    upper_op: str = "<",
    dialect: str = "",
    filter: str | None = None,  # noqa: A002  # the documented name
) -> str:
    """Write the condition "some column lies within its bounds", and the filter; may be empty.

    Columns without both bounds do not count. Unknown operators mean the defaults. ``dialect``
    is `postgresql`, `mysql`, `sqlite`, `oracle`, `sqlserver`, `spark` or `duckdb`. Raises
    `SourceError` for a column name that may not stand in a statement and `WatermarkError` for a
    value that cannot.
    """
    ops = _operator(lower_op, _LOWER), _operator(upper_op, _UPPER)
    return all_of([either(lower, upper, ops, dialect)], filter)


def cap(upper: Bounds, dialect: str = "", upper_op: str = "<=") -> str:
    """Write the second half of a window: no column beyond its bound. Empty for a single column."""
    bounds = valued(upper)
    if len(bounds) < 2:
        return ""
    return none_beyond(bounds, dialect, _operator(upper_op, _UPPER))


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
    """Write the statement for table or query; None for a whole table, which needs no statement.

    ``sql`` counts if both are given; it is wrapped, and stays as it is if nothing restricts
    it. Raises as `where` does, and `SourceError` without table and query.
    """
    ops = _operator(lower_op, _LOWER), _operator(upper_op, _UPPER)
    capped = ""
    if len({**valued(lower), **valued(upper)}) > 1:
        capped = none_beyond(valued(upper), dialect, ops[1])
    condition = all_of([either(lower, upper, ops, dialect), capped], filter)
    inner = (sql or "").strip().rstrip(";").rstrip()
    if inner:
        return _selected(f"({closed(inner)}) t1", condition) if condition else inner
    if not table:
        raise SourceError("there is neither a table nor a query to read")
    name = f"{schema}.{table}" if schema else table
    return _selected(name, condition) if condition else None


def params(
    mapping: Mapping[str, str],
    wm: Watermark | None,
    format: str = "iso",  # noqa: A002  # the documented name
) -> dict[str, str]:
    """Return the parameters for a watermark: ``mapping`` is column → parameter.

    A column without a value is not sent. Raises `SourceError` as `param` does, naming the
    column.
    """
    sent = {}
    for column, name in mapping.items():
        value = (wm or {}).get(column)
        if value is None:
            continue
        try:
            sent[name] = param(value, format)
        except SourceError as error:
            raise SourceError(f"column {column}: {error}") from error
    return sent


def remaining(chunks: Iterable[Chunk], stored: Any = None) -> list[Chunk]:
    """Return the chunks that are not finished: all that end above the stored value.

    ``stored`` is a value or a watermark of one column; null leaves all. Raises
    `WatermarkError` if it cannot be compared with the chunks' ends.
    """
    if isinstance(stored, Mapping):
        values = [value for value in stored.values() if value is not None]
        if len(values) > 1:
            raise ConfigurationError(f"chunks are of one column, the watermark of {len(values)}")
        stored = values[0] if values else None
    if stored is None:
        return list(chunks)
    done = instant_of(stored)
    return [chunk for chunk in chunks if order("chunk", instant_of(chunk[1]), done) > 0]


# -- rows in memory, for sources that cannot be asked with SQL ----------------------------


def rows(
    rows: Iterable[Row],
    columns: Sequence[str],
    start: Watermark | None = None,
    start_op: str = ">",
    end: Watermark | None = None,
    end_op: str = "<",
) -> list[Row]:
    """Return the rows of which some column lies within its bounds; null passes no bound.

    Columns without bounds do not count; all rows if no column has one. Unknown operators mean
    the defaults. Raises `WatermarkError` for values that cannot be compared.
    """
    low, high = start or {}, end or {}
    bounded = [c for c in columns if low.get(c) is not None or high.get(c) is not None]
    above = 0 if _operator(start_op, _LOWER) == ">=" else 1
    below = 0 if _operator(end_op, _UPPER) == "<=" else -1

    def within(row: Row, column: str) -> bool:
        value = row.get(column)
        if value is None:
            return False
        least, most = low.get(column), high.get(column)
        return (least is None or order(column, value, least) >= above) and (
            most is None or order(column, value, most) <= below
        )

    if not bounded:
        return list(rows)
    return [row for row in rows if any(within(row, column) for column in bounded)]


def high(rows: Iterable[Row], columns: Sequence[str]) -> dict[str, Any]:
    """Return the highest value of each column; a column without any value is left out.

    Raises `WatermarkError` for values that cannot be compared.
    """
    found: dict[str, Any] = {}
    for row in rows:
        for column in columns:
            value = row.get(column)
            if value is not None and order(column, value, found.get(column, value)) >= 0:
                found[column] = value
    return {column: found[column] for column in columns if column in found}


def _operator(name: Any, known: Sequence[str]) -> str:
    """Return the operator if it is known, otherwise the first known one."""
    return next((op for op in known if op == name), known[0])


def _selected(origin: str, condition: str) -> str:
    return f"SELECT * FROM {origin} WHERE {condition}"  # noqa: S608  # the user's own SQL
