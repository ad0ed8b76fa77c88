"""One replica's lease and its view of the others."""

from __future__ import annotations

import json
import math
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version

from blizzard_core.checkpoint.writer_identity import Writer, is_running, this_process
from blizzard_core.daemon import StopEvent
from blizzard_core.errors import BlizzardError, FencedError, StorageError
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Storage, listed
from blizzard_core.threads import in_background
from blizzard_py import metrics
from blizzard_py.replicas.assignment import NextStep, assign, next_step
from blizzard_py.replicas.leases import (
    BEHIND,
    EVERY_UNIT,
    ID_DIGITS,
    LOOKS,
    PREFIX,
    Replica,
    SeenLeases,
    is_alive,
    living,
    observe,
    observed_secs,
    refusal,
    refusing_id,
    replica_of,
)

# A lease that was dead for so many lengths is removed; its replica would put it again.
_KEPT_LEASES = 10
# A source that its owner has refused for so many leases is taken from it: it cannot even release
# it, or is in a long batch, which then runs again.
_REFUSED_LEASES = 10


@dataclass(frozen=True, slots=True)
class View:
    """One look at the leases, which began ``at`` (monotonic).

    ``assigned`` has the id of the replica of each unit, ``elsewhere`` for how long another one has
    had the same unit, ``refusals`` for how long each refusal has been there.
    """

    at: float = -math.inf
    leases: SeenLeases = field(default_factory=dict)
    assigned: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, float] = field(default_factory=dict)
    refusals: Mapping[str, float] = field(default_factory=dict)


class Membership:
    """The membership of this process in a group of replicas. Thread-safe.

    One thread looks, the workers of sources read.
    """

    def __init__(
        self,
        storage: Storage,
        own: Replica,
        sources: Mapping[str, str],
        lease_secs: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Join nothing yet. ``sources`` has the unit of each source, which stays together."""
        self.own = own
        self.lease_secs = lease_secs
        self._storage = storage
        self._unit = dict(sources)
        self._weights = Counter(self._unit.values())
        self._monotonic = monotonic
        self._view = View()
        # Sources that this replica does not want, each with its unit.
        self._refused: dict[str, str] = {}
        # Refusals of others that the store would not remove.
        self._kept: set[str] = set()
        # When writers without a lease were met first, by the start of their ids.
        self._met: dict[str, float] = {}
        # The last writer of each source that was met, when first, and how long it has.
        self._holders: dict[str, tuple[str, float, float]] = {}
        # How long the next one has, of sources that were taken from an owner that refused them.
        self._patience: dict[str, float] = {}
        self._has_come = False
        # The name of a lease says what others need; the rest is for people.
        body = {**asdict(this_process()), "release": version("blizzard-penguin")}
        self._body = json.dumps(body).encode()
        self._log = get_logger(replica=str(own))

    @property
    def look_secs(self) -> float:
        """Return the time between two looks."""
        return self.lease_secs / LOOKS

    def look(self) -> None:
        """Look at all leases and renew the own one. Raises `StorageError`.

        A replica that cannot see the others takes nothing, so it must not renew: they would leave
        sources to it. Only the first lease comes before the look, which compares others with it.
        """
        before, began = self._view, self._monotonic()
        is_first = not self._has_come
        if is_first:
            self._renew()
            self._has_come = True
        times, refusals = self._listed()
        gap = began - before.at
        leases = observe(before.leases, times, self.own, gap, self.lease_secs)
        self._report(before.leases, leases)
        mates = {each.id for each in living(leases, self.lease_secs) if self._is_mate(each)}
        mates.add(self.own.id)
        refused = {
            (mate, unit)
            for mate in mates.intersection(refusals.values())
            for unit in self._weights
            if refusal(mate, unit) in refusals
        }
        leaving = {mate for mate in mates if refusal(mate, EVERY_UNIT) in refusals}
        assigned = assign(self._weights, mates, refused, leaving)
        secs = observed_secs(gap, self.lease_secs)
        elsewhere = {
            # One that crashes again and again comes with a new id each time, and gets nothing.
            unit: before.elsewhere[unit] + secs if before.assigned.get(unit) == chosen else 0.0
            for unit, chosen in assigned.items()
            if chosen != self.own.id
        }
        if not is_first:
            self._renew()
        refused_secs = {
            name: before.refusals[name] + secs if name in before.refusals else 0.0
            for name in refusals
        }
        self._view = View(began, leases, assigned, elsewhere, refused_secs)
        self._clean_up(before.leases, refusals)

    def _listed(self) -> tuple[dict[Replica, float], dict[str, str]]:
        """Return the store's times of all leases, and the refusals with the ids of replicas."""
        times, refusals = {}, {}
        for entry in listed(self._storage, PREFIX, BEHIND):
            if (found := replica_of(entry.path)) is not None:
                times[found] = entry.modified
            elif (refusing := refusing_id(entry.path)) is not None:
                refusals[entry.path] = refusing
        return times, refusals

    def _clean_up(self, before: SeenLeases, refusals: Mapping[str, str]) -> None:
        """Write and remove own refusals. Remove what the dead left behind.

        What others left is removed once: a store may refuse it. And there may be a refusal of each
        of many sources, so the rest waits for the next look, which renews the lease.
        """
        limit, leases = _KEPT_LEASES * self.lease_secs, self._view.leases
        for each, state in leases.items():
            if state.secs > limit and (each not in before or before[each].secs <= limit):
                self._remove(each.object_name)
        wanted = {refusal(self.own.id, unit) for unit in tuple(self._refused.values())}
        alive = {each.id for each in leases if each != self.own}
        surplus = {
            name: replica_id
            for name, replica_id in refusals.items()
            if name not in wanted and replica_id not in alive
        }
        self._kept.intersection_update(surplus)
        others = sorted(surplus.keys() - self._kept, key=lambda n: (surplus[n] == self.own.id, n))
        for name in sorted(wanted - refusals.keys()) + others:
            if self._monotonic() - self._view.at >= self.look_secs:
                return
            if name in wanted:
                self._storage.put_atomic(name, b"")
            elif not self._remove(name):
                if surplus[name] == self.own.id:
                    return  # one attempt a look: it counts until it is gone
                self._kept.add(name)

    def _remove(self, name: str) -> bool:
        # A store may refuse it: then an object too many is listed, and nothing else is wrong.
        try:
            self._storage.delete(name)
        except StorageError as error:
            self._log.warning("lease_not_removed", object=name, error=str(error))
            return False
        return True

    def refuse(self, source: str) -> bool:
        """Leave a source to the others, since it cannot work on it; return whether that is new.

        Its unit goes with it, also if its other sources work here.
        """
        is_new = source not in self._refused
        self._refused[source] = self._unit[source]
        return is_new

    def accept(self, source: str) -> None:
        """Take back the refusal of a source, if any; those of others of its unit remain."""
        self._refused.pop(source, None)

    def leave(self) -> None:
        """Leave all sources to the others: those that are released, and the rest once they are."""
        self._refused[EVERY_UNIT] = EVERY_UNIT

    def _renew(self) -> None:
        self._storage.put_atomic(self.own.object_name, self._body)

    def _is_mate(self, other: Replica) -> bool:
        """Return whether sources are shared with a replica: only with the same configuration."""
        return other.config == self.own.config

    def _report(self, before: SeenLeases, leases: SeenLeases) -> None:
        then, now = (living(each, self.lease_secs) - {self.own} for each in (before, leases))
        metrics.REPLICAS_ALIVE.set(len(now) + 1)
        for each in sorted(now - then, key=str):
            self._log.info("replica_came", other=str(each))
            if not self._is_mate(each):
                self._log.warning("replicas_differ", other=str(each))
        for each in sorted(then - now, key=str):
            self._log.warning("replica_gone", other=str(each))

    def step(self, source: str, *, owns: bool) -> NextStep:
        """Return what to do with a source now."""
        unit, view = self._unit[source], self._view
        return next_step(
            owns=owns,
            is_assigned=view.assigned.get(unit) == self.own.id,
            # A process that was paused has an old view.
            is_current=self._monotonic() - view.at <= self.lease_secs,
            elsewhere_secs=view.elsewhere.get(unit, 0.0),
            lease=self.lease_secs,
        )

    def wait_reason(self, source: str) -> str:
        """Return why a source is not taken, for people."""
        chosen = self._view.assigned.get(self._unit[source])
        for each in self._view.leases:
            if each.id == chosen and each != self.own:
                return f"it is assigned to {each}"
        return "the leases of replicas cannot be read"

    def admit(self, source: str, found: Writer) -> None:
        """Raise `FencedError` while the writer of a checkpoint is alive and has not released it.

        Not if it has refused the source for long: it may be unable to write the checkpoint. Only
        time in which this writer had it counts, and it takes twice as long each time. Otherwise
        replicas of two configurations that both refuse it would take it from each other for ever.

        A `TakeoverPolicy`. A writer without a lease is a daemon without replicas, or a command: it
        counts as alive if its process runs on this machine. A replica may have come, and have
        released or taken the source, since the last look: so the view must be younger than the
        first meeting with a writer without a lease, and no older than a lease.
        """
        owner = found.id[:ID_DIGITS]
        if found.released or owner == self.own.id:
            return
        now, view = self._monotonic(), self._view
        leases = {each: s for each, s in view.leases.items() if each.id == owner}
        met = now if leases else self._met.setdefault(owner, now)
        if now - view.at > self.lease_secs or (not leases and view.at <= met):
            raise FencedError(f"{found} may hold a lease that the next look shows")
        self._met.pop(owner, None)
        if self._holders.get(source, ("",))[0] != found.id:
            patience = self._patience.get(source, _REFUSED_LEASES * self.lease_secs)
            self._holders[source] = found.id, now, patience
        _, since, patience = self._holders[source]
        refused_secs = view.refusals.get(refusal(owner, self._unit[source]), 0.0)
        alive = [each for each, state in leases.items() if is_alive(state, self.lease_secs)]
        if alive and min(refused_secs, now - since) < patience:
            raise FencedError(f"{alive[0]} has it and has not released it")
        if alive:
            self._patience[source] = 2 * patience
        if not leases and is_running(found):
            raise FencedError(f"{found} works on it, and is no replica of this group; stop it")

    @contextmanager
    def taking_part(self, stop: StopEvent) -> Iterator[None]:
        """Renew the lease while the block runs. Remove it at the end, so that nobody waits.

        Once ``stop`` is set all units are left to the others, while the last batches go on.
        """
        first = self._monotonic()
        self._try_look()

        def turn(over: threading.Event) -> None:
            began = first
            while not over.wait(max(0.0, began + self.look_secs - self._monotonic())):
                began = self._monotonic()
                if stop.is_set():
                    self.leave()
                self._try_look()

        try:
            with in_background("replicas", turn, secs=self.look_secs):
                yield
        finally:
            # First the lease: without its refusals a listed replica would be given sources.
            self._remove(self.own.object_name)
            for unit in {*self._refused.values()}:
                self._remove(refusal(self.own.id, unit))

    def _try_look(self) -> None:
        try:
            self.look()
        except BlizzardError as error:
            self._log.warning("leases_unknown", error=str(error))
        except Exception:  # a bug must not end the thread: then this replica would count as dead
            self._log.exception("leases_crashed")


def new_replica(host: str, config: str) -> Replica:
    """Return a replica with a new id; ``config`` is a digest of what it would do."""
    shown = re.sub(r"[^A-Za-z0-9_.-]", "-", host)[:100] or "host"
    return Replica(shown, uuid.uuid4().hex[:ID_DIGITS], config)
