"""From the configuration to a source and its parts. Opens no connection and starts nothing.

What runs them is in `blizzard_py.app.daemon`, what only looks in `blizzard_py.app.inspection`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from blizzard_core.checkpoint.writer import Admission, anybody
from blizzard_core.errors import BlizzardError, ConfigError
from blizzard_core.observability.metered_storage import Metered
from blizzard_core.settings.document import AnySource, Config, PipelineSettings
from blizzard_core.settings.event_time import EMITTED_BATCH, EventTimeSettings
from blizzard_core.settings.partitioning import TEMPLATES, PartitionBy
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.nowhere import Nowhere
from blizzard_core.storage.opening import open_private, open_source, open_storage
from blizzard_core.storage.protocol import join
from blizzard_py.app.asked import Asks, asking_of, uri_of
from blizzard_py.engines.lazy import LazyEngine, StoppableEngine, WithSession
from blizzard_py.ingest.inferred_schema import InferredSchema
from blizzard_py.ingest.jobs import Jobs
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import (
    Engine,
    FileBounds,
    IngestJob,
    IngestResult,
    IngestSettings,
    PartitionRule,
    Place,
    SortKey,
    UnexpectedField,
)
from blizzard_py.kernels.fast.sandbox import compiled
from blizzard_py.schema.types import field_spec
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.files.opening import open_files
from blizzard_py.sources.parts import Parts, Stores
from blizzard_py.sources.protocol import Opener
from blizzard_py.sources.tables.source import AskedSource
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.state_paths import STATE_FOLDER

DLQ_FOLDER = join(STATE_FOLDER, "dlq")


def ingest_settings(pipeline: PipelineSettings, source: AnySource) -> IngestSettings:
    """What the ingest job needs of a pipeline and one of its sources."""
    sink = pipeline.sink
    by = sink.partition_by
    files = source if isinstance(source, SourceSettings) else None
    return IngestSettings(
        source=Place(uri_of(source), {} if files is None else files.storage_options),
        sink=Place(sink.table_uri, sink.storage_options),
        fields=tuple(map(field_spec, pipeline.schema_.fields)),
        compression="none" if files is None else files.compression,
        parquet_compression=sink.compression,
        file_bytes=sink.file_size_mb * 1024 * 1024,
        row_group_bytes=sink.row_group_size_bytes,
        partition_template=by.prefix_template or "" if by and by.column is None else "",
        partition_rules=_partition_rules(by) if by else (),
        sort_by=tuple(SortKey(key.column, key.descending) for key in sink.sort_by),
        on_bad_record=pipeline.error_handling.on_bad_record,
        max_bad_fraction=pipeline.error_handling.max_bad_fraction,
        bounds=FileBounds(
            pipeline.error_handling.max_expansion,
            pipeline.error_handling.max_letters_per_file,
            pipeline.error_handling.max_directories_per_file,
        ),
        metadata_columns=tuple(c for c in sink.metadata_columns if c != "_emitted_batch"),
        unexpected_fields=pipeline.schema_.unexpected_fields,
        evolves=pipeline.schema_.evolve == "add",
        fast_path=pipeline.schema_.fast_path,
        transform=pipeline.transform or "",
        deduplicate_by=tuple(pipeline.deduplicate_by),
        emitted_batch=EMITTED_BATCH in sink.metadata_columns,
        unit_column=not isinstance(source, SourceSettings) and source.replaces,
    )


def _partition_rules(by: PartitionBy) -> tuple[PartitionRule, ...]:
    """What rows decide about their directory; nothing if the source path does."""
    if by.column is not None:
        return (PartitionRule(by.column, template=by.prefix_template or ""),)
    return tuple(
        PartitionRule(column.column, key=column.name)
        if column.transform == "identity"
        else PartitionRule(column.column, template=f"{column.name}={TEMPLATES[column.transform]}")
        for column in by.columns
    )


def build(
    config: Config, engine: Engine, *, fresh: bool = False, admission: Admission = anybody
) -> list[SourcePipeline]:
    """Every source of every pipeline, wired. Opens no connection.

    ``fresh`` insists on a cold start where the checkpoint is missing, whatever else is there;
    ``admission`` may leave sources to whoever works on them.
    """
    return [
        source_pipeline(
            parts_of(config, (name, source_name), engine), fresh=fresh, admission=admission
        )
        for name, pipeline in config.pipelines.items()
        for source_name in pipeline.sources
    ]


def source_pipeline(
    parts: Parts, *, fresh: bool = False, admission: Admission = anybody
) -> SourcePipeline:
    """One source as its settings describe it; the one place that chooses its kind."""
    given = parts.event_time
    jobs = None if given is None else _stream_jobs(parts, given)
    return SourcePipeline(parts, opener_of(parts), fresh=fresh, admission=admission, jobs=jobs)


def _stream_jobs(parts: Parts, given: EventTimeSettings) -> Jobs:
    # It brings kernels along, which a daemon without such a pipeline never needs in its process.
    from blizzard_py.streaming.jobs import StreamJobs  # noqa: PLC0415  # see above

    return StreamJobs(parts, given, session_of(parts.engine))


def session_of(engine: Engine) -> Callable[[], Any]:
    """What gives the engine's Spark session. Starts nothing."""
    if isinstance(engine, WithSession):
        return engine.session

    def none() -> Any:
        raise BlizzardError("this command does not ingest")

    return none


def opener_of(parts: Parts) -> Opener:
    """What makes a source of its parts. Connects to nothing."""
    asking = parts.asked
    if asking is None:
        return open_files
    if asking.units is not None:
        return partial(UnitSource, asking=asking)
    return partial(AskedSource, asking=asking)


def parts_of(
    config: Config,
    where: tuple[str, str],
    engine: Engine,
    source: AnySource | None = None,
    suffix: str = "",
) -> Parts:
    """What a source is made of. Opens no connection."""
    name, source_name = where
    pipeline = config.pipelines[name]
    source = pipeline.sources[source_name] if source is None else source
    sink = pipeline.sink
    uri = uri_of(source)
    files = source if isinstance(source, SourceSettings) else None
    activity = SourceActivity(f"{name}/{source_name}", uri, time.time)
    dlq_uri = pipeline.error_handling.dlq_path or f"{sink.table_uri.rstrip('/')}/{DLQ_FOLDER}"
    stores = Stores(
        Nowhere(uri)
        if files is None
        else Metered(open_source(uri, files.storage_options), activity.beat),
        Metered(open_storage(sink.table_uri, sink.storage_options), activity.beat),
        Metered(open_private(dlq_uri, sink.storage_options), activity.beat),
    )
    inferred = (
        inferred_schema(name, pipeline, files, stores)
        if files is not None and pipeline.schema_.is_found_out
        else None
    )
    evolves = inferred is not None and pipeline.schema_.evolve == "add"
    return Parts(
        name,
        source_name,
        source,
        pipeline.error_handling,
        ingest_settings(pipeline, source),
        stores,
        engine,
        config.global_.total_concurrency,
        time.time,
        suffix=suffix,
        activity=activity,
        infer=None if inferred is None else inferred.fields,
        evolve=partial(_evolve, config, name, inferred) if inferred and evolves else None,
        check_table=partial(_check_table, config, name, engine)
        if isinstance(engine, LazyEngine)
        else None,
        asked=None
        if isinstance(source, SourceSettings)
        else asking_of(config, pipeline, source, asks_of(config, engine)),
        event_time=pipeline.event_time,
    )


def _check_table(
    config: Config, pipeline: str, engine: LazyEngine, settings: IngestSettings
) -> None:
    # A daemon whose sources are idle never needs what reads a table's log.
    from blizzard_py.app.table_check import check_table  # noqa: PLC0415  # see above

    given = config.pipelines[pipeline].event_time
    has_query = settings.transform or given is not None
    check_table(config, pipeline, query_columns(engine, given) if has_query else None, settings)


def _evolve(
    config: Config,
    pipeline: str,
    inferred: InferredSchema,
    settings: IngestSettings,
    found: Sequence[UnexpectedField],
) -> IngestSettings:
    from blizzard_py.app.table_check import takes_columns  # noqa: PLC0415  # see `_check_table`

    return inferred.evolve(settings, found, takes_columns(config, pipeline, settings))


def query_columns(
    engine: StoppableEngine | LazyEngine, given: EventTimeSettings | None
) -> Callable[[str, IngestSettings], pa.Schema]:
    """What gives the columns of a pipeline's transform, or of its query over event time."""
    if given is None:
        return engine.columns

    def columns(pipeline: str, settings: IngestSettings) -> pa.Schema:
        from blizzard_py.streaming.check import check_query  # noqa: PLC0415  # see `LazyEngine`

        return check_query(engine.session(), pipeline, given, settings)

    return columns


def inferred_schema(
    name: str, pipeline: PipelineSettings, source: SourceSettings, stores: Stores
) -> InferredSchema:
    """Where a pipeline's inferred columns are kept and made."""
    return InferredSchema(name, pipeline, stores.source, source.compression, stores.sink, time.time)


def asks_of(config: Config, engine: Engine) -> Asks:
    """What answers statements where only the engine has a driver; a Spark of its own for `plan`."""
    if isinstance(engine, LazyEngine):
        return engine.ask
    return LazyEngine(partial(spark_engine, config, "blizzard-plan")).ask


class NoEngine:
    """Stands in where nothing may be ingested: `plan` and `status` need no Spark."""

    def ingest(self, job: IngestJob) -> IngestResult:
        """Refuse: reaching this is a bug."""
        raise BlizzardError(f"{job.output_prefix}: this command does not ingest")

    def cancel(self, output_prefix: str) -> None:
        """Nothing runs, nothing to end."""

    def progress(self, output_prefix: str) -> float | None:
        """Nothing runs."""


def spark_engine(config: Config, app_name: str) -> StoppableEngine:
    """Spark as it is configured. Starts nothing before the first job."""
    from blizzard_py.engines.spark import SparkEngine, quickly_started  # noqa: PLC0415  # see `LazyEngine`

    if any(pipeline.schema_.fast_path for pipeline in config.pipelines.values()):
        compiled()  # where it does not load, the daemon's own log is where one looks
    conf = config.spark.conf
    return SparkEngine(
        config.spark.master, conf if computes_in_driver(config) else quickly_started(conf), app_name
    )


def computes_in_driver(config: Config) -> bool:
    """Whether rows go through Spark itself, where a driver of ours may run them."""
    return any(found.driver == "jdbc" for found in config.connections.values()) or any(
        pipeline.transform is not None or pipeline.deduplicate_by or pipeline.event_time is not None
        for pipeline in config.pipelines.values()
    )


def source_of(config: Config, where: tuple[str, str]) -> AnySource:
    """The settings of a source by the names of its pipeline and itself. Raises `ConfigError`."""
    pipeline = config.pipelines.get(where[0])
    source = None if pipeline is None else pipeline.sources.get(where[1])
    if source is None:
        known = ", ".join(
            f"{p}/{s}" for p, found in config.pipelines.items() for s in found.sources
        )
        name = "/".join(where)
        raise ConfigError("--pipeline, --source", [f"there is no {name}; known: {known}"])
    return source
