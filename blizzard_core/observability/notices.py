"""Notices about a target, worst first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from blizzard_core.observability.health import FAILURES_TO_UNREADY, Pulse

Level = Literal["ok", "warn", "bad"]

# A file that waits longer is worth a look, unless a cold start works off old ones.
LAG_WARN_SECS = 3600.0
LETTERS_WARN_SECS = 3600.0


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to know, and what to do about it."""

    level: Level
    text: str
    remedy: str = ""


def notices(
    pulse: Pulse, silent: str, lag_secs: float, letter_times: Sequence[float], now: float
) -> list[Notice]:
    """Return the notices of one target; ``silent`` says why it is not alive, if so."""
    found: list[Notice] = []
    if pulse.phase == "ended" and pulse.error:
        found.append(Notice("bad", f"ended: {pulse.kind}: {pulse.error}", pulse.remedy))
    elif silent:
        found.append(Notice("bad", silent, "The liveness probe restarts it; nothing is lost."))
    if pulse.phase != "ended" and pulse.error:
        level: Level = "bad" if pulse.failures >= FAILURES_TO_UNREADY else "warn"
        times = "time" if pulse.failures == 1 else "times"
        found.append(
            Notice(level, f"failed {pulse.failures} {times} in a row: {pulse.error}", pulse.remedy)
        )
    if lag_secs > LAG_WARN_SECS:
        found.append(
            Notice(
                "warn",
                f"the oldest file has waited for {lag_secs / 3600:,.1f} hours",
                "Fine while old files are worked off; otherwise look at errors and utilisation.",
            )
        )
    recent = sum(now - moment <= LETTERS_WARN_SECS for moment in letter_times)
    if recent:
        found.append(
            Notice(
                "warn",
                f"{recent} {'file was' if recent == 1 else 'files were'} given up in the last hour",
                "On record with the reason, and nothing waits for them.",
            )
        )
    return sorted(found, key=lambda notice: notice.level != "bad")


def worst(found: Sequence[Notice]) -> Level:
    """Return the worst level of these notices."""
    levels = {notice.level for notice in found}
    return "bad" if "bad" in levels else "warn" if "warn" in levels else "ok"
