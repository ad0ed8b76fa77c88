"""The state of the cleaning of a source's files, as its checkpoint holds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CommitCheck:
    """All outputs of batches up to ``batch`` were in the table at ``seen_ts``."""

    batch: str
    seen_ts: float


@dataclass(frozen=True, slots=True)
class CleaningState:
    """The checks of commits, oldest first, and the last batch whose files are done.

    ``log_version`` is the version of the table up to which the log was searched for commits that
    remove rows, and ``log_digest`` the SHA-256 of that commit: a table that was created again
    has another one. ``held`` are folders of the table in which other writers removed rows, each
    with the last batch by then; files of batches with outputs there stay. ``cleaned`` is the number
    of files that were cleaned so far, ``at`` the store's time of the last check of the table.
    """

    commit_checks: tuple[CommitCheck, ...] = ()
    done: str = ""
    log_version: int = -1
    cleaned: int = 0
    log_digest: str = ""
    held: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0

    @property
    def seen_through(self) -> str:
        """The last batch that was seen in the table, or whose files are done."""
        return self.commit_checks[-1].batch if self.commit_checks else self.done
