"""Notifications of simulated stores: lost, late, doubled and forged messages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.daemon import StopEvent
from blizzard_core.notifications.inbox import Hint, HintInbox
from blizzard_core.notifications.protocol import Message
from blizzard_core.notifications.receiver import Receiver
from tests.simulation.plan import DAY
from tests.simulation.scheduler import Owner

if TYPE_CHECKING:
    from tests.simulation.processes import Process
    from tests.simulation.world import SimulatedWorld

# A received message comes again after this time.
HIDDEN_SECS = 40.0
# How often a waiting source receives.
_EVERY_SECS = 3.0


class HintQueue:
    """The queue of one source, which outlives every process. A `Queue`."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._messages: dict[str, Message] = {}
        self._visible: dict[str, float] = {}

    def send(self, body: bytes) -> None:
        """Send a message."""
        handle = str(len(self._visible))
        self._messages[handle] = Message(body, handle, self._world.now)
        self._visible[handle] = 0.0

    def receive(self, wait_secs: float) -> Sequence[Message]:  # noqa: ARG002  # never waits
        now = self._world.now
        found = [m for h, m in self._messages.items() if self._visible[h] <= now][:10]
        self._visible |= {message.handle: now + HIDDEN_SECS for message in found}
        return found

    def delete(self, handles: Sequence[str]) -> None:
        for handle in handles:
            self._messages.pop(handle, None)

    def count(self) -> int | None:
        return len(self._messages)

    def purge(self) -> None:
        self._messages.clear()

    def close(self) -> None:
        """Nothing is open."""


class HintSender:
    """A store that tells queues of new objects, as unreliably as the plan has it."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._chance = random.Random(world.plan.seed * 2 + 4_000_001)
        self._owner = Owner("notifications")
        self._queues: dict[str, HintQueue] = {}

    def queue(self, uri: str) -> HintQueue:
        """Return the queue of a source."""
        return self._queues.setdefault(uri, HintQueue(self._world))

    def appeared(self, uri: str, path: str) -> None:
        """Send the messages about a new object, sooner or later, if at all."""
        chance, world = self._chance, self._world
        is_lossy = (world.settings.full_scan or 0.0) < DAY
        if is_lossy and chance.random() < 0.2:
            world.counts["hint lost"] += 1
            return
        delays = [chance.choice((0.0, 0.0, 1.0, 15.0))]
        if chance.random() < 0.2:
            world.counts["hint doubled"] += 1
            delays.append(chance.choice((0.0, 30.0, 90.0)))
        for delay in delays:
            self._send(delay, uri, path)
        if chance.random() < 0.2:
            world.counts["hint forged"] += 1
            folder = chance.choice(("", "date=2024-01-28/", "region=xx/", path.rpartition("/")[0]))
            self._send(0.0, uri, f"{folder}{chance.randrange(9)}-forged.ndjson")

    def _send(self, delay: float, uri: str, path: str) -> None:
        body = json.dumps({"paths": [f"{uri}/{path}"]}).encode()

        def arrive() -> None:
            self._world.scheduler.sleep(delay)
            self.queue(uri).send(body)

        self._world.scheduler.spawn(self._owner, arrive)


class SimulatedInbox(HintInbox):
    """An inbox without a thread: it receives while its source waits, takes hints, or saves."""

    def __init__(self, uri: str, process: Process) -> None:
        super().__init__(uri, process.monotonic)
        self._process = process
        queue = process.world.hints.queue(uri)
        self._receiver = Receiver(
            "queue",
            lambda: queue,
            [self],
            owns_queue=True,
            monotonic=process.monotonic,
            clock=process.clock,
            wait_secs=0.0,
        )
        self._receive = partial(self._receiver.turn, process.stop)

    def take(self) -> list[Hint]:
        self._receive()
        return super().take()

    def mark(self) -> int:
        self._receive()
        return super().mark()

    def wait(self, secs: float, stop: StopEvent) -> bool:
        left = secs
        while left > 0 and not stop.is_set():
            stop.wait(min(left, _EVERY_SECS))
            left -= _EVERY_SECS
            self._receive()
            if self._new and self._process.monotonic() >= self._not_before:
                return True
        return stop.is_set()
