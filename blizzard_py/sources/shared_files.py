"""Sources that read the same files into one table. Two must not read one name.

A ``range`` and the beginning of a cold start separate them; checkpoints have both. A source is
refused if it would read a name that another one has read or may read, since rows would come twice.
Sources without a range cost nothing: others are checked only if one of the two has a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import ConfigError
from blizzard_core.storage.opening import is_same_place
from blizzard_core.storage.protocol import Storage, order_key
from blizzard_core.watermark.name_range import NameRange
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.paths import partition_key
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_document import MOVED_DOCUMENT, MOVED_TO, state_from_json
from blizzard_py.state.checkpoint_file import load_state
from blizzard_py.state.composite_state import of_source
from blizzard_py.state.fence_record import FenceFile, fence_path, recorded_ids, with_move
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.source_state import Identity, SourceState, checkpoint_path, under_way
from blizzard_py.state.state_paths import checkpoints


@dataclass(frozen=True, slots=True)
class Reach:
    """The names that a source has read or may read, as keys: ``first <= name < end``."""

    first: bytes
    end: bytes | None

    def meets(self, other: Reach) -> bool:
        """Return whether a name lies in both."""
        return (other.end is None or self.first < other.end) and (
            self.end is None or other.first < self.end
        )


def reach_of(state: SourceState, names: NameRange | None, floor: str | None = None) -> Reach:
    """Return the reach of a state with a range; ``floor`` is where a cold start would begin."""
    if names is not None:
        return Reach(order_key(names.first), None if names.end is None else order_key(names.end))
    if state.names.processed is not None:
        return Reach(b"", None)  # a set of names has no place where it began
    begins = floor if state.position.origin is None else state.position.origin
    # Requests bring files from below where the start was.
    brought = [path for path in under_way(state.work) if not is_of_records(path)]
    keys = [order_key(path) for path in (state.position.reached, *brought) if path]
    return Reach(min([partition_key(begins or ""), *keys]), None)


def documents(sink: Storage, but: str) -> Iterator[tuple[str, Any]]:
    """Yield ids and checkpoints of the table's other sources. Raises `StateError`, `StorageError`.

    Costs a LIST of the state folder, and a GET for each.
    """
    for source_id in checkpoints(sink):
        if source_id == but or "~" in source_id:
            continue
        document = checkpoint.load(sink, checkpoint_path(source_id), lambda found, _where: found)
        if document is not None:
            yield source_id, document


def readers(parts: SourceContext) -> Iterator[tuple[str, Identity | None, SourceState]]:
    """Yield the table's other sources that read the same files. Raises as `documents`.

    Without an identity of one whose checkpoint does not say what it reads, or is gone.
    """
    sink, found = parts.stores.sink, {parts.id}
    for source_id, document in documents(sink, parts.id):
        found.add(source_id)
        if MOVED_TO not in document:
            state = load_state(sink, source_id)
        elif MOVED_DOCUMENT in document:  # a rename has not ended, or died
            state = state_from_json(document[MOVED_DOCUMENT], checkpoint_path(source_id))
        else:
            continue
        if state is None or state.source is None:
            yield source_id, None, state or SourceState()
        elif is_same_place(state.source.uri, parts.stores.source.uri):
            yield source_id, state.source, state
    for source_id in recorded_ids(sink):
        if source_id not in found:
            record = with_move(sink, source_id, FenceFile(sink, source_id).read())
            if record is not None and record.number and not record.moved_to:
                uri = parts.stores.source.uri
                known = Identity("", source_id, uri, range=record.range) if record.range else None
                yield source_id, known, SourceState()


def ranges_of_others(parts: SourceContext) -> list[tuple[NameRange, str]]:
    """Return the ranges of the table's other sources of the same files, each with its name.

    A query shares no names with another source, so its table is not listed.
    """
    if not parts.has_files:
        return []
    return [
        (identity.range, f"{identity.pipeline}/{identity.source}".strip("/"))
        for _, identity, _ in readers(parts)
        if identity is not None and identity.range is not None
    ]


def check_ranges(
    parts: SourceContext, state: SourceState | None, now: float, *, is_new: bool = False
) -> None:
    """Raise `ConfigError` for a source that would read what another one with a range reads.

    Looks at others where this one has a range, or has not begun, or its state ``is_new``: else
    the others look for themselves. ``now`` is the store's time. Raises `StateError`,
    `StorageError`.
    """
    for each in parts.members or (parts,):
        files = each.source.as_files
        if files is None:
            continue
        own = state or SourceState()
        own = of_source(own, each.source_name) if parts.members else own
        names = each.identity.range
        has_started = own.position.origin is not None or own.position.progress.state != "Initial"
        if names is None and has_started and not is_new:
            continue
        floor = lookback_floor(files.partition_filter, now) if files.use_watermark else None
        reach = reach_of(own, names, floor)
        for source_id, other, theirs in readers(each):
            if names is None and (other is None or other.range is None):
                continue  # another name of the same source, see `cold_start`
            _check_pair(each, reach, source_id, other, theirs)


def _check_pair(
    parts: SourceContext, reach: Reach, source_id: str, other: Identity | None, state: SourceState
) -> None:
    sink, where = parts.stores.sink, f"pipelines.{parts.pipeline}.sources.{parts.source_name}"
    path = f"{sink.uri}/{checkpoint_path(source_id)}"
    if other is None:
        problem = (
            f"range: {path} is gone, or does not say of which files it is, and batches of it were"
            f" committed, so nobody knows which names {source_id} has read: have it run once, or"
            " make its checkpoint again with `blizzard checkpoint rebuild`; if it is gone for good"
            f" and had other files, delete {fence_path(source_id)}"
        )
        raise ConfigError(where, [problem])
    name = f"{other.pipeline}/{other.source}".strip("/")  # one that is lost has no pipeline
    if name == parts.name:
        problem = (
            f"{path} is of a source {name}, too, and the table tells sources by these names; name"
            " the pipeline or the source otherwise"
        )
        raise ConfigError(where, [problem])
    if not reach.meets(reach_of(state, other.range)):
        return
    has_begun = (
        state.summary.totals.batches or state.position.origin is not None or state.work.in_flight
    )
    reads = f"names from {state.position.origin}" if state.position.origin else "all names"
    reads = reads if other.range is None else f"names {other.range}"
    problem = (
        f"range: {name} ({path}) reads {reads} of the same files, so rows would come twice: give"
        f" {parts.name} a range in which none of these lies. What {name} has passed over comes in"
        " by `blizzard backfill` of it"
    )
    problem += "" if has_begun else "; it has not begun: if it never shall, delete its checkpoint"
    raise ConfigError(where, [problem])
