"""The promises of markers, checked at each write, each look of Penguin and each answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from blizzard_core.delta_json import COMMIT, STAMP_BYTES, anchored, commit_path
from blizzard_core.handover.complete import (
    MARKERS_FOLDER,
    REVOKED_SUFFIX,
    Completions,
    Marker,
    completions_path,
    holds,
    parser,
    partitions_of,
)
from blizzard_core.handover.published import JOURNAL_FOLDER
from tests.simulation.markers.blizzard import SOURCE_ID
from tests.simulation.plan import START
from tests.simulation.scheduler import Owner, Scheduler
from tests.simulation.store import Bucket

T = TypeVar("T")

_HEAD = f"{MARKERS_FOLDER}/{SOURCE_ID}/"
_NOTE = f"{REVOKED_SUFFIX}.json"
# Outcomes that settle a file without its rows.
_ROWLESS = frozenset({"reported", "quarantined"})


@dataclass
class Held:
    """Everything that a schedule begins with."""

    lake: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    appeared: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, list[str]] = field(default_factory=dict)
    versions: dict[int, frozenset[str]] = field(default_factory=dict)
    rowless: frozenset[str] = frozenset()
    now: float = START


@lru_cache(10_000)
def _decoded(kind: type[T], data: bytes) -> T:
    return parser(kind)(msgspec.json.decode(data), "")


class MarkerChecks:
    """Checks of one schedule. ``violations`` has each wrong marker once."""

    def __init__(self, held: Held, lake: Bucket, scheduler: Scheduler) -> None:
        self.lake = lake
        self.scheduler = scheduler
        self.counts: Counter[str] = Counter()
        self.violations: dict[str, None] = {}
        self.revoking: dict[Owner, int] = {}
        self.step = 0
        # When each source file appeared, the files of each output, the outputs of each version.
        self.appeared = dict(held.appeared)
        self.outputs = dict(held.outputs)
        self.versions = dict(held.versions)
        # Files that were settled without their rows, also if the journal is lost.
        self.rowless = set(held.rowless)
        self._put = lake.put
        self._written: dict[str, int] = {}
        # Markers of a log that is gone: until a cycle that begins later ends.
        self._doubtful = self._log_gone = -1
        self.had_two_penguins = False
        # When the mirror last said that a marker holds, of each.
        self._held: dict[str, int] = {}

    def put(self, path: str, data: bytes, modified: float | None = None) -> str:
        """Write an object of the lake and look at what it changes."""
        version = self._put(path, data, modified)
        self.step += 1
        if path.endswith(".parquet") and path[0] != "_":
            document = msgspec.json.decode(data)
            self.outputs[document["id"]] = [name for name, _ in document["rows"]]
        elif path.startswith(_HEAD) and not path.endswith(_NOTE):
            self.counts["markers"] += 1
            self._written[path] = self.step
            self._check(path, self._marker(path), "was written")
        elif path == completions_path(SOURCE_ID):
            completions = _decoded(Completions, data)
            now = [each for each in self._markers() if holds(self._marker(each), completions)]
            self._held.update(dict.fromkeys(now, self.step))
        elif path.startswith(JOURNAL_FOLDER):
            files = msgspec.json.decode(data)["files"]
            self.rowless |= {f["path"] for f in files if f["outcome"] in _ROWLESS}
        elif match := COMMIT.fullmatch(path):
            self._committed(int(match[1]), msgspec.json.decode(data))
        return version

    def _marker(self, path: str) -> Marker:
        return _decoded(Marker, self.lake.objects[path].data)

    def _markers(self) -> list[str]:
        return [p for p in self.lake.objects if p.startswith(_HEAD) and not p.endswith(_NOTE)]

    def _lacks(self, marker: Marker) -> str:
        """Return what makes a marker wrong: the table, or a file that it lacks."""
        inside = self.versions.get(marker.version)
        if inside is None:
            return f"there is no version {marker.version}"
        there = {name for output in inside for name in self.outputs.get(output, ())}
        for path, at in self.appeared.items():
            mine = marker.partition in partitions_of([path], 1)
            if mine and at < marker.scan_ts and path not in there and path not in self.rowless:
                return f"{path} is not in version {marker.version}"
        return ""

    def _check(self, path: str, marker: Marker, when: str) -> None:
        why = self._lacks(marker)
        if why and not self._is_lost_since() and not self._is_of_lost_log(path, marker):
            self._violate(f"a marker {when} and is wrong: {path}: {why}")

    def _is_of_lost_log(self, path: str, marker: Marker) -> bool:
        """Return whether a marker is of a log that went, and need not be removed.

        Its writer had seen the log before, and wrote it later. Or there were two Penguins, and the
        state of one does not tell of the other's markers. `wait` believes no such marker.
        """
        is_later = self._written.get(path, -1) >= self._log_gone
        if self._log_gone < 0 or not (is_later or self.had_two_penguins):
            return False
        found = self.lake.objects.get(commit_path(marker.version))
        stamp = b"" if found is None else found.data[:STAMP_BYTES]
        is_of_lost = anchored(stamp) != marker.anchor
        self.counts["markers of a log that is gone"] += is_of_lost
        return is_of_lost

    def _is_lost_since(self) -> bool:
        return self._doubtful >= 0

    def _committed(self, version: int, entry: dict[str, Any]) -> None:
        before = self.versions.get(version - 1, frozenset())
        self.versions[version] = inside = frozenset(entry["all"])
        fresh = {name for output in inside - before for name in self.outputs.get(output, ())}
        if not entry["ours"] or self._is_lost_since():
            return
        owner = self._owner()
        began = self.revoking.get(owner, -1) if owner else -1
        for path in self._markers():
            marker = self._marker(path)
            late = self._late_rows(marker, fresh)
            if not late or version <= marker.version or self._is_of_lost_log(path, marker):
                continue
            if self._written.get(path, -1) > began:
                self.counts["markers written during another's commit"] += 1
            else:
                self._violate(f"a marker is there while late rows come: {path}: {late}")

    def _late_rows(self, marker: Marker, names: Iterable[str]) -> str:
        """Return one of the files of its partition that a marker's version lacks, or nothing."""
        mine = [name for name in names if marker.partition in partitions_of([name], 1)]
        if not mine:
            return ""
        known = self.versions.get(marker.version, frozenset())
        there = {name for output in known for name in self.outputs.get(output, ())}
        return next((name for name in mine if name not in there), "")

    def _owner(self) -> Owner | None:
        task = self.scheduler.current
        return None if task is None else task.owner

    def revoked_markers(self) -> list[tuple[str, int]]:
        """Return the markers of revoked partitions, each with the version of its object."""
        mirror = self.lake.objects.get(completions_path(SOURCE_ID))
        paths = self._markers()
        if mirror is None or not paths:
            return []
        completions = _decoded(Completions, mirror.data)
        found = []
        for path in paths:
            marker = self._marker(path)
            completion = completions.partitions.get(marker.partition)
            is_complete = completion is not None and completion.complete_ts
            was_complete = completion is not None and completion.seq
            if was_complete and not (holds(marker, completions) or is_complete):
                found.append((path, self.lake.objects[path].version))
        return found

    def cycle_over(self, began: int, revoked: list[tuple[str, int]]) -> None:
        """Check all markers once a cycle of Penguin has ended that began at a step.

        ``revoked`` are the markers that the cycle has found at its begin and must have removed.
        """
        if began >= self._doubtful:
            self._doubtful = -1
        for path in self._markers():
            self._check(path, self._marker(path), "stands")
        for path, version in revoked:
            found = self.lake.objects.get(path)
            # A checkpoint that came back may have made it hold meanwhile.
            is_same = found is not None and found.version == version
            if is_same and self._held.get(path, -1) < began:
                self._violate(f"a marker of a revoked partition stands after a look: {path}")

    def shown(self) -> list[str]:
        """Return the files whose rows the newest version of the table has."""
        if not self.versions:
            return []
        newest = self.versions[max(self.versions)]
        return [name for output in newest for name in self.outputs.get(output, ())]

    def believed(
        self, marker: Marker | None, before: dict[int, frozenset[str]], shown: list[str]
    ) -> None:
        """Check what a consumer was told, who could see the rows of some files when it asked."""
        if marker is None:
            return
        self.counts["consumers told complete"] += 1
        why = self._lacks(marker)
        if why:
            now, self.versions = self.versions, before
            why = self._lacks(marker)
            self.versions = now
        if why:
            self._violate(f"wait says complete and is wrong: {marker.partition}: {why}")
        elif late := self._late_rows(marker, shown):
            self._violate(f"wait says complete behind late rows: {marker.partition}: {late}")

    def _violate(self, text: str) -> None:
        self.violations.setdefault(text)

    def forget_log(self) -> None:
        """Forget the versions; markers may be wrong until Penguin has looked."""
        self.versions = {}
        self.step += 1
        self._doubtful = self._log_gone = self.step
