"""Kinds of query sources: one object each, and the registry of all.

A new kind is its settings, an object that meets `QueryKind`, and one line of `_KINDS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from blizzard_core.settings.connections import ConnectionSettings
from blizzard_core.settings.document import PipelineSettings, QuerySettings
from blizzard_core.settings.query_sources import QuerySource
from blizzard_core.settings.units import UnitSettings
from blizzard_core.settings.yaml_file import Key
from blizzard_py.app.queries.http import HttpQueries
from blizzard_py.app.queries.table import TableQueries
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.protocol import ReadSelection, SourceConnection, WindowSplit
from blizzard_py.reading import Access, Window

S_contra = TypeVar("S_contra", bound=QuerySource, contravariant=True)


class QueryKind(Protocol[S_contra]):
    """Answers about a query source that depend on its kind. None of them connects."""

    @property
    def has_fixed_columns(self) -> bool:
        """True if a column that the connection does not list is missing in every row."""

    def texts(self, source: S_contra, /) -> Iterator[tuple[Key, str]]:
        """Yield the texts that may hold placeholders, each with its key below the source."""

    def ends(self, pipeline: PipelineSettings, source: S_contra, /) -> set[tuple[str, str]]:
        """Return the ends of units that are sent, each with its format, ``""`` for none."""

    def end_problems(
        self, pipeline: PipelineSettings, source: S_contra, units: UnitSettings, /
    ) -> Iterator[tuple[Key, str]]:
        """Yield the ends by which units would share rows or leave rows out, each with its key."""

    def placeholder_problems(
        self, source: S_contra, known: Sequence[str], driver: str, /
    ) -> Iterator[tuple[Key, str]]:
        """Yield the placeholders that nothing fills in, each with its key below the source."""

    def selection(
        self, pipeline: PipelineSettings, source: S_contra, driver: str, /
    ) -> ReadSelection:
        """Return the rows and columns to read."""

    def split(self, source: S_contra, /) -> WindowSplit:
        """Return how a window is cut into tasks."""

    def access(self, connection: ConnectionSettings, source: S_contra, /) -> Access:
        """Return how a task reaches the data."""

    def excludes_end(self, source: S_contra, /) -> bool:
        """Return whether a window leaves its own end out."""

    def show_window(
        self, driver: str, connection: SourceConnection, selection: ReadSelection, window: Window, /
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Return the statement, or the first request, that reads a window. For `plan`."""

    def show_slices(
        self, connection: SourceConnection, selection: ReadSelection, slices: Sequence[Values], /
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Return the statement, or the first request, that reads slices of a unit. For `plan`."""


_KINDS: Mapping[str, QueryKind[Any]] = {"http": HttpQueries(), "table": TableQueries()}


def kind_of(source: QuerySettings) -> QueryKind[Any]:
    """Return the kind of a query source."""
    return _KINDS[source.kind]
