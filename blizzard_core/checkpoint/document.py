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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from blizzard_core.checkpoint.decode import RESTORE, decode_document
from blizzard_core.errors import NotFound, StateError
from blizzard_core.storage.protocol import Storage, order_key
from blizzard_core.text import written_value
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import PartitionProgress, Progress, State

SCHEMA_VERSION = 1
FLOORS_VERSION = 3
PROGRESS_VERSIONS = (SCHEMA_VERSION, FLOORS_VERSION)

T = TypeVar("T")


def progress_to_json(
    progress: Progress, now: float, elsewhere: frozenset[float] = frozenset()
) -> dict[str, Any]:
    """Return a progress as JSON; ``now`` becomes ``last_update_ts`` (whole epoch seconds).

    Names seen at a time in ``elsewhere`` are left out: the caller stores them.
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
    """Return the names in order, without those seen at a time in ``elsewhere``."""
    if elsewhere.issuperset(done.values()):
        return {}
    others = ((name, at) for name, at in done.items() if at not in elsewhere)
    return dict(sorted(others, key=lambda item: order_key(item[0])))


def _ordered(progress: Progress) -> list[tuple[str, PartitionProgress]]:
    return sorted(progress.partitions.items(), key=lambda item: order_key(item[0]))


@dataclass(frozen=True, slots=True)
class WatermarkDocument:
    """``watermark`` of the document."""

    state: State
    value: str | None = None


@dataclass(frozen=True, slots=True)
class RecentDocument:
    """A partition under ``recent``: its scan start, and the names above it with their times."""

    done: dict[str, float]
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressDocument:
    """The format above, as `decode_document` reads it. Other writers use null for a missing key."""

    schema_version: int
    watermark: WatermarkDocument
    partition_watermarks: dict[str, str]
    last_update_ts: int
    partition_depth: int | None = None
    floor: str | None = None
    floors: dict[str, str] | None = None
    recent: dict[str, RecentDocument] | None = None


def progress_document(document: Any, where: str) -> ProgressDocument:
    """Decode the progress part of a document. Raises `StateError`."""
    check_version(document, where, PROGRESS_VERSIONS)
    return decode_document(ProgressDocument, document, where, open_=True)


def check_version(document: Any, where: str, known: Collection[int]) -> None:
    """Raise `StateError` if the document's version is not among ``known``."""
    version = decode_document(_Versioned, document, where, open_=True).schema_version
    if version not in known:
        raise StateError(
            f"{where}: schema_version {version} is not known here (expected {max(known)} at"
            " most); run the release that wrote it, or move the file away to start over"
        )


def progress_of(document: ProgressDocument, where: str, remedy: str = RESTORE) -> Progress:
    """Build the progress of a decoded document.

    An older document with a global watermark and no partitions filters by the global watermark
    alone: everything that sorts below is closed. Raises `StateError`.
    """
    state, value = document.watermark.state, document.watermark.value
    if (value is None) != (state == "Initial"):
        raise StateError(f"{where}: watermark: {state} does not go with value {value!r}; {remedy}")
    names = document.partition_watermarks
    depth, floor, floors = document.partition_depth, document.floor, document.floors or {}
    for head, its in floors.items():
        if not its.startswith(f"{head}/"):
            raise StateError(f"{where}: floors[{head!r}]: is not a partition below it; {remedy}")
    partitions = {partition: PartitionProgress(name, name) for partition, name in names.items()}
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
    for partition, block in (document.recent or {}).items():
        shown = partitions.get(partition, PartitionProgress()).watermark
        partitions[partition] = PartitionProgress(shown, block.before, block.done)
    return Progress(state, value, partitions, depth, floor, floors)


@dataclass(frozen=True, slots=True)
class _Versioned:
    schema_version: int


def load(storage: Storage, path: str, parse: Callable[[Any, str], T]) -> T | None:
    """Load the state at ``path``; None if there is no such file.

    Raises `StateError` if the file cannot be understood, `StorageError` if the store does not
    answer. Neither counts as "no state".
    """
    where = f"{storage.uri}/{path}"
    try:
        raw = storage.read(path)
    except NotFound:
        return None
    return parse(parsed(raw, where), where)


def parsed(raw: bytes, where: str) -> Any:
    """Parse the JSON object in ``raw``. Raises `StateError` naming ``where``.

    Strings hold characters, or undecodable bytes of local names (`order_key`).
    """
    try:
        value = written_value(raw)
    except ValueError as error:
        raise StateError(
            f"{where}: is not valid JSON ({error}); restore it, or move it away to start over"
        ) from error
    if not isinstance(value, dict):
        # `null`, which a failed `jq` leaves, must not look like no file at all.
        raise StateError(f"{where}: is no JSON object; restore it, or move it away to start over")
    return value


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
    """Encode the document as it is stored."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    # Python's own encoder runs as Python code where it indents, a third as fast.
    return msgspec.json.format(text.encode("utf-8", "surrogatepass"), indent=1)
