"""The activity of a source while it works: `Activity` in Blizzard's words, with its counters.

The names of steps are those of `blizzard_py.ingest.source_pipeline`. With one batch being published
while the next is ingested, both are known at the same time, by their ids.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from blizzard_core.observability.activity import (
    Activity,
    FailedFile,
    FinishedBatch,
    PollSummary,
    RunningBatch,
    age,
)
from blizzard_core.observability.health import job_secs
from blizzard_core.observability.notices import Notice
from blizzard_core.observability.runs import RunStep
from blizzard_core.redact import clean_text
from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.storage.ranges import Ranges
from blizzard_core.text import counted, shortened
from blizzard_py import metrics
from blizzard_py.job import FinishedFile
from blizzard_py.requests.progress import RequestState, open_of
from blizzard_py.slices.units.state import UnitsState
from blizzard_py.sources.batch_counts import count_batch, count_stream, result_of
from blizzard_py.sources.ignored_names import NONE_IGNORED, NONE_SKIPPED, IgnoredNames, SkippedItems
from blizzard_py.sources.notification_view import NotificationView
from blizzard_py.sources.unit_grid import UnitGrid
from blizzard_py.state.batch import Batch
from blizzard_py.state.completeness import certified
from blizzard_py.state.source_state import SourceState, Totals
from blizzard_py.state.stream_state import StreamState

if TYPE_CHECKING:
    from blizzard_py.cleaning.lists import Outcome
    from blizzard_py.slices.units.grid import GridLayout

Step = Literal["ingest", "prepare", "publish", "advance"]

OUTCOMES = ("ingested", "quarantined", "retry")
STEPS = ("plan", "ingest", "prepare", "publish", "advance")


class SourceActivity(Activity):
    """One source's live view."""

    daemon = "blizzard"

    def __init__(self, name: str, place: str, clock: Callable[[], float]) -> None:
        super().__init__(name, place, clock)
        self._totals = Totals()
        self._saved: float | None = None
        self._skipped = NONE_SKIPPED
        self._waiting: dict[str, Entry] = {}  # found by polls and not done, by path
        self._list_budget: float | None = None
        # Until when the budget delays the next scan.
        self._late_until = 0.0
        self._ignored = NONE_IGNORED
        self.notifications = NotificationView(name, clock)
        self._units = UnitsState()
        self._stream: StreamState | None = None
        self._layout: GridLayout | None = None
        self._grid = UnitGrid()
        self._refused: tuple[int, int, str, str] = (0, 0, "", "")
        self._cleaning: tuple[str, ...] = ()
        self._cleaning_error = ""
        self._requests: Mapping[str, RequestState] = {}
        metrics.PENDING_FILES.labels(name).set_function(self.pending)
        metrics.LAG_SECS.labels(name).set_function(self.lag)
        metrics.UTILIZATION.labels(name).set_function(self.utilization)
        metrics.TRACKED_PARTITIONS.labels(name).set_function(self.tracked)
        metrics.EVENT_WATERMARK_LAG.labels(name).set_function(self._event_lag)
        metrics.LIST_BUDGET_USED.labels(name).set_function(self._budget_used)
        metrics.CHECKPOINT_AGE.labels(name).set_function(self._checkpoint_age)
        # Series that exist from the start let a rule see the first event.
        for outcome in OUTCOMES:
            metrics.FILES_PROCESSED.labels(name, outcome)
            metrics.REQUEST_FILES.labels(name, outcome)
        for step in STEPS:
            metrics.STEP_SECS.labels(name, step)
        for metric in metrics.COUNTED_FROM_START:
            metric.labels(name)

    def stands_by(self, reason: str) -> None:
        super().stands_by(reason)
        metrics.SOURCE_HELD.labels(self.name).set(0 if reason else 1)
        if reason:
            with self._lock:
                self._waiting, self._saved, self._list_budget = {}, None, None
                self.knows(SourceState())

    def polled(
        self,
        secs: float,
        files: Sequence[Entry],
        young: Sequence[Entry],
        cost: tuple[int, int],
        skipped: SkippedItems,
        ignored: IgnoredNames = NONE_IGNORED,
        cover: Ranges | None = None,
    ) -> None:
        """Record a poll of ``secs`` that found ``files`` to ingest and ``young`` ones to wait for.

        ``cost`` is LIST requests and keys; ``skipped`` are files that polls skip for now, and
        ``ignored`` others that they never take. Files outside of the ``cover`` wait as before.
        """
        now = self.clock()
        requests, keys = cost
        metrics.POLL_SECS.labels(self.name).observe(secs)
        metrics.LIST_REQUESTS.labels(self.name).inc(requests)
        metrics.KEYS_LISTED.labels(self.name).inc(keys)
        metrics.FILES_DISCOVERED.labels(self.name).inc(len(files))
        found = {entry.path: entry for entry in (*files, *young)}
        with self._lock:
            if cover is None:
                metrics.FILES_APART.labels(self.name).set(skipped.files)
                self._skipped = skipped
                self._ignored = ignored
                self._waiting = found
            else:
                kept = {p: e for p, e in self._waiting.items() if not cover.has_file(order_key(p))}
                self._waiting = kept | found
            waiting = list(self._waiting.values())
        self._polled(PollSummary(now, secs, len(files), requests, keys), waiting)

    def _wait_no_more(self, entries: Sequence[Entry]) -> None:
        super()._wait_no_more(entries)
        with self._lock:
            for entry in entries:
                self._waiting.pop(entry.path, None)

    def listed(self, requests: int) -> None:
        """Count LIST requests of a source with a budget, whatever they were for."""
        with self._lock:
            self._minutes.add(self.clock(), {"lists": requests})

    def paced(
        self, budget: float | None, hot_secs: float | None, all_secs: float, late_secs: float = 0.0
    ) -> None:
        """Show a schedule: ``budget`` LIST requests an hour, and the seconds between scans.

        The next scan is due, and waits ``late_secs`` for the budget.
        """
        hot = all_secs if hot_secs is None else hot_secs
        metrics.SCAN_INTERVAL.labels(self.name, "hot").set(hot)
        metrics.SCAN_INTERVAL.labels(self.name, "all").set(all_secs)
        if budget is not None:
            metrics.LIST_BUDGET.labels(self.name).set(budget)
        with self._lock:
            self._list_budget = budget
            self._late_until = self.clock() + late_secs

    def _budget_used(self) -> float:
        with self._lock:
            if self._list_budget is None:
                return math.nan
            return sum(self._minutes.series(self.clock(), "lists")) / self._list_budget

    def units(self, counts: Mapping[str, int]) -> None:
        """Note how many work units there are in each state; all states each time."""
        for state, count in counts.items():
            metrics.UNITS.labels(self.name, state).set(count)

    def late(self, partitions_behind: int) -> None:
        """Record a late file that the sweep found."""
        metrics.LATE_FILES.labels(self.name).inc()
        metrics.LATE_PARTITIONS.labels(self.name).observe(partitions_behind)

    def changed(self, files: int) -> None:
        """Record files that the sweep found to be changed after their outcome was final."""
        metrics.CHANGED_FILES.labels(self.name).inc(files)

    def shows_cleaning(self, notes: Sequence[str], error: str = "") -> None:
        """Show the progress of the cleaning, and why it fails."""
        with self._lock:
            self._cleaning, self._cleaning_error = tuple(notes), clean_text(error)

    def cleaned(self, counts: Mapping[Outcome, int]) -> None:
        """Record source files that were cleaned, or left, by outcome."""
        for outcome, number in counts.items():
            metrics.CLEANED_FILES.labels(self.name, outcome).inc(number)

    def knows(self, state: SourceState) -> None:
        """Show the state that the source continues from."""
        with self._lock:
            self._progress = state.position.progress
            self._totals = state.summary.totals
            self._units = state.kind.units or UnitsState()
            self._stream = state.kind.stream
            self._requests = open_of(state.work.requests)
            in_state = Counter(each.state for each in self._requests.values())
            for each in ("running", "waiting"):
                metrics.REQUESTS.labels(self.name, each).set(in_state[each])
            metrics.UNEXPECTED_FIELDS.labels(self.name).set(len(state.summary.unexpected))
            for kind, names in zip(("complete", "revoked"), certified(state.complete), strict=True):
                metrics.CERTIFIED_PARTITIONS.labels(self.name, kind).set(len(names))
            if state.kind.stream is not None:
                metrics.EVENT_WATERMARK.labels(self.name).set(state.kind.stream.watermark_ms / 1000)
                metrics.STATE_ROWS.labels(self.name).set(state.kind.stream.state_rows)
                metrics.STATE_BYTES.labels(self.name).set(state.kind.stream.state_bytes)
            if self._saved is None and state.summary.last_update_ts is not None:
                self._saved = float(state.summary.last_update_ts)

    def query_started(self, secs: float) -> None:
        """Record that a query runs and how long restoring its state took."""
        metrics.RESTORE_SECS.labels(self.name).observe(secs)

    def micro_batch(self, kind: Literal["rows", "empty"], secs: float) -> None:
        """Record the end of a query's micro-batch."""
        metrics.MICRO_BATCH_SECS.labels(self.name, kind).observe(secs)

    def _event_lag(self) -> float:
        with self._lock:
            stream = self._stream
        known = stream is not None and stream.watermark_ms
        return self.clock() - known / 1000 if known else math.nan

    def units_planned(self, layout: GridLayout) -> None:
        """Keep the units that a poll laid out; their grid is built when the status is read."""
        with self._lock:
            self._layout = layout

    def saved(self, state: SourceState) -> None:
        """Record that the checkpoint was saved."""
        metrics.CHECKPOINTS_SAVED.labels(self.name).inc()
        with self._lock:
            count_stream(self.name, state.kind.stream, self._stream)
            self._saved = self.clock()
            self.knows(state)
            self.beat()

    def save_failed(self) -> None:
        """Record that the checkpoint could not be saved."""
        metrics.CHECKPOINT_FAILURES.labels(self.name).inc()

    def batch_began(self, batch: Batch) -> None:
        """Record a planned batch whose job starts; no heartbeat is due until the job ends."""
        now = self.clock()
        size = sum(file.size for file in batch.files)
        metrics.STEP_SECS.labels(self.name, "plan").observe(age(now, batch.started_ts))
        due = now + job_secs(size)
        # Still open if the batch runs again for new columns, without a failure.
        self.runs.aborted(now, self._key_of(replace(batch, attempt=batch.attempt - 1)))
        self.runs.started(self._key_of(batch), now, "ingest", self._steps_before(batch, now))
        with self._lock:
            self._running[batch.batch] = RunningBatch(
                batch.batch, len(batch.files), size, batch.started_ts, "ingest", now, due
            )
            self._busy(now)
            self.beat()

    def batch_cut_off(self, batch: Batch) -> None:
        """Record that the process of a batch's attempt died before its commit point."""
        self.runs.cut_off(self.clock(), self._key_of(batch), batch.started_ts)

    def batch_enters(self, batch: Batch, step: Step) -> None:
        """Record that a batch enters its next step."""
        with self._lock:
            now = self.clock()
            self.beat()
            running = self._running.get(batch.batch)
            # A batch that a crash left behind only ends; its steps are not timed.
            if running is not None:
                metrics.STEP_SECS.labels(self.name, running.step).observe(age(now, running.since))
                self._running[batch.batch] = replace(running, step=step, since=now, due=0.0)
                self.runs.enters(self._key_of(batch), step, now)

    def batch_done(self, batch: Batch) -> None:
        """Record a batch that is in the table and whose watermarks are saved."""
        now, result = self.clock(), result_of(batch)
        count_batch(self.name, batch, result)
        settled = {file.path for file in batch.results.finished if file.outcome != "retry"}
        with self._lock:
            running = self._running.pop(batch.batch, None)
            secs = age(now, batch.started_ts)
            if running is not None:
                metrics.STEP_SECS.labels(self.name, running.step).observe(age(now, running.since))
                metrics.BATCH_SECS.labels(self.name).observe(secs)
            if not self._running:
                self._idle(now)
            self._wait_no_more([entry for entry in batch.files if entry.path in settled])
            amounts = result.read["files"], result.written["rows"], result.read["bytes"]
            self._did(FinishedBatch(now, batch.batch, *amounts, secs))
            self.gave_up(batch.results.finished, batch.batch)
            self.beat()
        self.runs.completed(self._key_of(batch), now, batch.started_ts, result)

    def _key_of(self, batch: Batch) -> str:
        return f"{self.name}/{batch.batch}/{batch.attempt}"

    def _steps_before(self, batch: Batch, now: float) -> list[RunStep]:
        """Return the scan that found the batch's items, and their wait since then."""
        with self._lock:
            poll = self._poll
        if poll is None or batch.attempt > 1:  # an earlier process's, or it belongs to the first
            return [RunStep("plan", batch.started_ts, now)]
        return [
            RunStep("scan", batch.seen_ts - poll.secs, batch.seen_ts),
            RunStep("wait", batch.seen_ts, batch.started_ts),
            RunStep("plan", batch.started_ts, now),
        ]

    def refused(self, outputs: int, rows: int, newest: str, remedy: str) -> None:
        """Record the number of rejected outputs and rows; ``newest`` is one with its error."""
        metrics.REFUSED_OUTPUTS.labels(self.name).set(outputs)
        with self._lock:
            self._refused = (outputs, rows, clean_text(newest), remedy)

    def _notices(self) -> list[Notice]:
        found = [
            Notice("warn", f"Request {request_id} ({each.kind}) waits", clean_text(each.reason))
            for request_id, each in self._requests.items()
            if each.state == "waiting"
        ]
        found += self.notifications.notices()
        late_secs = self._late_until - self.clock()
        if late_secs > 0:
            wait = f"{max(1, round(late_secs / 60))} min"
            text = f"The budget of LIST requests is used up: the next scan waits {wait}"
            remedy = "Starts, errors and many new files cost more. Mend them, or raise the budget."
            found.append(Notice("warn", text, remedy))
        if self._cleaning_error:
            text = f"Source files are not cleaned: {self._cleaning_error}"
            found.append(Notice("warn", text, "The source goes on; this is tried again."))
        ignored = self._ignored
        if ignored.files and not ignored.wanted:
            what = f"{counted(ignored.files, 'file')} ignored, such as {ignored.first}"
            found.append(Notice("warn", clean_text(what), f"{ignored.reason}."))
        outputs, rows, newest, remedy = self._refused
        if not outputs:
            return found
        files = counted(outputs, "Parquet file")
        notice = f"Penguin refused {files} with {counted(rows, 'row')}: {newest}"
        return [*found, Notice("bad", notice, f"These rows are in no table: {remedy}.")]

    def gave_up(self, files: Sequence[FinishedFile], batch: str = "") -> None:
        """Note a batch's quarantined files, and forget earlier ones that it has ingested."""
        now = self.clock()
        ingested = {shortened(file.path) for file in files if file.outcome == "ingested"}
        self._remove_failed(lambda letter: letter.path in ingested)
        self._add_failed(
            FailedFile(now, file.path, file.stage, file.error, batch)
            for file in files
            if file.outcome == "quarantined"
        )

    def closed(self, letters: Collection[str]) -> None:
        """Forget the files of dead letters that were replayed or closed."""
        self._remove_failed(lambda letter: letter.batch in letters)

    def _checkpoint_age(self) -> float:
        with self._lock:
            return math.nan if self._saved is None else age(self.clock(), self._saved)

    def brief(self) -> dict[str, Any]:
        """Return the same as `Activity`, with the rejected outputs."""
        with self._lock:
            outputs, rows, newest, _remedy = self._refused
            refused = {"outputs": outputs, "rows": rows, "newest": newest}
            return {**super().brief(), "refused": refused}

    def to_json(self) -> dict[str, Any]:
        """Return the same as `Activity`, with the totals since the first batch and skipped files.

        ``requests`` are those that are open; ``units`` is the grid of a source of work units
        (`blizzard_py.slices.units.grid`).
        """
        with self._lock:
            state, layout, now = self._units, self._layout, self.clock()
        units = self._grid.document(state, layout, now)
        with self._lock:
            return {
                **super().to_json(),
                "totals": asdict(self._totals),
                "saved_at": self._saved,
                "apart": asdict(self._skipped),
                "ignored": self._ignored.to_json(),
                "notifications": self.notifications.to_json(),
                "requests": [
                    {
                        "id": request_id,
                        "kind": each.kind,
                        "state": each.state,
                        "since": each.at,
                        "counts": dict(each.counts),
                    }
                    for request_id, each in self._requests.items()
                ],
                "units": units,
                "cleaning": list(self._cleaning),
            }
