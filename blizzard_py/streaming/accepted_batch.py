"""The outcomes of a batch's files before the query gets their rows, and the batch's report.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blizzard_py.job import IngestResult, StagedBadRecords
from blizzard_py.kernels.lateness import Limits
from blizzard_py.state.composite_state import qualify_letters
from blizzard_py.state.event_times import merge_times
from blizzard_py.state.stream_state import OperatorState, QueryBatch
from blizzard_py.streaming.staged_times import TimeTally

if TYPE_CHECKING:  # Spark is imported with the first batch, as the engine is
    from blizzard_py.streaming.query import QueryResult


@dataclass(frozen=True, slots=True)
class AcceptedBatch:
    """The outcomes of a batch's files, by source: rows, their times, letters of late ones.

    ``present`` are the sources with files in it, and ``idle`` those that are not waited for.
    """

    accepted: Mapping[str, IngestResult]
    tallies: Mapping[str, TimeTally]
    letters: Mapping[str, Sequence[StagedBadRecords]]
    limits: Limits
    present: frozenset[str]
    idle: frozenset[str]


def late_letters(found: Mapping[str, Sequence[StagedBadRecords]]) -> Sequence[StagedBadRecords]:
    """Return the late letters of all sources, with qualified paths if there are several."""
    if len(found) == 1:
        return next(iter(found.values()))
    return [one for name, each in found.items() for one in qualify_letters(each, name)]


def operators_of(steps: Sequence[tuple[OperatorState, ...]]) -> tuple[OperatorState, ...]:
    """Return each operator's state after a batch's micro-batches, and its work in all of them."""
    return tuple(
        replace(
            each[-1],
            updated_rows=sum(one.updated_rows for one in each),
            removed_rows=sum(one.removed_rows for one in each),
            dropped_rows=sum(one.dropped_rows for one in each),
        )
        for each in zip(*steps, strict=True)
    )


def batch_of(
    number: int,
    accepted: IngestResult,
    accepted_batch: AcceptedBatch,
    done: QueryResult,
    outputs: IngestResult,
) -> QueryBatch:
    """Return the history's entry for a batch; ``accepted`` is the joined report of all sources."""
    found = accepted_batch.tallies.values()
    operators = operators_of([one.operators for one in done.micro_batches])
    return QueryBatch(
        batch=number,
        files=len(accepted.files),
        rows=sum(file.rows for file in accepted.files),
        used_watermark_ms=done.used_ms,
        watermark_ms=done.watermark_ms,
        late_rows=sum(one.late for one in found),
        partly_late_rows=sum(one.partly for one in found),
        ahead_rows=sum(one.ahead for one in found),
        dropped_by_spark=sum(one.dropped_rows for one in operators),
        state_rows=sum(one.state_rows for one in operators),
        emitted_rows=sum(output.rows for output in outputs.outputs),
        micro_batches=len(done.micro_batches),
        times=merge_times(one.times for one in found),
        operators=operators,
    )
