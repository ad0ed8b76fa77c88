"""Texts about runs: the figures of many, and the history of a failed one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from tests.simulation.plan import Settings
from tests.simulation.run import Outcome

COMMAND = 'make simulate ARGS="--from {seed} --seeds 1"'


@dataclass(frozen=True)
class Secs:
    """Duration of runs: wall time and processor time."""

    passed: float
    worked: float


def totals(runs: int, failed: int, secs: Secs, counts: Counter[str]) -> str:
    """Return the number of runs, their speed and the faults that they met."""
    first = (
        f"{runs} runs in {secs.passed:.1f} s: {runs / secs.passed:.1f} runs/s,"
        f" {runs / secs.worked:.1f} for each second of a processor, {failed} with violations"
    )
    lines = [first, ""]
    width = max((len(name) for name in counts), default=0)
    lines += [f"  {name:<{width}}  {count:>9,}" for name, count in sorted(counts.items())]
    return "\n".join(lines)


def failure(first: Outcome, short: Outcome) -> str:
    """Describe a failing run: the violations, the command to repeat it, the shortened history."""
    plan = short.plan
    return "\n".join(
        [
            f"seed {first.plan.seed}: {len(first.violations)} violations",
            *_few(first.violations),
            f"repeat it: {COMMAND.format(seed=first.plan.seed)}",
            f"shortened from {len(first.plan.events)} to {len(plan.events)} events:",
            *(f"  {line}" for line in changed_settings(plan.settings)),
            *(f"  at {event.at:8.1f} s: {event}" for event in plan.events),
            "its history:",
            *_shortened(short.story),
            "its violations:",
            *_few(short.violations),
        ]
    )


def _shortened(story: Sequence[str], most: int = 80) -> list[str]:
    if len(story) > most:
        story = [*story[: most - 20], f"… {len(story) - most} lines …", *story[-20:]]
    return [f"  {line[:220]}" for line in story]


def _few(violations: Sequence[str], most: int = 8) -> list[str]:
    more = [f"  … and {len(violations) - most} more"] if len(violations) > most else []
    return [*(f"  {text}" for text in violations[:most]), *more]


def changed_settings(settings: Settings) -> Iterable[str]:
    """Yield the settings of a run that differ from the defaults."""
    usual = Settings()
    told = [
        f"{field.name}={getattr(settings, field.name)!r}"
        for field in fields(Settings)
        if getattr(settings, field.name) != getattr(usual, field.name)
    ]
    return [f"settings: {', '.join(told)}"] if told else []
