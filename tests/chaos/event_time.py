"""Random streams over event time, with deaths at random points, against brute force.

``python -m tests.chaos.event_time --streams 60``: each stream has settings of its own, a few
processes that each drain some files, and a death in most of them. Emitted rows, late rows by file
and line, and the watermark after each batch have to be those of the oracle.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from blizzard_core.errors import EngineError
from blizzard_py.engines.spark.engine import SparkEngine
from tests.chaos.console import say, say_counts
from tests.support.event_time_harness import EAGER_SNAPSHOTS, TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import BASE, Oracle, row, windows_of
from tests.support.join_oracle import JoinOracle, joined_rows, joining
from tests.support.stream_deaths import POINTS, drain_and_die

Rows = list[dict[str, Any]]

_TRIES = 3


def settings_of(draw: random.Random) -> dict[str, Any]:
    """Draw a query: any kind of window in any mode, groups without windows, or duplicates."""
    size = draw.randint(2, 12)
    slide = draw.randint(1, size)
    window = draw.choice(
        [
            f"{size} seconds",
            {"size": f"{size} seconds", "slide": f"{slide} seconds"},
            {"size": f"{size} seconds", "offset": f"{size - 1} seconds"},
            {"gap": f"{size} seconds"},
            None,
        ]
    )
    common = {
        "delay": f"{draw.choice([0, 1, 5, 20])} seconds",
        "emit": draw.choice(["each_batch", "next_batch"]),
        "partitions": draw.choice([1, 2, 3]),
    }
    mode = draw.choice(["append", "append", "update", "complete"])
    if window is None and mode == "append":
        return {"column": "ts", "deduplicate": ["id"], **common}
    if isinstance(window, dict) and "gap" in window and mode == "update":
        mode = "append"
    settings = TUMBLING | {"window": window, "mode": mode} | common
    return settings if window is not None else {k: v for k, v in settings.items() if v is not None}


def join_of(draw: random.Random) -> dict[str, Any]:
    """Draw a join of any type, around the row's own time, before it or after it."""
    lower = draw.choice([-20, -5, -1, 0, 0, 2])
    return joining(
        draw.choice(["inner", "left", "right", "full", "semi"]),
        lower=f"{lower} seconds",
        upper=f"{lower + draw.choice([0, 1, 6, 30])} seconds",
        delay=f"{draw.choice([0, 1, 5, 20])} seconds",
        emit=draw.choice(["each_batch", "next_batch"]),
        partitions=draw.choice([1, 2, 3]),
    )


def sources_of(draw: random.Random, *, is_join: bool) -> dict[str, dict[str, Any]]:
    """One source, or several, some with a delay or a column of their own, some idle at once."""
    names = draw.choice([["web"], ["web"], ["app", "web"], ["app", "web"], ["app", "bus", "web"]])
    if is_join:
        names = ["app", "web"]
    elif len(names) == 1:
        return {"web": {}}
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        own: dict[str, Any] = {}
        if draw.random() < 0.4:
            own["delay"] = f"{draw.choice([0, 2, 9, 25])} seconds"
        if draw.random() < 0.3:
            own["column"] = "seen"
        if draw.random() < 0.4:
            own["idle_after"] = "1 millisecond"
        found[name] = {"event_time": own} if own else {}
    return found


def random_rows(draw: random.Random, now: float) -> tuple[Rows, float]:
    """Draw a file's rows around a time that moves on; some far behind, some on window edges."""
    rows = []
    for _ in range(draw.choice([0, 1, 3, 8, 30])):
        now += draw.choice([0, 0.5, 1, 5, 11])
        behind = draw.choice([0, 0, 1, 3.25, 9, 10, 14, 30])
        edge = draw.choice([0, 0, 0.000001, -0.000001, 0.001, -0.001])
        page = draw.choice("ab")
        rows.append(row(100 + now - behind + edge, page, draw.randint(1, 9), draw.randint(0, 12)))
    return rows, now


def run_stream(folder: Path, engine: SparkEngine, seed: int, joins: float) -> Counter[str]:
    """One stream; raises `AssertionError` where it differs from the oracle.

    With a chance of ``joins`` it is one.
    """
    draw = random.Random(seed)
    is_join = draw.random() < joins
    settings = join_of(draw) if is_join else settings_of(draw)
    sources = sources_of(draw, is_join=is_join)
    settings["policy"] = draw.choice(["min", "max"])
    world = EventTimeHarness(
        folder, engine, settings, files_per_batch=draw.choice([1, 1, 2]), sources=sources
    )
    oracle = (JoinOracle if is_join else Oracle)(settings, sources)
    counts: Counter[str] = Counter({"streams": 1, "of several": len(sources) > 1, "joins": is_join})
    planned: list[tuple[dict[str, Rows], int]] = []  # batches of files, and what is advanced to
    now = 0.0
    for life in range(draw.randint(2, 4)):
        tick = _advanced(world, oracle, draw, now) if life else 0
        counts["advances"] += bool(tick)
        files: dict[str, list[tuple[str, Rows]]] = {name: [] for name in sources}
        for name in draw.sample(sorted(sources), draw.randint(1, len(sources))):
            for place in range(draw.randint(1, 4)):
                rows, now = random_rows(draw, now)
                if is_join:
                    _some_null(draw, rows)
                else:
                    _make_ids_unique(rows, sorted(sources), name, place // world.files_per_batch)
                files[name].append((world.put(rows, name), rows))
                counts["rows"] += len(rows)
        some = world.files_per_batch
        for start in range(0, max(map(len, files.values())), some):
            batch = [one for each in files.values() for one in each[start : start + some]]
            planned.append((dict(batch), 0 if start else tick))
        if draw.random() < 0.7:
            point = draw.choice(sorted(POINTS))
            calls = draw.choice([0, 0, 1, 2])
            with contextlib.suppress(EngineError):  # a worker that did not come up, as below
                counts["deaths"] += drain_and_die(world, point, calls)
        _drained(world)
        counts["processes"] += 1
        _catch_up(oracle, world, planned)
    stream = world.stream()
    if is_join:
        emitted = joined_rows(world.table())
    elif "deduplicate" in settings:
        emitted = Counter((one["id"], one["_emitted_batch"]) for one in world.table())
    else:
        emitted = windows_of(world.table())
    assert emitted == oracle.emitted, f"emitted: {emitted - oracle.emitted}"
    assert world.late() == oracle.late, "late rows"
    marks = [one.watermark_ms for one in stream.history]
    assert marks == oracle.watermarks[-len(marks) :], "watermarks"
    assert stream.unaccounted_rows == 0, "Spark dropped rows"
    assert len(set(world.output_ids())) == len(world.output_ids()), "output ids"
    assert world.packs() >= stream.objects, "packs"
    counts["batches"] += stream.batch
    counts["late rows"] += stream.late_rows
    return counts


def _make_ids_unique(rows: Rows, names: list[str], name: str, batch: int) -> None:
    """Make ids differ between sources within a batch.

    No rule says which of two rows with one id the query keeps, and so for how long.
    """
    turn = (names.index(name) + batch) % len(names)
    for one in rows:
        one["id"] = one["id"] * len(names) + turn


def _some_null(draw: random.Random, rows: Rows) -> None:
    """Few ids, so that there are matches, and some rows without."""
    for one in rows:
        one["id"] = None if draw.random() < 0.1 else one["id"] % 4


def _catch_up(
    oracle: Oracle, world: EventTimeHarness, planned: list[tuple[dict[str, Rows], int]]
) -> None:
    """Add the planned batches to the oracle; restart it where a process began."""
    for files, advance in planned:
        if oracle.number in world.starts:
            oracle.restart()
        oracle.add_batch(files, advance, world.whose)
    planned.clear()


def _advanced(world: EventTimeHarness, oracle: Oracle, draw: random.Random, now: float) -> int:
    """Let an operator advance the watermark now and then; return the time (ms) or 0."""
    second = 100 + now + draw.choice([-8, 0, 7.5])
    waits = oracle.rule.kind != "never" and oracle.given.mode != "complete"
    to_ms = round((BASE.timestamp() + second) * 1000)
    if not waits or to_ms <= oracle.watermark_ms or draw.random() < 0.5:
        return 0
    return world.advance(second)


def _drained(world: EventTimeHarness) -> None:
    """Ingest all files. Retry where Spark fails, as a daemon does."""
    for _ in range(_TRIES):
        with contextlib.suppress(EngineError):
            world.drain()
            return
    world.drain()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.event_time")
    parser.add_argument("--streams", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--joins", type=float, default=0.3, help="their share of the streams")
    options = parser.parse_args()
    engine = SparkEngine("local[2]", EAGER_SNAPSHOTS)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    try:
        for seed in range(options.seed, options.seed + options.streams):
            folder = Path(tempfile.mkdtemp(prefix="blizzard-streams-"))
            try:
                counts += run_stream(folder, engine, seed, options.joins)
            except BaseException as error:
                say(f"FAILED, seed {seed}: {error}\nwhat is left is in {folder}")
                return 1
            shutil.rmtree(folder)
    finally:
        engine.stop()
    counts["seconds"] = round(time.monotonic() - began)
    say_counts(counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
