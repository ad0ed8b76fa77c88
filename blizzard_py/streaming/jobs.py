"""A batch of a pipeline over event time, from its files to the state that the commit point saves.

1. *decode*: the engine's usual job, into unpublished staging, each row with its file and line. With
   several sources there is a job for each source with files.
2. *find late rows*: rows that are late or ahead of time are counted, for each source by its own
   column, and a job writes dead letters for them. The job is skipped if there are none.
3. *run the query*: the batch is offered to the running query, whose callbacks stage the outputs.
4. *archive*: new files of the query's checkpoint directory become objects that the new state names.
   The caller saves it with the outputs: the one commit point.

**Recovery.** The query continues only if it is where the saved state is. After any error, and at
every start, the query is stopped, its directory is removed, and another one is restored from the
manifest. So it never has uncommitted state, Spark never replays, and another attempt may read other
rows. Objects of a failed attempt have names that no state knows; later epochs remove them.
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blizzard_core.errors import Cancelled
from blizzard_core.log import get_logger
from blizzard_core.settings.base import to_micros
from blizzard_core.settings.event_time import EventTimeSettings
from blizzard_py.ingest.jobs import Ingested, Jobs
from blizzard_py.job import (
    IngestJob,
    IngestResult,
    IngestSettings,
    JobFile,
    Place,
    StagedBadRecords,
    StagedOutput,
)
from blizzard_py.kernels.late_letters import LatenessTask
from blizzard_py.kernels.lateness import Limits, Rule, rules_of
from blizzard_py.kernels.packing import pack, task_count
from blizzard_py.kernels.report import merged
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.stream_query import resume
from blizzard_py.state.stream_state import StreamState, add_query_batch, moment
from blizzard_py.streaming.batch_queue import Offer, SourceShare
from blizzard_py.streaming.decode_job import make_decode_job
from blizzard_py.streaming.query import wait_for_turn
from blizzard_py.streaming.query_equivalence import QueryEquivalence
from blizzard_py.streaming.shared_directory import SharedDirectory, check_not_removed, create_folder
from blizzard_py.streaming.source_shares import (
    AcceptedBatch,
    batch_of,
    idle_in,
    jobs_of,
    join_reports,
    late_letters,
    missing_columns,
    newest_of,
    sources_after,
    ticks_of,
)
from blizzard_py.streaming.staged_times import TimeTally, tally
from blizzard_py.streaming.state_archive import StateArchive, WorkingCopy
from blizzard_py.streaming.state_files import see_all

if TYPE_CHECKING:  # Spark is imported with the first batch, like the engine
    from blizzard_py.engines.spark.scratch import Scratch
    from blizzard_py.streaming.operators import Definition
    from blizzard_py.streaming.query import QueryResult, StreamQuery

_MILLI, _MICRO = 1000, 1_000_000


@dataclasses.dataclass(slots=True)
class _Running:
    """The query, its directory, and the state of both."""

    query: StreamQuery
    copy: WorkingCopy
    at: StreamState


class StreamJobs(Jobs):
    """The `Jobs` of a source whose pipeline is over event time, or of all its sources."""

    def __init__(self, parts: SourceContext, settings: EventTimeSettings) -> None:
        super().__init__(parts.engine)
        self._parts = parts
        self._settings = settings
        self._members = parts.members or (parts,)
        self._rules = rules_of(settings, parts.branches)
        self._lacks = missing_columns(parts)
        self._packs = StateArchive(parts.stores.sink, StatePaths(parts.home_id).stream)
        self._spelling = QueryEquivalence(parts, settings)
        self._running: _Running | None = None
        self._definition: Definition | None = None
        self._place: Scratch | SharedDirectory | None = None
        self._starts = 0
        self._cancelled = threading.Event()
        self._named: frozenset[str] = frozenset()  # objects of the last saved state
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def check(self, state: SourceState, where: str) -> None:
        """See `Jobs`."""
        self._spelling.check(state.kind.stream, where)

    def run(self, state: SourceState, job: IngestJob, epoch: int) -> Ingested:
        """See `Jobs`."""
        self._cancelled.clear()
        try:
            return self._run(state, job, epoch)
        except BaseException:
            self._drop()
            raise

    def has_due(self, state: SourceState) -> bool:
        """See `Jobs`: an operator may move the watermark."""
        return state.kind.stream is not None and state.kind.stream.is_to_advance

    def cancel(self, output_prefix: str) -> None:
        """See `Jobs`."""
        self._cancelled.set()
        super().cancel(output_prefix)
        running = self._running
        if running is not None:
            running.query.stop()

    def clean_up(self, state: SourceState) -> None:
        """See `Jobs`: remove objects that the state before named, and this one does not."""
        named = frozenset() if state.kind.stream is None else state.kind.stream.objects
        self._packs.drop(self._named - named)
        self._named = named

    def close(self) -> None:
        """Stop the query and remove its directory."""
        running = self._running
        if running is not None and running.at.state_rows and self._settings.mode == "append":
            self._log.info(
                "windows_open",
                state_rows=running.at.state_rows,
                watermark=moment(running.at.watermark_ms),
                closed_by="a row later than their end by more than the delay"
                if self._settings.join is None
                else "a row later than any match by more than the delay",
            )
        self._drop()
        place, self._place = self._place, None
        if place is not None:
            place.close()

    def _run(self, state: SourceState, job: IngestJob, epoch: int) -> Ingested:
        jobs = jobs_of(job, self._members)
        accepted = {name: self._accept(each, alone=len(jobs) == 1) for name, each in jobs.items()}
        known = resume(state.kind.stream, self._spelling.fingerprint)
        with nullcontext() if self._is_at(known) else wait_for_turn(self._check_wanted):
            running = self._at(known, job.settings, epoch)
            known = running.at
            late = self._find_late_rows(running, known, jobs, accepted)
            self._check_wanted()
            began = time.monotonic()
            done = self._run_query(running, known, job, late)
            secs = time.monotonic() - began
        outputs = merged(done.reports)
        report = join_reports(accepted)
        batch = batch_of(known.batch + 1, report, late, done, outputs)
        self._check_wanted()
        last, is_shared = (
            done.micro_batches[-1].number,
            self._settings.advanced.state_path is not None,
        )
        see_all(running.copy.root, last, is_shared=is_shared, wait=self._pause)
        packs = self._packs.pack(running.copy, known.packs, epoch, f"{batch.batch:08d}")
        check_not_removed(running.copy.root.parent)
        if self._parts.activity is not None:
            for place, one in enumerate(done.micro_batches):
                self._parts.activity.micro_batch("empty" if place else "rows", one.secs)
        newest = newest_of(late.tallies).values()
        after = add_query_batch(
            known,
            batch,
            packs,
            judged_ms=done.judged_ms,
            max_event_time_ms=max(newest) // _MILLI if newest else None,
            sources=sources_after(known, late.tallies, late.present, late.idle, job.started_ts),
        )
        running.at = after
        self._log.info(
            "batch_settled", settle_secs=round(secs, 3), **dataclasses.asdict(after.history[-1])
        )
        result = replace(
            report,
            outputs=outputs.outputs,
            tasks=report.tasks + outputs.tasks,
            letters=(*report.letters, *late_letters(late.letters)),
        )
        return Ingested(result, after)

    def _find_late_rows(
        self,
        running: _Running,
        known: StreamState,
        jobs: Mapping[str, IngestJob],
        accepted: Mapping[str, IngestResult],
    ) -> AcceptedBatch:
        """Run the second step, for each source."""
        started_ts = next(iter(jobs.values())).started_ts
        ahead = round(started_ts * _MICRO) + to_micros(self._settings.advanced.max_ahead)
        limits = Limits(known.judged_ms, ahead)
        tallies = {n: self._tally(known, n, one.outputs, limits) for n, one in accepted.items()}
        letters = {
            n: self._late_letters_of(running, each, accepted[n], limits, self._rules[n], tallies[n])
            for n, each in jobs.items()
        }
        present = frozenset(name for name, each in jobs.items() if each.files)
        idle = idle_in(known, self._parts.branches, present, started_ts)
        return AcceptedBatch(accepted, tallies, letters, limits, present, idle)

    def _tally(
        self, known: StreamState, source: str, outputs: Sequence[StagedOutput], limits: Limits
    ) -> TimeTally:
        """Return the times of a source's rows, and its newest time before them."""
        newest_ms = known.sources.get(source, known).max_event_time_ms
        sink, rule = self._parts.stores.sink, self._rules[source]
        return tally(sink, outputs, rule, limits, newest_ms, self._parts.concurrency)

    def _accept(self, job: IngestJob, *, alone: bool) -> IngestResult:
        """Return a source's rows; with several sources, one without files costs nothing."""
        if not job.files and not alone:
            return IngestResult((), (), 0)
        return self._engine.ingest(make_decode_job(job))

    def _late_letters_of(
        self,
        running: _Running,
        job: IngestJob,
        accepted: IngestResult,
        limits: Limits,
        rule: Rule,
        found: TimeTally,
    ) -> Sequence[StagedBadRecords]:
        """Return dead letters of rows that Spark does not get; no job without letters."""
        from blizzard_py.streaming.decode_job import write_late_letters  # noqa: PLC0415  # see above

        keep = self._settings.advanced.late_rows == "quarantine"
        if not found.ahead and not (keep and found.late):
            return ()
        packed = self._packed(running, accepted.outputs)

        def tasks(bare: IngestJob) -> list[LatenessTask]:
            return [
                LatenessTask(index, bare, files, rule, limits, keep=keep)
                for index, files in enumerate(packed)
            ]

        return write_late_letters(running.query.root, job, tasks)

    def _run_query(
        self, running: _Running, known: StreamState, job: IngestJob, accepted: AcceptedBatch
    ) -> QueryResult:
        branches = self._parts.branches
        ticks = ticks_of(known, branches, accepted.idle, newest_of(accepted.tallies))
        shares = (
            SourceShare(
                name,
                tuple(self._packed(running, one.outputs)),
                self._rules[name],
                ticks.get(name),
                self._lacks.get(name, frozenset()),
            )
            for name, one in accepted.accepted.items()
        )
        definition = self._defined(running.query.root, job.settings)
        place = Place(job.settings.sink.uri)
        offer = Offer(place, definition.read, accepted.limits, tuple(shares))
        return running.query.run_batch(known.batch + 1, offer, job)

    def _packed(
        self, running: _Running, outputs: Sequence[StagedOutput]
    ) -> list[tuple[JobFile, ...]]:
        files = [JobFile(output.staged, output.size) for output in outputs]
        slots = running.query.root.sparkContext.defaultParallelism
        return pack(files, task_count(files, slots)) if files else []

    def _is_at(self, known: StreamState) -> bool:
        running = self._running
        return (
            running is not None
            and running.at == known
            and running.query.root is self._engine.session()
            and running.query.is_active
        )

    def _at(self, known: StreamState, settings: IngestSettings, epoch: int) -> _Running:
        """Return the query where the saved state is: the running one, or a new one."""
        from blizzard_py.streaming.query import StreamQuery  # noqa: PLC0415  # see above

        root = self._engine.session()
        if self._running is not None and self._is_at(known):
            return self._running
        self._drop()
        configured = self._settings.advanced.policy
        if (stored := known.query.get("policy", configured)) != configured:
            self._log.warning("policy_kept", policy=stored, asked=configured)
        began = time.monotonic()
        self._packs.sweep(known.objects, epoch)
        folder = self._new_folder()
        copy = self._packs.restore(known.packs, folder / "checkpoint")
        definition = self._defined(root, settings)
        query = StreamQuery(
            root, definition, folder, known.batch - len(known.begins_at), self._parts.name
        )
        self._running = _Running(query, copy, known)
        self._running.at = self._brought(query, definition, known)
        secs = time.monotonic() - began
        if self._parts.activity is not None:
            self._parts.activity.query_started(secs)
        self._log.info(
            "query_started",
            batch=known.batch,
            files=len(known.packs),
            restore_secs=round(secs, 3),
        )
        return self._running

    def _brought(
        self, query: StreamQuery, definition: Definition, known: StreamState
    ) -> StreamState:
        """Make a new query know which windows are closed, before any row.

        Returns the state that it is at. The new query may be of another kind than the reset one:
        one that runs empty micro-batches uses the newer of the two watermarks.
        """
        steps, judged_ms = known.begins_at, known.judged_ms
        for number, ms in enumerate(steps, known.batch - len(steps) + 1):
            shares = (
                SourceShare(each.source, (), self._rules[each.source], ms * _MILLI + each.delay_us)
                for each in self._parts.branches
            )
            place, limits = Place(self._parts.ingest.sink.uri), Limits(judged_ms, 0)
            judged_ms = query.move(number, Offer(place, definition.read, limits, tuple(shares)))
        return replace(known, judged_ms=judged_ms)

    def _defined(self, root: Any, settings: IngestSettings) -> Definition:
        from blizzard_py.streaming.check import definition_of  # noqa: PLC0415  # see above

        if self._definition is None:
            self._definition = definition_of(
                root, self._parts.pipeline, (self._settings, self._parts.branches), settings
            )
        return self._definition

    def _new_folder(self) -> Path:
        from blizzard_py.engines.spark.scratch import Scratch  # noqa: PLC0415  # see above

        if self._place is None:
            shared = self._settings.advanced.state_path
            self._place = (
                Scratch()
                if shared is None
                else SharedDirectory(Path(shared), self._parts.stores.sink.uri, self._parts.home_id)
            )
        # A failed start may leave part of a copy; remove it.
        shutil.rmtree(self._place.path / f"query-{self._starts}", ignore_errors=True)
        self._starts += 1
        return create_folder(self._place.path / f"query-{self._starts}")

    def _drop(self) -> None:
        """Stop the query and forget its state."""
        running, self._running = self._running, None
        if running is not None:
            running.query.stop()
            shutil.rmtree(running.copy.root.parent, ignore_errors=True)

    def _pause(self, secs: float) -> None:
        self._cancelled.wait(secs)
        self._check_wanted()

    def _check_wanted(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled(f"{self._parts.name}: cancelled")
