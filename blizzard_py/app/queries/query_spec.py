"""From the settings of a table or an API to the query of its connection. No connection is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config, PipelineSettings, QuerySettings
from blizzard_py.app.engine import spark_engine
from blizzard_py.app.queries.kinds import kind_of
from blizzard_py.app.queries.units import units_of
from blizzard_py.connections.drivers import connect
from blizzard_py.connections.protocol import ReadSelection, SourceConnection
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.job import Engine
from blizzard_py.reading import Access

if TYPE_CHECKING:
    import pyarrow as pa

# Answers statements where only the engine has a driver.
Asks: TypeAlias = "Callable[[Access, str], pa.Table]"


def engine_lookup(config: Config, engine: Engine) -> Asks:
    """Return how to ask where only the engine has a driver; `plan` gets its own Spark."""
    if isinstance(engine, LazyEngine):
        return engine.ask
    return LazyEngine(partial(spark_engine, config, "blizzard-plan")).ask


def query_spec_of(
    config: Config, pipeline: PipelineSettings, source: QuerySettings, ask: Asks
) -> QuerySpec:
    """Return the query for the source's connection.

    Raises `ConfigError` where a driver is missing.
    """
    settings = config.connections.get(source.connection)
    if settings is None:
        raise ConfigError("connections", [f"there is no {source.connection!r}"])
    mark = source.marks
    kind = kind_of(source)
    access = kind.access(settings, source)
    return QuerySpec(
        connection=_connection(access, kind.selection(pipeline, source, access.driver), ask),
        access=access,
        columns=tuple(mark.columns),
        bound=mark.bound,
        settle_secs=mark.advanced.settle,
        nulls=mark.advanced.nulls,
        backward=source.look_back(settings),
        new_only=mark.reread == "new_only",
        key=tuple(mark.key),
        split=kind.split(source),
        ends_before=kind.excludes_end(source),
        replaces=source.replaces,
        snapshot=source.snapshot,
        units=None
        if source.units is None
        else units_of(pipeline, source, source.units, access.driver),
    )


def _connection(access: Access, selection: ReadSelection, ask: Asks) -> SourceConnection:
    if access.driver == "jdbc":
        # Databases' connections load what files have no need of.
        from blizzard_py.connections.jdbc import JdbcConnection  # noqa: PLC0415  # see above

        return JdbcConnection(access, selection, partial(ask, access))
    return connect(access, selection)
