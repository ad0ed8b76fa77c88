"""Shortening of a failing plan: leave events out while it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.simulation.guards import Guard
from tests.simulation.plan import Event, Plan, Settings
from tests.simulation.run import Outcome, play
from tests.simulation.scheduler import MAX_STEPS

# A plan is tried so often at most.
TRIES = 400
# A try ends as endless after so many times the steps of the first plan.
_STEPS = 3
# Particulars of a write that need not be.
_EXTRAS = frozenset({"dated", "shift", "flavour", "bad_rows", "unreadable", "rows", "source"})


class Shrinking:
    """The shortest plan found so far that fails in one of the ways of the first."""

    def __init__(self, first: Outcome, tries: int, without: Guard | None) -> None:
        self.best = first
        self._without = without
        self._kinds = first.kinds
        # A part of the plan without an end would take most of the time, and is no better.
        self._max_steps = MAX_STEPS if "endless" in first.kinds else _STEPS * first.steps
        self._left = tries

    def tried(self, plan: Plan) -> bool:
        """Return whether the plan still fails; it is then the best so far."""
        if self._left <= 0:
            return False
        self._left -= 1
        outcome = play(plan, self._without, self._max_steps)
        if outcome.kinds & self._kinds:
            self.best = outcome
            return True
        return False


def shrunk(first: Outcome, tries: int = TRIES, without: Guard | None = None) -> Outcome:
    """Return the outcome of a plan that is as short as the tries allow."""
    found = Shrinking(first, tries, without)
    before = None
    while before != found.best.plan:
        before = found.best.plan
        _fewer_events(found)
        for candidates in (_shorter, _plainer_settings, _plainer_events):
            for change in candidates(found.best.plan):
                changed = change(found.best.plan)
                if changed != found.best.plan:
                    found.tried(changed)
    return found.best


def _fewer_events(found: Shrinking) -> None:
    """Leave out halves, quarters, … and in the end single events."""
    size = len(found.best.plan.events)
    while size > 1:
        size = (size + 1) // 2
        at = 0
        while at < len(found.best.plan.events):
            plan = found.best.plan
            rest = plan.events[:at] + plan.events[at + size :]
            if not found.tried(replace(plan, events=rest)):
                at += size


def _plainer_settings(plan: Plan) -> Iterator[Callable[[Plan], Plan]]:
    plain = Settings(layout=plan.settings.layout)
    for name in (field.name for field in fields(Settings)):
        if getattr(plan.settings, name) != getattr(plain, name):
            value = getattr(plain, name)
            yield lambda now, name=name, value=value: replace(  # type: ignore[misc]
                now, settings=replace(now.settings, **{name: value})
            )


def _plainer_events(plan: Plan) -> Iterator[Callable[[Plan], Plan]]:
    for index, event in enumerate(plan.events):
        for name, _ in event.what:
            if event.kind == "write" and name in _EXTRAS:

                def without(now: Plan, index: int = index, name: str = name) -> Plan:
                    old = now.events[index]
                    what = tuple(pair for pair in old.what if pair[0] != name)
                    new = Event(old.at, old.kind, what)
                    return replace(now, events=(*now.events[:index], new, *now.events[index + 1 :]))

                yield without


def _shorter(plan: Plan) -> Iterator[Callable[[Plan], Plan]]:
    last = max((event.at for event in plan.events), default=0.0)
    for length in (last + 1, last + 60):
        yield lambda now, length=length: replace(now, length=max(1.0, length))  # type: ignore[misc]
