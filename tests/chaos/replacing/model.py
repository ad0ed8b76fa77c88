"""Expected contents of each table version, from published, appended and deleted rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.group_publisher import reading, unit

# The ids of rows by the value of `_unit` that they have.
Slices = dict[str, frozenset[int]]


@dataclass
class Source:
    """One source's slices after each of its groups; nothing before the first."""

    name: str
    after: list[Slices] = field(default_factory=lambda: [{}])

    def read(self, key: str, low: int, rows: dict[int, frozenset[int]]) -> None:
        """Record a reading of a unit from ``low`` on: it replaces all that begins from there on."""
        first, behind = reading(self.name, key, low)
        before = self.after[-1]
        kept = {value: ids for value, ids in before.items() if not first <= value < behind}
        made = {unit(self.name, key, at): ids for at, ids in rows.items() if ids}
        self.after.append({**kept, **made})


@dataclass
class Model:
    """The whole table. ``deleted`` has ids with the version that deleted them."""

    sources: dict[str, Source]
    deleted: dict[int, int] = field(default_factory=dict)

    def wrong(
        self, version: int, groups: dict[str, int], found: dict[str | None, list[int]]
    ) -> str | None:
        """Return how a version's units differ from the expected ones; None if they do not."""
        expected: Slices = {}
        for name, source in self.sources.items():
            expected |= source.after[groups.get(name, 0)]
        gone = {number for number, at in self.deleted.items() if at <= version}
        for value in expected.keys() | {value for value in found if value is not None}:
            wanted = sorted(expected.get(value, frozenset()) - gone)
            there = sorted(found.get(value, []))
            if wanted != there:
                return f"version {version}, {groups}: {value} has {there}, should have {wanted}"
        return None
