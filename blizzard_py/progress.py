"""The decisions of the batch protocol: which paths are done and what follows. Pure.

Every function takes a state and returns the next one; `pipeline` saves each
before it acts on it. So a crash can only fall between two states that are both
written down here, and a test can stop at any of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from blizzard_py.core.floor import raised
from blizzard_py.core.model import Entry, FinishedFile, IngestResult, StagedOutput
from blizzard_py.core.storage import join, order_key
from blizzard_py.core.watermark import Progress, advance
from blizzard_py.late import recorded
from blizzard_py.state import Batch, PlannedOutput, SourceState


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """No batch exceeds any of these, except that it always holds one file."""

    files: int
    bytes: int
    secs: float


def next_batch(
    files: Sequence[Entry], limits: BatchLimits, bytes_per_sec: float | None
) -> tuple[Entry, ...]:
    """The oldest files, as many as the limits allow.

    ``bytes_per_sec`` is what the batch before achieved (stored bytes); it turns
    the limit in seconds into one in bytes. None: not known yet.
    """
    budget = float(limits.bytes)
    if bytes_per_sec is not None:
        budget = min(budget, bytes_per_sec * limits.secs)
    chosen: list[Entry] = []
    for entry in files[: limits.files]:
        budget -= entry.size
        if chosen and budget < 0:
            break
        chosen.append(entry)
    return tuple(chosen)


def begun(state: SourceState, progress: Progress, batch: Batch) -> SourceState:
    """Step 1: the batch is written down before anything of it exists."""
    cold = state.origin is None and progress.state == "Initial" and not progress.partitions
    origin = (progress.floor or "") if cold else state.origin
    return replace(state, progress=progress, in_flight=(*state.in_flight, batch), origin=origin)


def restarted(state: SourceState, batch: Batch) -> tuple[SourceState, Batch]:
    """A batch whose process died before the commit point runs again, same files."""
    again = replace(batch, attempt=batch.attempt + 1)
    return _replaced(state, batch, again), again


def judged(
    result: IngestResult, retries: Mapping[str, int], max_retries: int
) -> tuple[FinishedFile, ...]:
    """The files' outcomes once tries are used up: ``retry`` becomes ``quarantined``."""
    return tuple(
        replace(file, outcome="quarantined")
        if file.outcome == "retry" and retries.get(file.path, 0) >= max_retries
        else file
        for file in result.files
    )


def named(outputs: Sequence[StagedOutput], names: Iterable[str]) -> tuple[PlannedOutput, ...]:
    """Final paths for staged files: ``names`` (increasing, unique) plus ``.parquet``."""
    ordered = sorted(outputs, key=lambda o: (order_key(o.partition), order_key(o.staged)))
    return tuple(
        PlannedOutput(
            output.staged,
            join(output.partition, f"{name}.parquet"),
            output.rows,
            output.size,
            output.output_id,
        )
        for output, name in zip(ordered, names, strict=True)
    )


def prepared(
    state: SourceState,
    batch: Batch,
    outputs: tuple[PlannedOutput, ...],
    finished: tuple[FinishedFile, ...],
) -> tuple[SourceState, Batch]:
    """Step 3, the commit point: from here on exactly these outputs will be published."""
    ready = replace(batch, phase="publishing", outputs=outputs, finished=finished)
    return _replaced(state, batch, ready), ready


def renamed(
    state: SourceState, batch: Batch, names: Mapping[str, str]
) -> tuple[SourceState, Batch]:
    """Recovery of step 4: outputs that never appeared get names made now.

    ``names`` maps staged paths to new base names. The old names may sort
    below what a committer has seen since, new ones cannot.
    """
    outputs = tuple(
        replace(o, final=join(o.final.rpartition("/")[0], f"{names[o.staged]}.parquet"))
        if o.staged in names
        else o
        for o in batch.outputs
    )
    again = replace(batch, outputs=outputs)
    return _replaced(state, batch, again), again


def advanced(
    state: SourceState, batch: Batch, pending: Iterable[str], now: float, grace: float
) -> SourceState:
    """Step 5: watermarks move over what is done, and the batch leaves ``in_flight``.

    ``pending`` are the discovered files outside this batch that are not done;
    files that wait for another try are added here.
    """
    outcome = {file.path: file for file in batch.finished}
    done = tuple(entry for entry in batch.files if outcome[entry.path].outcome != "retry")
    # Late files lie where watermarks have passed already; they move nothing.
    late = {entry.path for entry in state.passed.queue}
    retries = {path: count for path, count in state.retries.items() if path not in outcome}
    retries |= {
        path: state.retries.get(path, 0) + 1
        for path, file in outcome.items()
        if file.outcome == "retry"
    }
    if state.processed is not None:
        progress = _noted(state.progress, done)
    else:
        progress = advance(
            state.progress,
            [entry for entry in done if entry.path not in late],
            [path for path in [*retries, *pending] if path not in late],
            now,
            grace,
        )
    totals = state.totals
    return replace(
        state,
        progress=progress,
        passed=recorded(
            replace(
                state.passed,
                queue=tuple(
                    entry
                    for entry in state.passed.queue
                    if entry.path not in outcome or entry.path in retries
                ),
            ),
            state.progress,
            progress,
        ),
        in_flight=tuple(b for b in state.in_flight if b.batch != batch.batch),
        retries=retries,
        totals=replace(
            totals,
            batches=totals.batches + 1,
            files=totals.files + sum(f.outcome == "ingested" for f in batch.finished),
            quarantined=totals.quarantined
            + sum(f.outcome == "quarantined" for f in batch.finished),
            rows=totals.rows + sum(o.rows for o in batch.outputs),
            bytes=totals.bytes + sum(entry.size for entry in done),
            outputs=totals.outputs + len(batch.outputs),
            bad_rows=totals.bad_rows + sum(f.bad_rows for f in batch.finished),
        ),
    )


@dataclass(frozen=True, slots=True)
class Window:
    """How far back files are looked for.

    ``grace`` in seconds; ``tracked`` is how many partitions may be listed per
    poll; ``lookback`` the oldest partition wanted now, None for all.
    """

    grace: float
    tracked: int
    lookback: str | None


def settled(
    state: SourceState, progress: Progress, pending: Collection[str], now: float, window: Window
) -> SourceState:
    """After a complete discovery: window and floor move on, vanished files are let go.

    A file that waits for another try and is no longer listed was deleted at its
    source; it must not hold the watermark for ever.
    """
    listed = {*pending, *(entry.path for entry in state.passed.queue)}
    if state.processed is not None:
        return replace(
            state, retries={path: n for path, n in state.retries.items() if path in listed}
        )
    moved = raised(
        advance(progress, (), pending, now, window.grace), window.tracked, window.lookback, pending
    )
    return replace(
        state,
        progress=moved,
        passed=recorded(state.passed, progress, moved),
        retries={path: count for path, count in state.retries.items() if path in listed},
    )


def _noted(progress: Progress, done: Sequence[Entry]) -> Progress:
    """Without a watermark the highest path is shown, and nothing is decided by it."""
    paths = [entry.path for entry in done]
    paths += [progress.value] if progress.value is not None else []
    if not done:
        return progress
    return replace(progress, state="Active", value=max(paths, key=order_key))


def _replaced(state: SourceState, old: Batch, new: Batch) -> SourceState:
    return replace(
        state, in_flight=tuple(new if b.batch == old.batch else b for b in state.in_flight)
    )
