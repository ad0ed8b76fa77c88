"""Files that a scan leaves: of skipped partitions for now, by their names for ever. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blizzard_core.limits import IGNORED_NAMES
from blizzard_core.text import counted


@dataclass(frozen=True, slots=True)
class IgnoredNames:
    """Files that the source does not take, by their names, as far as a scan listed them.

    ``reason`` is that of the first one. They are ``wanted`` out if the configuration names those
    that are taken.
    """

    files: int = 0
    first: str | None = None
    reason: str = ""
    wanted: bool = False

    @property
    def note(self) -> str:
        """Say how many there are, and why."""
        remedy = "" if self.wanted else "; include reads other names"
        more = "at least " if self.files >= IGNORED_NAMES else ""
        files = counted(self.files, "file")
        return f"{more}{files} ignored, such as {self.first}: {self.reason}{remedy}"

    def to_json(self) -> dict[str, Any] | None:
        """Return the same as a document; None if there are none."""
        if not self.files:
            return None
        return {"files": self.files, "first": self.first, "reason": self.reason}


NONE_IGNORED = IgnoredNames()


@dataclass(frozen=True, slots=True)
class SkippedItems:
    """Files in partitions that are not looked at: how many there are, and the first."""

    files: int = 0
    first: str | None = None


NONE_SKIPPED = SkippedItems()
