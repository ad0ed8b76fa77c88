"""Guards of processed names: scans, the floor, the sweep for late files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from blizzard_core.notifications.inbox import Delivery
from blizzard_core.watermark import closed_partitions, scan
from blizzard_core.watermark import paths as watermark_paths
from blizzard_core.watermark import progress as watermark
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.progress import ScanTimes
from blizzard_py.ingest import start
from blizzard_py.ingest.batch_runner import BatchRunner
from blizzard_py.sources.files import (
    advance,
    discovery,
    late_file_outcomes,
    late_file_sweep,
    watermark_files,
)
from blizzard_py.sources.files import source as files
from blizzard_py.sources.files.scan_pacing import PacedScans
from blizzard_py.sources.files.scan_schedule import PastScan
from blizzard_py.state.ledger import Ledger
from tests.simulation.guards.registry import always, guard, never, nothing
from tests.simulation.models import covered_scans, replaced_daemons
from tests.simulation.world import SimulatedWorld


@guard("a name's grace is over by the clock, whether anybody looked or not")
def grace_by_scans(_world: SimulatedWorld) -> Iterator[None]:
    real = BatchRunner._advance

    def advance(self: Any, state: Any, found: Any, work: Any) -> Any:
        state = real(self, state, found, work)
        if state.names.processed is not None or found.request:
            return state
        now, grace = self._now(), self._parts.source.grace_period
        lowest = files._lowest(state, found, work)
        moved = watermark.expire_grace(state.position.progress, ScanTimes(now, now), grace, lowest)
        return state.with_position(progress=moved)

    with mock.patch.object(BatchRunner, "_advance", advance):
        yield


@guard("names of files with an old modification time need no grace")
def modification_times_mean_nothing(_world: SimulatedWorld) -> Iterator[None]:
    real = advance.finish_batch

    def advanced(state: Any, found: Any, lowest: Any, now: float) -> Any:
        after = real(state, found, lowest, now)
        if after.names.processed is not None:
            return after
        old = [e.path for e in found.files if e.modified < now - 86_400]
        partitions = dict(after.position.progress.partitions)
        for path in old:
            partition, name = watermark_paths.split(path, after.position.progress.depth or 0)
            known = partitions.get(partition)
            if known is not None and name in known.done:
                partitions[partition] = replace(known, done={**known.done, name: 0.0})
        return after.with_position(progress=replace(after.position.progress, partitions=partitions))

    with mock.patch.object(watermark_files, "finish_batch", advanced):
        yield


@guard("recovery moves scan starts, though it does not know what waits")
def recovery_moves_nothing(_world: SimulatedWorld) -> Iterator[None]:
    real = BatchRunner.recover

    def recover(self: Any, state: Any, found: Any) -> Any:
        state = real(self, state, found)
        if state.names.processed is not None:
            return state
        now, grace = self._now(), self._parts.source.grace_period
        moved = watermark.expire_grace(
            state.position.progress, ScanTimes(now, now), grace, lambda _partition: None
        )
        return state.with_position(progress=moved)

    with mock.patch.object(BatchRunner, "recover", recover):
        yield


@guard("the scan's end counts where its beginning should")
def scans_count_from_their_beginning(_world: SimulatedWorld) -> Iterator[None]:
    real = watermark.expire_grace

    def end_counts(before: Any, scanned: ScanTimes, grace: float, lowest: Any) -> Any:
        return real(before, replace(scanned, began=scanned.ended), grace, lowest)

    with mock.patch.object(advance, "settled_progress", end_counts):
        yield


@guard("files that wait do not hold scan starts back")
def pending_files_hold(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(advance, "with_waiting", lambda _paths, _depth, lowest: lowest):
        yield


@guard("a file to be tried again counts as done")
def retried_files_are_not_done(_world: SimulatedWorld) -> Iterator[None]:
    real = BatchRunner._advance

    def advance(self: Any, state: Any, found: Any, work: Any) -> Any:
        judged = tuple(
            replace(f, outcome="ingested") if f.outcome == "retry" else f
            for f in found.results.finished
        )
        return real(self, state, found.with_results(finished=judged), work)

    with mock.patch.object(BatchRunner, "_advance", advance):
        yield


@guard("a scan that was bounded counts as one of everything")
def bounded_scans_say_so(_world: SimulatedWorld) -> Iterator[None]:
    real = discovery.discover

    def discover(*arguments: Any, **more: Any) -> Any:
        found = real(*arguments, **more)
        return replace(found, scanned=replace(found.scanned, until=None))

    with mock.patch.object(watermark_files, "discover", discover):
        yield


@guard("a scan of a part counts as one of everything")
def partial_scans_say_so(_world: SimulatedWorld) -> Iterator[None]:
    real = discovery.discover

    def discover(*arguments: Any, **more: Any) -> Any:
        found = real(*arguments, **more)
        return replace(found, scanned=replace(found.scanned, cover=None))

    with mock.patch.object(watermark_files, "discover", discover):
        yield


@guard("a scan of a part raises floors, too", covered_scans)
def floors_by_complete_scans(_world: SimulatedWorld) -> Iterator[None]:
    real = advance.end_scan

    def end_scan(
        state: Any, progress: Any, pending: Any, scanned: ScanTimes, rules: advance.FloorRules
    ) -> Any:
        ended = real(state, progress, pending, scanned, rules)
        moved = closed_partitions.raise_floors(
            ended.position.progress, rules.tracked, rules.lookback, pending, scanned.ended
        )
        return ended.with_position(progress=moved)

    with mock.patch.object(advance, "end_scan", end_scan):
        yield


@guard("a message is deleted once it is received", replaced_daemons)
def hints_after_saves(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(Delivery, "expect", nothing):
        yield


@guard("a start goes on with hot ranges, as if it had scanned everything")
def start_scans_all(_world: SimulatedWorld) -> Iterator[None]:
    def start_over(self: Any) -> None:
        past = PastScan(self._monotonic())
        self._schedule = replace(self._schedule, complete=past, is_cut=False)

    with mock.patch.object(PacedScans, "start_over", start_over):
        yield


@guard("a key that a listing repeats is planned twice")
def repeated_keys_count_once(_world: SimulatedWorld) -> Iterator[None]:
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

            def list_ranges(self, ranges: Any, may_be_wanted: Any = None) -> Any:
                return storage.list_ranges(ranges, may_be_wanted)

        found = real(Noting(), *arguments, **more)
        new = {entry.path for entry in found.entries}
        twice = tuple(entry for entry in repeated if entry.path in new)
        return replace(found, entries=(*found.entries, *twice))

    with (
        mock.patch.object(scan, "scan", scanned),
        mock.patch.object(discovery, "scan", _watched(scanned)),
    ):
        yield


def _watched(inner: Any) -> Any:
    """Return the scan under the one that the simulator watches."""
    outer = discovery.scan
    cells = dict(zip(outer.__code__.co_freevars, outer.__closure__ or (), strict=True))
    if "real" in cells:
        cells["real"].cell_contents = inner
    return outer


@guard("the depth of partitions is settled by files at the root")
def depth_by_directories(_world: SimulatedWorld) -> Iterator[None]:
    real = scan.depth_of

    def depth_of(paths: Any) -> int | None:
        found = list(paths)
        depth = real(found)
        return 0 if depth is None and found else depth

    with mock.patch.object(scan, "depth_of", depth_of):
        yield


@guard("names in grace that the checkpoint leaves to the journal are not read from it")
def window_is_read(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(start, "with_journal_names", lambda _sink, _id, state: state):
        yield


@guard("a time that a wrong clock noted is waited for")
def wrong_times_are_cut(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(start, "clamp_times", lambda state, _now: state):
        yield


@guard("the floor rises over files that were found and are not done")
def floor_below_pending(_world: SimulatedWorld) -> Iterator[None]:
    real = closed_partitions.raise_floors
    with mock.patch.object(
        advance,
        "raise_floors",
        lambda moved, limit, lookback, _pending, now, _until: real(moved, limit, lookback, (), now),
    ):
        yield


@guard("the floor rises over partitions with names in grace, and above every expired one")
def floor_below_grace(_world: SimulatedWorld) -> Iterator[None]:
    def ceiling(
        _progress: Any,
        head: str,
        _counted: Any,
        _closing: Any,
        pending: Any,
        _now: float,
        until: Any,
    ) -> bytes:
        held = [watermark.order_key(path) for path in pending if path.startswith(head)]
        return min(held if until is None else [*held, until.encode()], default=b"\xff")

    with mock.patch.object(closed_partitions, "_ceiling", ceiling):
        yield


@guard("the floor of a cold start follows the clock")
def cold_floor_is_frozen(_world: SimulatedWorld) -> Iterator[None]:
    real = discovery.starting_point

    def starting_point(state: Any, source: Any, now: float, where: str) -> Any:
        found = real(state, source, now, where)
        oldest = lookback_floor(source.partition_filter, now)
        if state.position.progress.state == "Initial" and oldest is not None:
            return replace(found, floor=oldest)
        return found

    with mock.patch.object(watermark_files, "starting_point", starting_point):
        yield


@guard("partitions ahead of time are tracked like any other")
def future_partitions_are_separate(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(discovery.PartitionSelector, "take", always):
        yield


@guard("the sweep does not ask the journal what was done")
def sweep_reads_journal(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(Ledger, "look", nothing):
        yield


@guard("there is no sweep")
def sweep_looks(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(files, "is_due", never):
        yield


@guard("the sweep takes files for late that wait for another try or in a queue")
def sweep_leaves_known_files(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(late_file_sweep, "is_passed", always):
        yield


@guard("late verdicts are written without a commit")
def late_verdicts_are_committed(_world: SimulatedWorld) -> Iterator[None]:
    real = late_file_outcomes.LateFiles._dealt_with

    def dealt_with(self: Any, state: Any, late: Any) -> Any:
        if not late or self._source.late_files == "ingest":
            return real(self, state, late)
        return self._upkeep.save(state)

    with mock.patch.object(late_file_outcomes.LateFiles, "_dealt_with", dealt_with):
        yield
