"""Deaths of a process at the named points of the protocol, within this process.

What a real death takes along is dropped by hand: the worker with its query. The JVM lives on, but
nothing of the query's is used again, since each start restores another directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.errors import BlizzardError
from blizzard_core.storage.local import LocalStorage
from blizzard_py.dead_letters.writer import DeadLetterWriter
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.ingest import batch_runner
from blizzard_py.streaming import query
from blizzard_py.streaming.jobs import StreamJobs
from blizzard_py.streaming.query import StreamQuery
from blizzard_py.streaming.state_archive import StateArchive
from tests.support.event_time_harness import EventTimeHarness


class Death(BaseException):
    """Death of the process; nothing handles it."""


def _phase(phase: str | None) -> Callable[..., bool]:
    def matches(_file: Any, document: Mapping[str, Any]) -> bool:
        batches = document.get("in_flight", [])
        if phase is None:
            return not batches and document["totals"]["batches"] > 0
        return bool(batches) and batches[0]["phase"] == phase

    return matches


def _always(*_: Any, **__: Any) -> bool:
    return True


def _is_staged(_storage: Any, path: str, *_: Any) -> bool:
    return "_blizzard/staging/" in path


# Where, whether before or after the call, and which calls.
POINTS: dict[str, tuple[Any, str, bool, Callable[..., bool]]] = {
    "1-planned": (FencedFile, "save", False, _phase("running")),
    "2-before-the-job": (SparkEngine, "ingest", True, _always),
    "2-accepted": (SparkEngine, "ingest", False, _always),
    "2-restored": (StateArchive, "restore", False, _always),
    "3-judged": (StreamJobs, "_late_letters_of", False, _always),
    "3-in-the-callback": (query, "attach_secrets", True, _always),
    "3-rows-written": (query.TaskReport, "from_json", False, _always),
    "3-settled": (StreamQuery, "run_batch", False, _always),
    "4-one-packed": (StateArchive, "_write", False, _always),
    "4-packed": (StateArchive, "pack", False, _always),
    "5-before-the-commit": (FencedFile, "save", True, _phase("publishing")),
    "5-committed": (FencedFile, "save", False, _phase("publishing")),
    "6-letters-kept": (DeadLetterWriter, "keep_records", False, _always),
    "6-one-renamed": (LocalStorage, "rename", False, _is_staged),
    "6-published": (batch_runner, "publish", False, _always),
    "7-advanced": (FencedFile, "save", False, _phase(None)),
    "7-pruned": (StateArchive, "drop", False, _always),
}
# On both sides of the commit point, for what differs from one source by its state alone;
# `make chaos-event-time` dies at all of them.
DEATHS = ("3-in-the-callback", "4-one-packed", "5-before-the-commit", "5-committed")


@contextmanager
def dying_at(point: str, calls: int = 0) -> Iterator[threading.Event]:
    """Die at a point, after so many calls were let pass; the event says whether it came to that."""
    place, name, before, when = POINTS[point]
    died = threading.Event()
    left = [calls]
    original = getattr(place, name)

    def check(*args: Any, **kwargs: Any) -> None:
        if died.is_set() or not when(*args, **kwargs):
            return
        left[0] -= 1
        if left[0] < 0:
            died.set()
            raise Death(point)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before:
            check(*args, **kwargs)
        result = original(*args, **kwargs)
        if not before:
            check(*args, **kwargs)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, wrapped)
        yield died


def drain_and_die(world: EventTimeHarness, point: str, calls: int = 0) -> bool:
    """Drain by a new process that dies at the point; whether it did."""
    worker = world.pipeline()
    try:
        with dying_at(point, calls) as died:
            try:
                world.drain(worker)
            except (Death, BlizzardError):
                # In the callback it dies in a thread of Spark's, which tells of it as a failure.
                if not died.is_set():
                    raise
        return died.is_set()
    finally:
        worker.close()
