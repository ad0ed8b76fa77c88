"""The pure core over tables in memory: batches of changes, stored files, look-ups."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.keyed import parse_condition
from penguin_py.keyed import pruning
from penguin_py.keyed.matching import Matching
from penguin_py.keyed.order import Order, are_deletes
from tests.chaos.keyed.model import DELETES, Changes, Row, by_key, reduce

CONDITION = parse_condition(DELETES)


class Memory:
    """A table of changes and its keyed table, as lists of files."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self.order = Order(changes.keys, changes.sequence, CONDITION)
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
        matching = Matching(pa.concat_tables(self.versions[since:until]), self.order)
        remaining = []
        for file in self.stored:
            logged = log_of(file, self.order.keys)
            met = all(
                pruning.may_hold(logged, name, matching.rows[name].combine_chunks())[0].as_py()
                for name in self.order.keys
            )
            leaving = matching.meet(file, lambda file=file: file) if met else None
            remaining.append(file if leaving is None else file.filter(pc.invert(leaving.mask)))
        self._look_up(matching, since)
        self.stored = [file for file in (*remaining, matching.winners()) if file.num_rows]
        self.merged = max(self.merged, until)

    def _look_up(self, matching: Matching, until: int) -> None:
        fresh = matching.unstored()
        if not len(fresh):
            return
        first = self.order.sequence[0]
        for file in self.versions[:until]:
            logged = log_of(file, (first, "op"))
            may = pruning.may_exceed(logged, first, fresh[first].combine_chunks())
            if may[0].as_py() and pruning.may_have_deletes(logged, CONDITION)[0].as_py():
                matching.bury(file.filter(are_deletes(file, CONDITION)))

    def compact(self) -> None:
        self.stored = [pa.concat_tables(self.stored)] if self.stored else []

    def check(self) -> None:
        rows = [row for file in self.stored for row in file.to_pylist()]
        keys, sequence = self.order.keys, self.order.sequence
        counted = sum(file.num_rows for file in self.versions[: self.merged])
        expected = reduce(self.arrived[:counted], keys, sequence)
        assert by_key(rows, keys) == expected


def log_of(file: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Return columns of a file as delta-rs logs them: cut times, and text of 32 characters."""
    found: dict[str, Any] = {"path": ["a"], "num_records": [file.num_rows]}
    for name in names:
        kind = file.schema.field(name).type
        found[f"null_count.{name}"] = [file[name].null_count]
        values = file[name].drop_null()
        if not len(values) or pa.types.is_binary(kind) or pa.types.is_decimal(kind):
            continue
        for side, value in (("min", pc.min(values)), ("max", pc.max(values))):
            bound = pa.array([value.as_py()], kind)
            if pa.types.is_timestamp(kind):
                bound = bound.cast(pa.timestamp("ms", kind.tz), safe=False).cast(kind)
            elif pa.types.is_string(kind):
                bound = pc.utf8_slice_codeunits(bound, 0, 32)
            found[f"{side}.{name}"] = bound
    return pa.table(found)


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
