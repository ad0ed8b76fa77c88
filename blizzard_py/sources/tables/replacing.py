"""Windows whose rows replace published rows. Pure.

With ``reread: replace`` a window with look-back is cut into slices at the beginning of the next
look-back. The beginning of a reading is lowered to that of a slice (`ColumnState.boundaries`). So a
reading replaces whole slices, even if rows have other times now. A snapshot is a single slice.

The number before the point in a task's name is its slice: ``1.0``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.reading import ReadTask, Window
from blizzard_py.slices.compare import order
from blizzard_py.slices.edges import cut, known_after, replacement_begin
from blizzard_py.slices.lookback import effective
from blizzard_py.slices.names import column_slice
from blizzard_py.sources.tables.windows import from_stored
from blizzard_py.state.batch import Replaced
from blizzard_py.state.column_state import ColumnState, StoredWindow

# The task of a window without rows: nothing is read, and earlier rows are removed.
NOTHING = "none"


def slices_of(
    source_id: str, known: ColumnState, window: StoredWindow, query_spec: QuerySpec
) -> list[tuple[str, Window]]:
    """Return what the window is read in: for each slice what `_unit` holds, and the rows in it."""
    if query_spec.snapshot:
        return [(column_slice(source_id, None), Window({}, from_stored(window.up_to)))]
    [column] = query_spec.columns
    up_to = from_stored(window.up_to)[column]
    begin = _beginning(known, window, column)
    moment = dt.datetime.fromtimestamp(window.planned_ts, dt.UTC)
    following = effective({column: up_to}, query_spec.backward, moment)[column]
    begins = cut(begin, up_to, following, partial(_is_below, column))
    ends = [*begins[1:], up_to]
    return [
        (column_slice(source_id, low), _window(column, low, high, query_spec))
        for low, high in zip(begins, ends, strict=True)
    ]


def number_tasks(place: int, tasks: Sequence[ReadTask]) -> list[ReadTask]:
    """Return a slice's tasks with the slice's number in their names."""
    return [replace(task, name=f"{place}.{task.name}") for task in tasks]


def nothing_to_read() -> ReadTask:
    """Return the only task of a reading that finds no row."""
    return ReadTask(f"0.{NOTHING}", "no row")


def is_nothing(task: str) -> bool:
    """Return whether a task of that name is `nothing_to_read`."""
    return task.partition(".")[2] == NOTHING


def unit_of_task(known: ColumnState, task: str) -> str:
    """Return what `_unit` holds in the task's rows."""
    return known.slices[int(task.partition(".")[0])]


def replaced_ranges(source_id: str, known: ColumnState) -> Replaced:
    """Return what the window that is being read replaces: all from where it begins."""
    return Replaced(((known.slices[0], f"{source_id}0"),))


def with_boundaries(source_id: str, before: ColumnState, after: ColumnState) -> ColumnState:
    """Return the state after a window, with the beginnings of its slices."""
    begins = [text.removeprefix(f"{source_id}/") for text in before.slices]
    return replace(after, boundaries=known_after(before.boundaries, begins), slices=())


def is_of_appended_rows(known: ColumnState) -> bool:
    """Return whether what was published says no slice, so that it cannot be replaced."""
    published = bool(known.watermark) and known.watermark != known.origin
    return published and not known.boundaries and not known.slices


def _beginning(known: ColumnState, window: StoredWindow, column: str) -> Any:
    """Return the value above which the reading begins; None to read everything.

    Never below where somebody said it begins before anything was read (`ColumnState.origin`).
    """
    after, low = from_stored(window.after).get(column), from_stored(window.low).get(column)
    if after is None or low is None:
        return None
    if isinstance(after, int | float) or not isinstance(after, str | dt.date):
        raise SourceError(
            f"watermark.reread: replace needs a column of times, which a look-back moves; {column}"
            " holds numbers"
        )
    # Rows may join the highest value later on, where the bound is one.
    is_strict = window.kind in {"max", "rows"} and not _is_below(column, low, after)
    first = None if known.origin is None else from_stored(known.origin).get(column)
    begins = [_value(text, after) for text in known.boundaries if text]  # empty: before all
    if is_strict:
        begins = [begin for begin in begins if begin != low]
    return replacement_begin(low, begins, first, partial(_is_below, column))


def _window(column: str, low: Any, up_to: Any, query_spec: QuerySpec) -> Window:
    after: Mapping[str, Any] = {} if low is None else {column: low}
    first = low is None and query_spec.nulls == "first"
    return Window(after, {column: up_to}, after, nulls_first=first)


def _is_below(column: str, one: Any, other: Any) -> bool:
    return order(column, one, other) < 0


def _value(text: str, like: Any) -> Any:
    """Return a boundary as a value of the watermark's type."""
    if isinstance(like, dt.datetime):
        found = dt.datetime.fromisoformat(text)
        return found if like.tzinfo is not None else found.replace(tzinfo=None)
    return dt.date.fromisoformat(text) if isinstance(like, dt.date) else text
