"""The story of one item of a source, in the words that all sources have for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from blizzard_core.storage.protocol import Entry
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.source_state import SourceState

Verdict = Literal[
    "ingested",
    "quarantined",
    "refused",
    "removed",
    "pending",
    "late",
    "closed",
    "done",
    "missing",
    "ignored",
    "unmatched",
    "unknown",
]

DOUBTFUL = (
    "unknown whether its rows are in the table: its batch was lost or given up by a rebuild. Look"
    " into the table, delete what is there of its rows, and give it to `blizzard ingest"
    " --assume-missing`"
)
Behind = Literal["in_flight", "retry", "late_queue", "requested", "min_age", "apart", "poll"]


@dataclass(frozen=True, slots=True)
class Compared:
    """The marks that a file was compared with: its partition's, the floor, the source's state.

    ``scan_start`` is the name that listings of the partition start after (``before``).
    ``watermark`` is the shown one, which may be ahead by the grace period.
    """

    state: str
    depth: int | None
    watermark: str | None
    scan_start: str | None
    floor: str | None
    source_watermark: str | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why a file is pending.

    ``batch`` and ``phase`` if it is in one, ``tries`` of ``max_tries`` if it
    failed before, ``until_ts`` if it is too young.
    """

    behind: Behind
    reason: str
    batch: str | None = None
    phase: str | None = None
    attempt: int | None = None
    started_ts: float | None = None
    tries: int | None = None
    max_tries: int | None = None
    until_ts: float | None = None


@dataclass(frozen=True, slots=True)
class Lateness:
    """The setting ``late_files`` for a late file, and its meaning."""

    late_files: str
    reason: str


@dataclass(frozen=True, slots=True)
class Passed:
    """An item that no poll finds and no known batch has settled."""

    verdict: Verdict
    reason: str
    late: Lateness | None = None


class ItemStatus(Protocol):
    """The standing of an item to a state. A store is asked when it is called."""

    @property
    def comparison(self) -> Compared | None:
        """Return what its name is compared with, if there is such a thing."""

    @property
    def place(self) -> tuple[str | None, str | None]:
        """Its partition and its name there, where they are known."""

    def is_new(self) -> bool:
        """Return whether it looks new to the state."""

    def next_poll(self) -> Waiting:
        """Return what it waits for that is new."""

    def verdict(self, journal_start: Callable[[], float | None]) -> Passed:
        """Return what it is that is not new.

        ``journal_start`` tells since when there is a journal.
        """


@dataclass(frozen=True, slots=True)
class Story:
    """One item, as its source tells of it. Writes nothing.

    ``entry`` is the item as it is now, None if there is none. ``ignored`` says why no poll takes an
    item of such a name, None if polls do. ``status_in`` returns how it stands to a state, and
    raises `StateError` if that was kept in another way. ``folder`` is the table's directory that
    all its rows are in, None where that is not known.
    """

    entry: Entry | None
    ignored: str | None
    status_in: Callable[[SourceState], ItemStatus]
    folder: str | None = None


_BY_HAND = (
    "write the Parquet file anew as it fits, with its key-value metadata, and Penguin's sweep takes"
    " it (`penguin reconcile`; docs/guides/refused-files.md has the lines)"
)


def way_out(parts: SourceContext) -> str:
    """Return how rows that were refused of a source get into its table after all."""
    if parts.event_time is not None:
        return (
            "`blizzard replay --refused` cannot bring rows into windows that are published: once"
            f" the table takes them {_BY_HAND}; or compute them again by a new pipeline"
        )
    if not parts.has_files:
        return (
            "rows of a table or an API are no files that `blizzard replay --refused` could ingest"
            f" again: once the table takes them {_BY_HAND}"
        )
    return "mend the table or the schema, then `blizzard replay CONFIG --refused`"
