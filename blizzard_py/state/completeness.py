"""The counts of partitions, and which of them are complete. Pure.

Counts begin with the first file of a partition. Earlier files are unknown, so a partition that had
some is never complete. A partition is any whose name has the depth of the source's partitions.

Counts change with the save that ends a batch. A completion is revoked by the save that begins a
batch with files of its partition, long before the batch publishes. See
`blizzard_core.handover.complete`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from blizzard_core.handover.complete import (
    Completion,
    Completions,
    PartitionCounts,
    add_digest,
    file_text,
    partitions_of,
    why_unmarkable,
)
from blizzard_core.storage.protocol import order_key
from blizzard_core.text import counted
from blizzard_core.watermark.partition_time import span_of
from blizzard_core.watermark.progress import Progress, ScanTimes, closed_by, lists_all
from blizzard_py.job import LEFT_STAGE, FinishedFile
from blizzard_py.state.batch import Batch
from blizzard_py.state.record_names import is_of_records

# Complete partitions in a checkpoint, of some 600 bytes each, and all of the last day, for which
# Penguin may still have to write a marker. The markers of older ones stay.
COMPLETE_KEPT = 100
COMPLETE_SECS = 86_400.0
# Partitions that were not counted from their first file are kept so long, for a Penguin that is
# down. More of them, as from a backfill of many years, begin a new era.
UNCOUNTED_KEPT = 1024
UNCOUNTED_SECS = 30 * 86_400.0
# Names of dead-lettered files in the counts of a partition, which a replay may ingest.
_BAD_FILES = 100


@dataclass(frozen=True, slots=True)
class CountedPartition:
    """A partition: its completion, and whether its counts began with its first file (``is_exact``).

    ``found_ts`` is when a scan last found a file of it, ``bad_files`` are dead-lettered files.
    """

    completion: Completion = field(default_factory=Completion)
    is_exact: bool = True
    found_ts: float = 0.0
    bad_files: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether it is complete."""
        return bool(self.completion.complete_ts)


@dataclass(frozen=True, slots=True)
class Completeness:
    """The counted partitions of a source.

    ``commits`` is the number of the last commit point that they contain. If the checkpoint has
    another one, it is a copy or was edited, and the counts begin anew, in another ``era``.
    """

    era: str
    commits: int = 0
    partitions: Mapping[str, CountedPartition] = field(default_factory=dict)


def resumed(
    known: Completeness | None, commits: int, publishing: int, era: str
) -> Completeness | None:
    """Return the counts at a take-over: the ``known`` ones, or new ones if they are of other state.

    ``commits`` is the number of the checkpoint's last commit point, ``publishing`` how many batches
    are behind theirs and have not ended.
    """
    ended = commits - publishing
    return known if known is not None and known.commits == ended else Completeness(era, ended)


def with_started(
    known: Completeness, batch: Batch, progress: Progress, ahead: Collection[str]
) -> Completeness:
    """Return the counts with a batch that begins: its partitions are not complete.

    ``ahead`` are files that requests took before scans reach them, so nobody counted them.
    """
    depth = progress.depth or 0
    seen_before = partitions_of(ahead, depth).union(progress.partitions)
    partitions = dict(known.partitions)
    for partition, paths in _by_partition((e.path for e in batch.files), depth).items():
        first = min(paths, key=order_key)
        found = partitions.get(partition)
        if found is None:
            is_new = partition not in seen_before and closed_by(progress, first) is None
            found = CountedPartition(is_exact=is_new and not is_of_records(first))
        completion = replace(
            found.completion, first=found.completion.first or batch.batch, complete_ts=0.0
        )
        if not found.is_exact or completion.seq:
            completion = replace(completion, revoked_by=first, revoked_ts=batch.started_ts)
        found_ts = max(found.found_ts, batch.seen_ts)
        partitions[partition] = replace(found, completion=completion, found_ts=found_ts)
    uncounted = (name for name, each in partitions.items() if not each.is_exact)
    if len([name for name in uncounted if name not in progress.partitions]) > UNCOUNTED_KEPT:
        return Completeness(batch.batch, known.commits)
    return replace(known, partitions=partitions)


def with_ended(known: Completeness, batch: Batch, depth: int) -> Completeness:
    """Return the counts with a batch that ends: its outputs are published."""
    known = replace(known, commits=known.commits + 1)
    sizes = {entry.path: entry.size for entry in batch.files}
    finished = {file.path: file for file in batch.results.finished if file.outcome != "retry"}
    outputs = [output.output_id for output in batch.results.outputs]
    partitions = dict(known.partitions)
    for partition, paths in _by_partition(sizes, depth).items():
        if partition not in partitions:
            continue  # its batch began before there were counts
        found = partitions[partition]
        for path in sorted(finished.keys() & set(paths)):
            is_requested = bool(batch.request)
            found = _with_file(found, finished[path], sizes[path], is_requested=is_requested)
        counts, last = found.completion.contents, max(found.completion.last, batch.batch)
        counts = replace(
            counts,
            outputs=counts.outputs + len(outputs),
            outputs_digest=add_digest(counts.outputs_digest, *outputs),
        )
        completion = replace(found.completion, contents=counts, last=last)
        partitions[partition] = replace(found, completion=completion)
    return replace(known, partitions=partitions)


def _by_partition(paths: Iterable[str], depth: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        for partition in partitions_of([path], depth):
            found.setdefault(partition, []).append(path)
    return found


def _with_file(
    found: CountedPartition, file: FinishedFile, size: int, *, is_requested: bool
) -> CountedPartition:
    counts, bad_files = found.completion.contents, found.bad_files
    is_in = file.outcome == "ingested" or file.stage == LEFT_STAGE
    counts = replace(counts, rows=counts.rows + file.rows)
    if is_of_records(file.path):
        # Records that are bad again were counted when they were bad first.
        counts = replace(counts, bad_rows=max(0, counts.bad_rows - file.rows))
    elif is_requested:
        is_mended = is_in and file.path in bad_files
        counts = replace(
            counts,
            requested=counts.requested + is_in,
            bad_rows=counts.bad_rows + file.bad_rows,
            quarantined=counts.quarantined - is_mended,
        )
        bad_files = tuple(path for path in bad_files if not (is_mended and path == file.path))
    else:
        counts = replace(
            counts,
            files=counts.files + 1,
            bad_rows=counts.bad_rows + file.bad_rows,
            quarantined=counts.quarantined + (not is_in),
            bytes=counts.bytes + size,
            digest=add_digest(counts.digest, file_text(file.path, size)),
        )
        if not is_in and len(bad_files) < _BAD_FILES:
            bad_files = (*bad_files, file.path)
    return replace(
        found, completion=replace(found.completion, contents=counts), bad_files=bad_files
    )


def with_completions(
    known: Completeness,
    progress: Progress,
    waiting: Collection[str],
    scanned: ScanTimes,
    after: float,
) -> Completeness:
    """Return the counts with completions for the partitions that a scan shows to be complete.

    ``progress`` is that after the scan, ``waiting`` are partitions with files that are not done.
    """
    partitions = {
        name: found
        if found.is_complete or why_open(name, found, progress, waiting, scanned, after)
        else _completed(found, scanned)
        for name, found in known.partitions.items()
    }
    for name in _outdated(partitions, progress, waiting, scanned.began):
        del partitions[name]
    return known if partitions == known.partitions else replace(known, partitions=partitions)


def _outdated(
    partitions: Mapping[str, CountedPartition],
    progress: Progress,
    waiting: Collection[str],
    now: float,
) -> list[str]:
    """Return the partitions that the state need not have: complete, lost or uncounted for long."""
    complete = [name for name, found in partitions.items() if found.is_complete]
    complete.sort(key=lambda name: partitions[name].completion.complete_ts)
    older = complete[: max(0, len(complete) - COMPLETE_KEPT)]
    outdated = [
        name for name in older if partitions[name].completion.complete_ts < now - COMPLETE_SECS
    ]
    for name, found in partitions.items():
        if found.is_complete or found.completion.seq or name in waiting:
            continue
        is_open = name in progress.partitions or closed_by(progress, f"{name}/") is None
        is_old = found.completion.revoked_ts < now - UNCOUNTED_SECS
        if not is_open and (found.is_exact or is_old):
            outdated.append(name)  # it was closed before it was complete
    return outdated


def _completed(found: CountedPartition, scanned: ScanTimes) -> CountedPartition:
    completion = replace(
        found.completion,
        seq=found.completion.seq + 1,
        complete_ts=scanned.ended,
        scan_ts=scanned.began,
        revoked_by="",
        revoked_ts=0.0,
    )
    return replace(found, completion=completion)


def why_open(
    name: str,
    found: CountedPartition,
    progress: Progress,
    waiting: Collection[str],
    scanned: ScanTimes,
    after: float,
) -> str | None:
    """Return why a scan does not show that a partition is complete; None if it does.

    A partition that was complete before and is closed by now needs no scan: an earlier scan saw all
    of it, and the late sweep finds what comes.
    """
    if not found.is_exact:
        return "files of it were ingested before its files were counted"
    unmarkable = why_unmarkable(name)
    if unmarkable is not None:
        return unmarkable
    span = span_of(name)
    over = (found.found_ts if span is None else span.end) + after
    if scanned.began < over:
        return f"it is over at {dt.datetime.fromtimestamp(over, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    if name in waiting:
        return "files of it are found and not done"
    return _why_unlisted(name, found, progress, scanned)


def clamp_found(known: Completeness | None, now: float) -> Completeness | None:
    """Return the counts with no file found after ``now``: a wrong clock would keep them open."""
    if known is None or all(each.found_ts <= now for each in known.partitions.values()):
        return known
    partitions = {
        name: replace(each, found_ts=min(each.found_ts, now))
        for name, each in known.partitions.items()
    }
    return replace(known, partitions=partitions)


def _why_unlisted(
    name: str, found: CountedPartition, progress: Progress, scanned: ScanTimes
) -> str | None:
    tracked = progress.partitions.get(name)
    if tracked is None and closed_by(progress, f"{name}/") is not None:
        return None if found.completion.seq else "it was closed before it was complete"
    if tracked is not None and tracked.done:
        return "names of it are in their grace period"
    before = None if tracked is None else tracked.before
    return None if lists_all(scanned, name, before) else "no scan has listed it since"


def completions_of(known: Completeness, epoch: int) -> Completions:
    """Return the mirror: full completions, and of other partitions that they are not complete.

    Those that never were are in it, too: a later checkpoint, which was replaced by a copy from
    before, may have completed them, and their markers stand.
    """
    return Completions(
        epoch,
        known.era,
        {name: _mirrored(found) for name, found in known.partitions.items()},
    )


def _mirrored(found: CountedPartition) -> Completion:
    if found.is_complete:
        return found.completion
    if not found.completion.revoked_by:
        return Completion()  # it does not change with each batch
    return replace(found.completion, contents=PartitionCounts())


def certified(known: Completeness | None) -> tuple[list[str], dict[str, str]]:
    """Return the complete partitions, and revoked ones with the file that came later."""
    partitions = {} if known is None else known.partitions
    revoked = {
        name: found.completion.revoked_by
        for name, found in partitions.items()
        if found.completion.seq and not found.is_complete
    }
    return [name for name, found in partitions.items() if found.is_complete], revoked


def completeness_notes(known: Completeness | None) -> list[str]:
    """Return notes for people on complete and revoked partitions."""
    complete, revoked = certified(known)
    notes = []
    if complete:
        newest = max(complete, key=order_key)
        notes.append(f"{counted(len(complete), 'partition')} complete, the highest is {newest}")
    if revoked:
        name = max(revoked, key=order_key)
        notes.append(
            f"{counted(len(revoked), 'partition')} not complete any more, such as {name}:"
            f" {revoked[name]} came later"
        )
    return notes
