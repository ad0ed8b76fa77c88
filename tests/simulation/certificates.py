"""Watch over markers of complete partitions: at each instant they say what is in the table.

A reader that compares a marker with the mirror, as `blizzard wait` does, must find every output of
the partition that the journal names in the marker's version. A reader of markers alone must not
meet later rows: no commit of the process that wrote a marker brings any. What another committer, or
a request that arrives after its time-out, does in between, a marker may outlive for a poll.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from blizzard_core.handover.complete import (
    COMPLETIONS_FOLDER,
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

if TYPE_CHECKING:
    from tests.simulation.store import Bucket
    from tests.simulation.world import SimulatedWorld

_NOTE = f"{REVOKED_SUFFIX}.json"
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")


class CertificateWatch:
    """The watch over one table's bucket. ``violations`` has each false marker once."""

    def __init__(self, world: SimulatedWorld, bucket: Bucket) -> None:
        self._world = world
        self._bucket = bucket
        self._put = bucket.put
        bucket.put = self.put  # type: ignore[method-assign]  # each write goes through it
        # By source: the ids of outputs with the paths of their batch.
        self._outputs: dict[str, dict[str, list[str]]] = {}
        self._committed: dict[str, int] = {}
        self._writers: dict[str, Any] = {}
        self.violations: dict[str, None] = {}

    def put(self, path: str, data: bytes, modified: float | None = None) -> str:
        """Write an object, and look at the markers that it concerns."""
        version = self._put(path, data, modified)
        folder, _, name = path.rpartition("/")
        commit = _COMMIT.fullmatch(path)
        if commit is not None:
            self._look_at_commit(data, int(commit[1]))
        elif folder.startswith(f"{JOURNAL_FOLDER}/"):
            record = json.loads(data)
            paths = [file["path"] for file in record["files"]]
            ids = {output["output_id"]: paths for output in record["outputs"]}
            self._outputs.setdefault(folder.rpartition("/")[2], {}).update(ids)
            self._look_at(folder.rpartition("/")[2])
        elif folder == COMPLETIONS_FOLDER:
            self._look_at(name.removesuffix(".json"))
        elif folder.startswith(f"{MARKERS_FOLDER}/") and not path.endswith(
            f"{REVOKED_SUFFIX}.json"
        ):
            self._world.counts["markers"] += 1
            self._writers[path] = self._owner()
            self._look_at(path.removeprefix(f"{MARKERS_FOLDER}/").partition("/")[0])
        return version

    def _owner(self) -> Any:
        task = self._world.scheduler.current
        return None if task is None else task.owner

    def _markers(self, source: str) -> list[tuple[str, Any]]:
        head = f"{MARKERS_FOLDER}/{source}/"
        paths = [path for path in self._bucket.objects if path.startswith(head)]
        return [
            (path, parser(Marker)(json.loads(self._bucket.objects[path].data), path))
            for path in paths
            if not path.endswith(_NOTE)
        ]

    def _look_at_commit(self, data: bytes, version: int) -> None:
        actions = map(json.loads, data.splitlines())
        info = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        fresh = [i for i in info.get("penguin", {}).get("output_ids", []) if "/" in i]
        fresh = [output.removeprefix("replaced/") for output in fresh]
        for output in fresh:
            self._committed.setdefault(output, version)
        for source, outputs in self._outputs.items():
            for path, marker in self._markers(source):
                mine = self._writers.get(path) is self._owner()
                later = [i for i in fresh if _touches(outputs.get(i, []), marker.partition)]
                if mine and later and version > marker.version:
                    self._add(f"{path} is there while version {version} brings {later[0]}")

    def _look_at(self, source: str) -> None:
        held = self._bucket.objects.get(completions_path(source))
        if held is None:
            return
        completions = parser(Completions)(json.loads(held.data), source)
        for path, marker in self._markers(source):
            if not holds(marker, completions):
                continue
            for output, paths in self._outputs.get(source, {}).items():
                at = self._committed.get(output)
                if _touches(paths, marker.partition) and (at is None or at > marker.version):
                    self._add(f"{path} names version {marker.version}, {output} is in {at}")

    def _add(self, violation: str) -> None:
        if violation not in self.violations:
            self.violations[violation] = None
            self._world.note(f"false marker: {violation}")


def _touches(paths: list[str], partition: str) -> bool:
    return partition in partitions_of(paths, partition.count("/") + 1)
