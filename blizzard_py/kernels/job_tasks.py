"""The tasks of an ingest job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blizzard_py.job import IngestJob, IngestSettings, JobFile

# More threads than these would wait for the thread that reads and writes.
MAX_THREADS = 4


@dataclass(frozen=True, slots=True)
class IngestTask:
    """The part of an `IngestJob` for one Spark task, with ``threads`` parser threads."""

    index: int
    settings: IngestSettings
    staging: str
    output_prefix: str
    files: tuple[JobFile, ...]
    started_ts: float = 0.0
    threads: int = 1


def tasks_of(
    job: IngestJob, packed: Sequence[tuple[JobFile, ...]], slots: int = 1
) -> list[IngestTask]:
    """Return the job's tasks for files packed by `packing.pack`; they share ``slots`` cores."""
    threads = min(MAX_THREADS, max(1, slots // max(1, len(packed))))
    settings, started = job.settings, job.started_ts
    return [
        IngestTask(index, settings, job.staging, job.output_prefix, files, started, threads)
        for index, files in enumerate(packed)
    ]
