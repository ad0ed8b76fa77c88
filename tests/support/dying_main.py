"""Run a daemon's command line in this process and send it a signal at a named point.

``python -m tests.support.dying_main POINT blizzard|penguin ARGS…`` is ``kill -9``: a real
SIGKILL of the real process, JVM and workers included. ``TERM:POINT`` is what
Kubernetes sends first, once. ``DIRECT:POINT`` and ``TERM-DIRECT:POINT`` are the same
without Spark, where Spark is not the point. ``JVM:POINT`` kills the JVM alone. The product has no
hooks for this: the points are put around its own functions from here.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pyspark import SparkContext

from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.objects import ObjectStorage
from blizzard_py.__main__ import main as blizzard_main
from blizzard_py.dead_letters.writer import DeadLetterWriter
from blizzard_py.engines.spark import engine as spark
from blizzard_py.ingest import batch_runner as blizzard_batch
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import IngestJob
from blizzard_py.streaming import query
from blizzard_py.streaming.query import StreamQuery
from penguin_py.__main__ import main as penguin_main
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from tests.support.direct_engine import DirectEngine

_chosen = {"signal": signal.SIGKILL}


def die(*_: Any, **__: Any) -> None:
    """Send the signal; the first time only, if this process survives it."""
    number = _chosen.pop("signal", None)
    if number is not None:
        os.kill(_jvm() if _chosen.pop("jvm", None) else os.getpid(), number)


def _jvm() -> int:
    gateway = SparkContext._gateway  # noqa: SLF001  # no public name
    assert gateway is not None
    return gateway.proc.pid


def after(place: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> None:
    """Die once ``place.name`` has returned from a call that ``when`` accepts."""
    original = getattr(place, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if when(*args, **kwargs):
            die()
        return result

    setattr(place, name, wrapped)


def saved_phase(phase: str | None) -> Callable[..., bool]:
    """Match a saved document with a batch in ``phase``; None: no batch, but files are done."""

    def matches(_file: Any, document: dict[str, Any]) -> bool:
        batches = document.get("in_flight", [])
        if phase is None:
            return not batches and document["totals"]["batches"] > 0
        return bool(batches) and batches[0]["phase"] == phase

    return matches


def is_staged(_self: Any, path: str, *_: Any) -> bool:
    return "_blizzard/staging/" in path


def arm_after_a_rename() -> None:
    for store in (LocalStorage, ObjectStorage):
        after(store, "rename", is_staged)


def before_a_commit() -> None:
    original = DeltaLog.commit

    def signalled(*args: Any, **kwargs: Any) -> Any:
        die()
        return original(*args, **kwargs)

    DeltaLog.commit = signalled  # type: ignore[method-assign]  # the point of it


def arm_half_a_rename() -> None:
    """Object stores copy and delete: die between the two."""

    def copy_and_die(self: Any, source: str, target: str) -> None:
        self._fs.cp_file(self._key(source), self._key(target))
        die()

    ObjectStorage.rename = copy_and_die  # type: ignore[method-assign]  # half of the original


def arm_in_a_micro_batch() -> None:
    """Stop before an event-time query writes its rows."""
    original = query.attach_secrets

    def dying(context: SparkContext, job: IngestJob) -> AbstractContextManager[IngestJob]:
        die()  # where it is the JVM that does, this process goes on
        return original(context, job)

    query.attach_secrets = dying


def arm_after_settling() -> None:
    """Stop between Spark's commit of an event-time query and ours."""
    after(StreamQuery, "run_batch")


ARM: dict[str, Callable[[], None]] = {
    "1-planned": lambda: after(FencedFile, "save", saved_phase("running")),
    "2-ingested": lambda: after(spark.SparkEngine, "ingest"),
    "4-letters-kept": lambda: after(DeadLetterWriter, "keep"),
    "3-prepared": lambda: after(FencedFile, "save", saved_phase("publishing")),
    "4-one-renamed": arm_after_a_rename,
    "4-one-copied": arm_half_a_rename,
    "4-published": lambda: after(blizzard_batch, "publish"),
    "5-advanced": lambda: after(FencedFile, "save", saved_phase(None)),
    "0-listing": lambda: after(LocalStorage, "list_range"),
    "2-job-submitted": lambda: after(spark.SparkEngine, "_opened"),
    "3-settled": arm_after_settling,
    "3-in-a-micro-batch": arm_in_a_micro_batch,
    "6-idle": lambda: after(SourcePipeline, "cycle"),
    "commit-idle": lambda: after(TablePipeline, "cycle"),
    "before-commit": before_a_commit,
    "never": lambda: None,
    "after-commit": lambda: after(DeltaLog, "commit"),
}
PENGUIN_POINTS = ("before-commit", "after-commit")
# Where being told to stop is something else than to die.
STREAM_POINTS = ("3-settled", "3-in-a-micro-batch")
STOP_POINTS = ("0-listing", "2-job-submitted", "6-idle", "commit-idle")
_OTHERS = {"never", *PENGUIN_POINTS, *STOP_POINTS, *STREAM_POINTS}
BLIZZARD_POINTS = tuple(point for point in ARM if point not in _OTHERS)


if __name__ == "__main__":
    _, chosen, program, *arguments = sys.argv
    how, _, point = chosen.rpartition(":")
    if how == "JVM":
        _chosen["jvm"] = signal.SIGKILL
    if how.startswith("TERM"):
        _chosen["signal"] = signal.SIGTERM
    if how.endswith("DIRECT"):
        spark.SparkEngine = DirectEngine  # type: ignore[assignment, misc]  # its stand-in
    ARM[point]()
    {"blizzard": blizzard_main, "penguin": penguin_main}[program](arguments)
