"""Decisions of a rebuild: finished files, the start of scans, fates of batches.

The report of a request is written before its batch is published, so it proves no rows: its files
may be in the table or not. A file that was given up is reported as quarantined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.text import in_utc
from blizzard_core.watermark.closed_partitions import raise_floors
from blizzard_core.watermark.paths import depth_of, joined, partition_key, split
from blizzard_core.watermark.progress import (
    PartitionProgress,
    Progress,
    ScanTimes,
    expire_grace,
    lowest_of,
)
from blizzard_core.watermark.scan import FLAT_KEYS
from blizzard_py.edits.checkpoint_store import Stored
from blizzard_py.job import ROWS_UNKNOWN, FinishedFile
from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.sources.files.late_file_sweep import is_passed
from blizzard_py.state.batch import Batch, Replaced
from blizzard_py.state.journal import moment_of
from blizzard_py.state.source_state import SourceState, under_way
from blizzard_py.state.transitions import is_below_origin

Place = Literal["staged", "placed", "logged", "nowhere"]
Judgement = Literal["done", "publishing", "again", "letters"]


@dataclass(frozen=True, slots=True)
class Doubt:
    """A sign of work that no record explains; ``since`` in epoch seconds."""

    what: str
    since: float | None = None

    def __str__(self) -> str:
        if self.since is None:
            return self.what
        return f"{self.what} ({in_utc(self.since)} UTC)"


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a progress: the depth and the floor it begins with, and its bounds.

    ``began`` is a time (epoch seconds) before the listing by every clock, ``tracked``
    how many partitions may be tracked, ``lookback`` the oldest that is wanted.
    """

    depth: int | None
    floor: str | None
    began: float
    grace: float
    tracked: int
    lookback: str | None


def new_progress(
    listed: Collection[str], done: Mapping[str, float], held: Collection[str], frame: Frame
) -> Progress:
    """Return the progress for which the new files are ``listed`` without ``done``.

    ``done`` maps paths, also ones that are gone, to when the scan ended that first saw
    them; 0 for long ago. ``held`` are paths of batches in flight, which are neither. What
    sorts below the floor is closed, done or not.
    """
    progress = Progress(depth=frame.depth, floor=frame.floor)
    floor = None if frame.floor is None else order_key(f"{frame.floor}/")
    kept = [path for path in done if floor is None or order_key(path) > floor]
    names: dict[str, dict[str, float]] = defaultdict(dict)
    for path in kept:
        partition, name = split(path, frame.depth or 0)
        names[partition][name] = done[path]
    progress = replace(
        progress, partitions={p: PartitionProgress(done=found) for p, found in names.items()}
    )
    pending = [path for path in listed if path not in done]
    waiting = [*(p for p in pending if floor is None or order_key(p) > floor), *held]
    lowest = lowest_of(waiting, frame.depth)
    scanned = ScanTimes(frame.began, frame.began)
    progress = expire_grace(progress, scanned, frame.grace, lowest.get)
    return raise_floors(progress, frame.tracked, frame.lookback, waiting, frame.began)


def depth_from(listed: Iterable[str]) -> int | None:
    """Return the depth that a cold start would find in this listing."""
    paths = sorted(listed, key=order_key)
    depth = depth_of(paths)
    return 0 if depth is None and len(paths) > FLAT_KEYS else depth


def bound_of(done_before: str, accepts: Callable[[str], bool]) -> bytes:
    """Return the key below which everything is done, for a partition or a file."""
    return order_key(done_before) if accepts(done_before) else partition_key(done_before)


def unrecorded_paths(
    state: SourceState, paths: Iterable[str], *, is_journal_whole: bool = True
) -> set[str]:
    """Return the paths that a checkpoint says are done, and that nobody has noted yet.

    What an original has done stands there and nowhere else until a sweep has noted it, and so does
    what an operator said at an earlier rebuild, and all that a journal lacks which is not whole.
    """
    noted = state.late_files.sweep.whole and is_journal_whole
    if noted or state.names.processed is not None:
        return set()
    waits = set(under_way(state.work))
    in_grace = (
        set() if is_journal_whole else first_seen_times(state.position.progress).keys() - waits
    )
    in_grace.intersection_update(paths)
    if state.position.progress.state == "Initial":  # no watermark yet, since a file below waits
        return in_grace
    return in_grace | {
        path
        for path in paths
        if path not in waits
        and is_passed(state, path)
        and not is_below_origin(state.position.origin, path)
    }


def unmarked(
    state: SourceState, paths: Iterable[str], accepts: Callable[[str], bool]
) -> frozenset[str]:
    """Return the paths that a request may have brought, and that no watermark covers.

    Once the journal lacks a batch, nobody knows whether it did: they lie ahead of the scans, below
    the origin, or have names that polls do not take.
    """
    position = state.position
    depth = position.progress.depth or 0
    ahead = {split(path, depth)[0]: order_key(path) for path in position.ahead}
    lowest = order_key(position.reached)
    waits = set(under_way(state.work))
    return frozenset(
        path
        for path in paths
        if path not in waits
        and (
            (state.work.requests and not accepts(path))
            or order_key(path) <= ahead.get(split(path, depth)[0], b"")
            or (
                position.reached
                and is_below_origin(position.origin, path)
                and order_key(path) >= lowest
            )
        )
    )


def first_seen_times(progress: Progress) -> dict[str, float]:
    """Return the paths listed as done, with the times at which scans saw them first."""
    return {
        joined(partition, name): at
        for partition, known in progress.partitions.items()
        for name, at in known.done.items()
    }


def origin_of(
    live: Iterable[str], history: Collection[str], listed: Iterable[str], depth: int | None
) -> str:
    """Return where the cold start began, as far as it can be told: ``""`` for everything.

    ``live`` are the listed files that the source itself has settled, ``history`` those
    that the ledger knows to lie below the origin.
    """
    if history:
        highest = max(map(order_key, history))
        above = [partition_key(split(p, depth or 0)[0]) for p in listed]
        above = [key for key in above if key > highest]
        return min(above).decode("utf-8", "surrogateescape").rstrip("/") if above else ""
    partitions = (split(path, depth or 0)[0] for path in live)
    return min((p for p in partitions if p), key=partition_key, default="")


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The fate of a batch that may not be finished, and why.

    ``batch`` is what goes into the checkpoint as ``publishing``; of one that is ``done``
    nothing does.
    """

    batch: Batch
    judgement: Judgement
    why: str


def judge_batch(
    batch: Batch,
    places: Sequence[Place],
    *,
    log_is_whole: bool,
    unfinished: bool,
    unannounced: bool = False,
) -> BatchDecision:
    """Return what becomes of a batch whose outputs are where ``places`` says, one for each.

    ``unfinished``: something else of it is left to do. ``log_is_whole``: what the
    table's log does not name was never committed. ``unannounced``: it is a group whose
    manifest was not put yet, so nobody has committed any of it, wherever it lies. What comes
    without its rows takes none out.
    """
    if unannounced:
        unfinished = log_is_whole = True
        places = ["staged" if place == "placed" else place for place in places]
    lost = places.count("nowhere")
    count = len(places)
    if not lost:
        staged = places.count("staged")
        if not staged and not unfinished:
            return BatchDecision(batch, "done", "everything of it is in its place")
        return BatchDecision(
            batch, "publishing", f"{staged} of {count} outputs are still to be published"
        )
    visible = sum(place in {"placed", "logged"} for place in places)
    if not visible and log_is_whole:
        finished = tuple(map(_again, batch.results.finished))
        again = _keeping(batch).with_results(outputs=(), letters=(), finished=finished)
        why = f"{lost} of {count} outputs are lost and none is in the table, so nothing can double"
        return BatchDecision(again, "again", why)
    why = (
        f"{lost} of {count} outputs are lost and {visible} are in the table, so rows would come"
        " twice if its files were ingested again"
        if log_is_whole
        else f"{lost} of {count} outputs are lost and the table's log does not reach back far"
        " enough to say whether they were committed"
    )
    left = tuple(
        o for o, place in zip(batch.results.outputs, places, strict=True) if place != "nowhere"
    )
    finished = tuple(
        _dead_lettered(file, f"batch {batch.batch}: {why}") for file in batch.results.finished
    )
    return BatchDecision(
        _keeping(batch).with_results(outputs=left, finished=finished), "letters", why
    )


def _keeping(batch: Batch) -> Batch:
    """Return the batch without its replacement: old rows stay for now."""
    if batch.results.group is None:
        return batch
    return batch.with_results(group=replace(batch.results.group, replaced=Replaced()))


def _again(file: FinishedFile) -> FinishedFile:
    if file.outcome != "ingested":
        return file
    error = "the outputs that it went into are lost"
    return FinishedFile(file.path, "retry", error=error, stage="publish")


def _dead_lettered(file: FinishedFile, why: str) -> FinishedFile:
    # A file without rows is in no output.
    if file.outcome != "ingested" or not file.rows:
        return file
    return FinishedFile(file.path, "quarantined", error=why, stage=ROWS_UNKNOWN)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A checkpoint made again, not yet written.

    ``listed`` counts the files at the source, ``processed`` those of them that are done,
    ``new`` names those that the next polls will find. ``by_operator`` are those that are
    done only because the operator, or the checkpoint that is there, says so.
    ``is_newest`` tells whether the checkpoint that is there is known to be the newest one.
    ``unknown`` are files that count as done although nobody knows whether their rows are in.
    """

    checkpoint: Stored
    state: SourceState
    epoch: int
    listed: int
    processed: int
    by_operator: tuple[str, ...]
    new: tuple[str, ...]
    batches: tuple[BatchDecision, ...]
    settled: tuple[str, ...]
    is_newest: bool = True
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LostReports:
    """Batches that only a report tells of, their files, and a doubt for each damaged report."""

    batches: frozenset[str]
    paths: frozenset[str]
    damaged: tuple[Doubt, ...] = ()


def read_lost(mailbox: Mailbox, reports: Mapping[str, Entry]) -> LostReports:
    """Read ``reports`` by batch. Raises `StorageError`."""
    paths: set[str] = set()
    damaged: list[Doubt] = []
    for batch, entry in reports.items():
        try:
            lines = list(mailbox.lines(entry))
        except RequestInvalid as error:
            damaged.append(Doubt(str(error), moment_of(batch)))
        else:
            paths.update(line.path for line in lines if line.state in {"ingested", "quarantined"})
    return LostReports(frozenset(reports), frozenset(paths), tuple(damaged))
