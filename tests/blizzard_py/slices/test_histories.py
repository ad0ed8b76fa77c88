"""Windows against brute force: random histories of a table that transactions write to.

The table is SQLite's, with the versions of each row and when each of them was visible, so that
a read sees what was committed by then and nothing else. After each window every version that
is visible and settled must have been read once; over all windows none twice. The same
histories with a guard taken away must fail, or they would prove nothing.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import WatermarkError
from blizzard_py.connections.sql.conditions import either, window_where
from blizzard_py.reading import BoundKind, Window
from blizzard_py.slices.compare import advanced
from blizzard_py.slices.lookback import effective
from blizzard_py.slices.windows import window
from blizzard_py.state.column_state import SeenSegment
from tests.support.published_rows import Published

HISTORIES = 400
COLUMNS = ("created", "updated")
NOW = datetime(2026, 5, 4, tzinfo=UTC)

Version = tuple[int, int | None, int | None]
Condition = Callable[[Window], str]


@dataclass
class _Transaction:
    start: int
    end: int
    writes: list[tuple[int, int | None, int | None]]  # row, created, updated


class _Table:
    """Versions of rows; each is visible from its commit until the next one's."""

    def __init__(self) -> None:
        self.sql = sqlite3.connect(":memory:")
        self.sql.execute(
            "CREATE TABLE v (id INTEGER PRIMARY KEY, row INT, created INT, updated INT, "
            "born INT, gone INT)"
        )

    def commit(self, done: _Transaction, appends: bool) -> None:
        for row, created, updated in done.writes:
            if not appends:
                update = "UPDATE v SET gone = ? WHERE row = ? AND gone IS NULL"
                self.sql.execute(update, (done.end, row))
            values = (row, created, updated, done.end)
            insert = "INSERT INTO v (row, created, updated, born) VALUES (?, ?, ?, ?)"
            self.sql.execute(insert, values)

    def read(self, condition: str, at: int) -> list[Version]:
        return self.sql.execute(
            "SELECT id, created, updated FROM (SELECT * FROM v WHERE born <= ? AND "
            f"(gone IS NULL OR gone > ?)) t1 WHERE {condition}",
            (at, at),
        ).fetchall()

    def highest(self, at: int) -> dict[str, Any]:
        found = self.read("TRUE", at)
        tops = zip(*[(created, updated) for _, created, updated in found], strict=True)
        return {
            column: max(value for value in values if value is not None)
            for column, values in zip(COLUMNS, tops, strict=False)
            if any(value is not None for value in values)
        }


def _times(chance: random.Random, now: int) -> tuple[int | None, int | None]:
    """Return the created and updated times of a row whose transaction began at ``now``.

    Whatever the transaction sets is its own time or later; ``created`` may be of long ago.
    """
    own = now + chance.choice([0, 0, 0, 0, 1, 7])
    created = chance.choice([own, own, now, max(0, now - chance.randrange(60)), None])
    updated = chance.choice([own, own, now, None])
    if updated is None and created is not None and created < now:
        updated = now  # else nothing told that the row was written
    return created, updated


def _transactions(seed: int) -> list[_Transaction]:
    chance = random.Random(seed)
    made = []
    for _ in range(chance.randrange(10, 40)):
        start = chance.randrange(0, 100, chance.choice([1, 5]))
        length = chance.choice([0, 0, 1, 3, chance.randrange(40)])
        rows = [chance.randrange(12) for _ in range(chance.randrange(1, 4))]
        writes = [(row, *_times(chance, start)) for row in rows]
        made.append(_Transaction(start, start + length, writes))
    return sorted(made, key=lambda one: one.end)


def _safe_bound(pending: list[_Transaction], now: int) -> dict[str, Any]:
    oldest = min([now, *(one.start for one in pending if one.start <= now)])
    return dict.fromkeys(COLUMNS, oldest - 1)


def _run(seed: int, kind: BoundKind, condition: Condition) -> tuple[int, int]:
    """Versions that were read twice, and those that never were, over one history."""
    chance = random.Random(-seed - 1)
    pending, table = _transactions(seed), _Table()
    counts: Counter[int] = Counter()
    lost: set[int] = set()
    stored: dict[str, Any] = {}
    times, reading = sorted(chance.sample(range(1, 150), 8)), 0
    for time in [*times, 300]:
        planned = max(time, reading)
        while pending and pending[0].end <= planned:
            table.commit(pending.pop(0), appends=False)
        bound = _safe_bound(pending, planned) if kind == "settled" else table.highest(planned)
        found = window(stored, bound, {}, NOW, kind)
        reading = planned + chance.choice([0, 2, 10])  # what is committed meanwhile is seen
        while pending and pending[0].end <= reading:
            table.commit(pending.pop(0), appends=False)
        if found is None:
            continue
        counts.update(version for version, *_ in table.read(condition(found), reading))
        stored = advanced(stored, found.up_to)
        both = set(table.read("TRUE", planned)) & set(table.read("TRUE", reading))
        lost |= _overdue(both, stored) - set(counts)
    return sum(count > 1 for count in counts.values()), len(lost)


def _overdue(visible: Iterable[Version], stored: dict[str, Any]) -> set[int]:
    """Return the versions that lie fully at or below the window's end.

    Only the first window reads rows whose columns are all null.
    """
    return {
        version
        for version, *values in visible
        if any(value is not None for value in values)
        and all(
            value is None or value <= stored.get(column, -1)
            for column, value in zip(COLUMNS, values, strict=True)
        )
    }


def _designed(found: Window) -> str:
    return window_where(found, COLUMNS)


def _first_half_only(found: Window) -> str:
    return either(found.low, found.up_to, (">", "<="), "")


def _total(kind: BoundKind, condition: Condition) -> tuple[int, int]:
    results = [_run(seed, kind, condition) for seed in range(HISTORIES)]
    return sum(twice for twice, _ in results), sum(lost for _, lost in results)


@pytest.mark.promise("G-130")
def test_safe_bound_reads_every_version_exactly_once() -> None:
    assert _total("settled", _designed) == (0, 0)


def test_without_the_second_half_versions_are_read_twice() -> None:
    twice, lost = _total("settled", _first_half_only)
    assert twice > 100
    assert lost == 0


def test_a_bound_of_the_highest_value_loses_late_commits() -> None:
    def exclusive(found: Window) -> str:
        return window_where(Window(found.after, found.up_to, found.low), COLUMNS)

    _, lost = _run_all_max(exclusive)
    assert lost > 100


def _run_all_max(condition: Condition) -> tuple[int, int]:
    """As `_total`, but a highest value that falls (its row was written anew) ends a history."""
    twice = lost = 0
    for seed in range(HISTORIES):
        with suppress(WatermarkError):
            more = _run(seed, "max", condition)
            twice, lost = twice + more[0], lost + more[1]
    return twice, lost


def _is_other(up_to: Mapping[str, Any], segment: SeenSegment) -> bool:
    return segment.up_to != up_to


def _ties(seed: int, inclusive: bool) -> tuple[int, int]:
    """Rows that are only ever added at or above the highest value, read with ``max``."""
    chance = random.Random(seed)
    table, top = _Table(), [0, 0]
    stored: dict[str, Any] = {}
    counts: Counter[int] = Counter()
    published = Published(("id", *COLUMNS))
    for at in range(1, 12):
        for _ in range(chance.randrange(6)):
            values = [top[0] + chance.choice([0, 0, 1]), top[1] + chance.choice([0, 0, 0, 1])]
            top = list(values)
            shown = [value if chance.random() < 0.8 else None for value in values]
            table.commit(_Transaction(at, at, [(chance.randrange(3), *shown)]), appends=True)
        found = window(stored, table.highest(at), {}, NOW, "max")
        if found is None:
            continue
        if not inclusive:
            found = Window(found.after, found.up_to, found.low, nulls_first=found.nulls_first)
        read = table.read(window_where(found, COLUMNS), at)
        batch = pa.record_batch(
            {
                "id": pa.array([row[0] for row in read], pa.int64()),
                "created": pa.array([row[1] for row in read], pa.int32()),
                "updated": pa.array([row[2] for row in read], pa.int32()),
            }
        )
        fresh = published.fresh(batch, "at", found.up_to, partial(_is_other, found.up_to))
        counts.update(fresh.column("id").to_pylist())
        stored = advanced(stored, found.up_to)
    lost = _overdue(table.read("TRUE", 20), stored) - set(counts)
    waiting = window(stored, {c: v + 1 for c, v in table.highest(20).items()}, {}, NOW, "max")
    if waiting is not None:  # what joined the last bound waits for the next one to rise
        lost -= {version for version, *_ in table.read(window_where(waiting, COLUMNS), 20)}
    return sum(count > 1 for count in counts.values()), len(lost)


@pytest.mark.promise("G-135")
def test_rows_that_join_the_last_bound_are_read_once() -> None:
    results = [_ties(seed, inclusive=True) for seed in range(150)]
    assert (sum(r[0] for r in results), sum(r[1] for r in results)) == (0, 0)


def test_without_reading_the_boundary_again_they_are_lost() -> None:
    results = [_ties(seed, inclusive=False) for seed in range(100)]
    assert sum(lost for _, lost in results) > 50


@pytest.mark.promise("G-136")
@pytest.mark.parametrize("days", [1, 40])
def test_look_back_passes_each_version_only_once(days: int) -> None:
    """`new_only`: digests of key and watermark columns, over a window that reaches back."""
    stored, published = {"at": NOW}, Published(("id", "at"))
    counts: Counter[tuple[int, datetime]] = Counter()
    rows: dict[tuple[int, datetime], None] = {}  # a key has one version at a time
    chance = random.Random(days)
    for step in range(1, 30):
        end = NOW + timedelta(days=step)
        rows |= {
            (chance.randrange(5), end - timedelta(hours=chance.randrange(20 * days))): None
            for _ in range(4)
        }
        found = window(stored, {"at": end}, {"days": days}, end, "settled")
        read = [row for row in rows if found.low["at"] < row[1] <= end]
        batch = pa.record_batch(
            {
                "id": pa.array([row[0] for row in read], pa.int64()),
                "at": pa.array([row[1] for row in read], pa.timestamp("us", "UTC")),
            }
        )
        above = effective(found.up_to, {"days": days}, end)
        fresh = published.fresh(batch, "above", above)
        counts.update((row["id"], row["at"]) for row in fresh.to_pylist())
        stored = advanced(stored, found.up_to)
    assert set(counts) == set(rows)
    assert set(counts.values()) == {1}
