"""A range of names: the part of a source's files that a request covers. Pure.

Both ends are included, and each covers all names that begin with it: partitions or files.
"""

from __future__ import annotations

from dataclasses import dataclass

from blizzard_core.storage.protocol import order_key

# Sorts above everything that can follow a prefix.
LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class NameRange:
    """The names from ``first`` to ``last``; an empty end is open."""

    first: str = ""
    last: str = ""

    def __str__(self) -> str:
        """Return the ends as messages name them."""
        ends = (("from", self.first), ("to", self.last))
        return " ".join(f"{word} {end}" for word, end in ends if end)

    def __bool__(self) -> bool:
        """Return whether the range has an end and so excludes names."""
        return bool(self.first or self.last)

    @property
    def end(self) -> str | None:
        """Return the end that all names sort below, None if there is none."""
        return f"{self.last}{LAST}" if self.last else None

    def holds(self, path: str) -> bool:
        """Return whether a name lies in the range."""
        key, until = order_key(path), self.end
        return order_key(self.first) <= key and (until is None or key < order_key(until))
