"""Backfills beside the daemons: of what lies below the origin, or again of what was done.

What a replayed range holds may come once more for each time that it was begun over, and no more
often; what the others take from then on comes once, as ever.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.storage.protocol import is_hidden
from blizzard_core.watermark.progress import is_new
from blizzard_py.app.wiring import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.replay.ownership import backfill_ranges
from blizzard_py.sources.files.discovery import Scope
from blizzard_py.sources.files.opening import open_files
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.ranges import (
    Range,
    begins_over,
    check_earlier,
    check_range,
    is_finished,
    is_ours,
)
from blizzard_py.sources.stale import current_state
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.backfills import BACKFILL
from blizzard_py.state.source_state import SourceState, under_way
from tests.simulation import adaptor
from tests.simulation.plan import Event, source_uri
from tests.simulation.processes import Process, drained
from tests.simulation.world import SINK, World

if TYPE_CHECKING:
    from tests.simulation.director import Director


def backfill(_director: Director, found: Event, process: Process) -> None:
    """What lies below the origin of the cold start is ingested."""
    live = process.parts(found.get("source", 0))
    state = current_state(live)
    if state is None or not state.origin:
        return
    source_pipeline(live).check(state)
    day, _, hour = state.origin.partition("/")
    # The day before the one that the live daemon began with.
    last = f"{day[:-1]}{chr(ord(day[-1]) - 1)}" if day[-1] != "0" else f"{day[:5]}2023-12-31"
    chosen = Range("date=2023-01-01", f"{last}/hour=23" if hour else last)
    check_range(chosen, state, backfill_ranges(live), replay=False)
    drained(process, _worker(live, state, chosen, replay=False, anew=False))


def replayed(_director: Director, found: Event, process: Process) -> None:
    """A range is ingested again on purpose; with ``anew`` also one that was replayed before."""
    world, number = process.world, found.get("source", 0)
    live = process.parts(number)
    state = current_state(live)
    if state is None or state.processed is not None:
        return
    source_pipeline(live).check(state)
    chosen = Range(found["first"], found["last"])
    check_range(chosen, state, backfill_ranges(live), replay=True)
    run = f"{live.id}{BACKFILL}{chosen.slug}"
    check_earlier(read_state(live.stores.sink, run), replay=True)
    anew = bool(found.get("anew")) and not world.deeds[f"anew {found.at}"]
    world.deeds[f"anew {found.at}"] += 1
    wanted = _certain(world, live, state, chosen)
    begun = _begun(world, run)
    try:
        code = drained(process, _worker(live, state, chosen, replay=True, anew=anew))
    finally:
        if _begun(world, run) != begun:
            world.counts["ranges replayed"] += 1
            _may_come_again(world, number, chosen)
    ended = read_state(live.stores.sink, run)
    if code or ended is None or not is_finished(ended) or _begun(world, run) == begun:
        return
    left = read_ledger(live.stores.sink, run).not_settled(sorted(wanted))
    there = world.bucket(source_uri(number)).objects
    for path in left:
        edited = world.deeds[f"edits of {source_uri(number)}"]
        if path in there and not (edited or world.settings.min_age):
            world.problems[f"a replay of {chosen.slug} has left out {path}"] += 1


def _worker(
    live: Parts, state: SourceState, chosen: Range, *, replay: bool, anew: bool
) -> SourcePipeline:
    ledger = read_ledger(live.stores.sink, live.id)
    scope = Scope(chosen.gap, partial(is_ours, state, ledger, replay=replay))
    bounded = live.files.for_range(state.progress.depth)
    parts = replace(live, source=bounded, suffix=f"{BACKFILL}{chosen.slug}")
    again = partial(begins_over, anew=anew) if replay else None
    return SourcePipeline(parts, partial(open_files, scope=scope), begins_over=again)


def _certain(world: World, live: Parts, state: SourceState, chosen: Range) -> set[str]:
    """What the range surely holds: done by the daemon, and by nobody else's doing."""
    waits = set(under_way(state))
    return {
        path
        for path in _ingested(world, live.id)
        if chosen.holds(path)
        and path not in waits
        and not is_new(state.progress, path)
        # What was given by hand may be of an ending that no range lists.
        and path.endswith(".ndjson")
        and not is_hidden(path)
    }


def _may_come_again(world: World, number: int, chosen: Range) -> None:
    """What was in, by whatever run, when a range was begun over."""
    uri = source_uri(number)
    paths = {path for source, path in world.inherited if source == uri}
    paths |= _ingested(world, adaptor.source_id(world.settings, number))
    world.again.update((uri, path) for path in paths if chosen.holds(path))
    world.ranges.append((uri, chosen))


def _ingested(world: World, source_id: str) -> set[str]:
    stem = f"_blizzard/journal/{source_id}"
    return {
        file["path"]
        for path, held in world.bucket(SINK).objects.items()
        if path.startswith((f"{stem}/", f"{stem}~replay/", f"{stem}{BACKFILL}"))
        for file in json.loads(held.data)["files"]
        if file["outcome"] == "ingested"
    }


def _begun(world: World, run: str) -> float:
    """When a range was begun over, as the run's checkpoint has it; 0 if it never was."""
    held = world.bucket(SINK).objects.get(f"_blizzard/{run}_checkpoint.json")
    found: float = 0.0 if held is None else json.loads(held.data).get("anew_ts", 0.0)
    return found
