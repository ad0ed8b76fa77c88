"""Facts of a query source that only the server knows, for `blizzard validate`. Writes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from blizzard_core.errors import BlizzardError, ConfigError, SourceError, StorageError
from blizzard_core.settings.document import Config, PipelineSettings, QuerySettings
from blizzard_py.app.engine import NO_ENGINE
from blizzard_py.app.queries.kinds import kind_of
from blizzard_py.app.queries.plan import PROMISES
from blizzard_py.app.queries.query_spec import engine_lookup, query_spec_of
from blizzard_py.connections.placeholders import TO
from blizzard_py.connections.protocol import SourceColumn
from blizzard_py.connections.query_spec import QuerySpec
from blizzard_py.slices.units.ranges import laid_out
from blizzard_py.sources.tables import unit_plans
from blizzard_py.sources.tables.unit_names import values_of

# So many units are tried, to find one whose values can be asked for.
_SAMPLE_UNITS = 10


def validate_query_sources(config: Config) -> list[str]:
    """Return notes on tables and APIs, a line each; an unreachable one is a note.

    Raises `ConfigError` with every problem: columns that are missing or have no order, a bound
    without a default, a driver that is not installed.
    """
    problems: list[str] = []
    notes: list[str] = []
    for name, pipeline in config.pipelines.items():
        for source_name in pipeline.query_sources:
            where = f"pipelines.{name}.sources.{source_name}"
            try:
                notes += [f"{where}: {note}" for note in check_source(config, name, source_name)]
            except ConfigError as error:
                problems += [f"{where}: {problem}" for problem in error.problems]
            except StorageError as error:
                notes.append(f"{where}: cannot be queried now: {error}")
            except BlizzardError as error:
                problems.append(f"{where}: {error}")
    if problems:
        raise ConfigError("configuration", problems)
    return notes


def check_source(config: Config, name: str, source_name: str) -> list[str]:
    """Ask one table or API for its columns; return notes on it.

    Raises `ConfigError` with what the configuration must change, `StorageError` if it cannot be
    reached, and what the connection raises.
    """
    pipeline = config.pipelines[name]
    source = pipeline.query_sources[source_name]
    query_spec = query_spec_of(config, pipeline, source, engine_lookup(config, NO_ENGINE))
    try:
        _bind_sample(query_spec)
        problems = list(_problems(query_spec, pipeline, source))
        if problems:
            raise ConfigError(f"pipelines.{name}.sources.{source_name}", problems)
        is_inclusive = source.units is not None and source.units.advanced.inclusive
        return list(_notes(query_spec, is_inclusive=is_inclusive))
    finally:
        query_spec.connection.close()


def _problems(
    query_spec: QuerySpec, pipeline: PipelineSettings, source: QuerySettings
) -> Iterator[str]:
    there = {column.name: column for column in query_spec.connection.columns()}
    known = ", ".join(there) or "none"
    kind = kind_of(source)
    for column in query_spec.columns:
        if column not in there:
            if kind.has_fixed_columns or there:
                yield f"watermark.columns: there is no column {column!r}; there are: {known}"
        elif there[column].kind == "other":
            yield (
                f"watermark.columns: {column!r} is {there[column].type}, which has no order;"
                f" these have one: {_ordered(list(there.values()))}"
            )
    if not kind.has_fixed_columns:
        return  # a record may lack any field
    declared = [field.input_name for field in pipeline.schema_.fields]
    missing = [name for name in declared if name not in there]
    for name in missing:
        yield f"table: has no column {name!r}, which schema.fields declares; there are: {known}"


def _bind_sample(query_spec: QuerySpec) -> None:
    """Replace placeholders by some unit's values, so that the source can be queried.

    Raises `SourceError` for values that cannot be sent, `Unavailable` if the table of values has
    none now.
    """
    units = query_spec.units
    if units is None:
        return
    now = dt.datetime.now(dt.UTC)
    values = values_of(units)
    found = unit_plans.preview(None, unit_plans.without_limit(units), values, now, "units")
    refused = None
    for unit in found.due.units[:_SAMPLE_UNITS]:
        reading = unit_plans.plan_reading(unit, units, now)
        tasks = query_spec.connection.unit_tasks(unit_plans.slice_values(reading, units))
        error = next((task for task in tasks if isinstance(task, SourceError)), None)
        if error is None:
            return  # others may have values that cannot be asked for, which costs them alone
        refused = refused or error
    if refused is not None:
        raise refused


def _notes(query_spec: QuerySpec, *, is_inclusive: bool) -> Iterator[str]:
    if query_spec.replaces:
        yield (
            "rows that are read again replace those that were published, so streaming readers of"
            " the table need skipChangeCommits, and delta.appendOnly must be off"
        )
    if query_spec.units is not None:
        laid = laid_out(query_spec.units.range, dt.datetime.now(dt.UTC))
        yield from unit_plans.gaps_of(laid)
        if (
            query_spec.access.driver == "http"
            and TO in query_spec.units.bounds
            and not is_inclusive
        ):
            yield (
                "the API has to leave the time of {to} itself out; if it counts that in, rows on a"
                " boundary come twice: set units.advanced.inclusive: true"
            )
        return
    if query_spec.snapshot:
        return
    kind = query_spec.bound_kind
    yield f"bound {kind}: {PROMISES[kind]}"
    yield from query_spec.connection.warnings()


def _ordered(columns: Sequence[SourceColumn]) -> str:
    return ", ".join(column.name for column in columns if column.kind != "other") or "none"
