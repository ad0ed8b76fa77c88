"""The state transitions of the batch protocol. Pure.

Every function takes a state and returns the next one. The pipeline saves each state before it acts
on it. So a crash can only happen between two of these states, and a test can stop at any of them.

Each source decides itself which items are done (`blizzard_py.sources`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from blizzard_core.handover.groups import UNIT_FILE_PREFIX
from blizzard_core.storage.protocol import Entry, join, order_key
from blizzard_core.watermark.paths import partition_key
from blizzard_core.watermark.progress import clamp_each, mark_idle, replace_times, times_of
from blizzard_py.job import StagedOutput
from blizzard_py.requests.progress import RequestState, with_counts
from blizzard_py.state.batch import Batch, BatchResults, PlannedGroup, PlannedOutput, Replaced
from blizzard_py.state.completeness import clamp_found, with_ended, with_started
from blizzard_py.state.retries import RETRY_SECS, retries_after
from blizzard_py.state.source_state import CommitPoint, PendingWork, SourceState, Totals
from blizzard_py.state.stream_state import StreamState


def begin_batch(state: SourceState, batch: Batch) -> SourceState:
    """Return the state with a new batch, to be saved before the batch creates anything (step 1).

    Partitions of its files are not complete any more.
    """
    if state.complete is not None:
        at = state.position
        state = replace(state, complete=with_started(state.complete, batch, at.progress, at.ahead))
    # The highest id, not the newest: a clock may have been put back since.
    last = max(state.ids.last_batch, batch.batch)
    if batch.phase == "publishing":
        state = state.with_ids(committed=_next_point(state.ids.committed, batch))
    return state.with_work(in_flight=(*state.work.in_flight, batch)).with_ids(last_batch=last)


def _next_point(known: CommitPoint, batch: Batch) -> CommitPoint:
    return CommitPoint(known.number + 1, batch.batch, known.batch)


def restart_batch(state: SourceState, batch: Batch) -> tuple[SourceState, Batch]:
    """Return the state with the next attempt of a batch, with the same files.

    Its process died before the commit point.
    """
    again = replace(batch, attempt=batch.attempt + 1)
    return _replaced(state, batch, again), again


def name_outputs(
    outputs: Sequence[StagedOutput], names: Iterable[str], prefix: str = ""
) -> tuple[PlannedOutput, ...]:
    """Return final paths of staged files: ``prefix``, rising unique ``names``, ``.parquet``."""
    ordered = sorted(outputs, key=lambda o: (order_key(o.partition), order_key(o.staged)))
    return tuple(
        PlannedOutput(
            output.staged,
            join(output.partition, f"{prefix}{name}.parquet"),
            output.rows,
            output.size,
            output.output_id,
        )
        for output, name in zip(ordered, names, strict=True)
    )


def commit_time(now: float, reset_ts: float) -> float:
    """Return the commit time of a batch: now, but after the last start over.

    Batches before a start over do not count. The store's clock may have been put back since then.
    """
    return max(now, math.nextafter(reset_ts, math.inf)) if reset_ts else now


def prepare_batch(
    state: SourceState,
    batch: Batch,
    results: BatchResults,
    replaced: Replaced | None = None,
    stream: StreamState | None = None,
) -> tuple[SourceState, Batch]:
    """Return the state at the commit point of the batch, step 3.

    From here on exactly the outputs and dead letters in ``results`` are published. With
    ``replaced`` they are a group with the source's next number. ``stream`` is the state of a query
    over event time after this batch, None without one.
    """
    if stream is not None:
        state = state.with_kind(stream=stream)
        results = replace(results, settled=stream.line)
    if replaced is not None:
        group = PlannedGroup(state.ids.group_seq + 1, replaced)
        state = state.with_ids(group_seq=group.seq)
        results = replace(results, group=group)
    ready = replace(batch, phase="publishing", results=results)
    state = state.with_ids(committed=_next_point(state.ids.committed, batch))
    return _replaced(state, batch, ready), ready


def renumber_group(state: SourceState, batch: Batch, seq: int) -> tuple[SourceState, Batch]:
    """Return the state with the number ``seq`` for the batch's group, since its own was taken."""
    assert batch.results.group is not None  # noqa: S101  # only groups have numbers
    again = batch.with_results(group=replace(batch.results.group, seq=seq))
    return _replaced(state.with_ids(group_seq=max(state.ids.group_seq, seq)), batch, again), again


def as_journaled(state: SourceState, journaled: Iterable[Batch]) -> SourceState:
    """Return the state with its committed batches as the journal has them.

    ``journaled`` are batches of the journal. A restored checkpoint may have output names that were
    replaced since, or an attempt that a later one took over.
    """
    newest = {batch.batch: batch for batch in journaled}
    flying = (
        _newer(batch, newest[batch.batch]) if batch.batch in newest else batch
        for batch in state.work.in_flight
    )
    return state.with_work(in_flight=tuple(flying))


def _newer(batch: Batch, journaled: Batch) -> Batch:
    if journaled.attempt > batch.attempt:
        return journaled
    if batch.phase == "running" or journaled.attempt < batch.attempt:
        return batch
    # Outputs that a rebuild removed from the batch stay removed.
    names = {output.staged: output for output in journaled.results.outputs}
    outputs = (max(o, names.get(o.staged, o), key=_renames) for o in batch.results.outputs)
    return batch.with_results(outputs=tuple(outputs))


def _renames(output: PlannedOutput) -> int:
    return len(output.earlier)


def rename_outputs(
    state: SourceState, batch: Batch, names: Mapping[str, str]
) -> tuple[SourceState, Batch]:
    """Return the state with new names for outputs that never appeared (recovery of step 4).

    ``names`` maps staged paths to new base names. Old names may sort below a name that a committer
    has passed since; new ones cannot.
    """
    prefix = "" if batch.results.group is None else UNIT_FILE_PREFIX
    outputs = tuple(
        replace(
            o,
            final=join(o.final.rpartition("/")[0], f"{prefix}{names[o.staged]}.parquet"),
            earlier=o.finals,
        )
        if o.staged in names
        else o
        for o in batch.results.outputs
    )
    again = batch.with_results(outputs=outputs)
    return _replaced(state, batch, again), again


def end_batch(state: SourceState, batch: Batch, now: float) -> SourceState:
    """Return the state without a finished batch and its files (step 5 for any source)."""
    if state.complete is not None:
        depth = state.position.progress.depth or 0
        state = replace(state, complete=with_ended(state.complete, batch, depth))
    work, tally = state.work, state.names.unfolded
    retries = retries_after(work.retries, batch, now)
    if batch.request:
        # Where the request begins anew it selects the files again, and polls never do.
        waits = {file.path for file in work.queue}.union(work.retries)
        retries = {path: retry for path, retry in retries.items() if path in waits}
    settled_now = {file.path for file in batch.results.finished} - set(retries)
    state = state.with_work(
        queue=tuple(entry for entry in work.queue if entry.path not in settled_now),
        in_flight=tuple(b for b in work.in_flight if b.batch != batch.batch),
        retries=retries,
        requests=_requests_after(work.requests, batch),
    ).with_summary(totals=_counted(state.summary.totals, batch))
    return state if tally is None else state.with_names(unfolded=tally.with_batch(batch.batch))


def requests_of(work: PendingWork) -> set[str]:
    """Return the ids of requests that have files in the queue or in a batch."""
    queued = {file.request for file in work.queue}
    return queued.union(batch.request for batch in work.in_flight) - {""}


def without_request(state: SourceState, request_id: str) -> SourceState:
    """Return the state without a request's pending files and its running batch."""
    work = state.work
    removed = {file.path for file in work.queue if file.request == request_id}
    return state.with_work(
        in_flight=tuple(
            batch
            for batch in work.in_flight
            if batch.request != request_id or batch.phase != "running"
        ),
        queue=tuple(file for file in work.queue if file.path not in removed),
        retries={path: retry for path, retry in work.retries.items() if path not in removed},
        replacing={path: each for path, each in work.replacing.items() if path not in removed},
    )


def without_batch(state: SourceState, batch: Batch) -> SourceState:
    """Return the state without a running batch. Its files must be read again."""
    remaining = tuple(each for each in state.work.in_flight if each.batch != batch.batch)
    return state.with_work(in_flight=remaining)


def _requests_after(
    requests: Mapping[str, RequestState], batch: Batch
) -> Mapping[str, RequestState]:
    """Return the requests, with the batch's outcomes counted for the batch's request."""
    if not batch.request:
        return requests
    outcomes = [file.outcome for file in batch.results.finished]
    counts = {
        "ingested": outcomes.count("ingested"),
        "failed": outcomes.count("quarantined"),
        "kept": outcomes.count("reported"),
        "rows": sum(output.rows for output in batch.results.outputs),
    }
    return with_counts(requests, batch.request, counts)


def done_of(batch: Batch) -> tuple[Entry, ...]:
    """Return the batch's files that need no further try."""
    outcome = {file.path: file.outcome for file in batch.results.finished}
    return tuple(entry for entry in batch.files if outcome[entry.path] != "retry")


def _counted(totals: Totals, batch: Batch) -> Totals:
    outcomes = [file.outcome for file in batch.results.finished]
    return replace(
        totals,
        batches=totals.batches + 1,
        files=totals.files + outcomes.count("ingested"),
        quarantined=totals.quarantined + outcomes.count("quarantined"),
        rows=totals.rows + sum(o.rows for o in batch.results.outputs),
        bytes=totals.bytes + sum(entry.size for entry in done_of(batch)),
        outputs=totals.outputs + len(batch.results.outputs),
        bad_rows=totals.bad_rows + sum(f.bad_rows for f in batch.results.finished),
    )


def _replaced(state: SourceState, old: Batch, new: Batch) -> SourceState:
    return state.with_work(
        in_flight=tuple(new if b.batch == old.batch else b for b in state.work.in_flight)
    )


def end_scan(state: SourceState) -> SourceState:
    """Return the state after a scan that found nothing to do."""
    members = {name: end_scan(each) for name, each in state.members.items()}
    progress = mark_idle(state.position.progress)
    return replace(state.with_position(progress=progress), members=members)


def clamp_times(state: SourceState, now: float) -> SourceState:
    """Return the state with no time after ``now``: a clock was wrong, so waits start again."""
    progress, window = state.position.progress, state.position.window
    times = clamp_each((*times_of(progress), *(seen for _, seen in window)), now)
    state = state.with_position(
        progress=replace_times(progress, times),
        window=tuple((batch, times.get(seen, seen)) for batch, seen in window),
    )
    retries = {
        path: replace(retry, after=min(retry.after, now + RETRY_SECS[1]))
        for path, retry in state.work.retries.items()
    }
    sweep = state.late_files.sweep
    sweep = replace(sweep, began=min(sweep.began, now))
    state = replace(state, complete=clamp_found(state.complete, now))
    return state.with_work(retries=retries).with_late_files(sweep=sweep)


def is_below_origin(origin: str | None, path: str) -> bool:
    """Return whether a path lies below the cold start's origin, where only a backfill reads."""
    return bool(origin) and order_key(path) < partition_key(origin or "")
