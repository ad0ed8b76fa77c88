"""The columns of a grid of units: partitions, folded by the calendar where they are many. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from blizzard_py.units.instants import stamp, zone_of
from blizzard_py.units.schemes import Pair

# More cannot be told apart on a screen, and make a document of megabytes.
MOST_COLUMNS = 366

# How much of a wall time names a day, a month, a year.
_FOLDS = (("day", 10), ("month", 7), ("year", 4))
# How a wall time ends that is a full minute, a midnight, the first of a month, of a year.
_ENDS = (":00", " 00:00", "-01", "-01")


class Column(NamedTuple):
    """The partitions from number ``first`` on, ``many`` of them, and what they are called."""

    label: str
    first: int
    many: int


def columns_of(partitions: Sequence[Pair], zone: str) -> tuple[str, list[Column]]:
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


def told(column: Column, partitions: Sequence[Pair]) -> list[str]:
    """A column as the grid has it: its label, where it begins and where it ends."""
    begin, end = partitions[column.first][0], partitions[column.first + column.many - 1][1]
    return [column.label, stamp(begin), stamp(end)]


def _short(walls: list[str]) -> list[str]:
    """Without what they all have in common at their end."""
    for end in _ENDS:
        if not all(wall.endswith(end) for wall in walls):
            break
        walls = [wall.removesuffix(end) for wall in walls]
    return walls
