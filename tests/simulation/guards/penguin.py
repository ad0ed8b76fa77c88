"""Guards of Penguin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from penguin_py.committer import Committer
from penguin_py.delta.output_ids import OutputIds
from penguin_py.delta.writer import LogWriter
from penguin_py.intake.quarantine import Quarantine
from penguin_py.planning import commit_plan as penguin_plan
from penguin_py.table import recovery, view
from penguin_py.table.maintenance import Maintenance
from penguin_py.table.recovery import Recovery
from penguin_py.table.view import TableView
from tests.simulation.guards.registry import always, empty, guard, never, none, nothing
from tests.simulation.world import SimulatedWorld


@guard("Penguin commits a second file with an output id that is committed")
def output_ids_come_once(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(penguin_plan, "_check_identity", nothing):
        yield


@guard("Penguin forgets output ids when it starts, those of the mirror and of the log")
def output_ids_are_stored(_world: SimulatedWorld) -> Iterator[None]:
    real = Recovery.gather_output_ids

    def gathered(*arguments: Any) -> Any:
        return replace(real(*arguments), output_ids=())

    with (
        mock.patch.object(OutputIds, "__contains__", never),
        mock.patch.object(Recovery, "gather_output_ids", gathered),
    ):
        yield


@guard("Penguin does not ask the log which paths it has")
def log_paths_are_known(_world: SimulatedWorld) -> Iterator[None]:
    with (
        mock.patch.object(TableView, "knows", never),
        mock.patch.object(TableView, "is_open", always),
        mock.patch.object(view, "add_logged_names", lambda found, *_more: found),
    ):
        yield


@guard("two Penguins commit beside each other without a transaction in common")
def transactions_conflict(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(LogWriter, "transactions", none):
        yield


# What the mirror takes for done counts as done only if the log has it, too, so the order
# alone guards nothing: its names have to count as well.
@guard("Penguin's mirror is written before the commit, and the names done in it are believed")
def mirror_follows_the_log(_world: SimulatedWorld) -> Iterator[None]:
    real = Committer._commit
    remembered = Recovery._remembered

    def commit(self: Any, plan: Any, memory: Any, moved: Any, now: float) -> Any:
        if memory.txn_version:
            self._view.refuse(add.entry.path for add in plan.adds)
            self._view.save(replace(memory, progress=moved), now)
        return real(self, plan, memory, moved, now)

    def believed(self: Any, state: Any, folded: int) -> Any:
        path = recovery.mirror_path(self._table.state_name)
        mirror = recovery.checkpoint.load(self._storage, path, recovery.mirror_from_json)
        known = remembered(self, state, folded)
        if mirror is None or known is None:
            return known
        return replace(known, progress=mirror.progress)

    with (
        mock.patch.object(Committer, "_commit", commit),
        mock.patch.object(Recovery, "_remembered", believed),
    ):
        yield


@guard("Penguin passes files that it refuses without a record")
def refusals_are_recorded(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(Quarantine, "keep", empty):
        yield


@guard("Penguin does not look below its watermarks")
def penguin_reconciles(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(Maintenance, "due", none):
        yield


@guard("Penguin goes on with a mirror, and with output ids, of commits that the log has lost")
def lost_commits_are_noticed(_world: SimulatedWorld) -> Iterator[None]:
    with (
        mock.patch.object(Recovery, "_contradiction", nothing),
        mock.patch.object(OutputIds, "check", nothing),
    ):
        yield
