"""The pure core over tables in memory: batches of changes, stored files, look-ups."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.keyed import parse_condition
from penguin_py.keyed import pruning
from penguin_py.keyed.deletes import are_deletes
from penguin_py.keyed.matching import Matching
from penguin_py.keyed.order import Order
from tests.chaos.keyed.model import DELETES, Changes, Row, by_key, reduce

CONDITION = parse_condition(DELETES)


class Memory:
    """A table of changes and its keyed table, as lists of files."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self.order = Order(changes.keys, changes.sequence)
        self.arrived: list[Row] = []
        self.versions: list[pa.Table] = []
        self.merged = 0
        self.stored: list[pa.Table] = []

    def append(self, count: int) -> None:
        rows = self.changes.draw(count)
        self.changes.made += rows
        self.arrived += rows
        self.versions.append(self.changes.table(rows))

    def merge(self, since: int, until: int) -> None:
        """Merge versions, perhaps some that were merged before."""
        if since >= until:
            return
        matching = Matching(pa.concat_tables(self.versions[since:until]), self.order, CONDITION)
        ranges = pruning.KeyRanges(matching.rows, self.order.keys)
        remaining = []
        for file in self.stored:
            met = ranges.may_meet(bounds_of(file, self.order.keys))
            leaving = matching.meet(file, lambda file=file: file) if met else None
            remaining.append(file if leaving is None else file.filter(pc.invert(leaving.mask)))
        self._look_up(matching, since)
        self.stored = [file for file in (*remaining, matching.winners()) if file.num_rows]
        self.merged = max(self.merged, until)

    def _look_up(self, matching: Matching, until: int) -> None:
        fresh = matching.unstored()
        if fresh is None:
            return
        first = self.order.sequence[0]
        lowest = pruning.lowest_bound(fresh[first])
        for file in self.versions[:until]:
            high = bounds_of(file, (first,)).get(first, (None, None))[1]
            if pruning.may_exceed(high, lowest):
                matching.bury(file.filter(are_deletes(file, CONDITION)))

    def compact(self) -> None:
        self.stored = [pa.concat_tables(self.stored)] if self.stored else []

    def check(self) -> None:
        rows = [row for file in self.stored for row in file.to_pylist()]
        keys, sequence = self.order.keys, self.order.sequence
        counted = sum(file.num_rows for file in self.versions[: self.merged])
        expected = reduce(self.arrived[:counted], keys, sequence)
        assert by_key(rows, keys) == expected


def bounds_of(file: pa.Table, names: tuple[str, ...]) -> dict[str, tuple[Any, Any]]:
    """Return bounds as delta-rs logs them: times to milliseconds, text of 32 characters."""
    found = {}
    for name in names:
        values = file[name].drop_null()
        if not len(values) or pa.types.is_decimal(values.type) or pa.types.is_binary(values.type):
            continue
        low, high = pc.min(values), pc.max(values)
        bounds = pa.array([low.as_py(), high.as_py()], values.type)
        if pa.types.is_timestamp(values.type):
            bounds = bounds.cast(pa.timestamp("ms", values.type.tz), safe=False).cast(values.type)
        elif pa.types.is_string(values.type):
            bounds = pc.utf8_slice_codeunits(bounds, 0, 32)
        found[name] = (
            pruning.logged_bounds(bounds[:1], upper=False)[0],
            pruning.logged_bounds(bounds[1:], upper=True)[0],
        )
    return found


def play(seed: int) -> None:
    """Play one history. Raises `AssertionError`."""
    chance = random.Random(seed)
    world = Memory(Changes(chance, ties=chance.random() < 0.4))
    for _ in range(chance.randrange(4, 14)):
        what = chance.random()
        if what < 0.5 or not world.versions:
            world.append(chance.randrange(1, 6))
        elif what < 0.6:
            world.compact()
        else:
            # With ties rows may come again only in their old order.
            again = 0 if world.changes.ties else chance.choice([0, 0, 1, 3])
            since = max(0, world.merged - again)
            world.merge(since, chance.randrange(world.merged, len(world.versions) + 1))
            world.check()
    world.merge(world.merged, len(world.versions))
    world.check()
