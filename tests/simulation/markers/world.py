"""A schedule: both daemons on one store, with their faults."""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappush
from typing import Any

from greenlet import getcurrent

from blizzard_core.delta_json import COMMIT
from blizzard_core.errors import BlizzardError, FencedError
from blizzard_core.handover.complete import completions_path
from blizzard_py.app.certificates import ask
from tests.simulation.faults import Faults, Shot
from tests.simulation.markers.blizzard import LAKE, RAW, SOURCE_ID, Blizzard, context
from tests.simulation.markers.checks import Held, MarkerChecks
from tests.simulation.markers.penguin import Penguin
from tests.simulation.markers.people import PARTITIONS, People
from tests.simulation.plan import START
from tests.simulation.scheduler import Died, Owner, Scheduler, Task
from tests.simulation.store import Bucket, Client


@dataclass(frozen=True)
class MarkerPlan:
    """The events of a schedule with their times. ``base`` names the world that it begins with."""

    seed: int
    base: str = "empty"
    tracked: int = 64
    late_files: str = "ingest"
    events: tuple[tuple[float, str], ...] = ()
    length: float = 0.9


class _Scheduler(Scheduler):
    """Requests take milliseconds; one of thirty takes so long that others do much meanwhile."""

    def io(self) -> None:
        draw = self._chance.random()
        task = self.current
        if task is None:
            return
        owner = task.owner
        if owner.dead or task.body is not getcurrent():
            raise Died
        self._count += 1
        wake = self.now + (draw * 0.02 if draw < 0.97 else draw - 0.6)
        heappush(self._queue, (wake, self._count, task))
        self._hub.switch()
        if owner.dead:
            raise Died


class MarkerWorld(MarkerChecks):
    """One schedule. ``violations`` has each wrong marker once."""

    def __init__(self, plan: MarkerPlan, held: Held) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed)
        self.scheduler = _Scheduler(self.chance, held.now)
        self.partitions = PARTITIONS
        self.history: list[str] = []
        self._buckets = {uri: Bucket(uri, self.clock) for uri in (LAKE, RAW)}
        self.lake, self.raw = self._buckets[LAKE], self._buckets[RAW]
        for bucket, objects in ((self.lake, held.lake), (self.raw, held.raw)):
            bucket.page_keys = 1000
            bucket.fill(objects)
        super().__init__(held, self.lake, self.scheduler)
        self.lake.put = self.put  # type: ignore[method-assign]
        self.living: dict[Owner, str] = {}
        self._numbers = 0
        self._network = Owner("network")
        self.people = People(self)

    def clock(self) -> float:
        return self.scheduler.now

    def held(self) -> Held:
        """Return what another schedule can begin with."""
        return Held(
            {path: found.data for path, found in self.lake.objects.items()},
            {path: found.data for path, found in self.raw.objects.items()},
            self.appeared,
            self.outputs,
            self.versions,
            frozenset(self.rowless),
            self.scheduler.now,
        )

    def note(self, what: str) -> None:
        """Add a line to the history."""
        self.history.append(f"{self.scheduler.now - START:8.3f} {what}")

    # -- processes -----------------------------------------------------------------------

    def _client(self, uri: str, faults: Faults) -> Client:
        return Client(self._buckets[uri], self.scheduler, faults)

    def start(self, kind: str, shot: Shot | None = None) -> Owner:
        """Start a daemon, with a fault that waits for it."""
        self._numbers += 1
        owner = Owner(f"{kind}-{self._numbers}")
        self.had_two_penguins |= kind == "penguin" and kind in self.living.values()
        self.living[owner] = kind
        faults = Faults(owner, self.scheduler, self.counts, self.note, self.later)
        faults.armed = [] if shot is None else [shot]
        faults.on_death = lambda: self.dies(owner)
        lake = self._client(LAKE, faults)
        raw = self._client(RAW, faults)
        bodies: dict[str, Callable[[], None]] = {
            "blizzard": lambda: self._blizzard(owner, lake, raw),
            "penguin": lambda: self._penguin(owner, lake),
        }
        self.scheduler.spawn(owner, lambda: self._life(bodies[kind]))
        return owner

    def _life(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self._violate(f"a daemon died of {error!r} at {place}")

    def later(self, secs: float, effect: Callable[[], Any], _what: str) -> None:
        """Let a request arrive after a while."""

        def land() -> None:
            self.scheduler.sleep(secs)
            try:
                effect()
            except BlizzardError:
                self.counts["refused later"] += 1

        self.scheduler.spawn(self._network, land)

    def _blizzard(self, owner: Owner, lake: Client, raw: Client) -> None:
        import threading  # noqa: PLC0415

        worker, stop = Blizzard(self, lake, raw), threading.Event()
        while True:
            try:
                worker.cycle(stop)
            except FencedError as error:
                self.note(f"{owner.name}: {error}"[:150])
                self.living.pop(owner, None)
                return
            except BlizzardError as error:
                self.counts[f"blizzard {type(error).__name__}"] += 1
                self.note(f"{owner.name}: {error}"[:150])
            self.scheduler.sleep(self.chance.random() * 0.25)

    def _penguin(self, owner: Owner, lake: Client) -> None:
        worker = Penguin(self, owner, lake)
        while True:
            began, revoked = self.step, self.revoked_markers()
            try:
                worker.cycle(worker.stop)
                self.cycle_over(began, revoked)
            except BlizzardError as error:
                self.counts[f"penguin {type(error).__name__}"] += 1
                self.note(f"{owner.name}: {error}"[:150])
            self.scheduler.sleep(self.chance.random() * 0.2)

    def _consumer(self) -> None:
        owner = Owner("consumer")
        faults = Faults(owner, self.scheduler, self.counts, self.note, self.later)
        lake, raw = self._client(LAKE, faults), self._client(RAW, faults)
        parts = context(lake, raw, self.clock, self.plan.late_files)

        def life() -> None:
            while True:
                self.scheduler.sleep(self.chance.random() * 0.5)
                if not self._markers():
                    continue  # it would only be told why
                before, shown = dict(self.versions), self.shown()
                try:
                    answer = ask(parts, self.chance.choice(PARTITIONS[:2]))
                except BlizzardError as error:
                    self.counts[f"consumer {type(error).__name__}"] += 1
                    continue
                self.believed(answer.marker, before, shown)

        self.scheduler.spawn(owner, life)

    # -- the schedule ---------------------------------------------------------------------

    def play(self) -> None:
        """Play the plan to its end."""
        self.start("blizzard")
        self.start("penguin")
        self._consumer()
        people = Owner("people")
        for at, kind in self.plan.events:
            self.scheduler.spawn(people, self._event(at, kind))

        def supervise() -> None:
            while True:
                self.scheduler.sleep(0.1)
                for kind in {"blizzard", "penguin"} - set(self.living.values()):
                    self.start(kind)

        self.scheduler.spawn(people, supervise)
        self.scheduler.run(self.scheduler.now + self.plan.length)
        for task in [task for _, _, task in self.scheduler._queue]:
            _end(self.scheduler, task)

    def _event(self, at: float, kind: str) -> Callable[[], None]:
        def life() -> None:
            self.scheduler.sleep(at)
            self.note(f"people: {kind}")
            self.counts[kind] += 1
            getattr(self.people, kind)()

        return life

    def dies(self, owner: Owner) -> None:
        """End a process at once."""
        self.living.pop(owner, None)
        self.scheduler.kill(owner)

    def stop(self, kind: str) -> None:
        """End all daemons of a kind; no request of theirs is on its way any more."""
        for owner in [owner for owner, its in self.living.items() if its == kind]:
            self.dies(owner)
        self.scheduler.kill(self._network)
        self._network = Owner("network")

    def stage(self) -> str:
        """Return how far the first files are."""
        objects = self.lake.objects
        mirror = objects.get(completions_path(SOURCE_ID))
        complete = [] if mirror is None else json.loads(mirror.data)["partitions"].values()
        done = sum(bool(each["complete_ts"]) for each in complete)
        if len(self._markers()) == len(PARTITIONS[:2]):
            return "marked"
        if done == len(PARTITIONS[:2]) and not self._markers():
            return "complete"
        is_in = any(COMMIT.fullmatch(path) for path in objects)
        return "open" if is_in and not done and not self._markers() else ""


def _end(scheduler: Scheduler, task: Task) -> None:
    if task.done or task.body is None:
        return
    task.owner.dead = True
    scheduler.current = task
    task.body.switch()
    scheduler.current = None
