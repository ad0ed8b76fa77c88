"""The story and the letters of work units.

A letter is closed by the reading that succeeds, or that took the place of bad rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from blizzard_core.errors import BlizzardError, StateError
from blizzard_core.storage.protocol import Storage
from blizzard_py.dead_letters.reader import DeadLetterObject, objects, put_away, read
from blizzard_py.slices.instants import stamp
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.state import UnitsState, key_parts
from blizzard_py.sources.story import Passed, Story, Waiting
from blizzard_py.sources.tables.story import NamedStatus, named_story
from blizzard_py.state.source_state import SourceState

# The current status of a unit of that name; None if no such unit is open.
Finds = Callable[[SourceState, str], PlannedUnit | BlizzardError | None]

_WORDS = {
    "waiting": "it failed lately, and waits before it is tried again",
    "new": "it was never read",
    "abstinent": "it is left alone until it is older (cooldown)",
    "done": "it is complete and out of grace",
    "incomplete": "it was read up to {high}, and goes on to {end}",
    "ahead": "it was read up to {high}, and the range ends before; nothing is read of it",
    "grace": "it is complete, and read again as long as it is in grace (grace)",
    "redo": "somebody wants it read again from its beginning",
}


@dataclass(frozen=True, slots=True)
class UnitStatus(NamedStatus):
    """The standing of a unit in a state."""

    finds: Finds

    def is_new(self) -> bool:
        found = self.finds(self.state, self.name)
        # A unit that was read before has an outcome.
        return isinstance(found, PlannedUnit) and found.execute and found.high is None

    def next_poll(self) -> Waiting:
        return Waiting("poll", f"{self._reason()}; the next poll reads it")

    def verdict(self, journal_start: Callable[[], float | None]) -> Passed:  # noqa: ARG002  # the seam gives it
        found = self.finds(self.state, self.name)
        if isinstance(found, BlizzardError):
            return Passed("missing", f"it cannot be told whether there is such a unit: {found}")
        if found is not None:
            return Passed("done", self._reason())
        known = self.state.kind.units or UnitsState()
        if self.name in known.open:
            return Passed("done", "it was read, and is none that is configured any more")
        begin, name = self.name.partition("/")[::2]
        reached = known.closed_to.get(name)
        if reached is not None and begin < reached:
            return Passed("done", f"it is complete and out of grace, as all are up to {reached}")
        return Passed("missing", "there is no such unit in the range and the values configured")

    def _reason(self) -> str:
        found = self.finds(self.state, self.name)
        if not isinstance(found, PlannedUnit):
            return "it is read"
        high = "nothing" if found.high is None else stamp(found.high)
        return _WORDS[found.reason].format(high=high, end=stamp(found.end))


def unit_story(name: str, finds: Finds, check: Callable[[SourceState], None]) -> Story:
    """Return the story of one unit."""
    ignored = None
    try:
        key_parts(name)
    except StateError:
        ignored = "is no unit's name; they are like 2020-02-01T00:00:00.000Z/NAME"
    return named_story(name, ignored, check, lambda state: UnitStatus(name, state, finds))


def close_letters(dlq: Storage, source_id: str, uri: str, known: UnitsState) -> list[str]:
    """Archive dead letters whose units were all read since, and return their ids.

    ``uri`` is the source's; paths of letters begin with it. Only the owner of the checkpoint calls
    this, with a saved state; a second call changes nothing. Raises `StorageError`,
    `UnreadableDeadLetter`.
    """
    closed = []
    for found in list(objects(dlq, source_id)):
        if found.kind == "files" and not _is_open(dlq, found, uri, known):
            dlq.rename(*put_away(source_id, found.id))
            closed.append(found.id)
    return closed


def close_bad_rows(
    dlq: Storage, source_id: str, uri: str, units: Collection[str], batch: str
) -> list[str]:
    """Archive dead letters of bad rows whose units were all read again as a whole by ``batch``.

    Rows that are still bad have a letter of that batch. Called like `close_letters`. A death before
    this call leaves open letters that are not needed.
    """
    closed = []
    for found in list(objects(dlq, source_id)):
        if found.kind != "records" or found.batch == batch:
            continue
        if all(letter.uri.removeprefix(f"{uri}/") in units for letter in read(dlq, found)):
            dlq.rename(*put_away(source_id, found.id))
            closed.append(found.id)
    return closed


def _is_open(dlq: Storage, found: DeadLetterObject, uri: str, known: UnitsState) -> bool:
    """Return whether one of its units still fails."""
    keys = (letter.uri.removeprefix(f"{uri}/") for letter in read(dlq, found))
    return any(key in known.open and known.open[key].failures for key in keys)
