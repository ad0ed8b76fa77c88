"""The progress of each source's groups, and what blocks them. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of one source: its last group in the table (0: none), and the next one.

    ``blocked`` is the reason why the next group waits; ``due`` is its number if it can be applied.
    """

    last: int
    blocked: str | None = None
    due: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the status as the command ``status`` shows it."""
        return {"last": self.last, "blocked": self.blocked}


def commit_mark(source: str, seq: int) -> str:
    """Return a group's mark among the output ids, which is never forgotten."""
    return f"{source}/{seq}"


def last_committed(source: str, groups: Mapping[str, int], output_ids: Container[str]) -> int:
    """Return the number of the source's last group committed by any Penguin.

    ``groups`` is the memory, which may lack commits of others or from before a loss; the marks
    among the output ids fill the gap.
    """
    last = groups.get(source, 0)
    while commit_mark(source, last + 1) in output_ids:
        last += 1
    return last
