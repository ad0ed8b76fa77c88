"""Progress of a keyed table, by its log and its description.

The position is the ``txn`` of the log, which no clean-up removes: one above the number of versions
that are merged. The commit with it tells the rest. A RESTORE takes rows back and leaves the
``txn``, so everything is merged again behind one, and where the log does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from blizzard_core.errors import StateError
from penguin_py.delta.log import OUR_KEY, LogReader
from penguin_py.delta.restores import target_of
from penguin_py.model import TableState
from penguin_py.settings import KeyedTable

# Tables that merges have made are described so. A property would say it better, but delta-rs
# refuses those that it does not know.
_BEGINNING = "Current rows, by Penguin: "
# No settings describe a table so, and no merge goes on in one.
BEING_REBUILT = f"{_BEGINNING}being rebuilt"


@dataclass(frozen=True, slots=True)
class MergeState:
    """The number of merged versions of the change table, and what the last merge said.

    ``starts_over``: the position does not count, and all active changes are to be merged: the rows
    are those of ``merged`` versions, or of more. Else they are those of the position.
    """

    position: int = 0
    merged: int = 0
    starts_over: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)


def made_of(keyed: KeyedTable, changes_id: str) -> str:
    """Return the description of a keyed table: what it is made of, and how."""
    settings: dict[str, object] = {"changes": changes_id, "keys": keyed.keys}
    settings |= {"sequence_by": keyed.sequence, "deletes": keyed.deletes_text}
    settings["leave_out"] = sorted(keyed.leave_out)
    return f"{_BEGINNING}{msgspec.json.encode(settings).decode()}"


def read_merge_state(keyed: KeyedTable, log: LogReader, state: TableState, made: str) -> MergeState:
    """Return the state as of the table's version.

    Raises `StorageError`, and `StateError` if the table is not as ``made`` describes it; empty: if
    it is no keyed table.
    """
    if not state.description.startswith(_BEGINNING):
        text = "no merge has made this table, or its description was changed; choose another"
        raise StateError(f"{keyed.table.uri}: {text} keyed.table_uri, or delete the table")
    if made and state.description != made:
        raise StateError(
            f"{keyed.table.uri}: its description is {state.description!r}, and by"
            f" {keyed.changes.uri} and its settings it is {made!r}; go back to those, or run"
            f" `penguin keyed rebuild CONFIG --table {keyed.name}`"
        )
    position = merged = max(state.txn_version - 1, 0)
    effective, starts_over = state.version, not position
    for number, info in log.newest_first(state.version, log.commit_info):
        if number > effective:
            continue  # a RESTORE took it back
        document = info.get(OUR_KEY)
        if isinstance(document, dict) and document.get("app_id") == keyed.table.app_id:
            starts_over = starts_over or document.get("starts_over") is True
            merged = document.get("merged", merged) if starts_over else merged
            return MergeState(position, merged, starts_over, document)
        if info.get("operation") == "RESTORE":
            starts_over, merged, target = True, 0, target_of(info)
            effective = -1 if target is None else target
        if effective < 0 or "operation" not in info:
            break  # nobody knows what was restored, or the entry is gone
    return MergeState(position, merged, starts_over=True)
