"""Several sources of files that share batches, as one source. A `Source`.

Each member is a source of files over its own part of the state
(`blizzard_py.state.composite_state`). It decides about its own files as if it stood alone. The
composite lists all members. A batch takes the next files of *each* member, within its limits, and
is advanced in each. Items have qualified paths.

The owner of the checkpoint saves all members at once. If a member saves on its own (its origin, its
late files), the others are saved with their latest state of this scan.

A scan fails as a whole: while one source is out of reach, no files of the others are taken. All
share one watermark, so nothing is lost and no rows become late.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from blizzard_core.errors import StateError
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.watermark.progress import ScanTimes
from blizzard_py.job import FinishedFile, JobFile
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.advance import FileWork
from blizzard_py.sources.files.source import FileSource
from blizzard_py.sources.ignored_names import NONE_IGNORED, NONE_SKIPPED, IgnoredNames, SkippedItems
from blizzard_py.sources.meter import BatchLimits
from blizzard_py.sources.protocol import (
    Backlog,
    CheckpointServices,
    PollPlan,
    Requested,
    SourceScan,
)
from blizzard_py.sources.shared_files import check_ranges
from blizzard_py.sources.stale import World, require_current
from blizzard_py.sources.story import Story
from blizzard_py.state.batch import Batch
from blizzard_py.state.checkpoint_document import SHARED
from blizzard_py.state.checkpoint_file import check_identity, with_journal_names
from blizzard_py.state.composite_state import (
    of_source,
    part_of,
    qualify_all,
    qualify_batch,
    split_path,
    with_source,
)
from blizzard_py.state.source_state import SourceState, checkpoint_path
from blizzard_py.state.transitions import clamp_times, end_batch

if TYPE_CHECKING:  # who only looks needs no metrics
    from blizzard_py.sources.activity import SourceActivity


class CompositeWork:
    """The work of each source. A batch takes of each what its own limits allow."""

    def __init__(self, works: Mapping[str, FileWork], limits: Mapping[str, BatchLimits]) -> None:
        self._works = works
        self._limits = limits

    def __len__(self) -> int:
        return sum(map(len, self._works.values()))

    @property
    def files(self) -> Sequence[Entry]:
        """All of them, also those that were taken."""
        return [e for name, work in self._works.items() for e in qualify_all(work.files, name)]

    @property
    def size(self) -> int:
        """Stored bytes of what is left."""
        return sum(work.size for work in self._works.values())

    def take(self, limits: BatchLimits, bytes_per_sec: float | None) -> tuple[Entry, ...]:  # noqa: ARG002  # each has its own
        """Return the next batch's files: the next ones of each source that has any."""
        return tuple(
            entry
            for name, work in self._works.items()
            if len(work)
            for entry in qualify_all(work.take(self._limits[name], bytes_per_sec), name)
        )

    def work_of(self, name: str) -> FileWork:
        """Return what is left of one source."""
        return self._works[name]


class CompositeFiles:
    """The sources of files that ``parts`` has as members. See the module's docstring."""

    items = "file"
    is_failing = False

    def __init__(
        self,
        parts: SourceContext,
        upkeep: CheckpointServices,
        opens: Callable[[SourceContext, CheckpointServices], FileSource],
    ) -> None:
        self._upkeep = upkeep
        self._sink = parts.stores.sink
        self._home = parts.home_id
        self._all = parts
        self._parts = {each.source_name: each for each in parts.members}
        self._members = {name: opens(each, self._of(name)) for name, each in self._parts.items()}
        # The current state, while the members are called in turn.
        self._state = SourceState()

    def check(self, state: SourceState) -> None:
        if state.members and state.members.keys() != self._parts.keys():
            raise StateError(
                f"{self._where(self._home)}: is of the sources {', '.join(state.members)}, and"
                f" the configuration has {', '.join(self._parts)}; set them back, or give the new"
                " query a pipeline and a table of its own"
            )
        for name, member in self._members.items():
            own, parts = of_source(state, name), self._parts[name]
            where = f"{self._where(self._home)}: sources.{name}"
            check_identity(own, parts.identity, parts.source.id, where)
            member.check(own)

    def discover(self, state: SourceState, *, full: bool = False) -> SourceScan:
        return _together(
            {n: m.discover(of_source(state, n), full=full) for n, m in self._members.items()}
        )

    def outlook(self, state: SourceState, batch: Batch) -> SourceState:
        for name, part in self._parts_of(batch):
            after = self._members[name].outlook(of_source(state, name), part)
            state = _counted(state, name, after, part, part.results.committed_ts)
        return state

    def backlog(self, state: SourceState) -> Backlog | None:
        found = [m.backlog(of_source(state, name)) for name, m in self._members.items()]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        return Backlog(
            sum(each.files for each in known),
            min((e.oldest_ts for e in known if e.oldest_ts is not None), default=None),
            all(each.complete for each in known),
            _merge_skipped([each.skipped for each in known]),
            _merge_ignored([each.ignored for each in known]),
        )

    def status_fields(self, state: SourceState) -> dict[str, Any]:
        return {
            "sources": {n: m.status_fields(of_source(state, n)) for n, m in self._members.items()},
        }

    def explain(self, name: str) -> Story:
        source, path = split_path(name)
        return self._members[source].explain(path)

    def close(self) -> None:
        for member in self._members.values():
            member.close()

    def start_over(self, state: SourceState, epoch: int) -> SourceState:
        for name in self._turns(state):
            self._put(name, self._members[name].start_over(self._own(name), epoch))
        return self._state

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        # With an origin at the top it has begun, whatever its members have found so far.
        for name in self._turns(state.with_position(origin=state.position.origin or "")):
            parts = self._parts[name]
            _point(self._sink, parts.id, self._home, name)
            own = replace(self._own(name), source=parts.identity)
            own = clamp_times(with_journal_names(self._sink, parts.id, own), self._upkeep.clock())
            self._put(name, self._members[name].recover(own, epoch))
        return self._state

    def reconcile(self, state: SourceState, world: World) -> SourceState:
        check_ranges(self._all, state, self._all.clock())
        return require_current(state, self._all, world)

    def plan(self, state: SourceState) -> PollPlan[CompositeWork]:
        works: dict[str, FileWork] = {}
        found: dict[str, SourceScan] = {}
        for name in self._turns(state):
            plan = self._members[name].plan(self._own(name))
            own, works[name], found[name] = plan.state, plan.work, plan.scan
            self._put(name, own)
            self._polled(name, plan.scan, plan.work)
        limits = {name: parts.limits for name, parts in self._parts.items()}
        return PollPlan(self._state, _together(found), CompositeWork(works, limits))

    def requested_items(self, state: SourceState, now: float) -> Requested:  # noqa: ARG002  # the seam gives it
        return Requested()

    def job_items(
        self, state: SourceState, batch: Batch
    ) -> tuple[list[JobFile], list[FinishedFile]]:
        files: list[JobFile] = []
        lost: list[FinishedFile] = []
        for name, part in self._parts_of(batch):
            placed, missing = self._members[name].job_items(of_source(state, name), part)
            files += qualify_all(placed, name)
            lost += qualify_all(missing, name)
        return files, lost

    def reading(self, state: SourceState, batch: Batch) -> AbstractContextManager[None]:  # noqa: ARG002  # the seam gives it
        return contextlib.nullcontext()

    def replacement(
        self,
        state: SourceState,
        batch: Batch,
        finished: Sequence[FinishedFile],
    ) -> None:
        """Return no replacement: rows of a query belong to no file."""

    def is_missing(self, name: str) -> bool:
        source, path = split_path(name)
        return self._members[source].is_missing(path)

    def advance(
        self, state: SourceState, batch: Batch, work: CompositeWork | FileWork | None, now: float
    ) -> SourceState:
        for name, part in self._parts_of(batch):
            own_work = work.work_of(name) if isinstance(work, CompositeWork) else work
            after = self._members[name].advance(of_source(state, name), part, own_work, now)
            state = _counted(state, name, after, part, now)
        return state

    def clean_up(self) -> None:
        for member in self._members.values():
            member.clean_up()

    def _turns(self, state: SourceState) -> Iterator[str]:
        """Yield the members in turn; each may change the shared state, and save it."""
        self._state = state
        for name, parts in self._parts.items():
            if name not in self._state.members:
                self._put(name, replace(self._own(name), source=parts.identity))
        yield from self._parts

    def _own(self, name: str) -> SourceState:
        return of_source(self._state, name)

    def _put(self, name: str, after: SourceState) -> None:
        self._state = with_source(self._state, name, after)

    def _of(self, name: str) -> CheckpointServices:
        """Return what a member is given to save with, and to end what it commits by itself."""

        def save(after: SourceState) -> SourceState:
            self._state = self._upkeep.save(with_source(self._state, name, after))
            return self._own(name)

        def finish(after: SourceState, batch: Batch, started: float, work: Any) -> SourceState:
            state = with_source(self._state, name, after)
            self._state = self._upkeep.finish(state, qualify_batch(batch, name), started, work)
            return self._own(name)

        def activity() -> SourceActivity:
            return self._parts[name].activity or self._upkeep.activity()

        return replace(self._upkeep, save=save, finish=finish, activity=activity)

    def _parts_of(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        """Yield the members that have a part of a batch, each with its part."""
        first = min(self._parts)
        for name in self._parts:
            part = part_of(batch, name, is_first=name == first)
            if part is not None:
                yield name, part

    def _polled(self, name: str, found: SourceScan, work: FileWork) -> None:
        """Record in a member's own view what its scan has found."""
        activity = self._parts[name].activity
        if activity is not None:
            took = found.scanned.ended - found.scanned.began
            cost = (found.requests, found.keys)
            activity.polled(took, work.files, found.young, cost, found.skipped, found.ignored)

    def _where(self, source_id: str) -> str:
        return f"{self._sink.uri}/{checkpoint_path(source_id)}"


def _counted(
    state: SourceState, name: str, after: SourceState, part: Batch, now: float
) -> SourceState:
    """Return the state with a member's part counted; ending and attempts belong to all members."""
    done = end_batch(after, part, now)
    counted_state = done.with_work(in_flight=after.work.in_flight, retries=after.work.retries)
    return with_source(state, name, counted_state)


def _together(found: Mapping[str, SourceScan]) -> SourceScan:
    """Merge the findings of all members. The scan time of a file may be later than its own scan."""
    scans = [each.scanned for each in found.values()]
    more = (scan.until for scan in scans if scan.until is not None)
    return SourceScan(
        tuple(e for name, each in found.items() for e in qualify_all(each.files, name)),
        tuple(e for name, each in found.items() for e in qualify_all(each.young, name)),
        sum(each.requests for each in found.values()),
        sum(each.keys for each in found.values()),
        ScanTimes(
            min(scan.began for scan in scans), max(scan.ended for scan in scans), next(more, None)
        ),
        _merge_skipped([each.skipped for each in found.values()]),
        ignored=_merge_ignored([each.ignored for each in found.values()]),
        needs_rescan=any(each.needs_rescan for each in found.values()),
        notes=tuple(f"{name}: {note}" for name, each in found.items() for note in each.notes),
    )


def _merge_skipped(found: Sequence[SkippedItems]) -> SkippedItems:
    first = next((each.first for each in found if each.first is not None), None)
    return SkippedItems(sum(each.files for each in found), first) if first else NONE_SKIPPED


def _merge_ignored(found: Sequence[IgnoredNames]) -> IgnoredNames:
    some = [each for each in found if each.files]
    return replace(some[0], files=sum(each.files for each in some)) if some else NONE_IGNORED


def _point(sink: Storage, source_id: str, home: str, name: str) -> None:
    """Write a pointer to the shared state at a source's own checkpoint path, unless it exists.

    A reader that knows only the source's id finds the state by it, and the source is not started a
    second time on its own. Raises `StateError` if the source has a state of its own.
    """
    path = checkpoint_path(source_id)
    document = {SHARED: home, "source": name}
    if sink.stat(path) is None:
        sink.put_atomic(path, json.dumps(document).encode())
    elif json.loads(sink.read(path)) != document:
        raise StateError(
            f"{sink.uri}/{path}: is the checkpoint of a source that ran alone, and what it has done"
            " is no part of this query; give the source an `id:` of its own, and the pipeline"
            " another table"
        )
