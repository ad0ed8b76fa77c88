"""Files and rows that a group replaces, selected by text ranges. Pure.

A group replaces ranges of a column's values; a single value is the range of itself. Files are
selected by their logged bounds:

* A bound may be truncated. A truncated lower bound is still below all values. A truncated upper
  bound stands for all values with that prefix, since not every writer raises it.
* A file without bounds may hold anything, so it is read, unless all its values are null.
* If the bounds lie within one range and there are no nulls, all rows are replaced.

Text is compared by code points, which is the order of its UTF-8 bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.handover.groups import SOURCE_FILE_COLUMN, UNIT_COLUMN, Group
from penguin_py.delta.active_files import ActiveFiles, Bounds


@dataclass(frozen=True, slots=True)
class TextRanges:
    """Half-open ranges of text, in order, none of which touches another."""

    firsts: tuple[str, ...]
    behinds: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.firsts)

    def __contains__(self, value: str) -> bool:
        place = bisect_right(self.firsts, value) - 1
        return place >= 0 and value < self.behinds[place]

    def meets(self, low: str, high: str) -> bool:
        """Return whether a value from ``low`` to what begins with ``high`` may be in a range."""
        place = bisect_right(self.behinds, low)
        if place == len(self.behinds):
            return False
        first = self.firsts[place]
        return first <= high or first.startswith(high)

    def holds(self, low: str, high: str) -> bool:
        """Return whether all of these values are in one range."""
        place = bisect_right(self.behinds, low)
        if place == len(self.behinds) or low < self.firsts[place]:
            return False
        behind = self.behinds[place]
        return high < behind and not behind.startswith(high)


def ranges_of(pairs: Iterable[tuple[str, str]]) -> TextRanges:
    """Merge the ranges in order, those that touch into one."""
    firsts: list[str] = []
    behinds: list[str] = []
    for first, behind in sorted(pairs):
        if behinds and first <= behinds[-1]:
            behinds[-1] = max(behinds[-1], behind)
        else:
            firsts.append(first)
            behinds.append(behind)
    return TextRanges(tuple(firsts), tuple(behinds))


def replaced_ranges(group: Group) -> dict[str, TextRanges]:
    """Return the ranges that the group replaces, by column."""
    found = {
        UNIT_COLUMN: ranges_of(group.replace),
        SOURCE_FILE_COLUMN: ranges_of((name, f"{name}\0") for name in group.source_files),
    }
    return {column: ranges for column, ranges in found.items() if ranges}


@dataclass(frozen=True, slots=True)
class Unreplaced:
    """Ranges that discarded groups of a source left, against the ranges of its next group.

    ``due`` meet the group's ranges and go with them; ``rest`` wait for a later group.
    """

    due: tuple[tuple[str, str], ...]
    rest: tuple[tuple[str, str], ...]


def unreplaced_by(group: Group, remaining: Iterable[tuple[str, str]]) -> Unreplaced:
    """Split ranges left by discarded groups into those due with this group and the rest.

    A reading begins where a slice of the reading before it begins. If that one was discarded, no
    slice of the table begins there, and the rows of an older slice would stay beside the new
    ones. So a range of a discarded group goes as a whole with the first group that meets it.
    """
    ranges = ranges_of(remaining)
    own = ranges_of(group.replace)
    due: list[tuple[str, str]] = []
    rest: list[tuple[str, str]] = []
    for first, behind in zip(ranges.firsts, ranges.behinds, strict=True):
        place = bisect_right(own.behinds, first)
        is_met = place < len(own.firsts) and own.firsts[place] < behind
        (due if is_met else rest).append((first, behind))
    return Unreplaced(tuple(due), tuple(rest))


@dataclass(frozen=True, slots=True)
class AffectedFiles:
    """Places of files in `ActiveFiles`: files to remove completely, and files to read."""

    whole: tuple[int, ...]
    doubtful: tuple[int, ...]


def find_affected(
    active: ActiveFiles, wanted: Mapping[str, TextRanges], never: Callable[[str], bool]
) -> AffectedFiles:
    """Return the files that may hold replaced rows.

    ``never`` tells of a path, as the log spells it, that its rows are of no unit, so that
    lacking bounds of `UNIT_COLUMN` say nothing. It is not asked of files of which the log does
    not even count the rows, as it does of all that we commit: somebody else wrote them.
    """
    whole: set[int] = set()
    doubtful: set[int] = set()
    for column, ranges in wanted.items():
        bounds = active.bounds.get(column)
        if bounds is None:
            continue  # no file has such values
        near, unbounded = _near(active, bounds, ranges)
        lows, highs = bounds.low.take(near).to_pylist(), bounds.high.take(near).to_pylist()
        nulls = bounds.nulls.take(near).to_pylist()
        for place, low, high, empty in zip(near.to_pylist(), lows, highs, nulls, strict=True):
            if empty == 0 and ranges.holds(low, high):
                whole.add(place)
            elif ranges.meets(low, high):
                doubtful.add(place)
        names = active.paths.take(unbounded).to_pylist()
        counts = active.rows.take(unbounded).to_pylist()
        doubtful.update(
            place
            for place, path, count in zip(unbounded.to_pylist(), names, counts, strict=True)
            if column != UNIT_COLUMN or count is None or not never(path)
        )
    return AffectedFiles(tuple(sorted(whole)), tuple(sorted(doubtful - whole)))


def _near(active: ActiveFiles, bounds: Bounds, ranges: TextRanges) -> tuple[pa.Array, pa.Array]:
    """Return the positions of files near the ranges, and of those without bounds."""
    first = ranges.firsts[0]
    # A cut bound may be any beginning of the first value.
    prefixes = pa.array([first[:end] for end in range(len(first) + 1)], bounds.high.type)
    below = pc.less(bounds.low, ranges.behinds[-1])
    above = pc.or_(pc.greater_equal(bounds.high, first), pc.is_in(bounds.high, value_set=prefixes))
    bounded = pc.and_(pc.is_valid(bounds.low), pc.is_valid(bounds.high))
    near = pc.and_(bounded, pc.and_(below, above))
    empty = pc.fill_null(pc.equal(bounds.nulls, active.rows), fill_value=False)
    unbounded = pc.and_not(pc.invert(bounded), empty)
    return pc.indices_nonzero(pc.fill_null(near, fill_value=False)), pc.indices_nonzero(unbounded)


def mask_replaced(values: Mapping[str, Any], wanted: Mapping[str, TextRanges], rows: int) -> Any:
    """Return a boolean array of the replaced rows of a file.

    ``values`` has the text columns that the file has; each is a chunked array of ``rows``.
    """
    found: Any = pa.chunked_array([pa.repeat(pa.scalar(value=False), rows)])
    for column, ranges in wanted.items():
        if column in values:
            found = pc.or_(found, _within(values[column], ranges))
    return found


def _is_in(value: str | bytes | None, ranges: TextRanges) -> bool:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    return value is not None and value in ranges


def _within(values: pa.ChunkedArray, ranges: TextRanges) -> Any:
    """Return whether each value is in a range; a null is in none.

    Asked once for each distinct one.
    """
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    chunks = []
    for chunk in values.chunks:
        distinct: Sequence[str | bytes | None] = chunk.dictionary.to_pylist()
        answers = pa.array([_is_in(value, ranges) for value in distinct], pa.bool_())
        chunks.append(pc.fill_null(answers.take(chunk.indices), fill_value=False))
    return pa.chunked_array(chunks, pa.bool_())
