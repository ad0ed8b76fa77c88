"""Model of the promise for each file, from observations alone.

The promise covers a file that became listable within the grace period after the end of the first
completed scan of ours that saw a higher file. A higher file is one in its own partition or, where
partitions may be closed, in a higher partition. With regions, as many as may be tracked, only
partitions of its own region count.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import Any

from blizzard_core.storage.protocol import is_hidden, order_key
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.paths import partition_key, split
from tests.simulation import adaptor
from tests.simulation.plan import DAY, FLAT_KEYS, TEMPLATES, source_uri
from tests.simulation.world import SINK, SimulatedWorld, SourceFile
from tests.simulation.writers import REGIONS

# What names may say beyond now and still be taken.
AHEAD_SECS = 2 * DAY


@dataclass
class Cover:
    """Promise for one file, and ``why``."""

    promised: bool = False
    must_be_told: bool = False
    may_repeat: bool = False
    # How often more than once it may come.
    again: int = 0
    may_have_letter: bool = False
    # Never data: hidden, or of another ending.
    excluded: bool = False
    why: str = ""


def _final(world: SimulatedWorld, number: int, key: str) -> Any:
    """Return a value of the source's final checkpoint; None if there is none."""
    held = world.bucket(SINK).objects.get(adaptor.checkpoint_path(world.settings, number))
    return None if held is None else json.loads(held.data).get(key)


def _is_depth_found(world: SimulatedWorld) -> bool:
    """Return whether sources may be flat although folders appear later."""
    return FLAT_KEYS < world.settings.scan_files < 1000


def _depth_found(world: SimulatedWorld, number: int) -> int:
    if _is_depth_found(world):
        # By each source from what came there first, one way or the other.
        found = _final(world, number, "partition_depth")
        return world.plan.depth if found is None else int(found)
    return world.plan.depth


class Covers:
    """The promise for all files of a run."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        # Also of the other place that a wrong configuration names.
        self._depths = {
            uri: _depth_found(world, int(uri[-1])) for uri in {source for source, _ in world.files}
        }
        self._first: dict[str, dict[str, float]] = {}
        for uri, scans in world.scans.items():
            if not scans:
                continue
            first: dict[str, float] = {}
            for scan in scans:
                for path in scan.paths:
                    first[path] = min(first.get(path, scan.ended), scan.ended)
            # What an original has done counts as seen from our first scan on.
            began = {path: scans[0].ended for source, path in world.inherited if source == uri}
            self._first[uri] = began | first

    def of(self, file: SourceFile) -> Cover:
        """Return the promise for the file."""
        world, settings = self._world, self._world.settings
        name = (file.source, file.path)
        edits = world.edits[file.source]
        again = any(file.path in edit.again for edit in edits)
        cover = Cover(may_repeat=again or bool(world.deeds["fresh"]))
        cover.again = world.again[name]
        cover.may_have_letter = (
            name in world.given
            or name in world.unsure
            or cover.may_repeat
            or len(file.versions) > 1
            or cover.again > 0
            # Dead letters are in a bucket of their own, which no copy of the state holds.
            or any(world.counts[f"put back: {what}"] for what in ("state", "state and fence"))
        )
        if is_hidden(file.path) or not file.path.endswith(".ndjson"):
            cover.excluded = name not in world.given
            return cover
        if name in world.inherited:
            # Its rows are the original's.
            cover.excluded = not (cover.may_repeat or cover.again)
            return cover
        if not settings.watermark:
            cover.promised, cover.why = True, "every name is compared"
            return cover
        cover.why = self._outside(file)
        if cover.why:
            return cover
        if self._is_below_set_watermark(file):
            # The first sweep over an original's checkpoint takes what it finds for done.
            # And a rebuild names what it takes for done.
            cover.must_be_told = not world.deeds["original"] and name not in world.accepted
            cover.why = "people said that all below a name above it was done"
            return cover
        appeared = file.versions[0].appeared
        limit = self._limit(file)
        cover.promised = appeared <= limit
        cover.must_be_told = name not in world.accepted
        cover.why = (
            "nothing above it was seen before"
            if limit == float("inf")
            else f"it appeared {appeared - limit:.1f} s after the grace period of the first scan"
            " that saw a file above it"
        )
        return cover

    def _outside(self, file: SourceFile) -> str:
        """Return the reason why the file is outside of all scans; empty if it is not."""
        world = self._world
        key = partition_key(split(file.path, self._depths[file.source])[0])
        closed = world.closed.get(file.source)
        origin = self._origin(file.source)
        if self._is_ahead(file.path):
            return "its partition says a time to come"
        if closed is not None and key < closed:
            return "it lies below the original's watermark"
        if origin is not None and key < partition_key(origin):
            return f"it lies below the origin {origin}"
        if any(file.path in edit.skipped for edit in world.edits[file.source]):
            return "`checkpoint set` said that it would be skipped"
        return ""

    def _is_below_set_watermark(self, file: SourceFile) -> bool:
        """Return whether an operator set a watermark at or above it."""
        partition, name = split(file.path, self._depths[file.source])
        said = [edit.said for edit in self._world.edits[file.source]]
        said += self._world.said[file.source]
        if order_key(file.path) < self._world.done_before.get(file.source, b""):
            return True
        return any(p == partition and order_key(name) <= order_key(n) for p, n in said)

    def _limit(self, file: SourceFile) -> float:
        """Return the time by which it had to appear.

        A checkpoint that is made again says how deep partitions are by what is there by then.
        """
        depths = {self._depths[file.source]}
        if _is_depth_found(self._world) and int(file.source[-1]) in self._world.rebuilt:
            depths.add(0)
        return min(self._limit_at(depth, file) for depth in depths)

    def _limit_at(self, depth: int, file: SourceFile) -> float:
        partition, name = split(file.path, depth)
        low, key = partition_key(partition), order_key(name)
        settings = self._world.settings
        closes = settings.tracked < 64 or settings.lookback is not None
        apart = settings.layout == "region_days" and settings.tracked >= len(REGIONS)
        head = partition.partition("/")[0] if apart else ""
        ends: list[float] = []
        for path, ended in self._first.get(file.source, {}).items():
            other, above = split(path, depth)
            if other == partition:
                if order_key(above) > key:
                    ends.append(ended)
            elif (
                closes
                and other.count("/") + 1 >= depth
                and partition_key(other) > low
                and other.startswith(head)
                and not self._is_ahead(path)
            ):
                ends.append(ended)
        return min(map(self._over, ends), default=float("inf"))

    def _over(self, ended: float) -> float:
        """Return the end of a scan's grace period, by the shortest grace period since."""
        graces = self._world.graces
        before = [grace for at, grace in graces if at <= ended][-1:]
        after = [grace for at, grace in graces if ended < at]
        return ended + min(before + after)

    def _origin(self, uri: str) -> str | None:
        scans = self._world.scans[uri]
        if not scans:
            return None
        made_again = [n for n in self._world.rebuilt if uri == source_uri(n)]
        if made_again:
            # Where the start began was in the checkpoint that was lost.
            origin = _final(self._world, made_again[0], "origin")
            if origin or not self._world.deeds["original"]:
                return origin or None
            # What goes on from an original has none, and passes what lies below its first floor.
        filter_ = adaptor.source_settings(self._world.settings, 0).partition_filter
        return lookback_floor(filter_, scans[0].ended + scans[0].skew)

    def _is_ahead(self, path: str) -> bool:
        template = TEMPLATES.get(self._world.settings.layout)
        found = re.match(r"date=(\d{4})-(\d\d)-(\d\d)", path) if template else None
        if found is None:
            return False
        at = dt.datetime(int(found[1]), int(found[2]), int(found[3]), tzinfo=dt.UTC).timestamp()
        return at > self._world.now + AHEAD_SECS
