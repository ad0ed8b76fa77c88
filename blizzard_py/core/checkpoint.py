"""The checkpoint file's format, and how it is read and replaced.

The format is the one of the original, so its files load here and ours load
there; keys of ours are optional::

    {
      "schema_version": 1,
      "watermark": {"state": "Active", "value": "date=2024-01-28/1706450400-uuid.ndjson.gz"},
      "partition_watermarks": {"date=2024-01-28": "1706450400-uuid.ndjson.gz"},
      "last_update_ts": 1706450500,
      "partition_depth": 1,                      # ours, from here on
      "floor": "date=2024-01-21",
      "floors": {"region=eu": "region=eu/date=2024-01-21"},
      "recent": {"date=2024-01-28": {"before": "1706450100-uuid.ndjson.gz",
                                     "done": {"1706450400-uuid.ndjson.gz": 1706450500}}}
    }

A source without partitions has an empty partition map and only the global
watermark. One that has both keeps its root files under the partition ``""``. Without
``partition_depth`` no file in a directory was seen yet. One with ``floors`` is of
``schema_version`` 3: a release that knows of none would take what they close for new.

Anything that is not exactly understood (bad JSON, a wrong type, an unknown
``schema_version``) is a `StateError` that names the file. It never means
"start fresh".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from blizzard_py.core.errors import NotFound, StateError
from blizzard_py.core.storage import Storage, order_key
from blizzard_py.core.watermark import PartitionProgress, Progress, State, split

SCHEMA_VERSION = 1
FLOORS_VERSION = 3

T = TypeVar("T")


def progress_to_json(
    progress: Progress, now: float, elsewhere: frozenset[float] = frozenset()
) -> dict[str, Any]:
    """The document of a progress; ``now`` becomes ``last_update_ts`` (whole epoch seconds).

    Names that were seen at a time in ``elsewhere`` are left out: the caller keeps them.
    """
    flat = not progress.depth and set(progress.partitions) <= {""}
    watermark: dict[str, Any] = {"state": progress.state}
    if progress.value is not None:
        watermark["value"] = progress.value
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "watermark": watermark,
        "partition_watermarks": {
            partition: known.watermark
            for partition, known in _ordered(progress)
            if known.watermark is not None and not flat
        },
        "last_update_ts": int(now),
    }
    if progress.depth is not None:
        document["partition_depth"] = progress.depth
    if progress.floor is not None:
        document["floor"] = progress.floor
    if progress.floors:
        document["schema_version"] = FLOORS_VERSION
        document["floors"] = dict(progress.floors)
    recent = {
        partition: {
            **({} if known.before is None else {"before": known.before}),
            "done": _listed(known.done, elsewhere),
        }
        for partition, known in _ordered(progress)
        if known.done or known.before != known.watermark
    }
    if recent:
        document["recent"] = recent
    return document


def _listed(done: Mapping[str, float], elsewhere: frozenset[float]) -> dict[str, float]:
    """The names in order, without those of ``elsewhere``: there may be many of these."""
    if elsewhere.issuperset(done.values()):
        return {}
    left = ((name, at) for name, at in done.items() if at not in elsewhere)
    return dict(sorted(left, key=lambda item: order_key(item[0])))


def _ordered(progress: Progress) -> list[tuple[str, PartitionProgress]]:
    return sorted(progress.partitions.items(), key=lambda item: order_key(item[0]))


def progress_from_json(document: Any, where: str) -> Progress:
    """The progress of a document; ``where`` names the file in errors.

    A document with a global watermark and no partitions (an older one) filters
    by the global watermark alone: everything that sorts below is closed.
    Raises `StateError`.
    """
    read = Fields(document, where)
    version = read("schema_version", int)
    if version not in {SCHEMA_VERSION, FLOORS_VERSION}:
        raise StateError(
            f"{where}: schema_version {version} is not known here (expected {FLOORS_VERSION} at"
            " most); run the release that wrote it, or move the file away to start over"
        )
    state, value = _watermark(Fields(read("watermark", dict), f"{where}: watermark"), where)
    names = read("partition_watermarks", dict)
    recent = read.get("recent", dict) or {}
    depth = read.get("partition_depth", int)
    floor = read.get("floor", str)
    floors = read.get("floors", dict) or {}
    for head, its in floors.items():
        if not isinstance(its, str) or not its.startswith(f"{head}/"):
            raise StateError(f"{where}: floors[{head!r}] is not a partition below it")
    partitions: dict[str, PartitionProgress] = {}
    for partition, name in names.items():
        if not isinstance(name, str):
            raise StateError(f"{where}: partition_watermarks[{partition!r}] is not a string")
        partitions[partition] = PartitionProgress(name, name)
    if value is not None and not names:
        older = depth is None
        # A file at the root says nothing of directories.
        depth = (value.count("/") or None) if older else depth
        partition, name = split(value, depth or 0)
        partitions[partition] = PartitionProgress(name, name)
        if older and partition:
            floor = max(filter(None, (floor, partition)), key=lambda p: order_key(f"{p}/"))
    if depth is None:
        depth = max((p.count("/") + 1 for p in names if p), default=None)
    for partition, block in recent.items():
        known = partitions.get(partition, PartitionProgress())
        partitions[partition] = _recent(known, block, f"{where}: recent[{partition!r}]")
    return Progress(state, value, partitions, depth, floor, floors)


def _watermark(read: Fields, where: str) -> tuple[State, str | None]:
    state, value = read("state", str), read.get("value", str)
    match state:
        case "Initial" | "Active" | "Idle":
            if (value is None) == (state == "Initial"):
                return state, value
            raise StateError(f"{where}: watermark.state {state} does not go with value {value!r}")
        case _:
            raise StateError(f"{where}: watermark.state {state!r} is not Initial, Active or Idle")


def _recent(known: PartitionProgress, block: Any, where: str) -> PartitionProgress:
    read = Fields(block, where)
    done = read("done", dict)
    if not all(isinstance(at, int | float) for at in done.values()):
        raise StateError(f"{where}: done holds something that is not a time")
    return PartitionProgress(known.watermark, read.get("before", str), done)


class Fields:
    """Typed access to a JSON object: `StateError` names the file and the key."""

    def __init__(self, document: Any, where: str) -> None:
        if not isinstance(document, Mapping):
            raise StateError(f"{where}: is not a JSON object")
        self._document = document
        self._where = where

    def __call__(self, key: str, kind: type[T]) -> T:
        """The value under ``key``, which must be there and of that type."""
        found = self.get(key, kind)
        if found is None:
            raise StateError(f"{self._where}: {key} is missing")
        return found

    def get(self, key: str, kind: type[T]) -> T | None:
        """The value under ``key`` or None; a value of another type is an error."""
        value = self._document.get(key)
        if value is None:
            return None
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise StateError(f"{self._where}: {key} is not of type {kind.__name__}")
        return value


def load(storage: Storage, path: str, parse: Callable[[Any, str], T]) -> T | None:
    """The state at ``path``, or None if there is no such file.

    Raises `StateError` if it is there and cannot be understood, `StorageError`
    if the store does not answer: neither is taken for "no state".
    """
    where = f"{storage.uri}/{path}"
    try:
        raw = storage.read(path)
    except NotFound:
        return None
    return parse(parsed(raw, where), where)


def parsed(raw: bytes, where: str) -> Any:
    """The JSON in ``raw``. Raises `StateError` naming ``where``."""
    try:
        return json.loads(raw)
    except ValueError as error:
        raise StateError(
            f"{where}: is not valid JSON ({error}); restore it, or move it away to start over"
        ) from error


def sweep_temporaries(storage: Storage, path: str) -> None:
    """Remove temporary files that killed processes left beside ``path``."""
    for page in storage.list_range(f"{path}.", f"{path}/"):
        for entry in page.entries:
            if entry.path.endswith(".tmp"):
                storage.delete(entry.path)


def save(storage: Storage, path: str, document: Mapping[str, Any]) -> None:
    """Replace the state at ``path``, whole or not at all, durable on return."""
    storage.put_atomic(path, encode(document))


def encode(document: Mapping[str, Any]) -> bytes:
    """The document as it is stored."""
    text = json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")
