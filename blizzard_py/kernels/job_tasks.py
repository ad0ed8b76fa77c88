"""The tasks of an ingest job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blizzard_py.job import IngestJob, IngestSettings, JobFile

# More threads than these wait for the one that reads and writes.
MAX_THREADS = 4


@dataclass(frozen=True, slots=True)
class IngestTask:
    """The share of an `IngestJob` that one Spark task works on, with ``threads`` that parse."""

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
    """The job's tasks, for files packed by `packing.pack`; they share out ``slots`` cores."""
    threads = min(MAX_THREADS, max(1, slots // max(1, len(packed))))
    settings, started = job.settings, job.started_ts
    return [
        IngestTask(index, settings, job.staging, job.output_prefix, files, started, threads)
        for index, files in enumerate(packed)
    ]
