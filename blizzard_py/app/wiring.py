"""Construction of sources and their parts from the configuration. Opens and starts nothing.

`blizzard_py.app.daemon` runs them, `blizzard_py.app.inspection` only reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import AnySource, Config, PipelineSettings, QuerySettings
from blizzard_core.settings.event_time import EMITTED_BATCH
from blizzard_core.settings.formats import LetterOptions
from blizzard_core.settings.globs import PathColumnType
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.sources import CommonSource
from blizzard_core.settings.tables import TEMPLATES, PartitionBy
from blizzard_core.storage.null_storage import NullStorage
from blizzard_core.storage.opening import open_private, open_source, open_storage
from blizzard_core.storage.protocol import Storage, join
from blizzard_py.app.configuration import source_of
from blizzard_py.app.engine import NO_ENGINE
from blizzard_py.app.source_kinds import FileKind, SourceKind, opener_of
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.formats.names import check_format
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.job import (
    AddedColumns,
    Engine,
    ErrorTolerance,
    FieldSpec,
    FileLimits,
    IngestSettings,
    OutputLayout,
    PartitionRule,
    Place,
    RowSchema,
    SortKey,
    SqlSteps,
    UnexpectedField,
)
from blizzard_py.schema.field_specs import field_spec
from blizzard_py.sources.context import EventTimeQuery, SchemaHooks, SourceContext, Stores
from blizzard_py.state.state_paths import STATE_FOLDER
from blizzard_py.state.stream_query import fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

    from blizzard_py.connections.query_spec import QuerySpec
    from blizzard_py.engines.spark.engine import SparkEngine
    from blizzard_py.ingest.inferred_schema import InferredSchema, StoredSchema
    from blizzard_py.sources.activity import SourceActivity

DLQ_FOLDER = join(STATE_FOLDER, "dlq")


def ingest_settings(pipeline: PipelineSettings, source: AnySource) -> IngestSettings:
    """Return what the ingest job needs of a pipeline and one of its sources.

    Raises `ConfigError` as `check_format` does.
    """
    sink, schema, errors = pipeline.sink, pipeline.schema_, pipeline.error_handling
    by = sink.partition_by
    own = [] if source.schema_ is None else source.schema_.fields
    files = source.as_files
    check_format(source.file_format)
    return IngestSettings(
        source=Place(source.uri, dict(source.storage_options)),
        sink=Place(sink.table_uri, sink.storage_options),
        schema=RowSchema(
            fields=tuple(map(field_spec, [*schema.fields, *own])),
            unexpected_fields=schema.unexpected_fields,
            evolves=schema.evolve == "add",
            fast_path=schema.advanced.fast_path,
        ),
        layout=OutputLayout(
            compression=sink.advanced.compression,
            file_bytes=sink.advanced.file_size_mb * 1024 * 1024,
            row_group_bytes=sink.advanced.row_group_size_bytes,
            partition_template=by.prefix_template or "" if by and by.column is None else "",
            partition_rules=_partition_rules(by) if by else (),
            sort_by=tuple(SortKey(*key) for key in sink.sort_keys),
        ),
        added_columns=AddedColumns(
            metadata=tuple(c for c in sink.metadata_columns if c != "_emitted_batch"),
            unit=source.has_unit_column,
            emitted_batch=EMITTED_BATCH in sink.metadata_columns,
            path=() if files is None else _path_specs(files.path_columns),
            path_template="" if files is None else files.advanced.path_template or "",
        ),
        format=source.file_format,
        sql=SqlSteps(tuple(pipeline.deduplicate_by), pipeline.transform or ""),
        tolerance=ErrorTolerance(
            errors.on_bad_record,
            errors.max_bad_fraction,
            FileLimits(
                expansion=errors.advanced.max_expansion,
                directories=errors.advanced.max_directories_per_file,
            ),
        ),
    )


def of_all_sources(pipeline: PipelineSettings, settings: IngestSettings) -> IngestSettings:
    """Return the settings with the columns of all sources that share a query."""
    if pipeline.query is None:
        return settings
    added = replace(settings.added_columns, path=_path_specs(pipeline.path_types))
    found = settings.with_fields(map(field_spec, pipeline.fields))
    return replace(found, added_columns=added)


def _path_specs(columns: Mapping[str, PathColumnType]) -> tuple[FieldSpec, ...]:
    return tuple(FieldSpec(name, kind, nullable=True) for name, kind in columns.items())


def _partition_rules(by: PartitionBy) -> tuple[PartitionRule, ...]:
    """Return what rows decide about their directory; nothing if the source path does."""
    if by.column is not None:
        return (PartitionRule(by.column, template=by.prefix_template or ""),)
    return tuple(
        PartitionRule(column.column, key=column.name)
        if column.transform == "identity"
        else PartitionRule(column.column, template=f"{column.name}={TEMPLATES[column.transform]}")
        for column in by.columns
    )


def views(config: Config) -> list[SourceView]:
    """Return every source of every pipeline by itself, for inspection. Opens no connection."""
    return [
        view_of(context_of(config, (name, source)))
        for name, pipeline in config.pipelines.items()
        for source in pipeline.sources
    ]


def view_of(parts: SourceContext) -> SourceView:
    """Return the source with these parts, for inspection. Opens no connection."""
    return SourceView.opened(parts, opener_of(parts))


def owners(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the pipeline and name of each source that owns a checkpoint.

    Of the sources of one query over event time that is the first by name.
    """
    for name, pipeline in config.pipelines.items():
        shared = [branch.source for branch in pipeline.branches]
        yield from ((name, source) for source in shared[:1] or pipeline.sources)


def joined(config: Config, members: Sequence[SourceContext]) -> SourceContext:
    """Return the parts of the first source of a query, with those of all of them as members.

    A source that has its checkpoint for itself stays as it is.
    """
    first = members[0]
    if len(members) < 2:
        return first
    ingest = of_all_sources(config.pipelines[first.pipeline], first.ingest)
    return replace(first, ingest=ingest, members=tuple(members))


def owner_context(config: Config, where: tuple[str, str]) -> SourceContext:
    """Return the parts of the owner of the source's checkpoint, for inspection.

    Raises `ConfigError` for a source that is not configured.
    """
    source_of(config, where)
    shared = [branch.source for branch in config.pipelines[where[0]].branches] or [where[1]]
    return joined(config, [context_of(config, (where[0], source)) for source in shared])


def kind_of(parts: SourceContext) -> SourceKind:
    """Return the kind of the source with these parts."""
    if parts.query_spec is None:
        return FileKind()
    # Sources of files need none of the connections.
    from blizzard_py.app.queries.source_kinds import UnitKind, WindowKind  # noqa: PLC0415  # see above

    return WindowKind() if parts.query_spec.units is None else UnitKind()


def context_of(
    config: Config,
    where: tuple[str, str],
    engine: Engine = NO_ENGINE,
    activity: SourceActivity | None = None,
) -> SourceContext:
    """Return what a source is made of, by its pipeline and name. Opens no connection.

    ``activity`` is the live view of a source that is to be worked on; its stores are metered then.
    Raises `ConfigError` for a source that is not configured.
    """
    source = source_of(config, where)
    name, source_name = where
    pipeline = config.pipelines[name]
    sink = pipeline.sink
    asks = pipeline.query_sources.get(source_name)
    errors = pipeline.error_handling
    dlq_uri = errors.advanced.dlq_path or f"{sink.table_uri.rstrip('/')}/{DLQ_FOLDER}"
    stores = Stores(
        open_source(source.uri, source.storage_options, versions=_is_cleaned(source))
        if asks is None
        else NullStorage(source.uri),
        open_storage(sink.table_uri, sink.storage_options),
        open_private(dlq_uri, errors.dlq_options(sink.storage_options)),
        _archive_of(source),
    )
    if activity is not None:
        stores = _metered(stores, activity.beat)
    inferred = (
        inferred_schema(name, pipeline, stores, source)
        if asks is None and pipeline.schema_.is_found_out
        else None
    )
    settings = ingest_settings(pipeline, source)
    if asks is not None:
        form = None
        if isinstance(asks, TableSourceSettings):
            form = asks.files_of(config.connections[asks.connection])
        settings = replace(settings, format=LetterOptions.of_rows(form))
    evolves = inferred is not None and pipeline.schema_.evolve == "add"
    return SourceContext(
        name,
        source_name,
        source,
        errors,
        settings,
        stores,
        engine,
        config.global_.advanced.total_concurrency,
        time.time,
        activity=activity,
        schema=SchemaHooks(
            infer=None if inferred is None else inferred.fields,
            evolve=partial(_evolve, config, name, inferred) if inferred and evolves else None,
            check_table=partial(_check_table, config, name, engine)
            if isinstance(engine, LazyEngine)
            else None,
        ),
        query_spec=None if asks is None else _query_spec(config, pipeline, asks, engine),
        event_time=_event_time_query(config, pipeline, settings),
        watch=pipeline.watch_of(source_name),
    )


def _metered(stores: Stores, answered: Callable[[], None]) -> Stores:
    # Commands that only look need no metrics.
    from blizzard_core.observability.metered_storage import metered  # noqa: PLC0415  # see above

    asked = isinstance(stores.source, NullStorage)
    return Stores(
        stores.source if asked else metered(stores.source, answered),
        metered(stores.sink, answered),
        metered(stores.dlq, answered),
        None if stores.archive is None else metered(stores.archive, answered),
    )


def _is_cleaned(source: AnySource) -> bool:
    files = source.as_files
    return files is not None and files.clean is not None


def _archive_of(source: AnySource) -> Storage | None:
    files = source.as_files
    if files is None or files.clean is None or files.clean.archive_uri is None:
        return None
    return open_private(files.clean.archive_uri, files.storage_options)


def _query_spec(
    config: Config, pipeline: PipelineSettings, source: QuerySettings, engine: Engine
) -> QuerySpec:
    # Sources of files need none of the connections.
    from blizzard_py.app.queries.query_spec import engine_lookup, query_spec_of  # noqa: PLC0415  # see above

    return query_spec_of(config, pipeline, source, engine_lookup(config, engine))


def _event_time_query(
    config: Config, pipeline: PipelineSettings, settings: IngestSettings
) -> EventTimeQuery | None:
    if pipeline.query is None:
        return None
    ingest = of_all_sources(pipeline, settings)
    found = fingerprint(pipeline.query, pipeline.branches, ingest, config.spark.zone)
    return EventTimeQuery(pipeline.query, pipeline.branches, found)


def _check_table(
    config: Config, pipeline: str, engine: LazyEngine, settings: IngestSettings
) -> None:
    engine.start_in_background()  # a batch follows, and reading the table's log takes a while
    # A daemon whose sources are idle never needs what reads it.
    from blizzard_py.app.table_check import check_table  # noqa: PLC0415  # see above

    found = config.pipelines[pipeline]
    has_query = settings.sql.transform or found.query is not None
    check_table(config, pipeline, query_columns(engine, found) if has_query else None, settings)


def _evolve(
    config: Config,
    pipeline: str,
    inferred: InferredSchema,
    settings: IngestSettings,
    found: Sequence[UnexpectedField],
) -> IngestSettings:
    from blizzard_py.app.table_check import takes_columns  # noqa: PLC0415  # see `_check_table`

    takes = takes_columns(config, pipeline, settings)
    return replace(settings, schema=inferred.evolve(settings.schema, found, takes))


def query_columns(
    engine: SparkEngine | LazyEngine, settings: PipelineSettings
) -> Callable[[str, IngestSettings], pa.Schema]:
    """Return what gives the columns of a pipeline's transform, or of its query over event time."""
    given, branches = settings.query, settings.branches
    if given is None:
        return _watchable(engine.columns, settings)

    def columns(pipeline: str, settings: IngestSettings) -> pa.Schema:
        from blizzard_py.streaming.check import check_query  # noqa: PLC0415  # see `LazyEngine`

        return check_query(engine.session(), pipeline, (given, branches), settings)

    return columns


def _watchable(
    columns: Callable[[str, IngestSettings], pa.Schema], settings: PipelineSettings
) -> Callable[[str, IngestSettings], pa.Schema]:
    """Make ``columns`` raise `ConfigError` if a watched column is no timestamp."""
    watches = [settings.watch_of(name) for name in settings.sources]
    times = dict.fromkeys(watch.column for watch in watches if watch is not None)

    def checked(pipeline: str, ingest: IngestSettings) -> pa.Schema:
        import pyarrow as pa  # noqa: PLC0415  # for this check alone

        found = columns(pipeline, ingest)
        kinds = {field.name: field.type for field in found}
        problems = [
            f"column: {name!r} is no timestamp that the transform gives"
            for name in times
            if not pa.types.is_timestamp(kinds.get(name, pa.null()))
        ]
        if problems:
            raise ConfigError(f"pipelines.{pipeline}.event_time", problems)
        return found

    return checked


def infer_from_waiting(parts: SourceContext, schema: InferredSchema) -> StoredSchema | None:
    """Return what the files that wait would make of a schema; None without any."""
    with closing(view_of(parts)) as found:
        files = found.discover(found.load()).files
        return schema.infer(files) if files else None


def inferred_schema(
    name: str, pipeline: PipelineSettings, stores: Stores, source: CommonSource
) -> InferredSchema:
    """Return where a pipeline's inferred columns are kept and made, by files of ``source``."""
    # Declared columns need nothing of it.
    from blizzard_py.ingest.inferred_schema import InferredSchema  # noqa: PLC0415  # see above

    return InferredSchema(name, pipeline, stores.source, stores.sink, time.time, source.file_format)
