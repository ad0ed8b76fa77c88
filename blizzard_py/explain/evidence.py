"""Evidence about a file in the checkpoint, the journal and the dead letters. Reads only.

What is there and cannot be understood is a `StateError`; what has been cleaned up
meanwhile is no error.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import parsed
from blizzard_core.errors import NotFound, StateError
from blizzard_core.handover.published import first_name
from blizzard_core.storage.protocol import Storage, join, listed, read_each
from blizzard_core.text import iso
from blizzard_py.dead_letters.reader import DeadLetter, object_of, put_away, read
from blizzard_py.job import LEFT_STAGE
from blizzard_py.sources.story import Waiting
from blizzard_py.state.journal import REMEDY, BatchDocument, latest
from blizzard_py.state.record_names import is_of_records, stem_of
from blizzard_py.state.source_state import PendingWork
from blizzard_py.state.state_paths import StatePaths


@dataclass(frozen=True, slots=True)
class InBatch:
    """The batch that processed the file; ``rows`` and ``bad_rows`` are the file's own.

    ``request`` is the id of the operator's request, if it was for one. ``group`` is its number
    among the groups of its source, if it is one (`blizzard_core.handover.groups`). ``row_groups``
    says which of its row groups were copied, if its source copies them.
    """

    batch: str
    attempt: int
    started_ts: float
    finished_ts: float
    rows: int
    bad_rows: int
    request: str | None
    group: int | None
    row_groups: str | None


@dataclass(frozen=True, slots=True)
class Journaled:
    """A batch of the journal, and the outcome of one file in it.

    ``outputs`` are final paths and rows. ``size`` is the one that was listed.
    """

    batch: InBatch
    outcome: str
    outputs: tuple[tuple[str, int], ...]
    size: int


@dataclass(frozen=True, slots=True)
class LetterEvidence:
    """A dead letter and the object it is in; without ``error`` if it is no longer there."""

    object: str
    stage: str | None
    error: str | None
    timestamp: str | None
    retry_count: int | None


def journal_start(sink: Storage, source_id: str) -> float | None:
    """Return when the oldest batch of the journal began (epoch seconds), None without a journal."""
    folder = StatePaths(source_id).journal
    for entry in listed(sink, f"{folder}/", f"{folder}0"):
        if entry.path.endswith(".json"):
            return _batch_started_ts(entry.path)
    return None


def _batch_started_ts(path: str) -> float:
    try:
        return (uuid.UUID(path.rpartition("/")[2].removesuffix(".json")).int >> 80) / 1000
    except ValueError as error:
        raise StateError(f"{path}: is not named as a journal entry") from error


def last_journaled(
    sink: Storage,
    source_id: str,
    path: str,
    concurrency: int,
    since: float,
    reset_ts: float,
    *,
    replaces: bool,
) -> Journaled | None:
    """Return what the last batch that settled the file, begun at ``since`` or later, says of it.

    Unless the source ``replaces`` rows, a batch that has ingested the file is the last one. Batches
    in which it was left out or left for another try do not count, nor those of before ``reset_ts``,
    when the source was started over. Costs a read per batch, ``concurrency`` at a time.
    """
    last = None
    for found in _journaled(sink, source_id, path, since, concurrency):
        if found.batch.finished_ts > reset_ts:
            last = found
            if found.outcome == "ingested" and not replaces:
                break
    return last


def _journaled(
    sink: Storage, source_id: str, path: str, since: float, concurrency: int
) -> Iterator[Journaled]:
    for found in _journal(sink, source_id, since, concurrency):
        file = next((file for file in found.files if file.path == path), None)
        if file is not None and file.outcome != "retry" and file.stage != LEFT_STAGE:
            yield Journaled(
                InBatch(
                    found.batch,
                    found.attempt,
                    found.started_ts,
                    found.finished_ts,
                    file.rows,
                    file.bad_rows,
                    found.request or None,
                    None if found.group is None else found.group.seq,
                    file.row_groups or None,
                ),
                file.outcome,
                tuple((output.final, output.rows) for output in found.outputs),
                file.size,
            )


@dataclass(frozen=True, slots=True)
class RecordReplays:
    """The rows that came of a file's dead records, and the ids of letters of records bad again."""

    rows: int = 0
    letters: tuple[str, ...] = ()


def record_replays(
    sink: Storage, source_id: str, path: str, since: InBatch, concurrency: int
) -> RecordReplays:
    """Return what batches behind one of a file made of single records of it."""
    rows, letters = 0, []
    for found in _journal(sink, source_id, since.started_ts, concurrency):
        for file in found.files:
            if not is_of_records(file.path) or stem_of(file.path) != stem_of(path):
                continue
            if file.outcome == "ingested":
                rows += file.rows
            if file.bad_rows:
                letters.append(f"{found.batch}.records")
            elif file.outcome == "quarantined":
                letters.append(found.batch)
    return RecordReplays(rows, tuple(letters))


def _journal(
    sink: Storage, source_id: str, since: float, concurrency: int
) -> Iterator[BatchDocument]:
    folder = StatePaths(source_id).journal
    end = f"{folder}0"
    start = join(folder, first_name(since)) if since > 0 else f"{folder}/"
    names = (entry.path for _, entry in latest(listed(sink, start, end)))
    for where, raw in read_each(sink, names, concurrency):
        yield decode_document(BatchDocument, parsed(raw, where), where, REMEDY, open_=True)


def letter(dlq: Storage, source_id: str, batch: str, uri: str) -> LetterEvidence:
    """Return the dead letter of a batch for a file, even if it is closed.

    Raises `UnreadableDeadLetter`.
    """
    for path, found in _letters(dlq, source_id, batch):
        if found.uri == uri:
            known = found.stage, found.error, found.timestamp, found.retry_count
            return LetterEvidence(f"{dlq.uri}/{path}", *known)
    path, _ = put_away(source_id, batch)
    return LetterEvidence(f"{dlq.uri}/{path}", None, None, None, None)


def out_of_time(dlq: Storage, source_id: str, batch: str, uri: str) -> dict[str, int]:
    """Return how many rows of a file an event-time query was not given, by ``late`` and ``ahead``.

    By the batch's letters, also if a replay has put them away; ``more`` are those that have none,
    where a file has too many. Of rows that are counted only nothing is known. Raises
    `UnreadableDeadLetter`.
    """
    found = {"late": 0, "ahead": 0}
    for _, each in _letters(dlq, source_id, f"{batch}.records"):
        if each.uri == uri and each.stage in found:
            found[each.stage] += 1
            if each.more:
                found["more"] = found.get("more", 0) + each.more
    return found


def _letters(dlq: Storage, source_id: str, letter_id: str) -> Iterator[tuple[str, DeadLetter]]:
    """Yield the letters of an object, and where it is; of one that is gone none."""
    for path in put_away(source_id, letter_id):
        with suppress(NotFound):
            for each in read(dlq, replace(object_of(source_id, letter_id), path=path)):
                yield path, each
            return


def waiting(
    work: PendingWork,
    path: str,
    max_retries: int,
) -> Waiting | None:
    """Return what the checkpoint has still to do on the file by name, None if nothing."""
    tries = work.retries[path].count if path in work.retries else None
    for batch in work.in_flight:
        if any(entry.path == path for entry in batch.files):
            outcome = next((f.outcome for f in batch.results.finished if f.path == path), None)
            reason = f"in flight in batch {batch.batch}, {batch.phase}" + (
                f" ({outcome})" if outcome else f" (attempt {batch.attempt})"
            )
            return Waiting(
                "in_flight",
                f"{reason}, since {iso(batch.started_ts)}",
                batch.batch,
                batch.phase,
                batch.attempt,
                batch.started_ts,
                tries,
                max_retries if tries is not None else None,
            )
    if tries is not None:
        reason = (
            f"could not be read; waits for another try, {iso(work.retries[path].after)} at the"
            " earliest"
            f" (retry {tries} of {max_retries}, then it is quarantined)"
        )
        return Waiting("retry", reason, tries=tries, max_tries=max_retries)
    queued = next((file for file in work.queue if file.path == path), None)
    if queued is not None and queued.request:
        reason = f"taken by request {queued.request}, and queued for a batch of it"
        return Waiting("requested", reason)
    if queued is not None:
        return Waiting("late_queue", "late, and queued for the next batch (late_files: ingest)")
    return None
