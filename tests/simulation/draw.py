"""A plan drawn from a seed: an adversary's choice among all events."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.drawing import Drawing
from tests.simulation.plan import DAY, Event, Plan
from tests.simulation.troubles import TROUBLES
from tests.simulation.troubles.beginnings import early
from tests.simulation.troubles.certificates import with_certificates
from tests.simulation.troubles.cleaning import with_cleaning
from tests.simulation.troubles.covers import with_covers
from tests.simulation.troubles.hints import with_hints
from tests.simulation.troubles.losses import with_losses
from tests.simulation.troubles.operators import commands
from tests.simulation.troubles.processes import half_published
from tests.simulation.troubles.replicas import with_replicas
from tests.simulation.troubles.requests import with_requests
from tests.simulation.troubles.tables import half_committed
from tests.simulation.writers import write


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    plan = with_replicas(with_hints(with_covers(with_requests(with_losses(drawn(seed))))))
    plan = with_cleaning(with_certificates(plan))
    if any(map(_delays, plan.events)) and not plan.settings.reconcile:
        # What was drawn on top publishes late, which only sweeps find.
        plan = replace(plan, settings=replace(plan.settings, reconcile=400.0))
    return plan


def drawn(seed: int) -> Plan:
    """Return the plan of a seed in which at most one object is lost or put back."""
    drawing = Drawing(seed)
    chance = drawing.chance
    early(drawing)
    if drawing.one_in(12):
        left, value_only = chance.choice((0, 30, 60)), drawing.one_in(3) or None
        drawing.add(0.0, "original", left=left, value_only=value_only)
    steps = chance.randrange(4, 13)
    # In some plans nothing publishes under old names, and Penguin has no sweep to fall back on.
    prompt = drawing.one_in(6)
    for _ in range(steps):
        drawing.now += chance.choice((1.0, 10.0, 30.0, drawing.settings.grace, 100.0)) * (
            0.2 + chance.random()
        )
        step(drawing, prompt=prompt)
    if drawing.one_in(2.5):
        commands(drawing)
    if drawing.settings.store_skew > DAY:
        # The store's clock was wrong in the beginning, and is put right.
        drawing.add(drawing.now * chance.random(), "store_clock", skew=0.0)
    settings_ = drawing.settings
    few = settings_.partitioned and settings_.penguin_tracked < 64
    if not few and not any(map(_delays, drawing.events)) and (prompt or drawing.one_in(1.5)):
        # Without anything that publishes under old names or in old partitions, polls alone
        # find everything.
        settings_ = replace(settings_, reconcile=0.0)
    events = tuple(sorted(drawing.events, key=lambda found: found.at))
    return Plan(seed, settings_, events, drawing.now + 30.0)


def _delays(found: Event) -> bool:
    """Return whether an output may appear long after its name, or with a wrong time in it."""
    if found.kind == "fault":
        return found.get("secs", 60.0) > 10 and found["fault"] in {
            "pauses_before",
            "pauses_after",
            "hangs",
            "answers_late",
            "lands_late",
        }
    return found.kind in {"clock", "rival", "store_clock", "stray"}


def step(drawing: Drawing, *, prompt: bool) -> None:
    """Files arrive, and about every other time something goes wrong."""
    chance = drawing.chance
    for _ in range(chance.choice((0, 1, 1, 2, 3, 5))):
        write(drawing, drawing.now + 5 * chance.random())
    kind = chance.choices(tuple(TROUBLES), tuple(weight for weight, _ in TROUBLES.values()))[0]
    before = len(drawing.events)
    TROUBLES[kind][1](drawing)
    if prompt and any(map(_delays, drawing.events[before:])):
        del drawing.events[before:]
        chance.choice((half_published, half_committed))(drawing)
