"""Complete partitions of a source of files: from the settings and scans to the state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from blizzard_core.handover.complete import NO_DIGEST, add_digest, file_text, partitions_of
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, Listing, is_hidden
from blizzard_py.sources.files.discovery import Discovery
from blizzard_py.sources.files.file_names import accepts_file
from blizzard_py.state.completeness import resumed, with_completions
from blizzard_py.state.source_state import SourceState, under_way


def resume_counts(
    settings: SourceSettings, state: SourceState, epoch: int, now: float
) -> SourceState:
    """Return the state with its counts at a take-over, new ones if they are of other state.

    Without the setting they stay, and the owner removes them with their mirror. Epochs begin at 1
    again once all state was deleted, so the time is part of a new era's name.
    """
    if settings.complete_after is None:
        return state
    publishing = sum(batch.phase == "publishing" for batch in state.work.in_flight)
    number = state.ids.committed.number
    era = f"{epoch}-{int(now)}"
    return replace(state, complete=resumed(state.complete, number, publishing, era))


def complete_partitions(
    settings: SourceSettings, state: SourceState, found: Discovery, late: Collection[str] = ()
) -> tuple[SourceState, list[str]]:
    """Return the state after a scan, and the partitions that it shows to be complete.

    ``late`` are partitions with late files, which scans do not show.
    """
    known = state.complete
    if settings.complete_after is None or known is None or not found.has_listed:
        return state, []
    progress = state.position.progress
    paths = [*(file.path for file in (*found.files, *found.young)), *under_way(state.work)]
    waiting = partitions_of(paths, progress.depth or 0).union(late)
    complete = with_completions(known, progress, waiting, found.scanned, settings.complete_after)
    fresh = [
        name
        for name, each in complete.partitions.items()
        if each.is_complete and not known.partitions[name].is_complete
    ]
    return replace(state, complete=complete), fresh


def list_partition(
    listing: Listing, settings: SourceSettings, partition: str
) -> Iterator[list[Entry]]:
    """Yield the source's files of a partition, a page at a time. Raises `StorageError`."""
    accept, depth = accepts_file(settings), partition.count("/") + 1
    for page in listing.list_range(f"{partition}/", f"{partition}0"):  # "0" follows "/"
        found = [e for e in page.entries if not is_hidden(e.path) and accept(e)]
        yield [e for e in found if partitions_of([e.path], depth)]


def number_and_digest(pages: Iterable[list[Entry]]) -> tuple[int, str]:
    """Return the number and the digest of files, as `PartitionCounts` has them."""
    number, digest = 0, NO_DIGEST
    for entries in pages:
        number += len(entries)
        digest = add_digest(digest, *(file_text(e.path, e.size) for e in entries))
    return number, digest
