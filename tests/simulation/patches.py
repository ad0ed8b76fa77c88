"""Patches of the product where nothing is injected: thread pools, UUIDs, watched scans."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any
from unittest import mock

import msgspec

from blizzard_core import delta_json
from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.delta_json import Columns
from blizzard_core.errors import NotFound, Unavailable
from blizzard_py.app import submit
from blizzard_py.ingest import source_cleaning
from blizzard_py.sources.files import discovery
from blizzard_py.sources.files.late_file_outcomes import LateFiles
from blizzard_py.state import completeness
from tests.simulation.plan import DAY, FLAT_KEYS
from tests.simulation.processes import Process
from tests.simulation.scheduler import Executor
from tests.simulation.world import Scan, SimulatedWorld
from tests.support.memory_store import MemoryStorage

# Those of the product, and nobody else's, have their threads replaced.
_PACKAGES = ("blizzard_core.", "blizzard_py.", "penguin_py.")


@contextmanager
def patched(world: SimulatedWorld) -> Iterator[None]:
    """Patch the product's modules for a run."""
    scheduler = world.scheduler
    made = [0, 0]

    def pool(max_workers: int = 8, *_arguments: Any, **_more: Any) -> Executor:
        return Executor(scheduler, max_workers)

    def uuid7() -> uuid.UUID:
        task = scheduler.current
        owner = None if task is None else task.owner
        at = owner.clock() if isinstance(owner, Process) else world.now
        made[0] += 1
        millis = max(0, int(at * 1000))
        if isinstance(owner, Process):
            # Each of a process sorts above every one that it made before.
            millis = owner.last_id = max(millis, owner.last_id + 1)
        return uuid.UUID(int=(millis << 80) | (7 << 76) | (2 << 62) | made[0])

    def uuid4() -> uuid.UUID:
        made[1] += 1
        return uuid.UUID(int=(4 << 76) | (2 << 62) | (world.plan.seed << 24) | made[1])

    def running(_writer: Writer) -> bool:
        return world.has_reader()

    replaced = {
        "ThreadPool": pool,
        "ThreadPoolExecutor": pool,
        "uuid7": uuid7,
        "encode": partial(_compact, world),
    }
    limits = {
        "COMMIT_CHECK_SECS": 30.0,
        "FILES_A_CHECK": 2,
        "SCAN_FILES": world.settings.scan_files,
        "FLAT_KEYS": FLAT_KEYS if world.settings.scan_files < 1000 else 1000,
        "INLINE_NAMES": world.settings.inline_names,
        "VERSIONS_KEPT": world.settings.versions_kept,
        "HOT_SECS": 5.0,
        "_SILENT_SECS": DAY if (world.settings.full_scan or 0.0) >= DAY else 30.0,
    }
    with (
        mock.patch.object(uuid, "uuid4", uuid4),
        # Runs are shorter than an hour or a day, so no name may say when a partition is over.
        mock.patch.object(completeness, "span_of", return_value=None),
        mock.patch.object(delta_json, "_pieces", _pieces),
        mock.patch.object(source_cleaning, "PAUSE_SECS", 15.0),
        # All processes of a run are one of the machine's, which tells nothing.
        mock.patch.object(submit, "is_running", running),
        _replacing(replaced | limits),
        _watching(world),
    ):
        yield


def _compact(world: SimulatedWorld, document: Any) -> bytes:
    """Return a checkpoint's bytes without indentation, which would take half of a run."""
    # The names that an original's checkpoint had are the newest of their partitions, one each.
    recent = document.get("recent", {}).values()
    names = sum(len(block["done"].keys() - {block.get("before")}) for block in recent)
    # A committer's memory has no totals, and is bounded by the log.
    if "totals" in document and names > world.settings.inline_names:
        world.oversized.append(f"names: a checkpoint lists {names}")
    return msgspec.json.encode(document)


_READ_PIECES = delta_json._pieces


@lru_cache(maxsize=512)
def _parsed(uri: str, path: str, data: bytes, wanted: tuple[str, ...]) -> tuple[Columns, ...]:
    held = MemoryStorage(uri)
    held.put_atomic(path, data)
    return tuple(_READ_PIECES(held, path, None, wanted))


def _pieces(
    storage: Any, path: str, _size: int | None, wanted: Sequence[str]
) -> tuple[Columns, ...]:
    """Return a log checkpoint; the same bytes are parsed once.

    Arrow reads ranges in threads of its own, which are not simulated.
    """
    try:
        data = storage.read(path)
    except NotFound as error:
        raise Unavailable(f"{path}: was cleaned up while the log was read") from error
    return _parsed(storage.uri, path, data, tuple(wanted))


@contextmanager
def _replacing(names: dict[str, Any]) -> Iterator[None]:
    before: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGES):
            for attribute, value in names.items():
                if attribute in module.__dict__:
                    before.append((module, attribute, module.__dict__[attribute]))
                    setattr(module, attribute, value)
    try:
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)


@contextmanager
def _watching(world: SimulatedWorld) -> Iterator[None]:
    """Write down when scans of the sources completed, and what new files they saw."""
    real = discovery.scan

    def scan(storage: Any, *arguments: Any, **more: Any) -> Any:
        began, skew = world.now, world.recent_skew()
        found = real(storage, *arguments, **more)
        task = world.scheduler.current
        by = "nobody" if task is None else task.owner.name
        paths = frozenset(entry.path for entry in found.entries)
        # One with limits for its scans counts what it lists.
        uri = getattr(storage, "uri", None) or storage._listing.uri
        world.scans[uri].append(Scan(by, began, world.now, paths, found.requests, skew))
        return found

    def reported(late_files: Any, state: Any, late: Any) -> None:
        number = int(late_files._parts.source_name[1:])
        world.reported.update((number, entry.path) for entry in late)
        log_late(late_files, state, late)

    log_late = LateFiles._log_late
    with (
        mock.patch.object(discovery, "scan", scan),
        mock.patch.object(LateFiles, "_log_late", reported),
    ):
        yield
