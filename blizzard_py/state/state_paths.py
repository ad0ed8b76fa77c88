"""Paths of a source's state, relative to the table."""

from __future__ import annotations

from dataclasses import dataclass

from blizzard_core.handover import published
from blizzard_core.handover.complete import completions_path
from blizzard_core.storage.protocol import Storage, listed

# The folder of the table that all of Blizzard's own files are in.
STATE_FOLDER = "_blizzard"
JOURNAL_FOLDER = published.JOURNAL_FOLDER
STAGING_FOLDER = f"{STATE_FOLDER}/staging"

_CHECKPOINT = "_checkpoint.json"


@dataclass(frozen=True, slots=True)
class StatePaths:
    """The paths of one source's state, by its ``id``."""

    id: str

    @classmethod
    def of_checkpoint(cls, path: str) -> StatePaths | None:
        """Return the paths beside the checkpoint at ``path``; None if it is no checkpoint."""
        found = cls(path.removeprefix(f"{STATE_FOLDER}/").removesuffix(_CHECKPOINT))
        return found if found.checkpoint == path and "/" not in found.id else None

    @property
    def checkpoint(self) -> str:
        """The state file."""
        return f"{STATE_FOLDER}/{self.id}{_CHECKPOINT}"

    @property
    def ledger(self) -> str:
        """The folder of the segments that the journal is folded into."""
        return f"{STATE_FOLDER}/{self.id}_ledger"

    @property
    def processed(self) -> str:
        """The folder of the set of names done, for a source without a watermark."""
        return f"{STATE_FOLDER}/{self.id}_processed"

    @property
    def row_digests(self) -> str:
        """The folder of digests of rows that a later window may read again."""
        return f"{STATE_FOLDER}/{self.id}_seen"

    @property
    def completions(self) -> str:
        """The mirror of its complete partitions (`blizzard_core.handover.complete`)."""
        return completions_path(self.id)

    @property
    def stream(self) -> str:
        """The folder of an event-time query's state (`blizzard_py.streaming.state_archive`)."""
        return f"{STATE_FOLDER}/state/{self.id}"

    @property
    def error(self) -> str:
        """The last error that ended a cycle (`blizzard_py.state.status_notes`)."""
        return f"{STATE_FOLDER}/errors/{self.id}.json"

    @property
    def skipped(self) -> str:
        """Rows that no window reads (`blizzard_py.state.status_notes`)."""
        return f"{STATE_FOLDER}/skipped/{self.id}.json"

    @property
    def cleaning(self) -> str:
        """The folder of lists of source files that are cleaned (`blizzard_py.cleaning.lists`)."""
        return f"{STATE_FOLDER}/cleaning/{self.id}"

    @property
    def journal(self) -> str:
        """The folder of the journal."""
        return f"{JOURNAL_FOLDER}/{self.id}"

    @property
    def staging(self) -> str:
        """The folder of what is not published yet."""
        return f"{STAGING_FOLDER}/{self.id}"


def checkpoints(sink: Storage) -> tuple[str, ...]:
    """Return the ids of all states of a table. Raises `StorageError`."""
    stem = f"{STATE_FOLDER}/"
    return tuple(
        paths.id
        for entry in listed(sink, stem, f"{stem}\U0010ffff")
        if (paths := StatePaths.of_checkpoint(entry.path)) is not None
    )


def schema_path(pipeline: str) -> str:
    """Return where a pipeline's inferred columns are kept, below the table."""
    return f"{STATE_FOLDER}/{pipeline}_schema.json"
