"""The test of the test: guards of the product, each of which can be taken away.

A guard's removal is a patch of the product for one run. If no seed finds it, the
simulator is too kind, or the guard guards nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from blizzard_py import batch, claims, discovery, latefiles, pipeline, processed, progress, publish, sweep
from blizzard_py.batch import BatchRunner
from blizzard_py.core import fence, floor, scan, watermark
from blizzard_py.core.fence import FencedFile, Writer
from blizzard_py.core.lookback import lookback_floor
from blizzard_py.core.storage import join
from blizzard_py.core.watermark import Scanned
from blizzard_py.ledger import Ledger
from blizzard_py.replay import ledger as replay_ledger
from blizzard_py.state import PlannedOutput
from penguin_py import plan as penguin_plan
from penguin_py import recovery
from penguin_py.delta import DeltaLog
from penguin_py.identities import OutputIds
from penguin_py.pipeline import TablePipeline
from penguin_py.quarantine import Quarantine
from penguin_py.view import TableView
from tests.simulation import commands
from tests.simulation.world import World

Patch = Callable[[World], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Guard:
    """One guard: its name, what it is that is missing without it, and how to take it away."""

    name: str
    without: str
    patch: Patch


GUARDS: list[Guard] = []


def guard(without: str) -> Callable[[Callable[[World], Iterator[None]]], Patch]:
    """Register a patch under its function's name."""

    def register(function: Callable[[World], Iterator[None]]) -> Patch:
        patch = contextmanager(function)
        GUARDS.append(Guard(function.__name__, without, patch))
        return patch

    return register


# -- the fence ----------------------------------------------------------------------------


@guard("saves replace whatever is there, whoever wrote it")
def fenced_saves(_world: World) -> Iterator[None]:
    def put(self: Any, document: Any, epoch: int) -> None:
        data = fence.encode({**document, "writer": {"id": self._id, "epoch": epoch}})
        self._storage.put_atomic(self._path, data)

    with mock.patch.object(FencedFile, "_put", put):
        yield


@guard("a refused save is believed without looking whether it was our own")
def read_back(_world: World) -> Iterator[None]:
    def put(self: Any, document: Any, epoch: int) -> None:
        data = fence.encode({**document, "writer": {"id": self._id, "epoch": epoch}})
        self._version = self._storage.put_if(self._path, data, self._version)

    with mock.patch.object(FencedFile, "_put", put):
        yield


@guard("a start reads the checkpoint and writes nothing before it acts")
def take_over_writes(_world: World) -> Iterator[None]:
    def take(self: Any, parse: Any, fresh: Any) -> Any:
        try:
            raw, self._version = self._storage.read_versioned(self._path)
        except fence.NotFound:
            self._put(fresh, 1)
            self._epoch = 1
            return None
        document = fence.parsed(raw, self._where)
        found = fence.writer_of(document, self._where) or Writer("", 0)
        self._epoch = found.epoch + 1
        return parse(document, self._where)

    with mock.patch.object(FencedFile, "take", take):
        yield


# -- staging and publishing ---------------------------------------------------------------


@guard("what is staged has no epoch in its path, so a start clears what others stage")
def epochs_in_staging(_world: World) -> Iterator[None]:
    def staging_of(source_id: str, _epoch: int, name: str) -> str:
        return join(publish.STAGING_FOLDER, source_id, "00000000", name)

    with (
        mock.patch.object(batch, "staging_of", staging_of),
        mock.patch.object(
            batch, "clear_older", lambda sink, source_id, _epoch: publish.clear_older(sink, source_id, 1)
        ),
    ):
        yield


@guard("a start clears all that is staged before it has taken the checkpoint over")
def save_before_clearing(_world: World) -> Iterator[None]:
    real = pipeline.SourcePipeline._recover

    def recover(self: Any) -> Any:
        publish.clear_older(self.sink, self.id, 10**7)
        return real(self)

    with mock.patch.object(pipeline.SourcePipeline, "_recover", recover):
        yield


@guard("outputs that are neither staged nor published count as published")
def both_missing_is_refused(_world: World) -> Iterator[None]:
    with mock.patch.object(BatchRunner, "_check_published", lambda *_arguments: None):
        yield


@guard("what a crash left staged is published under the names it was to have")
def fresh_names_on_recovery(_world: World) -> Iterator[None]:
    with mock.patch.object(batch, "renamed", lambda state, found, _names: (state, found)):
        yield


@guard("after a crash what is staged is taken for published")
def unpublished_is_published(_world: World) -> Iterator[None]:
    def nothing(_storage: Any, _outputs: list[PlannedOutput], _concurrency: int) -> Any:
        return publish.Unpublished((), ())

    with mock.patch.object(batch, "unpublished", nothing):
        yield


@guard("a batch that crashed before its commit is let go of")
def running_batches_run_again(_world: World) -> Iterator[None]:
    real = BatchRunner.recover

    def recover(self: Any, state: Any, found: Any) -> Any:
        if found.phase != "running":
            return real(self, state, found)
        done = replace(
            state,
            in_flight=tuple(b for b in state.in_flight if b.batch != found.batch),
            progress=watermark.finished(
                state.progress, [e.path for e in found.files], found.seen_ts, progress.hold_all
            ),
        )
        return self._save(done)

    with mock.patch.object(BatchRunner, "recover", recover):
        yield


@guard("dead letters are written before the commit point")
def letters_after_the_commit(_world: World) -> Iterator[None]:
    real = BatchRunner.prepare

    def prepare(self: Any, state: Any, ingesting: Any) -> Any:
        found = real(self, state, ingesting)
        self._letters.keep(found[1], state.retries)
        return found

    with mock.patch.object(BatchRunner, "prepare", prepare):
        yield


@guard("dead letters are not written at all")
def letters_are_durable(_world: World) -> Iterator[None]:
    def tell(self: Any, _state: Any, found: Any) -> None:
        self._journal.write(found)

    with mock.patch.object(BatchRunner, "_tell", tell):
        yield


# -- what scans tell ----------------------------------------------------------------------


@guard("a name's grace is over by the clock, whether anybody looked or not")
def grace_by_scans(_world: World) -> Iterator[None]:
    real = BatchRunner._advance

    def advance(self: Any, state: Any, found: Any, lowest: Any) -> Any:
        state = real(self, state, found, lowest)
        if state.processed is not None:
            return state
        now, grace = self._now(), self._parts.source.grace_period_secs
        moved = watermark.settled(state.progress, Scanned(now, now), grace, lowest)
        return replace(state, progress=moved)

    with mock.patch.object(BatchRunner, "_advance", advance):
        yield


@guard("names of files with an old modification time need no grace")
def modification_times_mean_nothing(_world: World) -> Iterator[None]:
    real = progress.advanced

    def advanced(state: Any, found: Any, lowest: Any, now: float) -> Any:
        after = real(state, found, lowest, now)
        if after.processed is not None:
            return after
        old = [e.path for e in found.files if e.modified < now - 86_400]
        partitions = dict(after.progress.partitions)
        for path in old:
            partition, name = watermark.split(path, after.progress.depth or 0)
            known = partitions.get(partition)
            if known is not None and name in known.done:
                partitions[partition] = replace(known, done={**known.done, name: 0.0})
        return replace(after, progress=replace(after.progress, partitions=partitions))

    with mock.patch.object(batch, "advanced", advanced):
        yield


@guard("recovery moves scan starts, though it does not know what waits")
def recovery_moves_nothing(_world: World) -> Iterator[None]:
    real = BatchRunner.recover

    def recover(self: Any, state: Any, found: Any) -> Any:
        state = real(self, state, found)
        if state.processed is not None:
            return state
        now, grace = self._now(), self._parts.source.grace_period_secs
        moved = watermark.settled(
            state.progress, Scanned(now, now), grace, lambda _partition: None
        )
        return replace(state, progress=moved)

    with mock.patch.object(BatchRunner, "recover", recover):
        yield


@guard("the scan's end counts where its beginning should")
def scans_count_from_their_beginning(_world: World) -> Iterator[None]:
    real = watermark.settled

    def settled(before: Any, scanned: Scanned, grace: float, lowest: Any) -> Any:
        return real(before, replace(scanned, began=scanned.ended), grace, lowest)

    with mock.patch.object(progress, "settled_progress", settled):
        yield


@guard("files that wait do not hold scan starts back")
def pending_files_hold(_world: World) -> Iterator[None]:
    with mock.patch.object(progress, "held_by", lambda _paths, _depth, lowest: lowest):
        yield


@guard("a file to be tried again counts as done")
def retried_files_are_not_done(_world: World) -> Iterator[None]:
    real = progress.advanced

    def advanced(state: Any, found: Any, lowest: Any, now: float) -> Any:
        judged = tuple(
            replace(f, outcome="ingested") if f.outcome == "retry" else f for f in found.finished
        )
        return real(state, replace(found, finished=judged), lowest, now)

    with mock.patch.object(batch, "advanced", advanced):
        yield


@guard("a scan that was bounded counts as one of everything")
def bounded_scans_say_so(_world: World) -> Iterator[None]:
    real = discovery.discover

    def discover(*arguments: Any, **more: Any) -> Any:
        found = real(*arguments, **more)
        return replace(found, scanned=replace(found.scanned, until=None))

    with mock.patch.object(pipeline, "discover", discover):
        yield


@guard("a key that a listing repeats is planned twice")
def repeated_keys_count_once(_world: World) -> Iterator[None]:
    real = scan.scan

    def scanned(storage: Any, *arguments: Any, **more: Any) -> Any:
        repeated: list[Any] = []
        seen: set[str] = set()

        class Noting:
            def list_range(self, after: str, until: str | None) -> Iterator[Any]:
                for page in storage.list_range(after, until):
                    repeated.extend(e for e in page.entries if e.path in seen)
                    seen.update(e.path for e in page.entries)
                    yield page

        found = real(Noting(), *arguments, **more)
        new = {entry.path for entry in found.entries}
        twice = tuple(entry for entry in repeated if entry.path in new)
        return replace(found, entries=(*found.entries, *twice))

    with mock.patch.object(scan, "scan", scanned), mock.patch.object(discovery, "scan", _watched(scanned)):
        yield


def _watched(inner: Any) -> Any:
    """The scan under the one that the simulator watches."""
    outer = discovery.scan
    cells = dict(zip(outer.__code__.co_freevars, outer.__closure__ or (), strict=True))
    if "real" in cells:
        cells["real"].cell_contents = inner
    return outer


@guard("the depth of partitions is settled by files at the root")
def depth_by_directories(_world: World) -> Iterator[None]:
    real = scan.depth_of

    def depth_of(paths: Any) -> int | None:
        found = list(paths)
        depth = real(found)
        return 0 if depth is None and found else depth

    with mock.patch.object(scan, "depth_of", depth_of):
        yield


@guard("names in grace that the checkpoint leaves to the journal are not read from it")
def window_is_read(_world: World) -> Iterator[None]:
    with mock.patch.object(pipeline, "whole", lambda _sink, _id, state: state):
        yield


@guard("a time that a wrong clock noted is waited for")
def wrong_times_are_cut(_world: World) -> Iterator[None]:
    with mock.patch.object(pipeline, "clamped", lambda state, _now: state):
        yield


# -- the floor ----------------------------------------------------------------------------


@guard("the floor rises over files that were found and are not done")
def floor_below_pending(_world: World) -> Iterator[None]:
    real = floor.raised
    with mock.patch.object(
        progress, "raised", lambda moved, limit, lookback, _pending: real(moved, limit, lookback, ())
    ):
        yield


@guard("the floor rises over partitions with names in grace, and above every expired one")
def floor_below_grace(_world: World) -> Iterator[None]:
    def ceiling(_progress: Any, _counted: Any, _depth: int, pending: Any) -> bytes:
        held = [watermark.order_key(path) for path in pending]
        return min(held, default=b"\xff")

    with mock.patch.object(floor, "_ceiling", ceiling):
        yield


@guard("the floor of a cold start follows the clock")
def cold_floor_is_frozen(_world: World) -> Iterator[None]:
    real = discovery.starting_point

    def starting_point(state: Any, source: Any, now: float, where: str) -> Any:
        found = real(state, source, now, where)
        oldest = lookback_floor(source.partition_filter, now)
        if state.progress.state == "Initial" and oldest is not None:
            return replace(found, floor=oldest)
        return found

    with mock.patch.object(pipeline, "starting_point", starting_point):
        yield


@guard("partitions ahead of time are tracked like any other")
def ahead_of_time_apart(_world: World) -> Iterator[None]:
    with mock.patch.object(discovery.Places, "take", lambda _self, _path: True):
        yield


# -- late files ---------------------------------------------------------------------------


@guard("the sweep does not ask the journal what was done")
def journal_is_asked(_world: World) -> Iterator[None]:
    with mock.patch.object(Ledger, "look", lambda _self: None):
        yield


@guard("there is no sweep")
def sweep_looks(_world: World) -> Iterator[None]:
    with mock.patch.object(pipeline, "is_due", lambda *_arguments: False):
        yield


@guard("the sweep takes files for late that wait for another try or in a queue")
def sweep_leaves_known_files(_world: World) -> Iterator[None]:
    with mock.patch.object(sweep, "_is_passed", lambda _state, _path: True):
        yield


@guard("late verdicts are written without a commit")
def late_verdicts_are_committed(_world: World) -> Iterator[None]:
    real = latefiles.LateFiles._dealt_with

    def dealt_with(self: Any, state: Any, late: Any) -> Any:
        if not late or self._source.late_files == "ingest":
            return real(self, state, late)
        return self._upkeep.save(state)

    with mock.patch.object(latefiles.LateFiles, "_dealt_with", dealt_with):
        yield


# -- the state ----------------------------------------------------------------------------


@guard("a checkpoint of other files is gone on with")
def identity_is_checked(_world: World) -> Iterator[None]:
    with mock.patch.object(pipeline, "check_identity", lambda *_arguments: None):
        yield


@guard("a missing checkpoint means a cold start")
def lost_checkpoints_are_noticed(_world: World) -> Iterator[None]:
    with mock.patch.object(pipeline, "check_cold_start", lambda *_arguments: None):
        yield


@guard("the way of tracking can be changed under a state")
def tracking_is_checked(_world: World) -> Iterator[None]:
    with mock.patch.object(pipeline, "check_tracking", lambda *_arguments: None):
        yield


@guard("a stale daemon removes segments of names that its successor wrote")
def segments_have_epochs(_world: World) -> Iterator[None]:
    real = processed.sweep

    def swept(storage: Any, folder: str, segments: Any, _epoch: int) -> Any:
        return real(storage, folder, segments, 10**7)

    with mock.patch.object(processed, "sweep", swept):
        yield


# -- people --------------------------------------------------------------------------------


@guard("a replay takes files without asking who else has them")
def replays_ask_whose_it_is(_world: World) -> Iterator[None]:
    with mock.patch.object(claims.Claims, "whose", lambda *_arguments, **_more: ""):
        yield


@guard("a backfill takes files that the live daemon has settled")
def backfills_ask_the_ledger(_world: World) -> Iterator[None]:
    with mock.patch.object(commands, "is_ours", lambda *_arguments, **_more: True):
        yield


@guard("a replay forgets which letters it has taken, and takes them again")
def replays_keep_a_ledger(_world: World) -> Iterator[None]:
    def drained(*_arguments: Any) -> bool:
        return False

    with mock.patch.object(replay_ledger.Ledger, "has_work", drained):
        yield


# -- Penguin ------------------------------------------------------------------------------


@guard("Penguin commits a second file with an output id that is committed")
def output_ids_come_once(_world: World) -> Iterator[None]:
    with mock.patch.object(penguin_plan, "_check_identity", lambda *_arguments: None):
        yield


@guard("Penguin forgets output ids that are not in its memory")
def output_ids_are_kept(_world: World) -> Iterator[None]:
    with (
        mock.patch.object(OutputIds, "__contains__", lambda _self, _name: False),
        mock.patch.object(DeltaLog, "recent_output_ids", lambda *_arguments: []),
    ):
        yield


@guard("Penguin does not ask the log which paths it has")
def log_paths_are_known(_world: World) -> Iterator[None]:
    def is_open(_self: Any, _memory: Any, _path: str) -> bool:
        return True

    with (
        mock.patch.object(TableView, "knows", lambda _self, _path: False),
        mock.patch.object(TableView, "is_open", is_open),
        mock.patch.object(recovery, "completed", lambda found, *_more: found, create=True),
    ):
        yield


@guard("two Penguins commit beside each other without a transaction in common")
def transactions_conflict(_world: World) -> Iterator[None]:
    with mock.patch.object(DeltaLog, "_transactions", lambda *_arguments: []):
        yield


@guard("Penguin's mirror is written before the commit and believed")
def mirror_follows_the_log(_world: World) -> Iterator[None]:
    real = TablePipeline._commit
    remembered = recovery._remembered

    def commit(self: Any, plan: Any, memory: Any, moved: Any, now: float) -> Any:
        if memory.txn_version:
            self._view.save(replace(memory, progress=moved), now)
        return real(self, plan, memory, moved, now)

    def believed(table: Any, storage: Any, log: Any, state: Any) -> Any:
        path = recovery.mirror_path(table.state_name)
        mirror = recovery.checkpoint.load(storage, path, recovery.mirror_from_json)
        known = remembered(table, storage, log, state)
        if mirror is None or known is None:
            return known
        return replace(known, progress=mirror.progress)

    with (
        mock.patch.object(TablePipeline, "_commit", commit),
        mock.patch.object(recovery, "_remembered", believed),
    ):
        yield


@guard("Penguin passes files that it refuses without a record")
def refusals_are_recorded(_world: World) -> Iterator[None]:
    with mock.patch.object(Quarantine, "keep", lambda _self, _rejections, _now: ()):
        yield


@guard("Penguin does not look below its watermarks")
def penguin_reconciles(_world: World) -> Iterator[None]:
    def due(_self: Any, *_arguments: Any) -> list[str]:
        return []

    from penguin_py.chores import Chores  # noqa: PLC0415  # only here

    with mock.patch.object(Chores, "due", due):
        yield


