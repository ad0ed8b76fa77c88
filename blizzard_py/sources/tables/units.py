"""A source that is read by work units: ranges of time, values, or both. A `Source`.

**An item** is a unit, named by where its partition begins and its values
(`blizzard_py.slices.units.state.unit_key`). `plan` fixes the range that is read of each unit of the
next batch, and stores it in `UnitsState.readings`. The state is saved with the batch before its job
starts. So a process that takes over reads the same ranges. The requests follow from the ranges and
the configuration.

Units of a batch are read separately: a failing unit does not affect the others. It waits longer
each time, and gets a dead letter after `max_retries` further failures. The units that were read are
one group, which replaces their published rows (`blizzard_core.handover.groups`).

There is one batch at a time; due units are determined again before each. One poll reads at most a
`UnitRun`. A unit in grace is due at each poll, so the default poll interval is an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from blizzard_core.errors import BlizzardError, SourceError, StateError
from blizzard_core.storage.protocol import Entry
from blizzard_py.connections.query_spec import QuerySpec, Units
from blizzard_py.job import FinishedFile, JobFile
from blizzard_py.reading import Reading, ReadTask, UnitSlice
from blizzard_py.slices.units.grid import GridLayout
from blizzard_py.slices.units.outcomes import slice_texts
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.state import UnitsState, unit_key
from blizzard_py.slices.units.trust import is_ahead, put_right
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import (
    Backlog,
    CheckpointServices,
    PlainWork,
    PollPlan,
    Requested,
    SourceScan,
)
from blizzard_py.sources.story import Story
from blizzard_py.sources.tables import newer_groups, unit_plans, unit_states
from blizzard_py.sources.tables.newer_groups import Since
from blizzard_py.sources.tables.sliced import OWN_ID, SlicedSource
from blizzard_py.sources.tables.unit_names import values_of
from blizzard_py.sources.tables.unit_plans import UnitOutlook, UnitRun
from blizzard_py.sources.tables.unit_story import close_bad_rows, close_letters, unit_story
from blizzard_py.state.batch import Batch, Replaced
from blizzard_py.state.committers import blocked_by
from blizzard_py.state.retries import waiting
from blizzard_py.state.source_state import SourceState

# So many units, for each that is read at the same time, are published together.
_ROUNDS = 25

_CLOCK = (
    "units were read at a time that is still to come: a clock is behind, or was ahead then; they"
    " count as read up to now, and the rest is read again when it is there"
)


class UnitSource(SlicedSource):
    """See the module's docstring and `blizzard_py.sources.protocol.Source`."""

    items = "unit"

    def __init__(
        self, parts: SourceContext, upkeep: CheckpointServices, query_spec: QuerySpec
    ) -> None:
        assert query_spec.units is not None  # noqa: S101  # who opens it has looked
        super().__init__(parts, upkeep, query_spec)
        self._configured: Units = query_spec.units
        self._units: Units = unit_plans.without_limit(query_spec.units)
        self._limit = query_spec.units.terms.limit
        self._activity_of = upkeep.activity
        self._save = upkeep.save
        self._run: UnitRun | None = None
        self._bound: dict[str, tuple[UnitSlice, ...]] = {}
        # What is known after a batch in which units succeeded that had failed.
        self._mended: UnitsState | None = None
        # The units that a batch has read again as a whole, and the batch.
        self._again: tuple[frozenset[str], str] | None = None
        # Those that have failed, and are tried again.
        self._failing: set[str] = set()

    @property
    def is_failing(self) -> bool:
        """Return whether units could not be read as of the last poll, and wait for another try."""
        return bool(self._failing)

    # -- for all readers -----------------------------------------------------------

    def check(self, state: SourceState) -> None:
        if state.kind.units is None and (
            state.kind.columns is not None or state.position.progress.value is not None
        ):
            raise StateError(
                f"{self._where}: is of a source that was not read by units, so its rows in the"
                f" table cannot be told and replaced. Give the source {OWN_ID} and delete the old"
                " rows; or keep them for ever, with `blizzard checkpoint reset --units --adopt`"
            )

    def discover(self, state: SourceState, *, full: bool = False) -> SourceScan:  # noqa: ARG002  # all is looked at
        began = self._clock()
        found = self._preview(state)
        units = unit_plans.to_read(
            found, self._fresh_run(began), waiting(state.work.retries, began)
        )
        return self._units_of(units, began, again=False)

    def outlook(self, state: SourceState, batch: Batch) -> SourceState:
        return unit_states.after(state, batch)

    def backlog(self, state: SourceState) -> Backlog:
        """Count units that failed or must be read again. Sends no request; polls find due units."""
        known = state.kind.units or UnitsState()
        behind = sum(bool(unit.failures) for unit in known.open.values()) + len(known.redo)
        return Backlog(behind, None, complete=False)

    def status_fields(self, state: SourceState) -> dict[str, Any]:
        blocked = blocked_by(self._parts.stores.sink, self.id)
        return self._shown(state) | {"units": unit_states.units_status(state, blocked)}

    def explain(self, name: str) -> Story:
        return unit_story(name, self._status_of, self.check)

    def preview(self, state: SourceState) -> UnitOutlook:
        """Return what is due now, all of it. Writes nothing."""
        return self._preview(state)

    # -- for the owner of the checkpoint -------------------------------------------

    def recover(self, state: SourceState, epoch: int) -> SourceState:  # noqa: ARG002  # nothing of it is kept aside
        self._close_letters(state.kind.units)
        return state

    def plan(self, state: SourceState) -> PollPlan[PlainWork]:
        began = self._clock()
        run = self._run_at(began)
        if state.kind.units is not None and is_ahead(state.kind.units, self._dated()):
            self._log.warning("clock", reason=_CLOCK)
            state = self._save(state.with_kind(units=put_right(state.kind.units, self._dated())))
        found = self._preview(state)
        failing = {key for key, unit in found.state.open.items() if unit.failures}
        there = (unit_key(unit.partition[0], unit.name) for unit in found.due.units)
        self._failing = failing.intersection(there) if failing else set()
        activity = self._activity_of()
        activity.units_planned(
            GridLayout(
                found.laid.partitions, found.values, self._units.terms, self._units.range.zone
            )
        )
        for warning in self._unheard(unit_plans.warnings_of(found)):
            self._log.warning("units", reason=warning)
        activity.units(unit_plans.counts_of(found))
        to_read = unit_plans.to_read(found, run, waiting(state.work.retries, began))
        units = to_read[: _ROUNDS * self._units.parallel]
        entries = self._units_of(units, began, again=len(to_read) > len(units))
        if not units:
            return PollPlan(state, entries, PlainWork(()))
        if run.remaining is not None:
            run.remaining -= len(units)
        now = self._dated()
        readings = tuple(unit_plans.plan_reading(unit, self._units, now) for unit in units)
        next_ = state.with_kind(units=replace(found.state, readings=readings))
        return PollPlan(next_, entries, PlainWork(entries.files))

    def requested_items(self, state: SourceState, now: float) -> Requested:  # noqa: ARG002  # the seam gives it
        return Requested()

    def job_items(
        self, state: SourceState, batch: Batch
    ) -> tuple[list[JobFile], list[FinishedFile]]:
        readings = unit_states.read_by(state, batch)
        missing = next((e.path for e in batch.files if e.path not in readings), None)
        if missing is not None:
            raise StateError(f"{self._where}: has a batch with {missing!r} and no reading of it")
        values = {key: unit_plans.slice_values(r, self._units) for key, r in readings.items()}
        tasks = iter(
            self._query_spec.connection.unit_tasks(
                [one for some in values.values() for one in some]
            )
        )
        files, lost = [], []
        self._bound = {}
        for key, some in values.items():
            found = [next(tasks) for _ in some]
            error = next((each for each in found if isinstance(each, SourceError)), None)
            if error is not None:
                lost.append(FinishedFile(key, "retry", error=str(error), stage="read"))
                continue
            texts = slice_texts(self.id, readings[key])
            read = [each for each in found if isinstance(each, ReadTask)]
            self._bound[key] = tuple(map(UnitSlice, texts, read))
            files.append(JobFile(key, 0))
        return files, lost

    @contextmanager
    def reading(self, state: SourceState, batch: Batch) -> Iterator[Reading]:  # noqa: ARG002  # `job_items` was asked
        with self._query_spec.connection.hold(self._query_spec.access) as access:
            yield Reading(
                access,
                {},
                slices=self._bound,
                apart=True,
                parallel=self._units.parallel,
                pacing_secs=self._units.pacing_secs,
            )

    def replacement(
        self, state: SourceState, batch: Batch, finished: Sequence[FinishedFile]
    ) -> Replaced | None:
        done = {file.path for file in finished if file.outcome == "ingested"}
        return unit_states.ranges_of(self.id, state, batch, done)

    def advance(
        self,
        state: SourceState,
        batch: Batch,
        work: PlainWork | None,  # noqa: ARG002  # what waits stands in the state
        now: float,  # noqa: ARG002  # pauses count from when the reading was planned
    ) -> SourceState:
        done = {file.path for file in batch.results.finished if file.outcome == "ingested"}
        self._failing = {file.path for file in batch.results.finished if file.path not in done} | (
            self._failing - done
        )
        if self._run is not None:
            self._run.read_units |= done
        known = {} if state.kind.units is None else state.kind.units.open
        found = unit_states.after(state, batch)
        if any(key in known and known[key].failures for key in done):
            self._mended = found.kind.units
        again = unit_states.read_again(state, batch) & done
        self._again = (frozenset(again), batch.batch) if again else None
        return found

    def clean_up(self) -> None:
        mended, self._mended = self._mended, None
        self._close_letters(mended)
        again, self._again = self._again, None
        if again is not None:
            parts = self._parts
            close_bad_rows(parts.stores.dlq, self.id, parts.stores.source.uri, *again)

    # -- inside --------------------------------------------------------------------

    def _close_letters(self, known: UnitsState | None) -> None:
        if known is not None:
            parts = self._parts
            close_letters(parts.stores.dlq, self.id, parts.stores.source.uri, known)

    def _preview(self, state: SourceState) -> UnitOutlook:
        values = values_of(self._configured)
        known = None if state.kind.units is None else put_right(state.kind.units, self._dated())
        return unit_plans.preview(known, self._units, values, self._now(), self._where)

    def _now(self) -> datetime:
        """Return what `-` in a range is: now for whoever has configured it, not for the store."""
        return datetime.fromtimestamp(self._parts.clock(), UTC)

    def _dated(self) -> datetime:
        """Return what readings are dated by: the earlier of that and of the store's time.

        What a clock that is ahead believes to have read is so still to come for the state.
        """
        return min(self._now(), datetime.fromtimestamp(self._clock(), UTC))

    def _fresh_run(self, now: float) -> UnitRun:
        return UnitRun(now, self._limit)

    def _run_at(self, now: float) -> UnitRun:
        """Return the run under way, or the next one if a poll interval has passed."""
        run, every = self._run, self._parts.source.poll_interval
        if run is None or not 0 <= now - run.began < every:
            run = self._run = self._fresh_run(now)
        return run

    def _believed(self, state: SourceState, since: Since) -> SourceState:
        return newer_groups.with_units(state, since, self.id, self._where)

    def _units_of(self, units: Sequence[PlannedUnit], began: float, *, again: bool) -> SourceScan:
        entries = tuple(
            Entry(unit_key(unit.partition[0], unit.name), 0, unit.start.timestamp())
            for unit in units
        )
        return self._found(entries, began, needs_rescan=again)

    def _status_of(self, state: SourceState, name: str) -> PlannedUnit | BlizzardError | None:
        try:
            found = self._preview(state)
        except BlizzardError as error:
            return error
        planned = (unit for unit in found.due.units)
        return next((u for u in planned if unit_key(u.partition[0], u.name) == name), None)
