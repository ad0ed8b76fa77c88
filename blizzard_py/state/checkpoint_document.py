"""A source's state as its checkpoint file holds it, in and out of JSON. Pure.

On top of the shared format (`blizzard_core.checkpoint.document`) each field of a group of
`SourceState` is a key, which is missing where the field has its default. The classes of the groups
explain them. Apart from these come ``source``, ``former``, ``complete`` and ``cleaning``, and
``members``: the state of each source by its name, if sources share batches
(`blizzard_py.state.composite_state`).

**Names in grace** are listed under ``recent`` if they are at most `INLINE_NAMES`. Otherwise names
whose batches are in the journal are left out, ``window`` names these batches, and
``schema_version`` is 2. So the cost of a save does not depend on the number of files a second. An
old reader refuses version 2; it would take these names for new files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import (
    PROGRESS_VERSIONS,
    ProgressDocument,
    check_version,
    progress_of,
    progress_to_json,
)
from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.errors import StateError
from blizzard_py.slices.units.state import check_units
from blizzard_py.state.completeness import Completeness
from blizzard_py.state.source_state import (
    CleaningState,
    Identity,
    IssuedIds,
    KindState,
    LateFileState,
    PendingWork,
    Position,
    ProcessedNames,
    SourceState,
    Summary,
    checkpoint_path,
)

# A checkpoint lists at most this many names in grace: about 150 KB.
INLINE_NAMES = 2000
_WINDOW_VERSION = 2

# A renamed checkpoint holds only its new name, and its state until the rename is complete.
MOVED_TO = "moved_to"
MOVED_DOCUMENT = "moving"
MOVED_EPOCH = "moved_epoch"

# The key of a source that shares a checkpoint: its value is the id of that checkpoint.
SHARED = "shared_checkpoint"

_REMEDY = "restore it as it was saved, or make it again with `blizzard checkpoint rebuild`"

# The groups of a state, each by its name, and their fields that are keys.
_GROUPS: Mapping[str, Any] = {
    "position": Position(),
    "work": PendingWork(),
    "ids": IssuedIds(),
    "names": ProcessedNames(),
    "late_files": LateFileState(),
    "kind": KindState(),
    "summary": Summary(),
}
_KEYS = {
    name: tuple(f.name for f in fields(group) if f.name not in {"progress", "last_update_ts"})
    for name, group in _GROUPS.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _UngroupedDocument(ProgressDocument):
    """The keys that are in no group. Unknown ones belong to another release."""

    writer: Writer | None = None
    source: Identity | None = None
    former: tuple[str, ...] = ()
    complete: Completeness | None = None
    cleaning: CleaningState | None = None
    members: Mapping[str, Any] = field(default_factory=dict)


def state_to_json(state: SourceState, now: float) -> dict[str, Any]:
    """Return the checkpoint document, stamped with ``now`` (epoch seconds), without empty keys."""
    spilled = _spilled(state.position)
    document = progress_to_json(state.position.progress, now, spilled)
    if spilled:
        document["schema_version"] = max(document["schema_version"], _WINDOW_VERSION)
    ungrouped = {
        "source": state.source,
        "former": state.former,
        "complete": state.complete,
        "cleaning": state.cleaning,
        "totals": state.summary.totals,
        "members": {n: state_to_json(each, now) for n, each in state.members.items()},
    }
    found = {key: value for key, value in ungrouped.items() if value}
    for name, empty in _GROUPS.items():
        group = getattr(state, name)
        found |= {k: v for k in _KEYS[name] if (v := getattr(group, k)) != getattr(empty, k)}
    document |= msgspec.to_builtins(found)
    return document


def _spilled(position: Position) -> frozenset[float]:
    """Return the times of names that only the journal has, if there are too many to list."""
    names = sum(len(known.done) for known in position.progress.partitions.values())
    return frozenset(seen for _, seen in position.window if names > INLINE_NAMES)


def state_from_json(document: Any, where: str) -> SourceState:
    """Return the state of a checkpoint document. Raises `StateError` naming ``where``.

    It lacks the names in grace that only the journal has (`blizzard_py.state.checkpoint_file`).
    """
    if isinstance(document, Mapping) and MOVED_TO in document:
        raise StateError(f"{where}: {_moved(document)}")
    if isinstance(document, Mapping) and SHARED in document:
        raise StateError(f"{where}: {_shared(document)}")
    check_version(document, where, (*PROGRESS_VERSIONS, _WINDOW_VERSION))
    rest = dict(document)
    groups = {}
    for name, empty in _GROUPS.items():
        own = {key: rest.pop(key) for key in _KEYS[name] if key in rest}
        groups[name] = decode_document(type(empty), own, where, _REMEDY)
    found = decode_document(_UngroupedDocument, rest, where, _REMEDY)
    members = {n: state_from_json(d, f"{where}: members.{n}") for n, d in found.members.items()}
    state = SourceState(
        source=found.source,
        former=found.former,
        complete=found.complete,
        cleaning=found.cleaning,
        members=members,
        **groups,
    )
    if state.kind.units is not None:
        check_units(state.kind.units, f"{where}: units")
    return state.with_position(progress=progress_of(found, where, _REMEDY)).with_summary(
        last_update_ts=found.last_update_ts
    )


def _shared(document: Mapping[str, Any]) -> str:
    home = checkpoint_path(str(document[SHARED]))
    return (
        f"its state is in {home}, with that of the other sources of its query over event time,"
        " and neither their number nor their names may change; set sources and query back, or give"
        " the source another `id:`, and the pipeline another table"
    )


def _moved(document: Mapping[str, Any]) -> str:
    target = document[MOVED_TO]
    if MOVED_DOCUMENT in document:
        return (
            f"is being renamed to {target} and nobody may run on it; run the same `blizzard rename`"
            " again, it goes on where it was"
        )
    return (
        f"was renamed to {target}: its state is in {checkpoint_path(str(target))}; use the new"
        f" names in the configuration, or give the source `id: {target}`"
    )
