"""Event-time joins by brute force: every pair of rows that are not late.

Nothing is ever forgotten here, so it also shows that what Spark forgets would have matched nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.event_time_oracle import BASE, Kept, Oracle, seconds

MILLI = 1000
BOTH = {
    "id": "web.id",
    "bytes": "web.bytes",
    "ts": "web.ts",
    "other_id": "app.id",
    "other_bytes": "app.bytes",
    "other_ts": "app.ts",
}
LEFT = {name: place for name, place in BOTH.items() if place.startswith("web.")}
TWO: dict[str, dict[str, Any]] = {"web": {}, "app": {}}


def joining(type_: str, **other: Any) -> dict[str, Any]:
    """Return the settings of a query that joins web with app, on one partition to save time."""
    join = {"left": "web", "right": "app", "type": type_, "on": ["id"]}
    bounds = {"lower": "-3 seconds", "upper": "5 seconds"}
    bounds |= {name: other.pop(name) for name in ("lower", "upper") if name in other}
    columns = LEFT if type_ in {"semi", "left_semi"} else BOTH
    return {
        "column": "ts",
        "delay": "10 seconds",
        "join": {**join, **bounds, "columns": columns},
        "partitions": 1,
        **other,
    }


def joined_rows(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows of a table of a join, as the oracle tells them."""
    return Counter(
        (
            *(_place(one, name) for name in BOTH),
            one["_emitted_batch"],
        )
        for one in rows
    )


def _place(one: Mapping[str, Any], name: str) -> Any:
    value = one.get(name)
    return seconds(value) if value is not None and name.endswith("ts") else value


@dataclass(eq=False)
class _Row:
    """A row that is not late, whether anything has matched it, and whether it came out alone."""

    time: int
    row: Mapping[str, Any]
    is_matched: bool = False
    is_told: bool = False


class JoinOracle(Oracle):
    """Brute-force results of batches of files of two sources that are joined."""

    def __init__(
        self, settings: Mapping[str, Any], sources: Mapping[str, Mapping[str, Any]]
    ) -> None:
        super().__init__(settings, sources)
        assert self.given.join is not None
        self.join = self.given.join
        self.left: list[_Row] = []
        self.right: list[_Row] = []

    def waiting(self) -> int:
        """Rows that may still match, by the watermark."""
        bound = self.judged_ms * MILLI
        left = sum(not self._is_over(one, self.join.upper_us, bound) for one in self.left)
        return left + sum(not self._is_over(one, -self.join.lower_us, bound) for one in self.right)

    def _add(self, kept: list[Kept], bound: int) -> None:  # noqa: ARG002  # windows' oracle asks
        new = [(_Row(time, one), source) for time, one, source in kept]
        fresh = {id(one) for one, _ in new}
        self.left += [one for one, source in new if source == self.join.left]
        self.right += [one for one, source in new if source == self.join.right]
        for left in self.left:
            for right in self.right:
                if {id(left), id(right)} & fresh and self._match(left, right):
                    self._matched(left, right)

    def _match(self, left: _Row, right: _Row) -> bool:
        keys = [(left.row[name], right.row[name]) for name in self.join.on]
        apart = right.time - left.time
        return (
            all(one is not None and one == other for one, other in keys)
            and self.join.lower_us <= apart <= self.join.upper_us
        )

    def _matched(self, left: _Row, right: _Row) -> None:
        for one in (left, right):
            assert not one.is_told, "a row that was given up has a match"
        if self.join.type != "left_semi":
            self._publish(left, right)
        elif not left.is_matched:
            self._publish(left, None)
        left.is_matched = right.is_matched = True

    def _evict(self, watermark_ms: int) -> None:
        """Emit the rows that cannot match any more, where the join's type says so."""
        bound = watermark_ms * MILLI
        if self.join.type in {"left_outer", "full_outer"}:
            for one in self.left:
                if self._is_alone(one, self.join.upper_us, bound):
                    self._publish(one, None)
        if self.join.type in {"right_outer", "full_outer"}:
            for one in self.right:
                if self._is_alone(one, -self.join.lower_us, bound):
                    self._publish(None, one)

    def _is_alone(self, one: _Row, waits: int, bound: int) -> bool:
        if one.is_matched or one.is_told or not self._is_over(one, waits, bound):
            return False
        one.is_told = True
        return True

    @staticmethod
    def _is_over(one: _Row, waits: int, bound: int) -> bool:
        """Return whether all times that match lie a millisecond behind the watermark."""
        return one.time <= bound - waits - MILLI

    def _publish(self, left: _Row | None, right: _Row | None) -> None:
        self.emitted[*_cells(left), *_cells(right), self.number] += 1


def _cells(one: _Row | None) -> tuple[Any, ...]:
    if one is None:
        return None, None, None
    return one.row["id"], one.row["bytes"], seconds(type(BASE).fromisoformat(one.row["ts"]))
