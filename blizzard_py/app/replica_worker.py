"""A source that replicas share, as a `Worker` of the poll loop.

It takes the source when the view of leases allows it, works like any other source while it has it,
and gives it up between two batches. A fenced replica does not end: it is a candidate again, with a
new writer. So a view that was wrong costs a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.daemon import StopEvent
from blizzard_core.errors import BlizzardError, Cancelled, FencedError, Unfinished
from blizzard_core.log import get_logger
from blizzard_core.notifications.inbox import HintInbox
from blizzard_py import metrics
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import FieldSpec
from blizzard_py.replicas.assignment import NextStep
from blizzard_py.replicas.membership import Membership
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.context import SourceContext

# A waiting worker looks at its part this often: at the view in memory, not at a store.
_CHECK_SECS = 1.0
# A source whose polls have failed for so many leases is left to the others.
_FAILING_LEASES = 4
# Why a source changed hands, for `blizzard_handovers_total`.
REASONS = ("taken", "taken_from_dead", "released", "fenced")


@dataclass(frozen=True, slots=True)
class _Until:
    """The daemon's stop event, or the moment at which the source is given up."""

    stop: StopEvent
    must_release: Callable[[], bool]

    def is_set(self) -> bool:
        return self.stop.is_set() or self.must_release()

    def set(self) -> None:
        self.stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        return self.stop.wait(timeout) or self.must_release()


class ReplicaWorker:
    """One source in one replica.

    ``make`` returns its pipeline with a new writer: see ``admission`` and ``taken`` of
    `SourcePipeline`.
    """

    def __init__(self, make: Callable[..., SourcePipeline], membership: Membership) -> None:
        self._make = partial(make, admission=self._admit, taken=self._took)
        self._membership = membership
        self.pipeline = self._make()
        self._found: Writer | None = None
        self._refusal = ""
        # When the checkpoint is read again, by the clock that never jumps.
        self._again_at = 0.0
        self._is_held = False
        self._failing_since: float | None = None
        # Since when the source is others'.
        self._idle_since: float | None = None
        self._log = get_logger(pipeline=self.pipeline.pipeline, source=self.pipeline.source_name)
        self._stand_by("the first view of leases is not there yet")

    @property
    def name(self) -> str:
        """``pipeline/source``."""
        return self.pipeline.name

    @property
    def activity(self) -> SourceActivity:
        """Return the activity of the source."""
        return self.pipeline.activity

    @property
    def poll_interval_secs(self) -> float:
        """Return the source's; while it stands by `rest` ends a pause that is too long."""
        return self.pipeline.poll_interval_secs

    @property
    def is_paced(self) -> bool:
        """Return whether the source's scans follow a schedule."""
        return self.pipeline.is_paced

    @property
    def each(self) -> tuple[SourceContext, ...]:
        """The parts of every source that it is made of."""
        return self.pipeline.each

    @property
    def fields(self) -> tuple[FieldSpec, ...]:
        """The columns of records, as its last batch had them."""
        return self.pipeline.fields

    def cycle(self, stop: StopEvent) -> bool:
        """Take, work, give up or stand by; return whether any file was done."""
        step = self._step()
        if step is NextStep.STAND_BY:
            self._forget_failures()
            self._stand_by(self._membership.wait_reason(self.name))
            return False
        self._idle_since = None
        if step is NextStep.TAKE and not self._has_turn():
            return False
        try:
            if step is NextStep.RELEASE:
                self._release()
                return False
            is_busy = self.pipeline.cycle(_Until(stop, self._must_release))
        except FencedError as error:
            self._lost(error)
            return False
        except (Cancelled, Unfinished):
            raise  # neither is an error of this replica
        except BlizzardError as error:
            self._failed(error)
            raise
        self._failing_since = None
        self._membership.accept(self.name)
        return is_busy

    def _forget_failures(self) -> None:
        """Forget failed attempts to take the source once it was others' for as long as they count.

        Not at once: others may come and go while this one fails.
        """
        now = self.pipeline.parts.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= self._patience:
            self._failing_since = None

    @property
    def _patience(self) -> float:
        return _FAILING_LEASES * self._membership.lease_secs

    def _failed(self, error: BlizzardError) -> None:
        """Leave the source to the others if it fails here for long: they may have what is missing.

        Where all of them refuse it, it stays where it would be without.
        """
        now = self.pipeline.parts.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self._patience and self._membership.refuse(self.name):
            self._log.warning("source_refused", reason=str(error))

    def _step(self) -> NextStep:
        return self._membership.step(self.name, owns=self.pipeline.owns)

    def _must_release(self) -> bool:
        return self._step() is NextStep.RELEASE

    def _took(self) -> None:
        if self._is_held:  # it takes its own checkpoint again after an error
            return
        self._is_held, self._refusal = True, ""
        self._forbid_fresh()
        found = self._found
        is_left = found is None or found.released
        metrics.HANDOVERS.labels("taken" if is_left else "taken_from_dead").inc()
        self._log.info("source_taken", before="" if found is None else str(found))
        for each in self._inboxes():
            each.resume()
        self.activity.stands_by("")

    def _release(self) -> None:
        """Give the source to another replica. Raises `StorageError`; then it is tried again."""
        self.pipeline.release()
        metrics.HANDOVERS.labels("released").inc()
        self._log.info("source_released", reason=self._membership.wait_reason(self.name))
        self._begin_again(self._membership.wait_reason(self.name))

    def _lost(self, error: FencedError) -> None:
        if self._is_held:
            metrics.HANDOVERS.labels("fenced").inc()
            self._log.warning("source_lost", reason=str(error))
            self._begin_again("another replica took it over")
            return
        if str(error) != self._refusal:
            self._refusal = str(error)
            self._log.info("source_awaited", reason=str(error))
        self._begin_again(str(error))

    def _begin_again(self, reason: str) -> None:
        """Become a candidate: with a new writer, nothing in memory, and no open connection."""
        self.pipeline.close()
        self.pipeline = self._make()
        self._is_held, self._found, self._failing_since = False, None, None
        self._again_at = self.pipeline.parts.monotonic() + self._membership.look_secs
        self._stand_by(reason)

    def _inboxes(self) -> Iterator[HintInbox]:
        yield from (each.hints for each in self.each if each.hints is not None)

    def _stand_by(self, reason: str) -> None:
        for each in self._inboxes():
            each.pause()
        self.activity.stands_by(reason)

    def _admit(self, found: Writer) -> None:
        self._forbid_fresh()
        self._membership.admit(self.name, found)
        self._found = found

    def _forbid_fresh(self) -> None:
        """Let no later take begin anew: the checkpoint was there, so one that is gone is lost."""
        self._make = partial(self._make, fresh=False)

    def is_called(self) -> bool:
        """Return whether a request waits for the source, or the source changes hands."""
        return self._has_turn() or (self._is_held and self.pipeline.is_called())

    def _has_turn(self) -> bool:
        step = self._step()
        if step is NextStep.TAKE:
            return self.pipeline.parts.monotonic() >= self._again_at
        return step is NextStep.RELEASE

    def rest(self, secs: float, stop: StopEvent) -> bool:
        """Wait; return whether a notification ends the pause, the daemon, or a change of hands."""
        while secs > 0:
            if self._has_turn():
                return True
            part = min(secs, _CHECK_SECS)
            if self.pipeline.rest(part, stop) if self._is_held else stop.wait(part):
                return True
            secs -= part
        return stop.is_set()

    def cancel(self) -> None:
        """End the running job; its batch runs again wherever the source is next."""
        self.pipeline.cancel()

    def release(self) -> None:
        """Give up the checkpoint; see `SourcePipeline.release`."""
        self.pipeline.release()

    def end_jobs(self) -> None:
        """Release the jobs' resources while the engine still runs."""
        self.pipeline.end_jobs()

    def close(self) -> None:
        """Close the resources of the source and the jobs."""
        self.pipeline.close()
