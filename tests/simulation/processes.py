"""Processes of the daemons: they start, wait, pause, die and restart."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from blizzard_core.daemon import Loop, run_worker
from blizzard_core.errors import FencedError, StateError, StorageError
from tests.simulation import adaptor
from tests.simulation.engine import Engine
from tests.simulation.faults import Faults
from tests.simulation.hints import SimulatedInbox
from tests.simulation.plan import Settings, source_uri
from tests.simulation.quiet import Quiet
from tests.simulation.replicas import Leases, WatchedWorker
from tests.simulation.scheduler import Executor, Owner
from tests.simulation.store import Client
from tests.simulation.world import DLQ, SINK, SimulatedWorld

# How much longer daemons wait between polls once faults have ended.
CALM = 6.0
RESTART_SECS = 10.0


class Stop:
    """The stop event of a process. Waiting is virtual."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float | None = None) -> bool:
        secs = 1.0 if timeout is None else timeout
        self._world.scheduler.sleep(secs * CALM if self._world.calm else secs)
        return self._set


class Process(Owner):
    """One incarnation of a daemon."""

    def __init__(self, world: SimulatedWorld, kind: str, number: int) -> None:
        super().__init__(f"{kind}-{number}")
        self.world = world
        self.kind = kind
        self.skew = 0.0
        self.release = world.release
        self.last_id = 0
        self.died_at: float | None = None
        self.executors = Owner(f"{self.name} executors")
        self.faults = self._faults(self)
        self.activities: list[Quiet] = []
        self.stop = Stop(world)
        is_replica = kind == "blizzard" and world.settings.replicas
        self.leases = Leases(self, number) if is_replica else None

    def _faults(self, owner: Owner) -> Faults:
        world = self.world
        return Faults(owner, world.scheduler, world.counts, world.note, world.later)

    def clock(self) -> float:
        """Return the process's wall clock."""
        return self.world.now + self.skew

    def monotonic(self) -> float:
        """Seconds since an unknown moment; it never jumps."""
        return self.world.now - 1_000_000.0

    def client(self, uri: str) -> Client:
        return Client(self.world.bucket(uri), self.world.scheduler, self.faults)

    def start(self) -> None:
        """Begin all workers, each in a thread of its own."""
        world = self.world
        world.note(f"{self.name} starts (release {self.release})")
        self.faults.on_death = self.died
        makers = (
            [self._source(number) for number in range(world.settings.sources)]
            if self.kind == "blizzard"
            else [self._table()]
        )
        workers = [world.scheduler.spawn(self, partial(self._life, make)) for make in makers]
        if self.leases is not None:
            leases = self.leases
            world.scheduler.spawn(
                self, lambda: leases.renew(lambda: not all(each.done for each in workers))
            )

    def _life(self, make: Callable[[], int]) -> None:
        """Run a worker's thread, as the daemon's main thread does."""
        try:
            if make() == FencedError.exit_code:
                self.stop.set()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.world.problems[f"a {self.kind} died of {error!r} at {place}"] += 1

    def _source(self, number: int) -> Callable[[], Any]:
        def life() -> int:
            parts = self.parts(number)
            make = partial(adaptor.source_pipeline, parts, fresh=number in self.world.fresh)
            if self.leases is None:
                return self._worked(make(), parts.activity, number)
            make = partial(make, replica_id=self.leases.membership.own.id)
            worker = WatchedWorker(self, make, self.leases)
            code = self._worked(worker, parts.activity, number)
            with suppress(StateError, StorageError):
                worker.release()
            return code

        return life

    def parts(self, number: int, settings: Settings | None = None) -> Any:
        """Build the product's parts of a source, for the given or the current configuration."""
        world = self.world
        settings = settings or world.settings
        uri = source_uri(number, moved=settings.moved)
        activity = Quiet(f"{self.name}/s{number}", world.note)
        self.activities.append(activity)
        # What executors do goes on without the driver, and has faults of its own.
        reader = Client(world.bucket(uri), world.scheduler, self._faults(self.executors))
        sink = Client(world.bucket(SINK), world.scheduler, self._faults(self.executors))
        letters = Client(world.bucket(DLQ), world.scheduler, self._faults(self.executors))
        engine = Engine(world, self.executors, {uri: reader, DLQ: letters}, sink, self.release)
        hints = SimulatedInbox(uri, self) if settings.hints else None
        return adaptor.source_parts(settings, number, self.client, engine, self, activity, hints)

    def _table(self) -> Callable[[], Any]:
        def life() -> int:
            world = self.world
            activity = Quiet(f"{self.name}", world.note)
            self.activities.append(activity)
            pool = Executor(world.scheduler, 4)
            table = adaptor.table_pipeline(world.settings, self.client(SINK), pool, self, activity)
            return self._worked(table, activity)

        return life

    def _worked(self, worker: Any, activity: Quiet, number: int | None = None) -> int:
        loop = Loop(once=False, jitter_secs=1.0, grace_secs=1.0, chance=self.world.chance.random)
        code = run_worker(worker, loop, self.stop)
        self.world.note(f"{self.name} ends with exit code {code}: {activity.error}")
        text = str(activity.error)
        if re.search(r"taken over by writer (\w+), epoch \d+ .*\(ours: \1", text):
            self.world.problems["a daemon fenced itself"] += 1
        excused = self.is_excused(text)
        if activity.crashed and not excused:
            problem = f"a {self.kind} ended with {type(activity.error).__name__}: {activity.error}"
            self.world.problems[problem] += 1
        if activity.crashed and excused and number in self.world.on_refusal:
            self.world.on_refusal[number](number)
        return code

    def is_excused(self, text: str) -> bool:
        """Return whether an operator's action explains an error; some errors stop the source."""
        excused = any(part in text for part in self.world.excused)
        # Where a checkpoint was brought back another one is made again.
        lost = "neither staged" in text and bool(self.world.counts["staging deleted"])
        self.world.refused |= excused and lost
        return excused

    @property
    def is_well(self) -> bool:
        """All workers of the process run."""
        ended = any(activity.code is not None for activity in self.activities)
        return not self.dead and not ended and not self.paused_until

    @property
    def is_over(self) -> bool:
        return self.dead or not self.tasks

    def died(self, zombie: bool = False) -> None:
        """End the process at once; its executors may go on for a while."""
        if self.died_at is None:
            self.died_at = self.world.now
            self.world.note(f"{self.name} dies")
            self.world.scheduler.kill(self)
            if not zombie:
                self.world.scheduler.kill(self.executors)


def drained(process: Process, worker: Any) -> int:
    """Process all files of a command in its process; return the exit code."""
    loop = Loop(once=True, jitter_secs=0.0, grace_secs=1.0, chance=process.world.chance.random)
    code = run_worker(worker, loop, process.stop)
    error = worker.activity.error
    if worker.activity.is_bug:
        process.world.problems[f"a {process.kind} ended with {error!r}"] += 1
    process.is_excused(str(error))
    return code
