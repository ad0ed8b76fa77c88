"""The grid of a source's units for its page: values by time, coloured by state. Pure.

::

    {"zone": "UTC", "cut_off": "2020-02-18T00:00:00.000Z", "by": "partition",
     "columns": [["2020-01", "2020-01-01T00:00:00.000Z", "2020-02-01T00:00:00.000Z"], …],
     "rows": [{"name": "id1", "cells": "di"}, …], "earlier": 0, "more": 0, "retired": 0,
     "notes": [{"row": 0, "column": 1, "key": "2020-02-01T00:00:00.000Z/id1",
                "state": "incomplete", "high": "2020-02-21T00:00:00.000Z", "low": null,
                "failures": 0, "next_try": null, "error": null, "units": {"incomplete": 1}}, …],
     "counts": {"failing": 0, …, "done": 13}}

A cell is a letter (`LETTERS`), or ``.`` without a unit. A done cell was read up to the end of its
column. Every other cell has a note about its worst unit.

The size is bounded. More than `MOST_COLUMNS` partitions are folded by day, month or year on the
zone's calendar. Then a cell has several units and shows the state of the worst. ``earlier`` columns
and ``more`` rows are only counted; the worst rows stay. ``retired`` are values in the state that
are no longer configured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Literal, NamedTuple

from blizzard_core.text import shortened
from blizzard_py.slices.instants import stamp, zone_of
from blizzard_py.slices.units.due import Due, Terms, due
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.schemes import Pair
from blizzard_py.slices.units.state import OpenUnit, UnitsState, key_parts, parse_moment, unit_key
from blizzard_py.slices.units.values import LONE, unit_name

State = Literal["failing", "ahead", "new", "incomplete", "redo", "grace", "abstinent", "done"]

# The worst first: what a cell of several units shows.
LETTERS: Mapping[State, str] = {
    "failing": "f",
    "ahead": "h",
    "new": "n",
    "incomplete": "i",
    "redo": "r",
    "grace": "g",
    "abstinent": "a",
    "done": "d",
}
RETIRED, NOTHING = "x", "."

# More cannot be told apart on a screen, and make a document of megabytes.
MOST_COLUMNS = 366

# How much of a wall time names a day, a month, a year.
_FOLDS = (("day", 10), ("month", 7), ("year", 4))
# How a wall time ends that is a full minute, a midnight, the first of a month, of a year.
_ENDS = (":00", " 00:00", "-01", "-01")

MOST_ROWS = 60
MOST_NOTES = 100
_MOST_TEXT = 200

_RANKS = {state: rank for rank, state in enumerate(LETTERS)}
_LETTERS = tuple(LETTERS.values())


class Column(NamedTuple):
    """The partitions from number ``first`` on, ``many`` of them, and what they are called."""

    label: str
    first: int
    many: int


@dataclass(frozen=True, slots=True)
class GridLayout:
    """By what a poll plans units: the range's partitions on the calendar of ``zone``, the values.

    ``values`` of None is one unit ``{}``, as for `blizzard_py.slices.units.due.due`.
    """

    partitions: Sequence[Pair]
    values: Sequence[Mapping[str, str]] | None
    terms: Terms
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class _Note:
    """A cell of the grid, with the worst unit in it."""

    row: int
    column: int
    key: str
    state: str
    high: str | None
    low: str | None
    failures: int
    next_try: str | None
    error: str | None
    units: Mapping[str, int]


def grid(state: UnitsState, layout: GridLayout, now: datetime) -> dict[str, Any]:
    """Return the grid of all units at ``now``, as bounded plain data."""
    terms = replace(layout.terms, min_units=0, everything=False)
    found = due(state, layout.partitions, layout.values, terms, now)
    by, columns = _columns_of(layout.partitions, layout.zone)
    earlier = max(0, len(columns) - MOST_COLUMNS)
    names = [LONE] if layout.values is None else list(map(unit_name, layout.values))
    crowd = _Crowd(state, layout, found, columns)
    chosen = _chosen([*names, *found.retired], crowd.worst_of)
    shown = columns[earlier:]
    rows = [
        _retired_cells(state, name, layout.partitions, shown)
        if at >= len(names)
        else "".join(crowd.letter(name, column) for column in range(earlier, len(columns)))
        for at, name in chosen
    ]
    return {
        "zone": layout.zone,
        "cut_off": None if found.cut_off is None else stamp(found.cut_off),
        "by": by,
        "columns": [_column_document(column, layout.partitions) for column in shown],
        "rows": [
            {"name": shortened(name, _MOST_TEXT), "cells": cells}
            for (_, name), cells in zip(chosen, rows, strict=True)
        ],
        "earlier": earlier,
        "more": len(names) + len(found.retired) - len(chosen),
        "retired": len(found.retired),
        "notes": [asdict(note) for note in crowd.notes([name for _, name in chosen], earlier)],
        "counts": count_states(found, state),
    }


def count_states(found: Due, state: UnitsState) -> dict[State, int]:
    """Return how many units are in each state, also where none is."""
    failing = _failing(state)
    counts: Counter[State] = Counter(_state_of(unit, failing) for unit in found.units)
    counts["done"] += found.closed
    return {name: counts[name] for name in LETTERS}


def _failing(state: UnitsState) -> frozenset[tuple[datetime, str]]:
    """Return the units whose last reading failed."""
    return frozenset(key_parts(key) for key, unit in state.open.items() if unit.failures)


def _state_of(unit: PlannedUnit, failing: frozenset[tuple[datetime, str]]) -> State:
    if unit.reason == "waiting" or (unit.partition[0], unit.name) in failing:
        return "failing"
    return unit.reason


class _Crowd:
    """The units that were looked at, by cell: all others are done."""

    def __init__(
        self, state: UnitsState, layout: GridLayout, found: Due, columns: Sequence[Column]
    ) -> None:
        self._state = state
        self._columns = columns
        places = {
            layout.partitions[at][0]: number
            for number, column in enumerate(columns)
            for at in range(column.first, column.first + column.many)
        }
        self._worst: dict[tuple[str, int], tuple[int, PlannedUnit]] = {}
        self._counts: dict[tuple[str, int], Counter[str]] = {}
        # What is not done, of each row.
        self.worst_of: dict[str, int] = {}
        failing = _failing(state)
        for unit in found.units:
            word = _state_of(unit, failing)
            if word == "done":
                continue
            rank = _RANKS[word]
            place = (unit.name, places[unit.partition[0]])
            self._counts.setdefault(place, Counter())[word] += 1
            # Of equally bad units the youngest is told: what is behind it is seldom better.
            if place not in self._worst or rank <= self._worst[place][0]:
                self._worst[place] = (rank, unit)
            self.worst_of[unit.name] = min(rank, self.worst_of.get(unit.name, rank))

    def letter(self, name: str, column: int) -> str:
        """Return the state of a cell."""
        rank, _ = self._worst.get((name, column), (_RANKS["done"], None))
        return _LETTERS[rank]

    def notes(self, names: Sequence[str], earlier: int) -> list[_Note]:
        """Return what is not done in these rows, the worst first, then the youngest."""
        rows = {name: row for row, name in enumerate(names)}
        places = [place for place in self._worst if place[0] in rows and place[1] >= earlier]
        places.sort(key=lambda place: (self._worst[place][0], -place[1], rows[place[0]]))
        return [
            self._note(place, rows[place[0]], place[1] - earlier) for place in places[:MOST_NOTES]
        ]

    def _note(self, place: tuple[str, int], row: int, column: int) -> _Note:
        rank, unit = self._worst[place]
        begin, _ = unit.partition
        known = self._state.open.get(unit_key(begin, unit.name), OpenUnit())
        counts = dict(self._counts[place])
        done = self._columns[place[1]].many - sum(counts.values())
        key = unit_key(begin, shortened(unit.name, _MOST_TEXT))
        return _Note(
            row,
            column,
            key,
            list(LETTERS)[rank],
            None if unit.high is None else stamp(unit.high),
            stamp(unit.start) if unit.execute else None,
            known.failures,
            known.next_try,
            None if known.error is None else shortened(known.error, _MOST_TEXT),
            counts | {"done": done} if done else counts,
        )


def _chosen(names: Sequence[str], worst: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return the numbered rows to show, in order: all of them, or the worst."""
    if len(names) <= MOST_ROWS:
        return list(enumerate(names))
    ranked = sorted(range(len(names)), key=lambda at: worst.get(names[at], _RANKS["done"]))
    return [(at, names[at]) for at in sorted(ranked[:MOST_ROWS])]


def _retired_cells(
    state: UnitsState, name: str, partitions: Sequence[Pair], columns: Sequence[Column]
) -> str:
    """Return where a value was read that nobody lists any more."""
    reached = state.closed_to.get(name)
    until = None if reached is None else parse_moment(reached, name)
    begins = {key_parts(key)[0] for key in state.open if key.partition("/")[2] == name}
    letters = []
    for column in columns:
        pairs = partitions[column.first : column.first + column.many]
        was = any(pair[0] in begins for pair in pairs) or (
            until is not None and until > pairs[0][0]
        )
        letters.append(RETIRED if was else NOTHING)
    return "".join(letters)


def _columns_of(partitions: Sequence[Pair], zone: str) -> tuple[str, list[Column]]:
    """By what the partitions are folded (``partition``: by nothing), and the columns.

    Of day, month and year the first that leaves no more than `MOST_COLUMNS`; years may be more.
    Labels are wall times of the zone, as short as all of them can be.
    """
    where = zone_of(zone)
    walls = [begin.astimezone(where).isoformat(" ")[:19] for begin, _ in partitions]
    if len(walls) <= MOST_COLUMNS:
        return "partition", [Column(text, at, 1) for at, text in enumerate(_short(walls))]
    folds = ((by, _folded(wall[:width] for wall in walls)) for by, width in _FOLDS)
    return next(fold for fold in folds if fold[0] == "year" or len(fold[1]) <= MOST_COLUMNS)


def _folded(labels: Iterable[str]) -> list[Column]:
    found: list[Column] = []
    first = 0
    for label, same in groupby(labels):
        many = sum(1 for _ in same)
        found.append(Column(label, first, many))
        first += many
    return found


def _column_document(column: Column, partitions: Sequence[Pair]) -> list[str]:
    """Return a column of the grid: its label, its beginning and its end."""
    begin, end = partitions[column.first][0], partitions[column.first + column.many - 1][1]
    return [column.label, stamp(begin), stamp(end)]


def _short(walls: list[str]) -> list[str]:
    """Without what they all have in common at their end."""
    for end in _ENDS:
        if not all(wall.endswith(end) for wall in walls):
            break
        walls = [wall.removesuffix(end) for wall in walls]
    return walls
