"""Deaths at changes of a local disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from blizzard_core.storage.local import LocalStorage
from tests.support.memory_store import Died

CHANGES = ("put_atomic", "put_if", "rename", "delete", "delete_tree")


@dataclass
class Mortal:
    """Death at the n-th change of a local disk, before or after it."""

    left: int = -1
    deaths: int = 0

    def step(self) -> None:
        if self.left == 0:
            self.left = -1
            self.deaths += 1
            raise Died
        self.left = max(self.left - 1, -1)

    def dies(self, at: int, deed: Callable[[], object]) -> bool:
        """Do something and die at its step ``at``; return whether it came to that."""
        self.left = at
        try:
            deed()
        except Died:
            return True
        finally:
            self.left = -1
        return False

    def patch(self, patcher: pytest.MonkeyPatch) -> None:
        for name in CHANGES:
            patcher.setattr(LocalStorage, name, self._around(getattr(LocalStorage, name)))

    def _around(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any) -> Any:
            self.step()
            found = change(*arguments)
            self.step()
            return found

        return changed
