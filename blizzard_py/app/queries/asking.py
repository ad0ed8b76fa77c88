"""From the settings of a table or an API to what its connection is asked. Connects to nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from blizzard_core.errors import ConfigError
from blizzard_core.settings.checks.sources import Asked, look_back
from blizzard_core.settings.connections import (
    ConnectionSettings,
    DatabaseConnection,
    HttpConnection,
    LakeConnection,
)
from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.query_sources import HttpSourceSettings, TableSourceSettings
from blizzard_py.app.queries.http import http_source
from blizzard_py.app.queries.units import statement_of, units_of
from blizzard_py.connections.asking import Asking
from blizzard_py.connections.drivers import connect
from blizzard_py.connections.http import reader as http_reader
from blizzard_py.connections.protocol import Connection, Selection, Split
from blizzard_py.connections.sql.statements import without_end
from blizzard_py.reading import Access
from blizzard_py.schema.types import field_spec

# Answers statements where only the engine has a driver.
Asks: TypeAlias = Callable[[Access, str], pa.Table]


def asking_of(config: Config, pipeline: PipelineSettings, source: Asked, ask: Asks) -> Asking:
    """Return what is asked of the source's connection.

    Raises `ConfigError` where a driver is missing.
    """
    settings = config.connections.get(source.connection)
    if settings is None:
        raise ConfigError("connections", [f"there is no {source.connection!r}"])
    mark = source.marks
    access = access_of(settings, source)
    return Asking(
        connection=_connection(access, selection_of(pipeline, source, access.driver), ask),
        access=access,
        columns=tuple(mark.columns),
        bound=mark.bound,
        settle_secs=mark.advanced.settle,
        nulls=mark.advanced.nulls,
        backward=look_back(settings, source),
        new_only=mark.reread == "new_only",
        key=tuple(mark.key),
        split=split_of(source),
        ends_before=isinstance(source, HttpSourceSettings)
        and source.watermark is not None
        and source.watermark.push.to is not None,
        replaces=source.replaces,
        snapshot=source.snapshot,
        units=None
        if source.units is None
        else units_of(pipeline, source, source.units, access.driver),
    )


def _connection(access: Access, selection: Selection, ask: Asks) -> Connection:
    if access.driver == "jdbc":
        # Databases' connections load what files have no need of.
        from blizzard_py.connections.jdbc.connection import JdbcConnection  # noqa: PLC0415  # see above

        return JdbcConnection(access, selection, partial(ask, access))
    return connect(access, selection)


def selection_of(pipeline: PipelineSettings, source: Asked, driver: str) -> Selection:
    """Return what is read of a table; of an API the declared fields."""
    fields = tuple(map(field_spec, pipeline.schema_.fields))
    columns = tuple(source.marks.columns)
    if isinstance(source, HttpSourceSettings):
        return Selection(fields=fields, columns=columns, nulls=source.marks.advanced.nulls)
    return Selection(
        table=source.table or "",
        query=without_end(statement_of(pipeline, source, source.query or ""), driver),
        filter=without_end(statement_of(pipeline, source, source.filter), driver),
        fields=fields,
        columns=columns,
        nulls=source.marks.advanced.nulls,
        zone=(source.watermark.zone if source.watermark else None) or "",
    )


def split_of(source: Asked) -> Split:
    """Return how windows are cut; an API's ranges are its request's own."""
    if isinstance(source, TableSourceSettings):
        return Split(source.split.by, source.split.tasks)
    return Split()


def access_of(settings: ConnectionSettings, source: Asked) -> Access:
    """Return how tasks get at the source."""
    options: dict[str, Any]
    if isinstance(settings, HttpConnection):
        assert isinstance(source, HttpSourceSettings)  # noqa: S101  # the configuration was checked
        return http_reader.access(http_source(settings, source))
    if isinstance(settings, LakeConnection):
        options = {**settings.options, "storage_options": dict(settings.storage_options)}
        return Access(settings.driver, settings.uri, options)
    assert isinstance(settings, DatabaseConnection)  # noqa: S101  # there are no others
    given = {"user": settings.user, "password": settings.password}
    options = {**settings.options, **{k: v for k, v in given.items() if v is not None}}
    return Access(settings.driver, settings.uri, options)
