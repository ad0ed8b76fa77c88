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
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed.changes import ChangePosition
from penguin_py.model import TableState
from penguin_py.settings import KeyedTable

# Tables that merges have made are described so. A property would say it better, but delta-rs
# refuses those that it does not know.
_BEGINNING = "Current rows, by Penguin: "
# No settings describe a table so, and no merge goes on in one.
BEING_REBUILT = f"{_BEGINNING}being rebuilt"


@dataclass(frozen=True, slots=True)
class MergeState:
    """The position of a keyed table, and what its last merge said.

    ``starts_over``: the position does not count, and all active changes are to be merged.
    """

    position: ChangePosition = field(default_factory=ChangePosition)
    starts_over: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chores(self) -> Mapping[str, int]:
        """Times of the last run of each chore."""
        found = self.document.get("chores")
        return found if isinstance(found, dict) else {}


def made_of(keyed: KeyedTable, changes_id: str) -> str:
    """Return the description of a keyed table: what it is made of, and how."""
    settings: dict[str, Any] = {
        "keys": keyed.keys,
        "sequence_by": keyed.sequence,
        "deletes": keyed.deletes_text,
    }
    if keyed.leave_out:
        settings["leave_out"] = sorted(keyed.leave_out)
    told = msgspec.json.encode({"changes": changes_id, **settings}).decode()
    return f"{_BEGINNING}{told}"


def is_keyed(state: TableState) -> bool:
    """Return whether merges have made the table."""
    return state.description.startswith(_BEGINNING)


def check_origin(keyed: KeyedTable, state: TableState, changes_id: str) -> None:
    """Raise `StateError` if the table is made of other changes, or by other settings."""
    if not is_keyed(state):
        raise StateError(
            f"{keyed.table.uri}: is a table that no merge has made, or its description was"
            " changed; choose another keyed.table_uri, or delete the table"
        )
    wanted = made_of(keyed, changes_id)
    if state.description != wanted:
        raise StateError(
            f"{keyed.table.uri}: its description is {state.description!r}, and by"
            f" {keyed.changes.uri} and its settings it is {wanted!r}; go back to those, or run"
            f" `penguin keyed rebuild CONFIG --table {keyed.name}`"
        )


class MergeStateReader:
    """Reads how far one table has come from its log. Not thread-safe."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        # Our last commit, the version up to which later ones were looked at, and whether one of
        # them is a RESTORE; all of the log as it was replaced so often.
        self._known = (-1, -1, False)
        self._replaced = 0

    def read(self, state: TableState) -> MergeState:
        """Return the state as of the table's version. Raises `StateError`, `StorageError`."""
        merged = max(state.txn_version - 1, 0)
        if self._log.replaced != self._replaced:
            self._known, self._replaced = (-1, -1, False), self._log.replaced
        known, checked, is_restored = self._known
        # Without a hint: after a RESTORE two commits may have one position, and the newer counts.
        own = self._log.own_commit(state.txn_version, state.version)
        if own is None:
            return MergeState(ChangePosition(merged), starts_over=True)
        if own.version != known:
            checked, is_restored = own.version, False
        is_restored = is_restored or self._has_restore(checked, state.version)
        self._known = (own.version, state.version, is_restored)
        return MergeState(
            ChangePosition(merged, _number(own.document.get("files"))),
            is_restored or own.document.get("starts_over") is True,
            own.document,
        )

    def _has_restore(self, after: int, version: int) -> bool:
        """Return whether a version behind ``after`` is a RESTORE, or its entry is gone."""
        infos = self._log.pool.map(self._log.commit_info, range(after + 1, version + 1))
        return any(info.get("operation") in {None, "RESTORE"} for info in infos)


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
