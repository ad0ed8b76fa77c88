"""The batches of a source. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from blizzard_core.storage.protocol import Entry
from blizzard_py.job import FinishedFile, StagedBadRecords
from blizzard_py.reading import ReadMarks
from blizzard_py.state.stream_state import QueryBatch

Phase = Literal["running", "publishing"]
P = ParamSpec("P")
S = TypeVar("S")


def takes(
    _group: Callable[P, object],
) -> Callable[[Callable[Concatenate[S, ...], S]], Callable[Concatenate[S, P], S]]:
    """Let a method that changes values of a group take what the group's class takes. For mypy."""
    return lambda method: method


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A staged file and the final path it is published under, relative to the table.

    ``earlier`` are final paths that were planned before a recovery. A fenced process may still
    publish under them.
    """

    staged: str
    final: str
    rows: int
    size: int
    output_id: str
    earlier: tuple[str, ...] = ()

    @property
    def finals(self) -> tuple[str, ...]:
        """Every path that it may be found under, once published."""
        return (self.final, *self.earlier)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows that a batch replaces, as in `blizzard_core.handover.groups.Group`.

    For files, ``batches`` are those that ingested these rows. The journal has them too, so a later
    replacement of the same files need not look further back. ``ever``: an operator decided that
    rows of batches that are no longer in the journal are removed as well.
    """

    ranges: tuple[tuple[str, str], ...] = ()
    source_files: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    ever: bool = False


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """The group that a committed batch is published by: its number, and what it replaces."""

    seq: int
    replaced: Replaced


@dataclass(frozen=True, slots=True)
class BatchResults:
    """The results of a batch. They are final from its commit point on.

    ``finished`` are the outcomes of its files, ``outputs`` the Parquet files with their rows.
    ``letters`` are the staged bad records of files that were ingested apart from these.
    ``committed_ts`` is the time of the commit point (epoch seconds).

    ``marks`` are the tasks' reports on the rows of a query source. With ``group`` a manifest names
    the outputs, and no listing finds them. ``names_root`` is the beginning of the rows'
    `SOURCE_FILE_COLUMN`, empty if rows do not name their file. ``settled`` are the results of a
    query over event time.
    """

    outputs: tuple[PlannedOutput, ...] = ()
    finished: tuple[FinishedFile, ...] = ()
    letters: tuple[StagedBadRecords, ...] = ()
    committed_ts: float = 0.0
    marks: tuple[ReadMarks, ...] = ()
    group: PlannedGroup | None = None
    names_root: str = ""
    settled: QueryBatch | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch in flight: its id, the number of its attempt, and the files that it ingests.

    ``started_ts`` is when the batch began. ``seen_ts`` is the end of the scan that found its
    files; a later time is safe. ``request`` is the id of the operator's request for its files,
    empty for files of a scan. ``results`` are empty in phase ``running``.
    """

    batch: str
    attempt: int
    phase: Phase
    started_ts: float
    files: tuple[Entry, ...]
    seen_ts: float
    results: BatchResults = BatchResults()
    request: str = ""

    @takes(BatchResults)
    def with_results(self, **changes: Any) -> Batch:
        """Return the batch with changed results."""
        return replace(self, results=replace(self.results, **changes))
