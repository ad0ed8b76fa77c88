"""The writer: files whose names rise, which appear in another order."""

from __future__ import annotations

import datetime as dt
import gzip
import heapq
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.blizzard.oracle import ROWS_A_FILE, Written
from tests.chaos.blizzard.pace import Pace

FIRST_DAY = dt.date(2024, 1, 15)
# How long the current partition stays it, in grace periods.
_DAY = 4.0

Put = Callable[[str, bytes, float], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """A file that is made and not yet visible."""

    number: int
    path: str
    data: bytes
    rows: int
    bad_lines: int
    unreadable: bool
    old: float


def made(number: int, elapsed: float, pace: Pace, chance: random.Random) -> Plan:
    """Return the ``number``-th file, ``elapsed`` seconds after the first one."""
    # Days begin while the run lasts; some files belong to one before, down to some that
    # nobody has seen yet, and some to the next.
    day = int(elapsed / (_DAY * pace.grace))
    draw = chance.random()
    if draw < 0.15:
        day -= chance.randrange(1, 4)
    elif draw < 0.2:
        day -= chance.randrange(4, 12)
    elif draw < 0.25:
        day += 1
    folder = f"date={FIRST_DAY + dt.timedelta(days=day):%Y-%m-%d}"
    name = f"events-20240115T{int(elapsed * 1000):09d}-{chance.randrange(16**4):04x}"
    rows = chance.randrange(12, 21)  # so that one bad line is less than a tenth
    draw = chance.random()
    lines = [
        json.dumps({"id": number * ROWS_A_FILE + row, "text": f"{number}/{row}"})
        for row in range(rows)
    ]
    unreadable, bad_lines = draw < 0.03, int(0.03 <= draw < 0.08)
    if bad_lines:
        lines.insert(chance.randrange(rows), '{"id": "this is no number"}')
    data = b"this is not gzip" if unreadable else gzip.compress("\n".join(lines).encode())
    # As `cp -p`, `tar` and replication between buckets leave them: minutes to weeks old.
    old = 60 * 10 ** chance.uniform(0, 4) if chance.random() < 1 / 3 else 0.0
    path = f"{folder}/{name}.ndjson.gz"
    return Plan(number, path, data, 0 if unreadable else rows, bad_lines, unreadable, old)


class Writer(threading.Thread):
    """A writer that runs until it is stopped, and then writes all files that it held back."""

    def __init__(self, put: Put, pace: Pace, seed: int) -> None:
        super().__init__(name="writer")
        self._put = put
        self._pace = pace
        self._chance = random.Random(seed)
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self._written: list[Written] = []

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # told by `finish`
            self._error = error

    def finish(self) -> list[Written]:
        """End it; every file there is. Raises what stopped it."""
        self._ending.set()
        self.join()
        if self._error is not None:
            raise self._error
        return self._written

    def _write(self) -> None:
        began = time.monotonic()
        waiting: list[tuple[float, int, Plan]] = []
        number = 0
        while not self._ending.is_set():
            elapsed = time.monotonic() - began
            plan = made(number, elapsed, self._pace, self._chance)
            due = elapsed + self._pace.held_back(self._chance)
            heapq.heappush(waiting, (due, number, plan))
            number += 1
            while waiting and waiting[0][0] <= time.monotonic() - began:
                self._appear(heapq.heappop(waiting)[2])
            self._ending.wait(max(0.0, number / self._pace.files_per_sec - elapsed))
        for _, _, plan in sorted(waiting):
            self._appear(plan)

    def _appear(self, plan: Plan) -> None:
        begun = time.monotonic()
        self._put(plan.path, plan.data, plan.old)
        self._written.append(
            Written(
                plan.number,
                plan.path,
                plan.rows,
                begun,
                time.monotonic(),
                plan.bad_lines,
                plan.unreadable,
                plan.old,
            )
        )
