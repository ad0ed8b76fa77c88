"""The assignment of sources to replicas. Pure: replicas with the same view agree without asking.

Rendezvous hashing with a bound: each unit goes to the replica with the highest hash that has room.
So no replica gets more than its share, and few units move when one comes or goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import partial


class NextStep(Enum):
    """The next step of a replica with a source."""

    WORK = "work"
    TAKE = "take"
    RELEASE = "release"
    STAND_BY = "stand by"


def assign(
    units: Mapping[str, int],
    replicas: Collection[str],
    refused: Collection[tuple[str, str]] = (),
    leaving: Collection[str] = (),
) -> dict[str, str]:
    """Return a replica for each unit, by the weights of the units; nothing without a replica.

    The heaviest unit comes first. Room is the fair share of the weight, rounded up. A unit for
    which nobody has room goes to the replica with the least weight. ``refused`` has replicas and
    units that they do not get, unless all refuse the unit. Those that are ``leaving`` get nothing
    while there is another one, even if that one refuses it: it may work on it again.
    """
    if not replicas:
        return {}
    room = -(-sum(units.values()) // len(replicas))
    load = dict.fromkeys(sorted(replicas), 0)
    found = {}
    staying = [each for each in load if each not in leaving] or list(load)
    for unit, weight in sorted(units.items(), key=lambda each: (-each[1], each[0])):
        willing = [each for each in staying if (each, unit) not in refused] or staying
        wanted = sorted(willing, key=partial(_score, unit), reverse=True)
        with_room = (each for each in wanted if load[each] + weight <= room)
        chosen = next(with_room, None) or min(wanted, key=load.__getitem__)
        found[unit] = chosen
        load[chosen] += weight
    return found


def _score(unit: str, replica: str) -> bytes:
    return hashlib.blake2b(f"{replica}\0{unit}".encode(), digest_size=8).digest()


def next_step(
    *, owns: bool, is_assigned: bool, is_current: bool, elsewhere_secs: float, lease: float
) -> NextStep:
    """Return what to do with a source.

    A source is given up only after it was assigned to the same other replica for a whole lease,
    since views differ while replicas come and go. It is taken at once, but only if the view is
    current: while leases cannot be read, holders go on and nobody takes anything.
    """
    if owns:
        return NextStep.RELEASE if elsewhere_secs >= lease else NextStep.WORK
    return NextStep.TAKE if is_assigned and is_current else NextStep.STAND_BY


def units_of(shared: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return the unit of each source: its own name, or the first one with the same queue.

    ``shared`` has the name of each source and the queue of its notifications, if any. A queue is
    read by one process, so its sources stay together.
    """
    first: dict[str, str] = {}
    return {
        name: name if queue is None else first.setdefault(queue, name)
        for name, queue in sorted(shared)
    }
