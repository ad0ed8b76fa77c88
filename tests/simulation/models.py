"""Small models of guards that histories of both daemons do not need. They drive the product itself.

The daemons scan everything so often that a file only comes later without these guards, and the
promises of histories name no time. The models allow fewer complete scans.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from dataclasses import replace

from blizzard_core.errors import FencedError, Unfinished
from blizzard_core.notifications.receiver import Receiver
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import Progress, ScanTimes, mark_done
from blizzard_core.watermark.scan import scan
from blizzard_py.app.notifications import with_inbox
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.files import advance
from blizzard_py.sources.files.hint_schedule import cover_of
from blizzard_py.state.source_state import Position, SourceState
from tests.support.memory_queue import MemoryQueue, receiver_of
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.watermarks import nothing_waits

GRACE = 300.0
_BEGAN = 1_706_400_000.0
_DAYS = 5
_TURNS = 12
# Shorter than the silence after which a source scans everything.
_HIDDEN_SECS = 30.0
_STOP = threading.Event()


def covered_scans(seed: int) -> list[str]:
    """Scan random ranges while files arrive; return the promised files that were lost.

    A file is promised if it came before the grace of every name above it was over.
    """
    chance = random.Random(seed)
    rules = advance.FloorRules(GRACE, tracked=2, lookback=None)
    storage = MemoryStorage(clock=lambda: 0.0)
    state = SourceState(position=Position(progress=Progress(depth=1)))
    now, came, seen, done = _BEGAN, dict[str, float](), dict[str, float](), set[str]()
    for turn in range(_TURNS):
        is_late = turn > chance.randrange(_TURNS)
        now += chance.choice((1.0, GRACE / 9, GRACE + 2) if is_late else (1.0, GRACE / 9))
        for _ in range(0 if is_late else chance.randrange(5)):
            path = f"date=2024-01-{20 + chance.randrange(_DAYS)}/{chance.randrange(9)}"
            came.setdefault(path, now)
            storage.objects[path] = (b"", 0.0)
        now += 1.0
        began, progress = now, state.position.progress
        hinted = [each for each in sorted(progress.partitions) if chance.random() < 0.5]
        is_complete = turn > _TURNS - 3 or chance.random() < 0.3
        cover = None if is_complete else cover_of(progress, hinted)
        found = scan(storage, progress, lambda _entry: True, 1, cover=cover)
        now += 1.0
        paths = [entry.path for entry in found.entries]
        seen |= {path: now for path in paths if path not in seen}
        times = ScanTimes(began, now, found.until, cover)
        state = advance.end_scan(state, found.progress, paths, times, rules)
        moved = mark_done(state.position.progress, paths, now, nothing_waits)
        state, done = state.with_position(progress=moved), done.union(paths)
    return [
        f"lost: {path}, which came {came[path] - _BEGAN:.0f} s after the beginning"
        for path in sorted(came.keys() - done)
        if all(came[path] <= at + GRACE for other, at in seen.items() if other > path)
    ]


class _Daemon:
    """A source with notifications: its worker, and the receiver of its queue."""

    def __init__(self, world: PipelineHarness, queue: MemoryQueue) -> None:
        parts = with_inbox(replace(world.parts()))
        assert parts.hints is not None
        self.receiver: Receiver = receiver_of(queue, parts.hints)
        self.worker: SourcePipeline = source_pipeline(parts)
        self.is_over = False

    def work(self) -> None:
        """Run cycles until nothing is to be done; a daemon that lost its source ends."""
        try:
            with contextlib.suppress(Unfinished):
                while self.worker.cycle(_STOP):
                    pass
        except FencedError:
            self.is_over = True


def replaced_daemons(seed: int) -> list[str]:
    """Let daemons replace one another while messages come; return what the last one missed.

    One that was replaced goes on until it notices. Each scans everything once, at its start.
    """
    chance = random.Random(seed)
    webhook = {"uri": "webhook:", "token": "sesame-sesame-sesame", "advanced": {"pause": "1s"}}
    world = PipelineHarness(partition_depth=1, notifications=webhook, full_scan_interval="1d")
    queue = MemoryQueue(lambda: world.now, _HIDDEN_SECS)
    world.put("date=2025-06-15/0.ndjson", "0")
    daemons = [_Daemon(world, queue)]
    daemons[0].work()
    for number in range(1, 1 + chance.randrange(2, 12)):
        world.now += chance.choice((0.5, 2.0, 5.0))
        match chance.choice(("file", "file", "replace", "receive", "receive", "work")):
            case "file":
                path = f"date=2025-06-15/{number}.ndjson"
                world.put(path, path)
                queue.send(json.dumps({"paths": [f"s3://raw/{path}"]}).encode())
            case "replace":
                daemons.append(_Daemon(world, queue))
                daemons[-1].work()
            case "receive":
                chance.choice(daemons).receiver.turn(_STOP)
            case _:
                chance.choice(daemons).work()
        daemons = [each for each in daemons if not each.is_over]
    for _ in range(9):
        world.now += _HIDDEN_SECS / 6
        daemons[-1].receiver.turn(_STOP)
        daemons[-1].work()
    files = {split(path, 1)[1] for path in world.source.objects}
    missed = files - {split(row, 1)[1] for row in world.rows() if "/" in row} - {"0.ndjson"}
    return [f"missed: {name}, whose message is gone" for name in sorted(missed)]
