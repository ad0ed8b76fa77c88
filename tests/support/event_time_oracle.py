"""Event-time windows, groups and duplicates by brute force.

The oracle does not use Spark. It computes the documented rules of event time batch by batch, over
lists and dictionaries.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from blizzard_core.settings.event_time import WINDOW_COLUMNS, Branch, EventTimeSettings
from blizzard_py.kernels.lateness import Rule, rules_of
from tests.support.flat_settings import nested

BASE = dt.datetime(2024, 1, 28, 14, 0, tzinfo=dt.UTC)

SECOND = 1_000_000


def row(second: float, page: str = "a", bytes_: int = 1, id_: int | None = 0) -> dict[str, Any]:
    """Return a source row so many seconds after `BASE`; ``seen`` is up to three seconds off."""
    at = BASE + dt.timedelta(microseconds=round(second * SECOND))
    seen = at + dt.timedelta(seconds=bytes_ % 5 - 1)  # another time, for who goes by that
    return {
        "ts": at.isoformat(),
        "seen": seen.isoformat(),
        "id": id_,
        "page": page,
        "bytes": bytes_,
    }


def seconds(moment: dt.datetime) -> float:
    """Return a time of the table in seconds after `BASE`."""
    return (moment - BASE).total_seconds()


def windows_of(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Count the rows of a table of windows or of plain groups, in the form of the oracle."""
    return Counter(
        (
            *(
                seconds(edge) if (edge := one.get(name, one.get("ts"))) else 0
                for name in WINDOW_COLUMNS
            ),
            one["page"],
            one["n"],
            one["bytes"],
            one["_emitted_batch"],
        )
        for one in rows
    )


# A row that is not late, with its time and its source.
Kept: TypeAlias = tuple[int, Mapping[str, Any], str]


class Oracle:
    """Brute-force results of batches of files, one after the other."""

    def __init__(
        self, settings: Mapping[str, Any], sources: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Take the settings of the query and of its sources; ``idle_after`` means idle at once."""
        self.given = EventTimeSettings.model_validate(nested(EventTimeSettings, settings))
        own = {name: one.get("event_time", {}) for name, one in (sources or {"web": {}}).items()}
        self.columns = {name: one.get("column", self.given.column) for name, one in own.items()}
        self.delays = {
            name: _micros(one.get("delay", self.given.delay)) for name, one in own.items()
        }
        self.rule = self._rule()
        self.idles = {name for name, one in own.items() if "idle_after" in one}
        self.delay = max(self.delays.values())
        self.marks: dict[str, int] = {}  # what Spark knows of each source since it was started
        self.newest: dict[str, int] = {}  # what was ever known
        self.watermark_ms = 0
        self.judged_ms = 0
        self.number = 0
        self.open: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        self.known: dict[int, int] = {}  # ids with the time until which they are remembered
        self.emitted: Counter[tuple[Any, ...]] = Counter()
        self.late: Counter[tuple[str, int]] = Counter()
        self.watermarks: list[int] = []
        self.late_counts: list[int] = []

    def _rule(self, mode: str | None = None) -> Rule:
        given = self.given.model_copy(update={"mode": mode or self.given.mode})
        branches = [Branch(name, column, 0) for name, column in self.columns.items()]
        return next(iter(rules_of(given, branches).values()))

    def restart(self) -> None:
        """Another process: of the sources nothing is known any more."""
        self.marks.clear()

    def forget(self, settings: Mapping[str, Any] | None = None) -> None:
        """Forget the state, as an operator orders; the query may change from then on."""
        self.open.clear()
        self.known.clear()
        # Each source's is brought to where the watermark stays.
        self.marks = dict.fromkeys(self.delays, self.watermark_ms)
        if settings is not None:
            self.given = EventTimeSettings.model_validate(nested(EventTimeSettings, settings))
            self.rule = self._rule()
        if not self._is_lazy:  # it was brought to the watermark by empty micro-batches, too
            self.judged_ms = self.watermark_ms

    @property
    def _is_lazy(self) -> bool:
        """No empty micro-batch follows; else Spark runs one where it could drop state."""
        return self.given.advanced.emit == "next_batch" or self.given.mode == "complete"

    def add_batch(
        self,
        files: Mapping[str, Sequence[Mapping[str, Any]]],
        advance_to_ms: int = 0,
        whose: Mapping[str, str] | None = None,
    ) -> None:
        """One batch: file names with their rows. An operator may have the watermark advance."""
        self.number += 1
        bound = self.judged_ms * 1000
        kept: list[Kept] = []
        newest: dict[str, int] = {}
        late = 0
        present = set()
        for name, rows in files.items():
            source = (whose or {}).get(name, "web")
            present.add(source)
            for line, one in enumerate(rows, 1):
                time = _time(one[self.columns[source]])
                if self._key(time) <= bound:
                    self.late[name, line] += 1
                    late += 1
                else:
                    kept.append((time, one, source))
                    newest[source] = max(time, newest.get(source, time))
        self.late_counts.append(late)
        evicting = self.watermark_ms  # what the micro-batch with the rows evicts by
        before = {key: len(rows) for key, rows in self.open.items()}
        self._add(kept, bound)
        self._emit_versions(before)
        if self._is_lazy:
            self.judged_ms = self.watermark_ms
            self._evict(evicting)
        self._move(newest, advance_to_ms, present)
        if not self._is_lazy:
            self._evict(self.watermark_ms)
            self.judged_ms = self.watermark_ms
        self.watermarks.append(self.watermark_ms)

    def _move(self, newest: Mapping[str, int], advance_to_ms: int, present: set[str]) -> None:
        """Move the watermark by the times of each source and the sources that are waited for."""
        for source, delay in self.delays.items():
            times = [newest[source]] if source in newest else []
            if advance_to_ms > self.watermark_ms:
                times.append(advance_to_ms * 1000 + delay)
            if source in self.idles and source not in present and self.number > 1:
                others = (other for other in self.delays if other != source)
                times += [
                    max(known[other] for known in (newest, self.newest) if other in known)
                    for other in others
                    if other in newest or other in self.newest
                ]
            if times:
                mark = (max(times) - delay) // 1000
                self.marks[source] = max(mark, self.marks.get(source, mark))
        for source, time in newest.items():
            # Between batches milliseconds are kept.
            floor = time // 1000 * 1000
            self.newest[source] = max(floor, self.newest.get(source, floor))
        chosen = max if self.given.advanced.policy == "max" else min
        found = chosen(self.marks.get(source, 0) for source in self.delays)
        self.watermark_ms = max(self.watermark_ms, found)

    def _key(self, time: int) -> int:
        """Count windows found one by one, not by the rule under test."""
        if self._keeps_all and self.rule.kind != "session":
            return time + (1 << 62)
        if self.rule.kind == "row":
            return time
        if self.rule.kind == "session":
            return time + self.rule.size
        return max(end for _, end in self._windows(time))

    @property
    def _keeps_all(self) -> bool:
        given = self.given
        is_endless = bool(given.aggregates) and given.window is None and not self._by_time
        return given.mode == "complete" or is_endless

    @property
    def _by_time(self) -> bool:
        """The groups contain the time field of all sources."""
        return set(self.columns.values()) in [{name} for name in self.given.group_by]

    def _windows(self, time: int) -> list[tuple[int, int]]:
        rule = self._rule("append")
        first = (time - rule.offset) // rule.slide * rule.slide + rule.offset
        starts = range(first, time - rule.size, -rule.slide)
        return [(start, start + rule.size) for start in starts]

    def _add(self, kept: list[Kept], bound: int) -> None:
        for time, one, _ in kept:
            if self.given.deduplicate:
                if one["id"] in self.known:
                    continue
                self.known[one["id"]] = time + self.delay
                if self.given.window is None:
                    self.emitted[one["id"], self.number] += 1
                continue
            window = self.given.window
            if window is None:
                at = _time(one["ts"]) if "ts" in self.given.group_by else 0
                self.open.setdefault((one["page"], at, at), []).append(dict(one))
                continue
            if window.gap is not None:
                self._join(one["page"], time, time + _micros(window.gap), [dict(one)])
                continue
            for start, end in self._windows(time):
                if end > bound or self._keeps_all:
                    self.open.setdefault((one["page"], start, end), []).append(dict(one))

    def _join(self, page: str, start: int, end: int, rows: list[dict[str, Any]]) -> None:
        """Merge a session with the sessions that it touches."""
        for key in [k for k in self.open if k[0] == page]:
            _, other_start, other_end = key
            if start <= other_end and other_start <= end:
                rows = [*rows, *self.open.pop(key)]
                start, end = min(start, other_start), max(end, other_end)
        self.open[page, start, end] = rows

    def _evict(self, watermark_ms: int) -> None:
        bound = watermark_ms * 1000
        self.known = {key: until for key, until in self.known.items() if until > bound}
        if self._keeps_all:
            return
        for key in [k for k in self.open if k[2] <= bound]:
            rows = self.open.pop(key)
            if self.given.mode == "append":
                self._emit(key, rows)

    def _emit_versions(self, before: Mapping[tuple[Any, ...], int]) -> None:
        """Emit the changed groups, or all of them, as the mode says."""
        every = self.given.mode == "complete"
        if self.given.mode != "append":
            for key, rows in self.open.items():
                if every or len(rows) != before.get(key):
                    self._emit(key, rows)

    def _emit(self, key: tuple[Any, ...], rows: Sequence[Mapping[str, Any]]) -> None:
        page, start, end = key
        edges = (_offset(start), _offset(end)) if end else (0, 0)
        total = sum(one["bytes"] for one in rows)
        self.emitted[*edges, page, len(rows), total, self.number] += 1


def _time(text: str) -> int:
    return round((dt.datetime.fromisoformat(text) - _EPOCH) / dt.timedelta(microseconds=1))


def _offset(time: int) -> float:
    return (time - round(BASE.timestamp() * SECOND)) / SECOND


def _micros(text: str) -> int:
    number, unit = text.split()
    return int(number) * {"seconds": SECOND, "minutes": 60 * SECOND}[unit]


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
