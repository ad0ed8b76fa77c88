"""Random histories of a source read by work units, and of its table.

The table keeps, by the text in `_unit`, the time range of each slice and the time of its reading.
Only a successful reading changes it: it removes the slices in its range and adds its own. After
each run every unit's slices must be adjacent from its start to its high watermark. `Wrong` names
the rule that is broken.

The planner's clock may be ahead or behind. States older than the table are restored.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_py.slices.instants import moment, stamp
from blizzard_py.slices.units.closed_units import compact
from blizzard_py.slices.units.due import Due, Terms, due, reading_of
from blizzard_py.slices.units.outcomes import (
    mark_units,
    record_failure,
    record_success,
    replaced_range,
    slice_texts,
)
from blizzard_py.slices.units.schemes import Pair, partitions
from blizzard_py.slices.units.state import (
    UnitReading,
    UnitsState,
    check_units,
    unit_key,
    unit_of,
)
from blizzard_py.slices.units.trust import put_right, read_since

ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Australia/Lord_Howe")


def units_from_json(document: Any, where: str) -> UnitsState:
    """Return the state as a checkpoint's reader makes it."""
    return check_units(decode_document(UnitsState, document, where), where)


# How much time passes between two runs, in hours, so that a history sees some partitions end.
PACE = {"none": 20, "hourly": 1, "daily": 15, "weekly": 70, "monthly": 300, "yearly": 2500}

SOURCE = "s"


class Wrong(AssertionError):
    """The table is not what was promised, or something was read that must not be."""


@dataclass
class UnitHarness:
    """One history. ``forgives`` leaves failed units out of their pauses."""

    seed: int
    forgives: bool = False
    state: UnitsState = field(default_factory=UnitsState)
    table: dict[str, tuple[datetime, datetime, datetime]] = field(default_factory=dict)
    paused: dict[str, datetime] = field(default_factory=dict)
    # What was kept to be brought back, and what was replaced since.
    backup: UnitsState | None = None
    since: list[tuple[str, str]] = field(default_factory=list)
    # Whether the table may hold more than the state knows.
    is_behind: bool = False

    def __post_init__(self) -> None:
        self.chance = chance = random.Random(self.seed)
        self.by = chance.choice(list(PACE))
        self.zone = chance.choice(ZONES)
        self.pace = timedelta(hours=PACE[self.by])
        self.start = datetime(2011, 1, 31, tzinfo=UTC) + timedelta(
            days=chance.choice([0, 40, 240, 300]), hours=chance.choice([0, 0, 7])
        )
        self.now = self.latest = self.true = self.start
        self.ahead = self.back = timedelta(0)
        self.partial = chance.random() < 0.7
        self.values = chance.choice([None, [{"id": "a"}], [{"id": "a"}, {"id": "a0"}]])
        self.terms = Terms(limit=chance.choice([None, None, None, 1, 3]))
        self.downloads = chance.random() < 0.1
        self.shifts: list[timedelta] = []
        self.regrace()

    def regrace(self) -> None:
        """Other settings: mostly grace; abstinence beyond it where files are downloaded."""
        grace = self.pace * self.chance.choice([0, 0.5, 2, 5])
        abstinent = grace * self.chance.choice([0, 0, 0, 0.5, 1])
        if self.downloads:
            grace, abstinent = timedelta(0), self.pace * self.chance.choice([0, 0.5, 2])
        self.terms = replace(self.terms, grace=grace, abstinent=abstinent)
        self.shifts.append(self.terms.shift)

    @property
    def names(self) -> list[str]:
        return ["{}"] if self.values is None else [one["id"] for one in self.values]

    def ranges(self) -> list[Pair]:
        end = max(self.start, self.now - self.back)
        return partitions(self.start, end, self.by, self.partial, self.zone)

    def live(self, runs: int) -> None:
        """Run so many times with failures, then three times without: no row may be missing."""
        for _ in range(runs):
            self.step()
            self.run(failing=0.25)
        self.terms = replace(self.terms, limit=None)
        self.ahead, self.back = timedelta(0), timedelta(0)
        self.now = self.latest + timedelta(days=2)
        for _ in range(3):
            self.now += self.pace / 20
            self.latest = self.true = self.now
            self.run(failing=0.0)
        self.is_behind = False
        self.check_table(self.ranges())
        self.check_nothing_missing()

    def step(self) -> None:
        event = self.chance.random()
        self.back = timedelta(0)
        if event < 0.06:  # a clock that goes back
            self.now = max(self.start, self.now - self.pace * self.chance.choice([0.3, 1, 4]))
        elif event < 0.12:  # another `to`
            self.back = self.pace * self.chance.choice([0.3, 1, 4])
        else:
            self.now += self.pace * self.chance.choice([0, 0.2, 0.5, 1, 1, 2.5])
        if self.now > self.true + self.ahead:
            self.true = self.now - self.ahead
        self.latest = self.true
        self.jump()
        self.restore()
        if self.chance.random() < 0.1:
            self.regrace()
        if self.chance.random() < 0.06 and self.ranges():
            begin, _ = self.chance.choice(self.ranges())
            key = unit_key(begin, self.chance.choice(self.names))
            if key not in self.state.redo:
                self.paused.pop(key, None)
            self.state = mark_units(self.state, [key])

    def jump(self) -> None:
        """Set the clock ahead from now on, or set it right."""
        if self.ahead and self.chance.random() < 0.5:
            self.now -= self.ahead
            self.ahead = timedelta(0)
        elif not self.ahead and self.chance.random() < 0.06:
            self.ahead = self.pace * self.chance.choice([0.1, 2, 6])
            self.now += self.ahead

    def restore(self) -> None:
        """Bring an older state back and keep one. Downloads are read as wholes anyway."""
        if self.downloads:
            return
        if self.backup is not None and self.chance.random() < 0.1:
            self.state = read_since(self.backup, SOURCE, self.since)
            self.paused = {}
            self.is_behind = True
        elif self.chance.random() < 0.15:
            self.backup, self.since = self.state, []

    def run(self, failing: float) -> None:
        ranges = self.ranges()
        at = min(self.now, self.true)
        self.state = put_right(self.state, at)
        longest = at + timedelta(days=1)
        self.paused = {key: until for key, until in self.paused.items() if until <= longest}
        if self.chance.random() < 0.7:
            self.state = compact(self.state, ranges, self.names, self.terms.shift)
            # What is closed has nothing to wait for, until longer grace opens it again.
            self.paused = {key: at for key, at in self.paused.items() if key in self.state.open}
        asked = self.without_pauses() if self.forgives else self.state
        found = due(asked, ranges, self.values, self.terms, self.now)
        for unit in found.units:
            if unit.execute:
                reading = reading_of(unit, self.terms, at)
                self.check_reading(reading, unit.reason, found)
                if self.chance.random() < failing:
                    self.state = record_failure(self.state, reading, at, "no answer")
                    self.paused[reading.key] = moment(self.state.open[reading.key].next_try or "")
                else:
                    self.publish(reading)
        if self.chance.random() < 0.2:
            self.state = units_from_json(msgspec.to_builtins(self.state), "units")
        self.check_table(ranges)

    def without_pauses(self) -> UnitsState:
        eager = {key: replace(unit, next_try=None) for key, unit in self.state.open.items()}
        return replace(self.state, open=eager)

    def publish(self, reading: UnitReading) -> None:
        self.paused.pop(reading.key, None)
        first, behind = replaced_range(SOURCE, reading)
        self.table = {key: it for key, it in self.table.items() if not first <= key < behind}
        lows = [moment(text) for text in reading.slices]
        texts = slice_texts(SOURCE, reading)
        for text, low, high in zip(texts, lows, [*lows[1:], moment(reading.to)], strict=True):
            if text in self.table:
                raise Wrong(f"{text} is there already")
            self.table[text] = (low, high, self.true)
        self.since.append((first, behind))
        self.state = record_success(self.state, reading)

    # -- what is promised ---------------------------------------------------------

    def check_reading(self, reading: UnitReading, reason: str, found: Due) -> None:
        if not reading.slices[0] < reading.to:
            raise Wrong(f"{reading}: an empty range")
        if self.paused.get(reading.key, self.now) > self.now:
            raise Wrong(f"{reading}: its pause is not over")
        if reason == "grace" and found.cut_off is not None:
            read_at = self.state.open[reading.key].read_at if reading.key in self.state.open else ""
            end = moment(reading.part_to)
            is_owed = bool(read_at) and read_at < stamp(end - self.terms.shift)
            if end <= found.cut_off and not is_owed:
                raise Wrong(f"{reading}: read though its grace is over")

    def by_unit(self) -> dict[str, list[tuple[str, datetime, datetime, datetime]]]:
        """Return the table's slices in the order of their text, by all before the last part."""
        units: dict[str, list[tuple[str, datetime, datetime, datetime]]] = {}
        for key in sorted(self.table):
            units.setdefault(key.rpartition("/")[0], []).append((key, *self.table[key]))
        return units

    def check_table(self, ranges: list[Pair]) -> None:
        """Side by side from the beginning to the high watermark."""
        units = self.by_unit()
        for at, (begin, end) in enumerate(ranges):
            for name in self.names:
                prefix = f"{SOURCE}/{stamp(begin)}/{name}"
                mine = units.get(prefix, [])
                reached = begin
                for key, low, high, _ in mine:
                    if low < reached or (low > reached and not self.downloads):
                        raise Wrong(f"{key}: {'a hole' if low > reached else 'twice'}: {reached}")
                    reached = high
                known = unit_of(
                    self.state, unit_key(begin, name), stamp(end), is_last=at == len(ranges) - 1
                )
                is_last = at == len(ranges) - 1
                claimed = moment(known.high) if known.high else begin
                if self.is_behind:
                    continue
                if claimed != reached and not (is_last and min(claimed, reached) >= end):
                    raise Wrong(f"{prefix}: {reached} is read, {claimed} is known")

    def check_nothing_missing(self) -> None:
        """Check that all rows within the shortest grace period are read; downloads skip some."""
        if self.downloads:
            return
        grace = -max(self.shifts)
        ranges = self.ranges()
        units = self.by_unit()
        for at, (begin, end) in enumerate(ranges):
            for name in self.names:
                prefix = f"{SOURCE}/{stamp(begin)}/{name}"
                mine = units.get(prefix, [])
                top = mine[-1][2] if mine else begin
                if top < end and at < len(ranges) - 1:
                    raise Wrong(f"{prefix}: never reaches its end, {end}: {top}")
                for _, low, high, read in mine:
                    if read < min(self.latest, high + grace):
                        raise Wrong(f"{prefix}: {low} to {high} was read at {read} last")
