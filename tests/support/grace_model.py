"""Model of scans and arrivals, with the promise for each file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from hypothesis import strategies as st

from blizzard_core.storage.protocol import is_hidden, order_key
from blizzard_core.watermark.closed_partitions import raise_floors
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import (
    PartitionProgress,
    Progress,
    ScanTimes,
    expire_grace,
    is_new,
    mark_done,
)
from blizzard_core.watermark.scan import scan
from blizzard_py.sources.files.advance import with_waiting
from tests.support.memory_store import MemoryStorage
from tests.support.watermarks import nothing_waits

NOW = 1_000_000.0

GRACE = 300.0


# Seconds after which a file appears, and until the next scan: around the grace period.
DELAYS = st.sampled_from([0.0, 1.0, 40.0, GRACE - 1, GRACE, GRACE + 2, 3 * GRACE])


@dataclass
class Model:
    """Scans that take time, in which files appear; and what the promise says of each."""

    page_secs: float
    page_keys: int
    progress: Progress
    tracked: int | None
    limit: int | None
    now: float = NOW
    coming: list[tuple[float, str]] = field(default_factory=list)
    appeared: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)  # when the scan ended that saw it first
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = MemoryStorage(clock=lambda: 0.0)  # modification times mean nothing
        self.storage.page_keys = self.page_keys
        self.storage.between_pages = lambda: self.wait(self.page_secs)

    def wait(self, secs: float) -> None:
        """Time passes; what is due by then appears when it is due."""
        self.now += secs
        for at, path in [item for item in self.coming if item[0] <= self.now]:
            self.coming.remove((at, path))
            if path not in self.appeared:
                self.appeared[path] = at
                self.storage.objects[path] = (b"", 0.0)

    def poll(self, batch: int, fails: Sequence[bool]) -> str | None:
        """Scan and run the batches; return where the scan was cut, if it was."""
        began = self.now
        found = scan(self.storage, self.progress, lambda _file: True, 1, limit=self.limit)
        self.wait(self.page_secs)
        paths = [entry.path for entry in found.entries]
        for path in paths:
            self.seen.setdefault(path, self.now)
        before = self.progress
        depth = found.progress.depth
        self.progress = expire_grace(
            found.progress,
            ScanTimes(began, self.now, found.until),
            GRACE,
            with_waiting(paths, depth, nothing_waits),
        )
        if self.tracked is not None:
            self.progress = raise_floors(
                self.progress, self.tracked, None, paths, self.now, found.until
            )
        self.check(before)
        ended, held = self.now, list[str]()
        for number, start in enumerate(range(0, len(paths), batch)):
            chosen, rest = paths[start : start + batch], paths[start + batch :]
            if number < len(fails) and fails[number]:
                held += chosen
                continue
            self.wait(1)
            waits = with_waiting([*held, *rest], self.progress.depth, nothing_waits)
            before = self.progress
            self.progress = mark_done(before, chosen, ended, waits)
            self.done += chosen
            self.check(before)
            for partition, known in before.partitions.items():  # only scans move scan starts
                assert self.progress.partitions[partition].before == known.before
        return found.until

    def check(self, before: Progress) -> None:
        """Check that no watermark goes back and that scan starts do not exceed watermarks."""
        for partition, known in self.progress.partitions.items():
            earlier = before.partitions.get(partition, PartitionProgress())
            marks = [earlier.before, known.before, known.watermark]
            keys = [order_key(mark) for mark in marks if mark is not None]
            assert all(low <= high for low, high in pairwise(keys))

    def promised(self, path: str) -> bool:
        """Return whether it appeared within the grace period of every higher name.

        In its partition; with a floor that rises, in any.
        """
        depth = self.progress.depth or 0
        partition, key = split(path, depth)[0], order_key(path)
        return all(
            self.appeared[path] <= seen + GRACE
            for other, seen in self.seen.items()
            if order_key(other) > key
            and (self.tracked is not None or split(other, depth)[0] == partition)
        )


Rounds: TypeAlias = list[tuple[list[tuple[str, float]], float, list[bool]]]


def rounds(paths: st.SearchStrategy[str]) -> st.SearchStrategy[Rounds]:
    """Draw the arrivals, the pause after the poll, and the batches that fail."""
    arrivals = st.lists(st.tuples(paths, DELAYS), max_size=6)
    return st.lists(
        st.tuples(arrivals, DELAYS, st.lists(st.booleans(), max_size=3)), min_size=1, max_size=6
    )


def check_promise(model: Model, story: Rounds, batch: int) -> None:
    for arrivals, pause, fails in story:
        model.coming += [(model.now + delay, path) for path, delay in arrivals]
        model.wait(0)
        model.poll(batch, fails)
        model.wait(pause)
    # With nothing new and no failures what is left is worked off.
    model.wait(4 * GRACE)
    while model.poll(batch, []) is not None:
        pass
    assert len(set(model.done)) == len(model.done)
    visible = {path for path in model.appeared if not is_hidden(path)}
    lost = visible - set(model.done)
    assert not [path for path in lost if model.promised(path)]
    assert set(model.done) <= visible
    assert not [path for path in lost if is_new(model.progress, path)]
