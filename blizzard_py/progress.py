"""The decisions of the batch protocol: which paths are done and what follows. Pure.

Every function takes a state and returns the next one; `pipeline` saves each
before it acts on it. So a crash can only fall between two states that are both
written down here, and a test can stop at any of them.

Batches and recovery only say what is done (`advanced`, `ended`). What scans need look at no
more is decided after a complete scan, with everything it found (`settled`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from blizzard_py.core.floor import raised
from blizzard_py.core.model import (
    Entry,
    FinishedFile,
    IngestResult,
    StagedLetters,
    StagedOutput,
)
from blizzard_py.core.storage import join, order_key
from blizzard_py.core.watermark import (
    Lowest,
    Progress,
    Scanned,
    cut,
    finished,
    partition_key,
    retimed,
    split,
    times_of,
)
from blizzard_py.core.watermark import settled as settled_progress
from blizzard_py.state import Batch, PlannedOutput, Retry, SourceState, Totals

# How long a file that failed for now waits for its first further try; the next
# waits four times as long each, up to a quarter of an hour.
RETRY_SECS = (15.0, 900.0)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """No batch exceeds any of these, except that it always holds one file."""

    files: int
    bytes: int
    secs: float


def next_count(
    files: Sequence[Entry], start: int, limits: BatchLimits, bytes_per_sec: float | None
) -> int:
    """How many of the files from ``start`` on, the oldest first, the limits allow.

    ``bytes_per_sec`` is what the batch before achieved (stored bytes); it turns
    the limit in seconds into one in bytes. None: not known yet.
    """
    budget = float(limits.bytes)
    if bytes_per_sec is not None:
        budget = min(budget, bytes_per_sec * limits.secs)
    count = 0
    for place in range(start, min(start + limits.files, len(files))):
        budget -= files[place].size
        if count and budget < 0:
            break
        count += 1
    return count


class Work:
    """The files of one scan that are still to be done, in their order, and what waits beside them.

    ``files`` are in byte order behind the first ``late`` of them, which lie below scan
    starts and hold nothing back; ``held`` are paths that wait for other reasons. A batch
    takes from the front, so what it costs does not depend on how many files wait.
    """

    def __init__(
        self, files: Sequence[Entry], late: int, held: Iterable[str], depth: int | None
    ) -> None:
        self._files = files
        self._depth = depth or 0
        self._next = 0
        self._places: dict[str, list[int]] = {}
        for place in range(late, len(files)):
            partition = split(files[place].path, self._depth)[0]
            self._places.setdefault(partition, []).append(place)
        for places in self._places.values():
            places.reverse()
        self._held: dict[str, bytes] = {}
        for path in held:
            partition, name = split(path, self._depth)
            key = order_key(name)
            self._held[partition] = min(self._held.get(partition, key), key)

    def __len__(self) -> int:
        return len(self._files) - self._next

    @property
    def size(self) -> int:
        """Stored bytes of what is left."""
        return sum(self._files[place].size for place in range(self._next, len(self._files)))

    def take(self, limits: BatchLimits, bytes_per_sec: float | None) -> tuple[Entry, ...]:
        """The next batch's files."""
        count = next_count(self._files, self._next, limits, bytes_per_sec)
        taken = self._files[self._next : self._next + count]
        self._next += count
        return tuple(taken)

    def lowest(self, partition: str) -> bytes | None:
        """The lowest name of the partition that waits; see `Lowest`."""
        places = self._places.get(partition, [])
        while places and places[-1] < self._next:
            places.pop()
        keys = [self._held[partition]] if partition in self._held else []
        if places:
            keys.append(order_key(split(self._files[places[-1]].path, self._depth)[1]))
        return min(keys, default=None)


def begun(state: SourceState, batch: Batch) -> SourceState:
    """Step 1: the batch is written down before anything of it exists."""
    return replace(state, in_flight=(*state.in_flight, batch))


def restarted(state: SourceState, batch: Batch) -> tuple[SourceState, Batch]:
    """A batch whose process died before the commit point runs again, same files."""
    again = replace(batch, attempt=batch.attempt + 1)
    return _replaced(state, batch, again), again


def judged(
    result: IngestResult, retries: Mapping[str, Retry], max_retries: int
) -> tuple[FinishedFile, ...]:
    """The files' outcomes once tries are used up: ``retry`` becomes ``quarantined``."""
    return tuple(
        replace(file, outcome="quarantined")
        if file.outcome == "retry" and tries_of(retries, file.path) >= max_retries
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


def tries_of(retries: Mapping[str, Retry], path: str) -> int:
    """How often a file has failed in a way that may pass."""
    known = retries.get(path)
    return 0 if known is None else known.count


def prepared(
    state: SourceState,
    batch: Batch,
    outputs: tuple[PlannedOutput, ...],
    outcomes: tuple[FinishedFile, ...],
    letters: tuple[StagedLetters, ...],
    now: float,
) -> tuple[SourceState, Batch]:
    """Step 3, the commit point: from here on exactly these outputs and letters are published."""
    ready = replace(
        batch,
        phase="publishing",
        outputs=outputs,
        finished=outcomes,
        letters=letters,
        committed_ts=now,
    )
    return _replaced(state, batch, ready), ready


def renamed(
    state: SourceState, batch: Batch, names: Mapping[str, str]
) -> tuple[SourceState, Batch]:
    """Recovery of step 4: outputs that never appeared get names made now.

    ``names`` maps staged paths to new base names. The old names may sort
    below what a committer has seen since, new ones cannot.
    """
    outputs = tuple(
        replace(
            o,
            final=join(o.final.rpartition("/")[0], f"{names[o.staged]}.parquet"),
            earlier=o.finals,
        )
        if o.staged in names
        else o
        for o in batch.outputs
    )
    again = replace(batch, outputs=outputs)
    return _replaced(state, batch, again), again


def advanced(state: SourceState, batch: Batch, lowest: Lowest, now: float) -> SourceState:
    """Step 5, what is done: the marks move over the batch's files. `ended` does the rest.

    ``lowest`` tells what was discovered and is not done, the files of this batch
    aside; those that wait for another try are seen to here. In recovery nobody knows
    what waits: then nothing may be passed, and `hold_all` is for ``lowest``.
    """
    done = done_of(batch)
    if state.processed is not None:
        return replace(state, progress=_noted(state.progress, done))
    # Queued files lie where scans do not look; they move nothing.
    queued = {entry.path for entry in state.queue}
    fresh = [entry.path for entry in done if entry.path not in queued]
    again = [path for path in retried(state.retries, batch, now) if path not in queued]
    seen = min(batch.seen_ts, now)  # later only if a clock was wrong
    progress = finished(state.progress, fresh, seen, held_by(again, state.progress.depth, lowest))
    window = (*state.window, (batch.batch, seen)) if fresh else state.window
    return replace(state, progress=progress, window=window)


def ended(state: SourceState, batch: Batch, now: float) -> SourceState:
    """Step 5, whatever the source: the batch leaves ``in_flight`` and its files all lists."""
    retries = retried(state.retries, batch, now)
    settled_now = {file.path for file in batch.finished} - set(retries)
    return replace(
        state,
        queue=tuple(entry for entry in state.queue if entry.path not in settled_now),
        in_flight=tuple(b for b in state.in_flight if b.batch != batch.batch),
        retries=retries,
        totals=_counted(state.totals, batch),
    )


def done_of(batch: Batch) -> tuple[Entry, ...]:
    """The batch's files that need no further try."""
    outcome = {file.path: file.outcome for file in batch.finished}
    return tuple(entry for entry in batch.files if outcome[entry.path] != "retry")


def hold_all(_partition: str) -> bytes:
    """The `Lowest` of one who does not know what waits: everything may."""
    return b""


def held_by(paths: Iterable[str], depth: int | None, lowest: Lowest) -> Lowest:
    """``lowest``, with these paths waiting as well."""
    more: dict[str, bytes] = {}
    for path in paths:
        partition, name = split(path, depth or 0)
        key = order_key(name)
        more[partition] = min(more.get(partition, key), key)

    def combined(partition: str) -> bytes | None:
        keys = [key for key in (lowest(partition), more.get(partition)) if key is not None]
        return min(keys, default=None)

    return combined


def retried(retries: Mapping[str, Retry], batch: Batch, now: float) -> dict[str, Retry]:
    """Who waits for another try after the batch, and until when."""
    outcome = {file.path: file.outcome for file in batch.finished}
    waiting = {path: retry for path, retry in retries.items() if path not in outcome}
    first, longest = RETRY_SECS
    for path, found in outcome.items():
        if found == "retry":
            count = tries_of(retries, path) + 1
            waiting[path] = Retry(count, now + min(longest, first * 4.0 ** (count - 1)))
    return waiting


def _counted(totals: Totals, batch: Batch) -> Totals:
    outcomes = [file.outcome for file in batch.finished]
    return replace(
        totals,
        batches=totals.batches + 1,
        files=totals.files + outcomes.count("ingested"),
        quarantined=totals.quarantined + outcomes.count("quarantined"),
        rows=totals.rows + sum(o.rows for o in batch.outputs),
        bytes=totals.bytes + sum(entry.size for entry in done_of(batch)),
        outputs=totals.outputs + len(batch.outputs),
        bad_rows=totals.bad_rows + sum(f.bad_rows for f in batch.finished),
    )


@dataclass(frozen=True, slots=True)
class Window:
    """What moves with every scan: the grace period, and what raises the floor."""

    grace: float
    tracked: int
    lookback: str | None


def settled(
    state: SourceState,
    progress: Progress,
    pending: Collection[str],
    scanned: Scanned,
    window: Window,
) -> SourceState:
    """After a complete discovery: scan starts and floors move on, vanished files are let go.

    ``progress`` is the discovery's, ``pending`` everything that it found. A file that
    waits for another try and is no longer listed was deleted at its source; it must
    not hold the watermark for ever. One that is found and queued is found only.
    """
    found = set(pending)
    listed = {*found, *(entry.path for entry in state.queue)}
    retries = {
        path: retry
        for path, retry in state.retries.items()
        if path in listed or not _was_listed(path, scanned.until)
    }
    if state.processed is not None:
        return replace(state, retries=retries)
    held = [*pending, *(path for path in retries if path not in listed)]
    moved = settled_progress(
        progress, scanned, window.grace, held_by(held, progress.depth, lambda _partition: None)
    )
    moved = raised(moved, window.tracked, window.lookback, held, scanned.ended, scanned.until)
    alive = {at for known in moved.partitions.values() for at in known.done.values()}
    return replace(
        state,
        progress=moved,
        queue=tuple(entry for entry in state.queue if entry.path not in found),
        window=tuple(item for item in state.window if item[1] in alive),
        retries=retries,
    )


def _was_listed(path: str, until: str | None) -> bool:
    return until is None or order_key(path) <= order_key(until)


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


def clamped(state: SourceState, now: float) -> SourceState:
    """The state with no time after ``now``: a clock was wrong, so waiting begins anew."""
    times = cut((*times_of(state.progress), *(seen for _, seen in state.window)), now)
    return replace(
        state,
        progress=retimed(state.progress, times),
        window=tuple((batch, times.get(seen, seen)) for batch, seen in state.window),
        retries={
            path: replace(retry, after=min(retry.after, now + RETRY_SECS[1]))
            for path, retry in state.retries.items()
        },
        sweep=replace(state.sweep, began=min(state.sweep.began, now)),
    )


def is_below_origin(state: SourceState, path: str) -> bool:
    """Whether a path lies where the cold start did not look: a backfill's, and nobody else's."""
    return bool(state.origin) and order_key(path) < partition_key(state.origin or "")
