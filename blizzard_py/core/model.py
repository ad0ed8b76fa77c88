"""Plain values that travel between the layers.

All of them are frozen: a decision returns new values and never edits its
input, which is what lets a test stop the pipeline between any two steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ingested", "quarantined", "retry", "reported"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a listing.

    ``path`` is relative to the storage's root, with ``/`` between components;
    ``size`` is in bytes as stored; ``modified`` in seconds since the epoch.
    """

    path: str
    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class Apart:
    """Files in partitions that are not looked at: how many there are, and the first."""

    files: int = 0
    first: str | None = None


NONE_APART = Apart()


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """What became of one source file in one batch.

    * ``ingested``: all its records are rows of the batch's outputs (``rows`` may
      be 0), and ``bad_rows`` lines that are none are letters of the batch;
    * ``quarantined``: none of its rows are; ``error`` says why for ever;
    * ``retry``: none of its rows are, and trying again may help;
    * ``reported``: none of its rows are: it came late, and is left where it is.

    ``bytes_read`` counts decompressed bytes. ``stage`` says where it failed:
    ``read``, ``decompress``, ``parse``, ``partition``, ``transform``, ``late``. ``error`` of an
    ingested file is that of its first bad line.
    """

    path: str
    outcome: Outcome
    rows: int = 0
    bytes_read: int = 0
    error: str = ""
    stage: str = ""
    bad_rows: int = 0


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """One Parquet file that an ingest job wrote and reported.

    ``staged`` is its path relative to the table; ``partition`` the directory
    below the table that it belongs in (``""`` for none); ``size`` in bytes;
    ``output_id`` stands in its key-value metadata as ``blizzard.output_id``.
    """

    staged: str
    partition: str
    rows: int
    size: int
    output_id: str


@dataclass(frozen=True, slots=True)
class StagedLetters:
    """Bad records that a task staged: an NDJSON object and the files its lines are of.

    ``files`` are pairs of path and number of lines, in the object's order.
    """

    staged: str
    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The successful task attempts' reports, and nothing else.

    Objects in staging that no report names do not count: a dying task can
    leave a valid but incomplete file behind. ``rows_dropped`` is by how many rows
    a transform and the removal of duplicates made the outputs fewer than the
    records of ``files``; below zero if the transform made more of them.
    """

    outputs: tuple[StagedOutput, ...]
    files: tuple[FinishedFile, ...]
    tasks: int
    letters: tuple[StagedLetters, ...] = ()
    rows_dropped: int = 0
