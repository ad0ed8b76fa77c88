"""Leases of replicas, and which of them one replica sees alive. Pure.

Times in a lease decide nothing, since clocks of machines differ. A replica is alive while its
object changes, within the length of a lease by our own monotonic clock. Only time that we observed
counts: while we were paused, or the store did not answer, the others may have renewed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

# Digits of a replica's id; the ids of its writers begin with them.
ID_DIGITS = 12
# Leases are renewed and looked at so often within their length.
LOOKS = 3
# A look that comes later than by half of its interval counts as one that came so late.
_LATE_LOOK = 1.5
# The clocks of waiting threads are not finer.
_EDGE_SECS = 0.01
# All objects of a group begin so: nothing else in their folder is listed.
PREFIX, BEHIND = "replica-", "replica."
_NAME = re.compile(
    r"replica-(?P<host>[A-Za-z0-9_.-]{1,100})-(?P<id>[0-9a-f]{12})\.(?P<config>[0-9a-f]{8})\.json"
)
_REFUSAL = re.compile(r"replica-([0-9a-f]{12})\.[0-9a-f]{16}\.refused")


@dataclass(frozen=True, slots=True)
class Replica:
    """A running daemon: the host or pod, an id of its own, and a digest of its configuration.

    The name of its lease says all of it, so a listing needs no further request.
    """

    host: str
    id: str
    config: str

    @property
    def object_name(self) -> str:
        """Return the name of its lease."""
        return f"{PREFIX}{self.host}-{self.id}.{self.config}.json"

    def __str__(self) -> str:
        """Return the replica for people."""
        return f"{self.host}-{self.id[:4]}"


def replica_of(object_name: str) -> Replica | None:
    """Return the replica whose lease has the name; None for an object that is no lease."""
    found = _NAME.fullmatch(object_name)
    return None if found is None else Replica(found["host"], found["id"], found["config"])


# The unit that stands for all others.
EVERY_UNIT = ""


def refusal(replica_id: str, unit: str) -> str:
    """Return the object that says that a replica does not want a unit: its name says all of it."""
    digest = hashlib.blake2b(unit.encode(), digest_size=8).hexdigest()
    return f"{PREFIX}{replica_id}.{digest}.refused"


def refusing_id(object_name: str) -> str | None:
    """Return the id of the replica whose refusal has the name; None for another object."""
    found = _REFUSAL.fullmatch(object_name)
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease at the last look: the store's ``time`` of it, and for how long it stayed the same.

    ``secs`` is observed time. ``is_listed`` is False once the object is gone, as after a clean end.
    """

    time: float
    secs: float = 0.0
    is_listed: bool = True


SeenLeases = Mapping[Replica, SeenLease]


def observe(
    seen: SeenLeases, listed: Mapping[Replica, float], own: Replica, gap: float, lease: float
) -> dict[Replica, SeenLease]:
    """Return the leases after a listing, which has the store's times by replica.

    ``gap`` is the time since the listing before. A lease that is first seen counts as dead if it is
    older than ``own``, which was just written, by more than its length.
    """
    observed = observed_secs(gap, lease)
    found = {}
    for each, time in listed.items():
        before = seen.get(each)
        if before is None:
            is_old = listed.get(own, time) - time > lease
            found[each] = SeenLease(time, lease if is_old else 0.0)
        elif before.time != time:
            found[each] = SeenLease(time)
        else:
            found[each] = SeenLease(time, before.secs + observed)
    for each, before in seen.items():
        if each not in listed and before.secs + observed < lease:
            found[each] = replace(before, secs=before.secs + observed, is_listed=False)
    return found


def observed_secs(gap: float, lease: float) -> float:
    """Return how much of the time between two looks counts: in a long one much went unseen."""
    return min(gap, lease / LOOKS * _LATE_LOOK)


def is_alive(state: SeenLease, lease: float) -> bool:
    """Return whether a replica renewed its lease in time, as far as was observed."""
    return state.secs < lease - _EDGE_SECS


def living(leases: SeenLeases, lease: float) -> frozenset[Replica]:
    """Return the replicas among which sources are shared out: alive, and not on their way out."""
    return frozenset(
        each for each, state in leases.items() if state.is_listed and is_alive(state, lease)
    )
