"""The settings of a query source that decide what is read."""

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
_FOLDERS = frozenset({"avro", "csv", "delta", "excel", "json", "orc", "parquet", "xml"})


@dataclass(frozen=True, slots=True)
class ValuesTable:
    """A Delta table with the values of units: ``fields`` of the rows that pass all ``filters``."""

    access: Access
    fields: tuple[str, ...]
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Units:
    """The work units of a source as configured.

    ``fields`` name a unit's values. The values are ``listed`` or are rows of a ``table``; without
    both there is one unit. ``bounds`` are the ends of time that the request contains. A part of a
    unit can only be read if both ends are there. ``folds``: the source may treat values as equal
    that differ only in case, accents or trailing blanks.
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
        """Return whether a reading may begin within a unit; otherwise it reads the whole unit."""
        return {FROM, TO} <= self.bounds


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """The settings of a source that decide what is read.

    * ``columns`` are the watermark columns; without any, the connection's own versions are used.
    * ``backward`` is the look-back in force. With it, ``new_only`` drops rows that were published
      before, identified by ``key`` and ``columns``.
    * ``bound`` is None if the connection's default applies.
    * ``ends_before``: a window excludes its own end, because an API is told where to end.
    * ``replaces``: rows that are read again replace the published ones: all of them with
      ``snapshot``, those of a unit with ``units``.
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
        """The reader and the location of a folder's files; None for any other source.

        A server may move and still has the same rows. Another folder has other rows. A catalog's
        address may contain a password.
        """
        if self.access.driver not in _FOLDERS or not self.access.uri:
            return None
        return f"{self.access.driver}{IN}{normalize_uri(self.access.uri)}"

    @property
    def bound_kind(self) -> BoundKind:
        """Return the kind of the read bound; ask the connection if none is configured.

        Raises `SourceError` if the connection has no default for these columns.
        """
        found = self.bound or self.connection.default_bound
        if found is None:
            raise SourceError(
                f"watermark.bound is required: there is no default for the types of"
                f" {', '.join(self.columns)}; `blizzard validate` lists the possible values"
            )
        return found
