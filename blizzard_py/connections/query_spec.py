"""Questions to a connection, and the recognition of rows that it gives again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blizzard_core.errors import SourceError
from blizzard_core.storage.opening import normalize_uri
from blizzard_py.connections.placeholders import FROM, TO
from blizzard_py.connections.protocol import SourceConnection, WindowSplit
from blizzard_py.reading import Access, BoundKind, Nulls
from blizzard_py.slices.units.due import Terms
from blizzard_py.slices.units.ranges import UnitRange
from blizzard_py.state.source_state import IN

# Drivers that read the files of a folder.
_FOLDERS = frozenset({"csv", "delta", "json", "parquet"})


@dataclass(frozen=True, slots=True)
class ValuesTable:
    """A Delta table that units' values stand in: ``fields`` of rows that pass all ``filters``."""

    access: Access
    fields: tuple[str, ...]
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Units:
    """The work units of a source as configured.

    ``fields`` name a unit's values, which are ``listed``, or stand in a ``table``; without
    either there is one unit. ``bounds`` are the ends of its time that the request says: only
    with both a part of a unit can be read. With ``folds`` the source may take values for one
    another that differ in nothing but case, accents or blanks at their end.
    """

    range: UnitRange
    terms: Terms
    fields: tuple[str, ...] = ()
    listed: tuple[Mapping[str, str], ...] | None = None
    table: ValuesTable | None = None
    bounds: frozenset[str] = frozenset()
    parallel: int = 4
    pacing_secs: float = 0.0
    folds: bool = False

    @property
    def reads_parts(self) -> bool:
        """Return whether a reading may begin within a unit; else it reads all of it."""
        return {FROM, TO} <= self.bounds


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A source's settings as far as they decide what is read.

    ``columns`` are the watermark's (none: the connection's own versions), ``backward`` the
    look-back in force, with which ``new_only`` keeps rows apart that were published, by
    ``key`` and ``columns``. ``bound`` is None where the connection's default counts.
    With ``ends_before`` a window leaves its end itself out: an API is told where to end.
    ``replaces``: what is read again takes the place of what was published. With ``snapshot``
    that is everything, with ``units`` it is by these.
    """

    connection: SourceConnection
    access: Access
    columns: tuple[str, ...]
    bound: BoundKind | None = None
    settle_secs: float = 60.0
    nulls: Nulls = "first"
    backward: Mapping[str, int] = field(default_factory=dict)
    new_only: bool = False
    key: tuple[str, ...] = ()
    split: WindowSplit = field(default_factory=WindowSplit)
    ends_before: bool = False
    replaces: bool = False
    snapshot: bool = False
    units: Units | None = None

    @property
    def lake(self) -> str | None:
        """The reader of a folder's files, and the folder's place; None for what is no such folder.

        A server may move, and has the same rows. Another folder has others, and a catalog's
        address may hold a password.
        """
        if self.access.driver not in _FOLDERS or not self.access.uri:
            return None
        return f"{self.access.driver}{IN}{normalize_uri(self.access.uri)}"

    @property
    def bound_kind(self) -> BoundKind:
        """Return where windows end. Asks the connection if nothing is configured.

        Raises `SourceError` if it has no default for these columns.
        """
        found = self.bound or self.connection.default_bound
        if found is None:
            raise SourceError(
                f"watermark.bound is required: there is no default for the types of"
                f" {', '.join(self.columns)}; `blizzard validate` tells which there are"
            )
        return found
