"""Limits of a run: names in the checkpoint, and LIST requests of an idle poll."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from blizzard_core.storage.protocol import is_hidden
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import gaps
from tests.simulation import adaptor
from tests.simulation.plan import DAY, source_uri
from tests.simulation.world import SINK, SimulatedWorld
from tests.support.stored_progress import progress_from_json


def violations(world: SimulatedWorld) -> list[str]:
    """Return the numbers that exceed their documented limits once all work is done."""
    # A watermark set by hand lists what is in grace, so that the journal brings nothing back;
    # a rebuilt checkpoint lists what is done above files that are not.
    edited = any(
        event.kind in {"rewound", "brought_back", "put_back", "part_lost"}
        or event.get("remedy") == "rebuild"
        for event in world.plan.events
    )
    wrong = [] if edited else list(world.oversized)
    for number in range(world.settings.sources):
        held = world.bucket(SINK).objects.get(adaptor.checkpoint_path(world.settings, number))
        if held is not None and world.settings.watermark:
            document = json.loads(held.data)
            if not any(document.get(key) for key in ("in_flight", "retries", "queue")):
                wrong += _source(world, number, document)
    return wrong


def _source(world: SimulatedWorld, number: int, document: dict[str, Any]) -> Iterator[str]:
    name = adaptor.source_id(world.settings, number)
    scans = world.scans[source_uri(number)]
    last = scans[-1] if scans else None
    if last is None or last.paths:
        return
    if world.settings.hints and (world.settings.full_scan or 0.0) >= DAY:
        return  # no scan covers a partition to which nothing comes
    if document.get("window"):
        yield f"names: {name} leaves names in grace to the journal"
        return
    # By the store's clock, which some plans never put right. Names are kept until a scan covers
    # their partition.
    kept = world.plan.longest_grace + SLACK_SECS + 6 * (world.settings.full_scan or 0.0)
    old = last.began + world.store_skew - kept
    names = [
        name
        for block in document.get("recent", {}).values()
        for name, seen in block["done"].items()
        if seen < old
    ]
    if names:
        yield f"names: {name} remembers {len(names)} whose grace is over, first {names[0]}"
    progress = progress_from_json(document, name)
    if progress.depth is None:
        return  # the root is listed whole until a directory is seen
    if world.settings.full_scan is not None:
        return  # a complete scan lists names again whose grace no scan has ended meanwhile
    beside = [
        path
        for path in world.bucket(source_uri(number)).objects
        if _is_listed_again(path, progress.depth)
    ]
    # One request for each range, one more for each hidden directory that is jumped over, and
    # one for every page of what lies in the ranges and is not looked at, or not for ever.
    hidden = {path.split("/")[0] for path in beside if path[:1] in {"_", "."}}
    most = len(gaps(progress)) + 2 * len(hidden) + len(beside) // world.settings.page_keys + 1
    if last.requests > most:
        yield f"requests: an idle poll of {name} takes {last.requests}, {most} are documented"


def _is_listed_again(path: str, depth: int) -> bool:
    """Return whether the file may lie above a scan start for ever.

    Such files are hidden, odd, ahead of time, or not deep enough.
    """
    return (
        is_hidden(path)
        or not path.endswith(".ndjson")
        or path.startswith(("date=9999", "date=2031"))
        or (depth > 0 and split(path, depth)[0].count("/") + 1 < depth)
        or (depth > 0 and "/" not in path)
    )


# Polls after faults have ended come at three times their interval, each may take a while, and
# a store's clock counts whole seconds.
SLACK_SECS = 400.0
