"""A source's state after the plan of a window, and after its end. Pure.

Digests (`blizzard_py.state.seen_rows`) recognise rows that a look-back reads again. They are kept
from the first window that ``reread: new_only`` reads. So a look-back begins no lower than the
digests reach. After it was lengthened or switched on, it grows to its length over time; otherwise
it would double rows that were published without digests.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from blizzard_core.errors import StateError, WatermarkError
from blizzard_py.connections.protocol import ReadBound
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.job import FieldSpec
from blizzard_py.reading import DedupSpec, ReadTask, RowFingerprint, Window
from blizzard_py.slices.compare import advanced, order
from blizzard_py.slices.cutting import instant_of
from blizzard_py.slices.lookback import effective
from blizzard_py.slices.notation import deserialize, serialize
from blizzard_py.slices.windows import window
from blizzard_py.state.column_state import ColumnState, SeenSegment, Stored, StoredWindow

# Bounds at whose value rows may still arrive.
TIES = frozenset({"max", "rows"})
# Types whose values have the same digests.
_ALIKE = {"int32": "integer", "int64": "integer", "float32": "float", "float64": "float"}
# Rows are lines here, recognised by the whole line without a key.
_OF_LINES = frozenset({"http", "json"})


def to_stored(watermark: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in the checkpoint's form. Raises `WatermarkError` for unsupported values."""
    found: dict[str, Any] = json.loads(serialize(watermark))
    return found


def from_stored(stored: Stored) -> dict[str, Any]:
    """Return the values that `to_stored` wrote."""
    return deserialize(json.dumps(stored), strict=True)


def plan_window(
    known: ColumnState,
    query_spec: QuerySpec,
    fields: Iterable[FieldSpec],
    bound: ReadBound,
    now: float,
) -> StoredWindow | None:
    """Return the next window, None if nothing is above the watermark; ``fields`` are declared.

    Raises `WatermarkError` where bound and watermark contradict each other.
    """
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    found = window(
        from_stored(known.watermark),
        bound.value,
        query_spec.backward,
        moment,
        bound.kind,
        query_spec.nulls,
    )
    if found is None:
        return None
    low, above = dict(found.low), {}
    if query_spec.new_only:
        low = _not_below(low, _seen_from(known))
        above = effective(found.up_to, query_spec.backward, moment)
    return StoredWindow(
        kind=bound.kind,
        after=to_stored(found.after),
        up_to=to_stored(found.up_to),
        low=to_stored(low),
        above=to_stored(above),
        # Rows may join the value of a bound that was one of these, whatever the bound is by now. A
        # value that was set by hand has no digests of the rows at it: they count as published.
        inclusive=known.at_known and bool(found.after),
        nulls_first=query_spec.nulls == "first" and _is_first(known),
        planned_ts=now,
        told_by=fingerprint_columns(query_spec, fields),
        whole=not query_spec.key,
    )


def _is_first(known: ColumnState) -> bool:
    """Return whether nothing was published yet, also where somebody has said from where to read."""
    return not known.watermark or known.watermark == known.origin


def window_of(stored: StoredWindow) -> Window:
    """Return a stored window in the form that connections read."""
    return Window(
        from_stored(stored.after),
        from_stored(stored.up_to),
        from_stored(stored.low),
        stored.inclusive,
        stored.nulls_first,
    )


def open_window(
    known: ColumnState, query_spec: QuerySpec, stored: StoredWindow, tasks: Iterable[ReadTask]
) -> ColumnState:
    """Return the state with a window to be read."""
    return replace(known, names=query_spec.columns, window=stored, tasks=tuple(tasks), done=())


def dedup(
    query_spec: QuerySpec,
    fields: Iterable[FieldSpec],
    stored: StoredWindow,
    seen: Iterable[tuple[str, SeenSegment]],
) -> DedupSpec:
    """Return how the window's tasks recognise rows: as planned, not as configured now.

    ``seen`` are the stored segments and their paths. Raises `StateError` if their digests include
    columns that are no longer read.
    """
    held, now = _held_by(query_spec, fields), _fingerprint(stored)
    if stored.above:
        before = _earlier_fingerprints(query_spec, held, seen)
        return DedupSpec(now, "above", from_stored(stored.above), before)
    if stored.kind in TIES or stored.inclusive:
        # Rows off the boundary were never published, whatever they hold.
        before = _earlier_fingerprints(query_spec, held, seen) if stored.inclusive else ()
        return DedupSpec(now, "at", from_stored(stored.up_to), before)
    return DedupSpec()


def fingerprint_columns(query_spec: QuerySpec, fields: Iterable[FieldSpec]) -> dict[str, str]:
    """Return the columns of the row fingerprint as configured now, with their types."""
    held = _held_by(query_spec, fields)
    return {
        c: held[c]
        for c in sorted({*query_spec.key, *query_spec.columns} if query_spec.key else held)
    }


def _held_by(query_spec: QuerySpec, fields: Iterable[FieldSpec]) -> dict[str, str]:
    """Return all columns that are read, with their types."""
    undeclared = dict.fromkeys((*query_spec.key, *query_spec.columns), "")
    return undeclared | {field.name: _type_text(field) for field in fields}


def _type_text(field: FieldSpec) -> str:
    """Return what a column's values are as far as digests differ: not by width, digits or scale."""
    word = _ALIKE.get(field.type, field.type)
    if field.type == "timestamp" and field.unit != "iso":
        word += f" {field.unit}"
    inner = ", ".join(f"{child.name} {_type_text(child)}" for child in field.children)
    return f"{word}({inner})" if inner else word


def _fingerprint(of: SeenSegment | StoredWindow) -> RowFingerprint:
    return RowFingerprint(tuple(sorted(of.told_by)), of.whole)


def _earlier_fingerprints(
    query_spec: QuerySpec, held: Mapping[str, str], seen: Iterable[tuple[str, SeenSegment]]
) -> tuple[tuple[str, RowFingerprint], ...]:
    found = tuple(seen)
    for _, segment in found:
        if segment.whole and query_spec.access.driver in _OF_LINES:
            continue
        for name, was in segment.told_by.items():
            if held.get(name) != was:
                now = "not read any more" if name not in held else held[name] or "not declared"
                raise StateError(
                    f"rows that were published are told by column {name!r} ({was or 'not declared'}"
                    f" then), which is {now}: some would come twice. Set it back, or go on above"
                    " the watermark with `blizzard checkpoint set --column`"
                )
    return tuple((path, _fingerprint(segment)) for path, segment in found)


def finish_tasks(known: ColumnState, names: Iterable[str]) -> ColumnState:
    """Return the state with tasks of the window published; the last one ends the window."""
    stored = known.window
    if stored is None:
        return known
    ended = {*known.done, *names}
    if any(task.name not in ended for task in known.tasks):
        return replace(known, done=tuple(t.name for t in known.tasks if t.name in ended))
    watermark = to_stored(advanced(from_stored(known.watermark), from_stored(stored.up_to)))
    return replace(
        known,
        watermark=watermark,
        bound=stored.kind,
        seq=known.seq + 1,
        at_known=stored.kind in TIES,
        window=None,
        tasks=(),
        done=(),
    )


def digests_start(known: ColumnState, stored: StoredWindow) -> Stored | None:
    """Return the value from which stored digests cover all rows, after the window."""
    if not stored.above:
        return None
    return to_stored(_not_below(from_stored(stored.above), _seen_from(known)))


def is_expired(stored: StoredWindow, segment: SeenSegment) -> bool:
    """Return whether no later window reads a row of the segment again."""
    if not stored.above:
        return segment.up_to != stored.up_to
    above = from_stored(stored.above)
    return all(
        column in above and order(column, value, above[column]) < 0
        for column, value in from_stored(segment.up_to).items()
    )


def is_below(one: Stored, other: Stored) -> bool:
    """Return whether some column of the one lies below the other's."""
    others = from_stored(other)
    values = from_stored(one)
    return any(c in others and order(c, value, others[c]) < 0 for c, value in values.items())


def text_of(watermark: Stored) -> str | None:
    """Return a watermark as one line of text, None if there is none."""
    found = from_stored(watermark)
    return ", ".join(f"{column}={_text(value)}" for column, value in found.items()) or None


def age_of(watermark: Stored) -> float | None:
    """Return the earliest time in a watermark (epoch seconds); None if no value is a time."""
    found = (instant_of(value) for value in from_stored(watermark).values())
    return min((at.timestamp() for at in found if isinstance(at, dt.datetime)), default=None)


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def _seen_from(known: ColumnState) -> dict[str, Any]:
    """Return where digests begin: at the first window, or where the watermark stood without any."""
    return from_stored(known.watermark if known.seen_from is None else known.seen_from)


def _not_below(low: Mapping[str, Any], least: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return advanced(dict(low), {c: value for c, value in least.items() if c in low})
    except WatermarkError:
        return dict(low)
