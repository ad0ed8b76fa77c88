"""Faults for the daemons, one after the other, drawn from the seed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from blizzard_core.errors import NotFound, Unavailable
from tests.chaos.blizzard.daemon import slow_down
from tests.chaos.blizzard.fleet import FENCED, Daemon, Fleet
from tests.chaos.blizzard.pace import Pace
from tests.chaos.blizzard.place import CHECKPOINT, Place

# For an interpreter to start and for a store that does not answer, on a busy machine.
_PATIENCE_SECS = 90.0
_TICK_SECS = 0.2


class Director:
    """One Blizzard and one Penguin at a time, and now and then two Blizzards."""

    def __init__(self, fleet: Fleet, place: Place, pace: Pace, seed: int) -> None:
        self._fleet = fleet
        self._table = place.table
        self._locked = place.locked
        self._pace = pace
        self._chance = random.Random(seed)
        self._penguin = fleet.start("penguin")
        # The first batch takes longer than the grace period, and files go on arriving.
        self._slow_down()
        self._current = fleet.start("blizzard")

    def run(self, until: float) -> None:
        """Make trouble until the monotonic time ``until``. Raises `Trouble`."""
        self._pause(self._pace.longest_job)
        actions: list[Callable[[], None]] = [
            self._kill,
            self._kill,
            self._down,
            self._overtake,
            self._overtake,
            self._overlap,
            self._sleep,
            self._terminate,
            self._slow_down,
        ]
        # All of them in random order, again and again, so that a short run misses none.
        while True:
            self._chance.shuffle(actions)
            for action in actions:
                if time.monotonic() >= until:
                    return
                if self._chance.random() < 0.2:
                    self._fleet.kill(self._penguin)
                    self._penguin = self._fleet.start("penguin")
                self._fleet.count("actions")
                action()
                self._pause(self._pace.moment(self._chance))

    def restart_all(self) -> None:
        """Stop all daemons and start new ones."""
        self._terminate()

    def wait(self, secs: float) -> None:
        """Let both work. Raises `Trouble` if one ends."""
        self._pause(secs)

    def stop(self) -> None:
        """Stop both daemons; each must end with 0."""
        for daemon in (self._current, self._penguin):
            self._fleet.stop(daemon, self._long)

    def _kill(self) -> None:
        self._fleet.kill(self._current)
        self._current = self._fleet.start("blizzard")

    def _down(self) -> None:
        self._fleet.kill(self._current)
        self._fleet.count("downtimes longer than the grace period")
        self._fleet.watch(self._pace.downtime(self._chance), self._penguin)
        self._current = self._fleet.start("blizzard")

    def _sleep(self) -> None:
        """Pause the daemon; no other one takes over."""
        self._fleet.count("pauses")
        self._current.send(signal.SIGSTOP)
        self._fleet.watch(self._pace.downtime(self._chance), self._penguin)
        self._current.send(signal.SIGCONT)

    def _overtake(self) -> None:
        """Another takes over while this one is paused; then this one wakes up."""
        self._fleet.count("pauses")
        old = self._current
        # One that has not taken the checkpoint yet would take it from the other one.
        self._fleet.wait_for("discovered", old, self._long)
        self._freeze(old)
        epoch = self._epoch()
        self._current = self._fleet.start("blizzard")
        self._takes_over(epoch)
        self._pause(self._pace.moment(self._chance))
        draw = self._chance.random()
        if draw < 0.25:
            self._kill()
        elif draw < 0.5:
            self._pause(self._pace.downtime(self._chance))
        asleep = self._current if draw > 0.75 else None
        if asleep is not None:
            # The one that was overtaken must not get anywhere while the other is not looking.
            self._freeze(asleep)
        old.send(signal.SIGCONT)
        try:
            self._is_fenced(old)
        finally:
            if asleep is not None:
                asleep.send(signal.SIGCONT)

    def _overlap(self) -> None:
        """Start the next daemon while this one works, as a rolling update does."""
        self._fleet.count("overlaps")
        old, self._current = self._current, self._fleet.start("blizzard")
        self._one_is_fenced(old)

    def _terminate(self) -> None:
        self._fleet.stop(self._current, self._long)
        self._current = self._fleet.start("blizzard")

    def _slow_down(self) -> None:
        self._fleet.count("slow jobs")
        secs = self._pace.slow_job(self._chance)
        slow_down(self._fleet.folder, secs, after=self._chance.random() < 0.5)

    def _pause(self, secs: float) -> None:
        self._fleet.watch(secs, self._current, self._penguin)

    def _freeze(self, daemon: Daemon) -> None:
        """Pause it, but not inside the lock that a save takes on a disk: all would wait there."""
        daemon.send(signal.SIGSTOP)
        while self._locked():
            daemon.send(signal.SIGCONT)
            self._fleet.watch(_TICK_SECS, daemon)
            daemon.send(signal.SIGSTOP)

    @property
    def _long(self) -> float:
        """A daemon may be in a slow job, and notices what has happened after it."""
        return self._pace.longest_job + _PATIENCE_SECS

    def _is_fenced(self, daemon: Daemon) -> None:
        daemon.must_end(FENCED, self._long)
        self._fleet.count("fenced")

    def _one_is_fenced(self, old: Daemon) -> None:
        """Run two daemons: the second one to save must end."""
        both = (old, self._current)
        until = time.monotonic() + self._long
        while all(d.code is None for d in both) and time.monotonic() < until:
            time.sleep(_TICK_SECS)
        if self._current.code is not None:
            self._current, old = old, self._current
        self._is_fenced(old)

    def _takes_over(self, epoch: int) -> None:
        until = time.monotonic() + self._long
        while self._epoch() <= epoch:
            self._fleet.watch(_TICK_SECS, self._current, self._penguin)
            if time.monotonic() > until:
                raise self._current.trouble(f"has not taken over from epoch {epoch}")

    def _epoch(self) -> int:
        """Return the writer's epoch in the checkpoint, 0 before there is one."""
        with suppress(NotFound, Unavailable):
            return json.loads(self._table.read(CHECKPOINT))["writer"]["epoch"]
        return 0
