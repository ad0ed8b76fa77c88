"""Changes of all types of keys and sequences, and the rows that are right after them."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

_EPOCH = dt.datetime(2024, 1, 1)  # noqa: DTZ001  # times without a zone are one of the types
# Longer than the bounds that are logged, and alike up to there.
_LONG = "x" * 31
KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int64": (pa.int64(), lambda n: n - 3),
    "int32": (pa.int32(), lambda n: n),
    "text": (pa.string(), lambda n: f"{n:02}"),
    "long text": (pa.string(), lambda n: f"{_LONG}\U0010ffff{n:02}"),
    "bytes": (pa.binary(), lambda n: bytes([255 - n])),
    "day": (pa.date32(), lambda n: _EPOCH.date() + dt.timedelta(n)),
    "moment": (
        pa.timestamp("us", "UTC"),
        lambda n: _EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=n * 333),
    ),
    "local": (pa.timestamp("us"), lambda n: _EPOCH + dt.timedelta(microseconds=n)),
    "amount": (pa.decimal128(20, 3), lambda n: decimal.Decimal(n) / 8),
}
DELETES = "op IN ('d', 'D')"
IDS = 10


@dataclass
class Changes:
    """A random stream of changes to ten keys; ``ties``: sequences come twice."""

    chance: random.Random
    ties: bool
    key_kinds: list[str] = field(default_factory=list)
    sequence_kinds: list[str] = field(default_factory=list)
    made: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        kinds = list(KINDS)
        self.key_kinds = self.key_kinds or self.chance.choices(kinds, k=self.chance.choice((1, 2)))
        self.sequence_kinds = self.sequence_kinds or self.chance.choices(
            kinds, k=self.chance.choice((1, 1, 2))
        )
        self._used: set[tuple[int, ...]] = set()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(f"k{number}" for number in range(len(self.key_kinds)))

    @property
    def sequence(self) -> tuple[str, ...]:
        return tuple(f"s{number}" for number in range(len(self.sequence_kinds)))

    @property
    def schema(self) -> pa.Schema:
        named = [*zip(self.keys, self.key_kinds, strict=True)]
        named += zip(self.sequence, self.sequence_kinds, strict=True)
        fields = [pa.field(name, KINDS[kind][0]) for name, kind in named]
        inner = pa.struct([("n", pa.int64())])
        return pa.schema([*fields, ("op", pa.string()), ("v", pa.string()), ("inner", inner)])

    def draw(self, count: int) -> list[Row]:
        """Return new changes, and some old ones again, in any order."""
        rows = [self._row() for _ in range(count)]
        if self.made and self.chance.random() < 0.4:
            rows += self.chance.sample(self.made, min(len(self.made), 3))
            self.chance.shuffle(rows)
        return rows

    def _row(self) -> Row:
        row = self.row_of(self.chance.randrange(IDS))
        for name in self.keys:
            row[name] = None if self.chance.random() < 0.03 else row[name]
        for name, kind, part in zip(self.sequence, self.sequence_kinds, self._place(), strict=True):
            row[name] = None if self.chance.random() < 0.02 else KINDS[kind][1](part)
        row["op"] = self.chance.choice(["u", "u", "c", None, "d", "D"])
        row["v"] = str(self.chance.randrange(10**9))
        return row

    def row_of(self, number: int) -> Row:
        """Return a row of a key, with the lowest sequence."""
        parts = (number,) if len(self.key_kinds) == 1 else (number // 3, number % 3)
        named = [*zip(self.keys, self.key_kinds, parts, strict=True)]
        named += [(n, kind, 0) for n, kind in zip(self.sequence, self.sequence_kinds, strict=True)]
        row: Row = {name: KINDS[kind][1](part) for name, kind, part in named}
        return {**row, "op": "u", "v": "", "inner": {"n": number}}

    def _place(self) -> tuple[int, ...]:
        """Return numbers for a sequence, others than before unless ``ties``."""
        while True:
            many = len(self.sequence_kinds) > 1
            highest = 6 if self.ties else 10 if many else 90
            place = tuple(self.chance.randrange(highest) for _ in self.sequence_kinds)
            if self.ties or place not in self._used or len(self._used) > 60:
                self._used.add(place)
                return place

    def table(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, self.schema)


def reduce(
    rows: list[Row],
    keys: tuple[str, ...],
    sequence: tuple[str, ...],
    deletes: Collection[str] = ("d", "D"),
) -> dict[Any, Row]:
    """Return the current row of each key; ``rows`` are in order of arrival."""
    best: dict[Any, Row] = {}
    for row in rows:
        key, place = tuple(row[k] for k in keys), tuple(row[s] for s in sequence)
        if None in key or None in place:
            continue
        known = best.get(key)
        if known is None or place >= tuple(known[s] for s in sequence):
            best[key] = row
    return {key: row for key, row in best.items() if row["op"] not in deletes}


def by_key(rows: list[Row], keys: tuple[str, ...]) -> dict[Any, Row]:
    """Return the rows of a keyed table. Raises `AssertionError` for a key that is there twice."""
    found = {tuple(row[k] for k in keys): row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found
