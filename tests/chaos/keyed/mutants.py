"""Faults of the product that random histories of keyed tables must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penguin_py.delta.table import DeltaLog
from penguin_py.groups.rewrite_notes import RewriteNotes
from penguin_py.keyed import changes as feed
from penguin_py.keyed import merger, order, pruning
from penguin_py.keyed.matching import Leaving, Matching
from penguin_py.keyed.merger import Merger
from penguin_py.keyed.order import Order
from penguin_py.model import CommitPlan

Patch = pytest.MonkeyPatch


def older_wins(patch: Patch) -> None:
    real = order.compare
    patch.setattr(order, "compare", lambda ours, theirs, by: real(theirs, ours, by))


def ties_reversed(patch: Patch) -> None:
    real = order.compare

    def compare(*values: Any) -> Any:
        above, equal = real(*values)
        return above, pc.and_(equal, False)

    patch.setattr(order, "compare", compare)


def arrival_reversed(patch: Patch) -> None:
    real = order.newest_rows
    patch.setattr(
        order, "newest_rows", lambda r, by: real(r.take(list(range(r.num_rows))[::-1]), by)
    )


def losers_added(patch: Patch) -> None:
    patch.setattr(Matching, "winners", lambda self: self.rows.filter(pc.invert(self._deletes)))


def deletes_added(patch: Patch) -> None:
    patch.setattr(Matching, "winners", lambda self: self.rows.filter(pc.invert(self._lost)))


def no_look_up(patch: Patch) -> None:
    patch.setattr(Matching, "unstored", lambda self: self.rows.slice(0, 0))


def look_up_pruned_too_far(patch: Patch) -> None:
    patch.setattr(pruning, "may_exceed", lambda *_: pa.array([False]))


def stored_keys_buried(patch: Patch) -> None:
    def bury(self: Matching, deletes: pa.Table) -> None:
        at = pc.index_in(order.key_values(deletes, self._order.keys), value_set=self.keys)
        self._lost[at.drop_null().to_numpy()] = True

    patch.setattr(Matching, "bury", bury)


def cut_bounds_unwidened(patch: Patch) -> None:
    patch.setattr(pruning, "_CUT_MICROS", 0)
    patch.setattr(pruning, "_ABOVE", b"")


def first_column_of_a_key_only(patch: Patch) -> None:
    real = order.key_values
    patch.setattr(order, "key_values", lambda r, keys: real(r, keys[:1]))


def first_column_of_a_sequence_only(patch: Patch) -> None:
    real = order.compare

    def compare(ours: Any, theirs: Any, by: Order) -> Any:
        return real(ours, theirs, Order(by.keys, by.sequence[:1]))

    patch.setattr(order, "compare", compare)


def commits_rebased(patch: Patch) -> None:
    real = merger.CommitPlan

    def plan(*values: Any, **more: Any) -> CommitPlan:
        return replace(real(*values, **more), replaces=False)

    patch.setattr(merger, "CommitPlan", plan)


def old_rows_stay(patch: Patch) -> None:
    real = merger.CommitPlan

    def plan(*values: Any, **more: Any) -> CommitPlan:
        return replace(real(*values, **more), removes=())

    patch.setattr(merger, "CommitPlan", plan)


def position_ahead(patch: Patch) -> None:
    real = Merger._land  # noqa: SLF001  # what the mutant changes

    def land(self: Merger, plan: CommitPlan, position: int, document: Any) -> None:
        real(self, plan, position + 1, document)

    patch.setattr(Merger, "_land", land)


def last_version_only(patch: Patch) -> None:
    real = feed.next_batch
    patch.setattr(merger, "next_batch", lambda store, log, _, until: real(store, log, until, until))


def restore_ignored(patch: Patch) -> None:
    real = DeltaLog.commit_info

    def commit_info(log: DeltaLog, version: int) -> Any:
        found = real(log, version)
        return {**found, "operation": "x"} if found.get("operation") == "RESTORE" else found

    patch.setattr(DeltaLog, "commit_info", commit_info)


def gap_passed(patch: Patch) -> None:
    real = feed._read_version  # noqa: SLF001  # as above

    def read(storage: Any, version: int) -> Any:
        try:
            return real(storage, version)
        except feed.FeedGap:
            return []

    patch.setattr(feed, "_read_version", read)


def all_rows_leave(patch: Patch) -> None:
    patch.setattr(Leaving, "is_complete", True)


def rebuild_keeps_rows(patch: Patch) -> None:
    real = Merger._merge  # noqa: SLF001  # as above
    patch.setattr(Merger, "_merge", lambda *values, **_: real(*values, rebuilds=False))


def leftovers_forgotten(patch: Patch) -> None:
    patch.setattr(RewriteNotes, "clear", lambda *_: 0)


CORE: tuple[Callable[[Patch], None], ...] = (
    older_wins,
    ties_reversed,
    arrival_reversed,
    losers_added,
    deletes_added,
    no_look_up,
    look_up_pruned_too_far,
    stored_keys_buried,
    cut_bounds_unwidened,
    first_column_of_a_key_only,
    first_column_of_a_sequence_only,
)

# Noticed by one of the first histories, so the suite has them all; the others are rarer.
QUICK: tuple[Callable[[Patch], None], ...] = (
    no_look_up,
    old_rows_stay,
    position_ahead,
    last_version_only,
    all_rows_leave,
    leftovers_forgotten,
)
MERGES = (*QUICK, commits_rebased, restore_ignored, gap_passed, rebuild_keeps_rows)
