"""A storage where each request may be the last one or lose its answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from blizzard_core.errors import Unavailable
from blizzard_core.storage.protocol import Storage
from tests.support.interrupted import Interrupted
from tests.support.memory_store import Died

T = TypeVar("T")


@dataclass
class Faults:
    """A random choice, for each step, whether it fails; counts the failures."""

    chance: random.Random
    rate: float
    deaths: int = 0
    lost: int = 0

    def around(self, action: Callable[[], T], lost: Callable[[], Exception]) -> T:
        """Run it; die before or after it, or lose its answer."""
        self._may_die()
        found = action()
        self._may_die()
        if self.chance.random() < self.rate:
            self.lost += 1
            raise lost()
        return found

    def _may_die(self) -> None:
        if self.chance.random() < self.rate:
            self.deaths += 1
            raise Died


def faulty(storage: Storage, faults: Faults) -> Any:
    """Return a storage for a Penguin that may die at any request."""
    return Interrupted(storage, lambda call: faults.around(call, lambda: Unavailable("no answer")))
