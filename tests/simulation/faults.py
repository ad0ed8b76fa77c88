"""Faults of one process: armed from the plan, fired at the n-th request that fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.scheduler import Died, Owner, Scheduler

# Which requests a fault fits: the operations, and a part of the path.
PLACES: dict[str, tuple[frozenset[str], str]] = {
    "any": (frozenset({"list", "stat", "read", "put", "put_if", "copy", "delete"}), ""),
    "write": (frozenset({"put", "put_if", "copy", "delete"}), ""),
    "list": (frozenset({"list"}), ""),
    "checkpoint": (frozenset({"put_if"}), "_checkpoint.json"),
    "fence": (frozenset({"put_if", "read"}), "_blizzard_fence/"),
    "taken": (frozenset({"read"}), "_checkpoint.json"),
    "staging": (frozenset({"put", "delete", "stat", "list"}), "_blizzard/staging"),
    "lease": (frozenset({"put"}), ".00000000.json"),
    "segments": (frozenset({"list", "delete"}), "_ledger/"),
    "copy": (frozenset({"copy"}), ""),
    "delete": (frozenset({"delete"}), ""),
    "letters": (frozenset({"put", "delete"}), "events_"),
    "journal": (frozenset({"put"}), "/journal/"),
    "log": (frozenset({"put_if", "read", "list", "put"}), "_delta_log"),
    "entry": (frozenset({"put_if"}), "_delta_log"),
    "mirror": (frozenset({"put"}), "_penguin/"),
    "cleaned": (frozenset({"delete"}), ".ndjson"),
    "list of files": (frozenset({"put", "put_if"}), "_blizzard/cleaning/"),
    "page": (frozenset({"page"}), ""),
    "page_size": (frozenset({"page_size"}), ""),
}


@dataclass(slots=True)
class Shot:
    """A fault that waits for the ``countdown``-th request at ``place``."""

    kind: str
    place: str
    countdown: int
    secs: float = 0.0


@dataclass
class Faults:
    """The armed faults of one process, and the effects that they need."""

    owner: Owner
    scheduler: Scheduler
    counts: Counter[str]
    note: Callable[[str], None]
    delayed: Callable[[float, Callable[[], Any], str], None]
    armed: list[Shot] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    # What dies with the process, and what does not.
    on_death: Callable[[], None] = lambda: None

    def due(self, op: str, path: str) -> Shot | None:
        """Return the fault that this request meets, if any."""
        for shot in self.armed:
            ops, part = PLACES[shot.place]
            if op in ops and part in path:
                if shot.countdown > 0:
                    shot.countdown -= 1
                    continue
                self.armed.remove(shot)
                self.counts[shot.kind] += 1
                self.note(f"{self.owner.name}: {shot.kind} at {op} {path}")
                return shot
        return None

    def die(self) -> None:
        """End the process here and now."""
        self.on_death()
        raise Died

    def pause(self, secs: float) -> None:
        """Stop all threads of the process for so long."""
        self.owner.paused_until = self.scheduler.now + secs
        self.scheduler.sleep(secs)

    def later(self, secs: float, effect: Callable[[], Any], what: str) -> None:
        """Let the request arrive after ``secs``."""
        self.delayed(secs, effect, what)
