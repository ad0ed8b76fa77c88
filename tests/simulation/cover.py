"""The model: what is promised for a file, from what was observed and from nothing else.

A file is covered if it became listable no later than the grace period after the end of
the first completed scan of ours that saw a file above it in the same order: above it in
its own partition or, where partitions may be closed, in a partition above its own.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from blizzard_py.core.lookback import lookback_floor
from blizzard_py.core.storage import order_key
from blizzard_py.core.watermark import is_hidden, partition_key, split
from tests.simulation import adaptor
from tests.simulation.plan import DAY, TEMPLATES
from tests.simulation.world import SourceFile, World

# What names may say beyond now and still be taken.
AHEAD_SECS = 2 * DAY


@dataclass
class Cover:
    """What is promised for one file, and ``why``."""

    promised: bool = False
    must_be_told: bool = False
    may_repeat: bool = False
    may_have_letter: bool = False
    # Never data: hidden, or of another ending.
    excluded: bool = False
    why: str = ""


class Covers:
    """The promise for all files of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._depth = world.plan.depth
        self._first: dict[str, dict[str, float]] = {}
        for uri, scans in world.scans.items():
            first: dict[str, float] = {}
            for scan in scans:
                for path in scan.paths:
                    first[path] = min(first.get(path, scan.ended), scan.ended)
            self._first[uri] = first

    def of(self, file: SourceFile) -> Cover:
        """What is promised for the file."""
        world, settings = self._world, self._world.settings
        cover = Cover(may_repeat=bool(world.deeds["may repeat"]))
        if is_hidden(file.path) or not file.path.endswith(".ndjson"):
            cover.excluded = True
            return cover
        # A rewritten file is a new one only to those that watch for it.
        cover.may_have_letter = len(file.versions) > 1 or bool(world.deeds["replayed"])
        if not settings.watermark:
            cover.promised, cover.why = True, "every name is compared"
            return cover
        if self._is_ahead(file.path):
            cover.why = "its partition says a time to come"
            return cover
        origin = self._origin(file.source)
        partition = split(file.path, self._depth)[0]
        if origin is not None and partition_key(partition) < partition_key(origin):
            cover.why = f"it lies below the origin {origin}"
            return cover
        appeared = file.versions[0].appeared
        limit = self._limit(file)
        cover.promised = appeared <= limit
        cover.must_be_told = True
        cover.why = (
            "nothing above it was seen before"
            if limit == float("inf")
            else f"it appeared {appeared - limit + settings.grace:.1f} s after the first scan that"
            f" saw a file above it, with a grace period of {settings.grace:.0f} s"
        )
        return cover

    def _limit(self, file: SourceFile) -> float:
        """Until when it had to appear."""
        partition, name = split(file.path, self._depth)
        low, key = partition_key(partition), order_key(name)
        closes = self._world.settings.tracked < 64 or self._world.settings.lookback is not None
        ends = [float("inf")]
        for path, ended in self._first[file.source].items():
            other, above = split(path, self._depth)
            if other == partition:
                if order_key(above) > key:
                    ends.append(ended)
            elif (
                closes
                and other.count("/") + 1 >= self._depth
                and partition_key(other) > low
                and not self._is_ahead(path)
            ):
                ends.append(ended)
        return min(ends) + self._world.settings.grace

    def _origin(self, uri: str) -> str | None:
        scans = self._world.scans[uri]
        if not scans:
            return None
        filter_ = adaptor.source_settings(self._world.settings, 0).partition_filter
        return lookback_floor(filter_, max(scan.ended for scan in scans[:1]))

    def _is_ahead(self, path: str) -> bool:
        template = TEMPLATES.get(self._world.settings.layout)
        found = re.match(r"date=(\d{4})-(\d\d)-(\d\d)", path) if template else None
        if found is None:
            return False
        at = dt.datetime(int(found[1]), int(found[2]), int(found[3]), tzinfo=dt.UTC).timestamp()
        return at > self._world.now + AHEAD_SECS
