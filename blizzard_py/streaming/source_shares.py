"""Each source's part of a batch, and the sources that the watermark waits for; its report. Pure.

With the policy ``min``, a source without files holds the watermark back, possibly for ever. With
``idle_after`` it does so only for that long. After that it has a tick in each batch, at the newest
time of the other sources, until it has a file again. The decision depends on the saved state and on
the begin of the batch, so another attempt at the batch has the same ticks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blizzard_core.settings.event_time import Branch
from blizzard_core.storage.protocol import join
from blizzard_py.job import IngestJob, IngestResult, StagedBadRecords
from blizzard_py.kernels.lateness import Limits
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.composite_state import (
    qualify_all,
    qualify_letters,
    qualify_path,
    split_path,
)
from blizzard_py.state.event_times import merge_times
from blizzard_py.state.stream_state import OperatorState, QueryBatch, SourceStream, StreamState
from blizzard_py.streaming.staged_times import TimeTally

if TYPE_CHECKING:  # Spark is imported with the first batch, as the engine is
    from blizzard_py.streaming.query import QueryResult

_MILLI, _MICRO = 1000, 1_000_000


def jobs_of(job: IngestJob, members: Sequence[SourceContext]) -> dict[str, IngestJob]:
    """Return the job of each source with its own files, location and staging."""
    if len(members) == 1:
        return {members[0].source_name: job}
    files = [(file, *split_path(file.path)) for file in job.files]
    return {
        parts.source_name: replace(
            job,
            settings=replace(
                job.settings.with_fields(parts.ingest.schema.fields),
                source=parts.ingest.source,
                added_columns=parts.ingest.added_columns,
            ),
            staging=join(job.staging, parts.source_name),
            files=tuple(replace(file, path=p) for file, n, p in files if n == parts.source_name),
        )
        for parts in members
    }


def missing_columns(lead: SourceContext) -> dict[str, frozenset[str]]:
    """Return for each of the lead's members the columns that only others have."""
    names = _columns(lead)
    return {parts.source_name: names - _columns(parts) for parts in lead.members}


def _columns(parts: SourceContext) -> frozenset[str]:
    ingest = parts.ingest
    return frozenset(spec.name for spec in (*ingest.schema.fields, *ingest.added_columns.path))


def join_reports(results: Mapping[str, IngestResult]) -> IngestResult:
    """Join the reports of all jobs, with qualified paths; a single report is returned unchanged."""
    if len(results) == 1:
        return next(iter(results.values()))
    found = list(results.items())
    return IngestResult(
        tuple(output for _, each in found for output in each.outputs),
        tuple(file for name, each in found for file in qualify_all(each.files, name)),
        sum(each.tasks for _, each in found),
        tuple(one for name, each in found for one in qualify_letters(each.letters, name)),
        sum(each.rows_dropped for _, each in found),
        unexpected=tuple(
            replace(one, path=qualify_path(name, one.path))
            for name, each in found
            for one in each.unexpected
        ),
    )


def idle_in(
    known: StreamState, branches: Iterable[Branch], present: Collection[str], started_ts: float
) -> frozenset[str]:
    """Return the sources that the batch does not wait for; ``present`` ones have files in it.

    A source that never had files is waited for since the first batch.
    """
    return frozenset(
        branch.source
        for branch in branches
        if branch.idle_us is not None
        and branch.source not in present
        and (own := known.sources.get(branch.source)) is not None
        and (started_ts - own.files_ts) * _MICRO >= branch.idle_us
    )


def ticks_of(
    known: StreamState,
    branches: Sequence[Branch],
    idle: Collection[str],
    newest_us: Mapping[str, int],
) -> dict[str, int]:
    """Return the time to which a tick moves each source's watermark (microseconds).

    ``newest_us`` are the newest times of the batch's own rows. An operator's advance applies to all
    sources, whichever the query follows.
    """
    found: dict[str, list[int]] = {branch.source: [] for branch in branches}
    for branch in branches:
        if known.is_to_advance:
            found[branch.source].append(known.advance_to_ms * _MILLI + branch.delay_us)
        if branch.source in idle:
            others = (each.source for each in branches if each.source != branch.source)
            times = [time for name in others for time in _times(known, newest_us, name)]
            found[branch.source] += [max(times)] if times else []
    # A watermark begins at 1970: an earlier tick moves nothing and would count as a row.
    return {name: max(times) for name, times in found.items() if max(times, default=0) > 0}


def _times(known: StreamState, newest_us: Mapping[str, int], name: str) -> list[int]:
    times = [newest_us[name]] if name in newest_us else []
    own = known.sources.get(name)
    if own is not None and own.max_event_time_ms is not None:
        times.append(own.max_event_time_ms * _MILLI)
    return times


def newest_of(found: Mapping[str, TimeTally]) -> dict[str, int]:
    """Return the newest time of each source's rows that are neither late nor ahead, if any."""
    return {name: one.newest_us for name, one in found.items() if one.newest_us is not None}


def sources_after(
    known: StreamState,
    found: Mapping[str, TimeTally],
    present: Collection[str],
    idle: Collection[str],
    started_ts: float,
) -> dict[str, SourceStream]:
    """Return the state of each source after a batch; empty for a single source."""
    if len(found) == 1:
        return {}
    newest = newest_of(found)
    after: dict[str, SourceStream] = {}
    for name, one in found.items():
        own = known.sources.get(name, SourceStream(files_ts=started_ts))
        times = [own.max_event_time_ms] if own.max_event_time_ms is not None else []
        times += [newest[name] // _MILLI] if name in newest else []
        after[name] = SourceStream(
            max_event_time_ms=max(times, default=None),
            files_ts=started_ts if name in present else own.files_ts,
            idle=name in idle,
            late_rows=own.late_rows + one.late,
            partly_late_rows=own.partly_late_rows + one.partly,
            ahead_rows=own.ahead_rows + one.ahead,
        )
    return after


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
