"""Query sources of kind ``table``: a table of a database or a lake, or the rows of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

from blizzard_core.settings.connections import (
    ConnectionSettings,
    DatabaseConnectionSettings,
    LakeConnectionSettings,
)
from blizzard_core.settings.document import PipelineSettings
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.units import UnitSettings
from blizzard_core.settings.yaml_file import Key
from blizzard_py.connections.literals import column_name
from blizzard_py.connections.placeholders import LAKE, Values, formats_in, in_sql, names_in
from blizzard_py.connections.placeholders import problems_in_sql as sql_problems
from blizzard_py.connections.protocol import ReadSelection, SourceConnection, WindowSplit
from blizzard_py.connections.sql.conditions import closed, window_where
from blizzard_py.connections.sql.statements import plain_identifier, without_end
from blizzard_py.connections.unit_comparisons import end_problems, with_dates, with_end_before
from blizzard_py.job import as_read
from blizzard_py.reading import Access, Window
from blizzard_py.schema.field_specs import field_spec

# Databases whose windows are one condition in their own SQL.
_DIALECTS = frozenset({"postgresql", "mysql", "sqlite"})


class TableQueries:
    """Sources that read a table or the rows of a SELECT."""

    has_fixed_columns = True

    def texts(self, source: TableSourceSettings) -> Iterator[tuple[Key, str]]:
        given = {"query": source.query, "filter": source.filter}
        yield from (((key,), text) for key, text in given.items() if text)

    def ends(self, pipeline: PipelineSettings, source: TableSourceSettings) -> set[tuple[str, str]]:
        dates = _dates_of(pipeline)
        texts = [with_dates(text, dates) for _, text in self.texts(source)]
        return {end for text in texts for end in formats_in(text)}

    def end_problems(
        self, pipeline: PipelineSettings, source: TableSourceSettings, units: UnitSettings
    ) -> Iterator[tuple[Key, str]]:
        for key, text in self.texts(source):
            statement = with_dates(text, _dates_of(pipeline))
            for problem in end_problems(statement, inclusive=units.advanced.inclusive):
                yield key, problem

    def placeholder_problems(
        self, source: TableSourceSettings, known: Sequence[str], driver: str
    ) -> Iterator[tuple[Key, str]]:
        for key, text in self.texts(source):
            if known or names_in(text):
                for problem in sql_problems(text, known, hashes=driver == "mysql"):
                    yield key, problem

    def selection(
        self, pipeline: PipelineSettings, source: TableSourceSettings, driver: str
    ) -> ReadSelection:
        return ReadSelection(
            table=source.table or "",
            query=without_end(_statement(pipeline, source, source.query or ""), driver),
            filter=without_end(_statement(pipeline, source, source.filter), driver),
            fields=as_read(tuple(map(field_spec, pipeline.schema_.fields))),
            columns=tuple(source.marks.columns),
            nulls=source.marks.advanced.nulls,
            zone=(source.watermark.advanced.zone if source.watermark else None) or "",
        )

    def split(self, source: TableSourceSettings) -> WindowSplit:
        split = source.advanced.split
        return WindowSplit(split.by, split.tasks)

    def access(self, connection: ConnectionSettings, source: TableSourceSettings) -> Access:
        # The checks of the configuration let no API through.
        found = cast("DatabaseConnectionSettings | LakeConnectionSettings", connection)
        form = source.files_of(found)
        return Access(found.driver, found.uri, found.reader_options, format=form)

    def excludes_end(self, _source: TableSourceSettings) -> bool:
        return False

    def show_window(
        self, driver: str, _connection: SourceConnection, selection: ReadSelection, window: Window
    ) -> tuple[str, None]:
        origin = f"({closed(selection.query)}) t1" if selection.query else selection.table
        dialect = driver if driver in _DIALECTS else ""
        named = partial(plain_identifier, dialect=dialect) if dialect else column_name
        filter_ = selection.filter or None
        condition = window_where(window, selection.columns, dialect, filter_, named)
        where = f" WHERE {condition}" if condition else ""
        return f"SELECT * FROM {origin}{where}", None  # noqa: S608  # shown, not run

    def show_slices(
        self, connection: SourceConnection, selection: ReadSelection, slices: Sequence[Values]
    ) -> tuple[str, None]:
        values = {**slices[0], "to": slices[-1]["to"]}
        dialect = str(getattr(connection, "dialect", LAKE))
        query = selection.query or f"SELECT * FROM {selection.table}"  # noqa: S608  # shown, not run
        statement = in_sql(query, values, dialect)
        if not selection.filter:
            return statement, None
        condition = in_sql(selection.filter, values, dialect)
        origin = f"({closed(statement)}) t1" if selection.query else selection.table
        return f"SELECT * FROM {origin} WHERE {condition}", None  # noqa: S608  # shown, not run


def _dates_of(pipeline: PipelineSettings) -> set[str]:
    """Return the fields that are declared as dates."""
    return {field.input_name for field in pipeline.schema_.fields if field.type == "date"}


def _statement(pipeline: PipelineSettings, source: TableSourceSettings, text: str) -> str:
    """Return a query or a filter as it is sent: an end beside a date column is a date."""
    if source.units is None:
        return text
    found = with_dates(text, _dates_of(pipeline))
    return with_end_before(found) if source.units.advanced.inclusive else found
