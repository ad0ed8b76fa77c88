"""The state of the cleaning of a source's files, as its checkpoint holds it. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sighting:
    """All outputs of batches up to ``batch`` were in the table at ``seen_ts``."""

    batch: str
    seen_ts: float


@dataclass(frozen=True, slots=True)
class CleaningState:
    """The sightings, oldest first, and the last batch whose files were cleaned or left for good.

    ``log_version`` is the version of the table up to which the log was searched for RESTORE, and
    ``cleaned`` the number of files that were cleaned so far.
    """

    sightings: tuple[Sighting, ...] = ()
    done: str = ""
    log_version: int = -1
    cleaned: int = 0

    @property
    def seen_through(self) -> str:
        """The last batch that was seen in the table, or whose files are done."""
        return self.sightings[-1].batch if self.sightings else self.done


def cleaning_to_json(state: CleaningState | None) -> dict[str, Any] | None:
    """Return the form of the state in the checkpoint."""
    if state is None:
        return None
    return asdict(state) | {"sightings": [asdict(each) for each in state.sightings]}
