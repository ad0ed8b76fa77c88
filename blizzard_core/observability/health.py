"""Liveness and readiness of a daemon, with reasons. Pure.

*Alive* answers "would a restart help?": every loop gave a sign of life within the time that its
work may take, and none crashed. *Ready* answers "does it do its work?": every loop has polled
once, has not ended, does not fail, and does not wait for a store that has been silent for half a
minute. A loop that stands by for another replica is ready.

A loop that ended on purpose (unreadable state, ``max_failures``) is alive and not ready: a
restart would end the same way and would interrupt the other loops. A fenced loop ends the whole
daemon, see `blizzard_core.daemon`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Phase = Literal["starting", "working", "waiting", "ended"]

# A sign of life is due within this time while a loop works: each request to a store is
# one, and a client gives a request up sooner than that.
QUIET_SECS = 600.0
# How much a wait may overrun: a machine that slept or swaps.
WAIT_SLACK_SECS = 60.0
# A running ingest job gives no sign: it may take this long, and longer for more bytes.
JOB_SECS = 1800.0
JOB_BYTES_PER_SEC = 1e6
# A request to a store takes less; one that hangs may hang until the client gives it up.
ANSWER_SECS = 30.0
# A failure or two in a row may pass by itself.
FAILURES_TO_UNREADY = 3

# The kind of errors that a restart does not fix and that end a loop for good.
CRASH = "crash"
CRASH_REMEDY = "This is a bug: the trace is in the log under worker_crashed. Restart the daemon."


@dataclass(frozen=True, slots=True)
class Pulse:
    """One loop's signs of life. Times in epoch seconds.

    ``since`` is the last sign, ``due`` the time of the next. ``error`` is the last cycle's failure,
    ``kind`` its class and ``remedy`` the advice; all are empty after a success. ``failures`` counts
    failed cycles in a row, ``polls`` successful ones. ``standby`` says why another replica has the
    target; empty: this one works on it.
    """

    target: str
    phase: Phase
    since: float
    due: float
    polls: int = 0
    failures: int = 0
    error: str = ""
    kind: str = ""
    remedy: str = ""
    exit_code: int | None = None
    standby: str = ""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A health report: ``ok``, or the reasons by target."""

    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.reasons

    def to_json(self) -> dict[str, Any]:
        """Return the report as ``/health`` and ``/ready`` send it."""
        return {
            "status": "ok" if self.ok else "failing",
            "reasons": [{"target": t, "reason": r} for t, r in self.reasons.items()],
        }


def job_secs(size: int) -> float:
    """Return how long an ingest job over ``size`` stored bytes may go without a sign of life."""
    return JOB_SECS + size / JOB_BYTES_PER_SEC


def alive(pulses: tuple[Pulse, ...], now: float) -> HealthReport:
    """Return whether all loops turn."""
    return HealthReport({p.target: why for p in pulses if (why := _dead(p, now))})


def _dead(pulse: Pulse, now: float) -> str:
    if pulse.phase == "ended":
        return f"crashed: {pulse.error}" if pulse.kind == CRASH else ""
    return silence(pulse, now)


def silence(pulse: Pulse, now: float) -> str:
    """Return how long a loop has given no sign of life, if that is too long."""
    if now <= pulse.due:
        return ""
    silent, allowed = now - pulse.since, pulse.due - pulse.since
    return f"no sign of life for {silent:.0f} s while {pulse.phase}; {allowed:.0f} s are allowed"


def ready(pulses: tuple[Pulse, ...], now: float) -> HealthReport:
    """Return whether all loops do their work."""
    return HealthReport({p.target: why for p in pulses if (why := _unready(p, now))})


def _unready(pulse: Pulse, now: float) -> str:
    if pulse.phase == "ended":
        return f"ended: {pulse.kind}: {pulse.error}" if pulse.error else "ended"
    if pulse.error and (pulse.failures >= FAILURES_TO_UNREADY or not pulse.polls):
        return f"{pulse.failures} cycle(s) in a row failed: {pulse.error}"
    if pulse.standby:
        return ""
    if not pulse.polls:
        return "the first poll is not done"
    asks = pulse.phase == "working" and pulse.due - pulse.since <= QUIET_SECS  # and runs no job
    if asks and now - pulse.since > ANSWER_SECS:
        return f"nothing was heard of its stores for {now - pulse.since:.0f} s"
    return ""
