"""The completeness of a partition, for people and schedulers. Writes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.delta_json import anchored, hinted, stamp_of
from blizzard_core.handover.complete import (
    Completions,
    Confirmed,
    Marker,
    completions_path,
    confirmed_path,
    holds,
    marker_path,
    parser,
    partitions_of,
    why_unmarkable,
)
from blizzard_core.settings.document import Config
from blizzard_core.storage.protocol import Storage
from blizzard_core.text import counted
from blizzard_core.watermark.progress import ScanTimes, closed_by
from blizzard_py.app.operations import file_sources
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.completion import list_partition, number_and_digest
from blizzard_py.sources.files.listing import listing_of
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.completeness import why_open
from blizzard_py.state.source_state import under_way

# Time between two looks of a command that waits.
LOOK_SECS = 5.0


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The completeness of a partition in one source: its marker, or ``why`` there is none.

    ``refused`` are outputs that Penguin refuses, which someone has to see to.
    """

    source: str
    partition: str
    marker: Marker | None
    why: str = ""
    refused: int = 0

    @property
    def is_clean(self) -> bool:
        """Return whether nothing of it is a dead letter or refused, so far."""
        return not self.refused and (self.marker is None or self.marker.contents.is_clean)

    def to_json(self) -> dict[str, Any]:
        """Return the answer for scripts."""
        marker = None if self.marker is None else asdict(self.marker)
        return {
            "source": self.source,
            "partition": self.partition,
            "complete": marker is not None,
            "clean": self.is_clean,
            "why": self.why,
            "refused": self.refused,
            "marker": marker,
        }


def certified_sources(config: Config, pipeline: str, source: str | None) -> list[SourceContext]:
    """Return the sources of a pipeline that certify partitions. Raises `ConfigError`."""
    problem = "certifies no partition; give it `complete_after: 1h`"
    return file_sources(config, pipeline, source, lambda files: files.complete_after, problem)


def wait_for(
    parts: Sequence[SourceContext],
    partition: str,
    secs: float,
    monotonic: Callable[[], float],
    pause: Callable[[float], object],
) -> list[PartitionAnswer]:
    """Return the answers of all sources once each is complete or has refused outputs.

    After ``secs`` return them as they are. Raises `StateError`, `StorageError`.
    """
    ends = monotonic() + secs
    while True:
        answers = [ask(each, partition) for each in parts]
        rest = ends - monotonic()
        if rest <= 0 or all(each.marker is not None or each.refused for each in answers):
            return answers
        pause(min(rest, LOOK_SECS))


def ask(parts: SourceContext, partition: str) -> PartitionAnswer:
    """Return whether a partition is complete now. Raises `StateError`, `StorageError`."""
    sink = parts.stores.sink
    why, refused = why_unmarkable(partition), 0
    if why is None:
        # The marker before the completions: one that was revoked in between is not believed.
        marker = checkpoint.load(sink, marker_path(parts.id, partition), parser(Marker))
        completions = checkpoint.load(sink, completions_path(parts.id), parser(Completions))
        if marker is None or marker.partition != partition or not holds(marker, completions):
            why, refused = _why_not(parts, partition)
        elif _is_in_log(sink, marker):
            return PartitionAnswer(parts.name, partition, marker)
        else:
            why = (
                f"its marker names version {marker.version} of another log than the table has now;"
                " Penguin removes it when it starts"
            )
    return PartitionAnswer(parts.name, partition, None, why, refused)


def _is_in_log(sink: Storage, marker: Marker) -> bool:
    """Return whether the table's log has the version of a marker, or has cleaned it up."""
    anchor = anchored(stamp_of(sink, marker.version))
    if anchor:
        return marker.anchor == anchor
    checkpoint_version = hinted(sink)
    return checkpoint_version is not None and checkpoint_version >= marker.version


def _why_not(parts: SourceContext, partition: str) -> tuple[str, int]:
    """Return why a partition has no marker, and how many of its outputs are refused."""
    assert parts.files.complete_after is not None  # noqa: S101  # the caller has looked
    state = read_state(parts.stores.sink, parts.id)
    if state is None or state.complete is None:
        return "Blizzard has counted nothing yet", 0
    known, progress = state.complete.partitions.get(partition), state.position.progress
    if known is None:
        if closed_by(progress, f"{partition}/") is None:
            return "nothing of it was found since partitions are counted", 0
        return "it was closed before it was complete; see advanced.max_tracked_partitions", 0
    if known.is_complete:
        return _unconfirmed(parts.stores.sink, parts.id, partition)
    now, waiting = parts.clock(), partitions_of(under_way(state.work), progress.depth or 0)
    scanned, after = ScanTimes(now, now), parts.files.complete_after
    why = why_open(partition, known, progress, waiting, scanned, after)
    why = why or "the next complete scan may find it complete"
    if known.completion.revoked_by and known.is_exact:
        at = dt.datetime.fromtimestamp(known.completion.revoked_ts, dt.UTC)
        why = f"{known.completion.revoked_by} revoked it at {at:%Y-%m-%dT%H:%M:%SZ}; {why}"
    return why, 0


def _unconfirmed(sink: Storage, source_id: str, partition: str) -> tuple[str, int]:
    """Return what Penguin says of a complete partition without a marker."""
    confirmed = checkpoint.load(sink, confirmed_path(source_id), parser(Confirmed))
    missing = None if confirmed is None else confirmed.waiting.get(partition)
    if missing is None:
        return "all of it is published; Penguin's next poll compares it with the table", 0
    if missing.unnamed:
        why = (
            f"the journal does not name {counted(missing.unnamed, 'output')} of it, so nobody can"
            " tell whether the table has them: it is kept for 30 days"
        )
        return why, 0
    why = f"{counted(missing.outputs, 'output')} of it not in the table"
    if missing.refused:
        why += f", {missing.refused} of them refused: see `blizzard status`"
    return why, missing.refused


@dataclass(frozen=True, slots=True)
class Verification:
    """A partition at its source compared with its counts.

    ``listed`` and ``counted`` are numbers of files, the latter None if nobody has counted.
    ``requested`` are those that requests ingested, which the counts of polls leave out. ``why``
    says why nothing can be compared.
    """

    source: str
    partition: str
    listed: int
    counted: int | None
    equal: bool
    requested: int = 0
    why: str = ""


def verify(parts: SourceContext, partition: str) -> Verification:
    """List a partition at its source and compare number and digest with its counts.

    Raises `StateError`, `StorageError`.
    """
    state = read_state(parts.stores.sink, parts.id)
    known = None if state is None or state.complete is None else state.complete.partitions
    found = None if known is None else known.get(partition)
    pages = list_partition(listing_of(parts), parts.files, partition)
    listed, digest = number_and_digest(pages)
    if found is None or not found.is_exact:
        why = "its counts did not begin with its first file"
        return Verification(parts.name, partition, listed, None, equal=False, why=why)
    counts = found.completion.contents
    equal = (listed, digest) == (counts.files, counts.digest)
    return Verification(parts.name, partition, listed, counts.files, equal, counts.requested)
