"""Replicas of a run: their leases, and a watch over each take-over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.errors import BlizzardError, StorageError
from blizzard_py.app.replica_worker import ReplicaWorker
from blizzard_py.replicas.leases import ID_DIGITS, Replica
from blizzard_py.replicas.membership import Membership
from tests.simulation import adaptor

if TYPE_CHECKING:
    from tests.simulation.processes import Process

LEASES = "s3://lake-leases"
LEASE_SECS = 30.0
CONFIG = "0" * 8
# A replica is surely alive if no two renewals were further apart than this for so many leases.
_SURE_GAP = 0.8 * LEASE_SECS
_SURE_LEASES = 3


class Leases:
    """The lease of a process, which is renewed while its workers run."""

    def __init__(self, process: Process, number: int) -> None:
        self._process = process
        world = process.world
        own = Replica(process.name, f"{number:0{ID_DIGITS}x}", CONFIG)
        names = [
            f"{adaptor.PIPELINE}/{adaptor.source_name(world.settings, each)}"
            for each in range(world.settings.sources)
        ]
        self._client = process.client(LEASES)
        self.membership = Membership(
            self._client, own, dict(zip(names, names, strict=True)), LEASE_SECS, process.monotonic
        )
        # When each look began and ended; its renewal lies in between.
        self._looks: list[tuple[float, float]] = []
        world.replicas[own.id] = self

    def renew(self, is_needed: Callable[[], bool]) -> None:
        """Look as long as workers run, then remove the lease."""
        world, membership = self._process.world, self.membership
        while is_needed():
            began = world.now
            if self._process.stop.is_set():
                membership.leave()
            try:
                membership.look()
            except BlizzardError:
                world.counts["looks at leases failed"] += 1
            else:
                self._looks.append((began, world.now))
            world.scheduler.sleep(max(0.01, began + membership.look_secs - world.now))
        try:
            self._client.delete(membership.own.object_name)
        except StorageError:
            world.counts["leases left behind"] += 1

    def is_surely_alive(self) -> bool:
        """Return whether nobody may count the replica as dead."""
        now = self._process.world.now
        looks = [each for each in self._looks if each[1] > now - _SURE_LEASES * LEASE_SECS]
        if self._process.is_over or len(looks) < _SURE_LEASES * 2:
            return False
        began = [each[0] for each in looks]
        ended = [*(each[1] for each in looks[1:]), now]
        return all(end - begin < _SURE_GAP for begin, end in zip(began, ended, strict=True))


class WatchedWorker(ReplicaWorker):
    """A worker that notes how a source came to it."""

    def __init__(self, process: Process, make: Callable[..., Any], leases: Leases) -> None:
        self._process = process
        super().__init__(make, leases.membership)

    def _admit(self, found: Writer) -> None:
        super()._admit(found)
        world = self._process.world
        holder = world.replicas.get(found.id[:ID_DIGITS])
        if holder is None or found.released or holder.membership is self._membership:
            return
        if holder.is_surely_alive():
            world.problems["a source was taken from a replica that is alive"] += 1

    def _took(self) -> None:
        if not self._is_held:
            is_left = self._found is None or self._found.released
            self._process.world.counts[f"source {'taken' if is_left else 'taken from dead'}"] += 1
            self._process.world.note(f"{self._process.name} takes {self.name}")
        super()._took()

    def _release(self) -> None:
        super()._release()
        self._process.world.counts["source released"] += 1
        self._process.world.note(f"{self._process.name} releases {self.name}")

    def _lost(self, error: Any) -> None:
        if self._is_held:
            self._process.world.counts["source lost"] += 1
            self._process.world.note(f"{self._process.name} loses {self.name}")
        super()._lost(error)
