"""Ownership of files: ours are taken at once, foreign ones only once they are old enough.

An engine that rewrites a table (OPTIMIZE, a MERGE) writes its files first and commits them later,
and may die in between. Committing such a file too early, or after the engine died, would duplicate
its rows. The file does not show this. So a file is *ours* if it carries Blizzard's output id or
lies in a directory configured as ours. Any other file waits; if its writer meant to commit it, it
is in the log by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from blizzard_core.storage.protocol import Entry
from penguin_py.model import Footer, Rejection

REMEDY = (
    "declare the directory in advanced.own_prefixes if no other engine writes there, or set"
    " advanced.foreign_min_age"
)


@dataclass(frozen=True, slots=True)
class SortedFiles:
    """Files sorted by owner: accepted, waiting, and refused."""

    accepted: tuple[Footer, ...]
    young: tuple[Entry, ...]
    refused: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True)
class Owners:
    """The configured owners: path prefixes that are ours, and the age for foreign files.

    ``min_age_secs`` is None if foreign files are never taken.
    """

    prefixes: tuple[str, ...]
    min_age_secs: float | None

    def own(self, footer: Footer) -> bool:
        """Return whether the file is ours."""
        return footer.output_id is not None or footer.path.startswith(self.prefixes)

    def is_old(self, entry: Entry, now: float) -> bool:
        """Return whether anybody's file may be taken by now."""
        return self.min_age_secs is not None and now - entry.modified >= self.min_age_secs

    def sorted(self, footers: Sequence[Footer], now: float) -> SortedFiles:
        """Sort files into accepted, waiting and rejected ones."""
        accepted: list[Footer] = []
        young: list[Entry] = []
        refused: list[Rejection] = []
        for footer in footers:
            if self.own(footer) or self.is_old(footer.entry, now):
                accepted.append(footer)
            elif self.min_age_secs is None:
                refused.append(Rejection(footer.entry, "writer", f"is not ours; {REMEDY}"))
            else:
                young.append(footer.entry)
        return SortedFiles(tuple(accepted), tuple(young), tuple(refused))


class ForeignFiles:
    """Files of others that are waiting, so that their footers are read once. Not thread-safe."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._waiting: dict[str, Entry] = {}

    def due(self, found: Iterable[Entry], now: float) -> list[Entry]:
        """Return the files to read, of everything that a poll found: all but those still waiting.

        Waiting files that the poll did not find are forgotten.
        """
        ready: list[Entry] = []
        waiting: dict[str, Entry] = {}
        for entry in found:
            if self._waiting.get(entry.path) == entry and not self._owners.is_old(entry, now):
                waiting[entry.path] = entry
            else:
                ready.append(entry)
        self._waiting = waiting
        return ready

    def waiting(self) -> list[str]:
        """Return the waiting paths."""
        return list(self._waiting)

    def wait(self, young: Iterable[Entry]) -> None:
        """Add files that were read and have to wait."""
        self._waiting.update({entry.path: entry for entry in young})
