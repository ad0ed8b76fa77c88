"""Sources that read the same files into one table: each name is one source's, or rows come twice.

They are kept apart by ``range``, and by the place where a cold start began. Checkpoints tell both,
so a source is refused that would read a name that another one has read or may read. A source of
one name for all files costs nothing: others are looked at where one of the two has a range.
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
from blizzard_core.watermark.paths import joined, partition_key
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_document import MOVED_TO
from blizzard_py.state.checkpoint_file import load_state, whole
from blizzard_py.state.members import of_source
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
    names = names or NameRange()
    begins = floor if state.origin is None else state.origin
    first = order_key(names.first) or partition_key(begins or "")
    # A range may have been longer, and requests bring files from below where the start was.
    progress = state.progress
    read = [progress.value, state.reached, *state.ahead]
    read += [path for path in under_way(state) if not is_of_records(path)]
    read += [joined(p, name) for p, known in progress.partitions.items() for name in known.done]
    keys = [order_key(path) for path in read if path]
    last = [] if names.until is None else [order_key(names.until), *(key + b"\0" for key in keys)]
    return Reach(min([first, *keys]), max(last, default=None))


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


def readers(parts: Parts) -> Iterator[tuple[str, Identity, SourceState]]:
    """Yield the table's other sources that read the same files. Raises as `documents`."""
    sink = parts.stores.sink
    for source_id, document in documents(sink, parts.id):
        state = None if MOVED_TO in document else load_state(sink, source_id)
        if state is None or state.source is None:
            continue
        if is_same_place(state.source.uri, parts.stores.source.uri):
            yield source_id, state.source, state


def check_ranges(parts: Parts, state: SourceState | None, *, is_new: bool = False) -> None:
    """Raise `ConfigError` for a source that would read what another one with a range reads.

    Looks at others where this one has a range, or has not begun, or its state ``is_new``: else
    the others look for themselves.
    Raises `StateError`, `StorageError`.
    """
    if not parts.has_files:
        return
    for each in parts.members or (parts,):
        own = state or SourceState()
        own = of_source(own, each.source_name) if parts.members else own
        names = each.identity.range
        if (
            not is_new
            and names is None
            and (own.origin is not None or own.progress.state != "Initial")
        ):
            continue
        floor = lookback_floor(each.files.partition_filter, each.clock())
        reach = reach_of(own, names, floor)
        for source_id, other, theirs in readers(each):
            if names is None and other.range is None:
                continue  # another name of the same source, see `cold_start`
            _check_pair(each, reach, source_id, (other, theirs))


def _check_pair(
    parts: Parts, reach: Reach, source_id: str, other: tuple[Identity, SourceState]
) -> None:
    identity, state = other
    sink, name = parts.stores.sink, f"{identity.pipeline}/{identity.source}"
    where = f"pipelines.{parts.pipeline}.sources.{parts.source_name}"
    path = f"{sink.uri}/{checkpoint_path(source_id)}"
    if name == parts.name:
        problem = (
            f"{path} is of a source {name}, too, and the table tells sources by these names; name"
            " the pipeline or the source otherwise"
        )
        raise ConfigError(where, [problem])
    # What a narrowed range has read stands in the journal, if it is much.
    state = whole(sink, source_id, state) if identity.range is not None else state
    if not reach.meets(reach_of(state, identity.range)):
        return
    begun = state.totals.batches or state.origin is not None or state.in_flight
    reads = f"names from {state.origin}" if state.origin else "all names"
    reads = reads if identity.range is None else f"names {identity.range}"
    problem = (
        f"range: {name} ({path}) reads {reads} of the same files, so rows would come twice: give"
        f" {parts.name} a range in which none of these lies. What {name} has passed over comes in"
        " by `blizzard backfill` of it"
    )
    problem += "" if begun else "; it has not begun: if it never shall, delete its checkpoint"
    raise ConfigError(where, [problem])
