"""The only place where Blizzard's parts are put together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

from rich.console import Console

from blizzard_py.activity import SourceActivity
from blizzard_py.backfill import BACKFILL, Range, RangeRefused, check_range, is_ours
from blizzard_py.batch import Parts, Stores
from blizzard_py.core import checkpoint
from blizzard_py.core.config import Config, PipelineSettings, SourceSettings
from blizzard_py.core.daemon import Loop, run, stop_on_signals
from blizzard_py.core.errors import BlizzardError, ConfigError, NotFound, StateError, StorageError
from blizzard_py.core.log import get_logger
from blizzard_py.core.metered import Metered
from blizzard_py.core.model import IngestResult
from blizzard_py.core.partitionby import TEMPLATES, PartitionBy
from blizzard_py.core.status import Panel
from blizzard_py.core.storage import join, order_key
from blizzard_py.core.stores import open_storage
from blizzard_py.core.watermark import Gap
from blizzard_py.core.web import served
from blizzard_py.discovery import Scope, accepts
from blizzard_py.display import shown
from blizzard_py.explain import Explanation, located, unmatched
from blizzard_py.explain import explain as explain_file
from blizzard_py.lateengine import LateEngine, StoppableEngine
from blizzard_py.pipeline import SourcePipeline
from blizzard_py.progress import advanced
from blizzard_py.schema import field_spec
from blizzard_py.schemafile import InferredSchema, described
from blizzard_py.settings import (
    Engine,
    IngestJob,
    IngestSettings,
    PartitionRule,
    Place,
    SortKey,
)
from blizzard_py.state import STATE_FOLDER, SourceState, state_from_json


def ingest_settings(pipeline: PipelineSettings, source: SourceSettings) -> IngestSettings:
    """What the ingest job needs of a pipeline and one of its sources."""
    sink = pipeline.sink
    by = sink.partition_by
    return IngestSettings(
        source=Place(source.source_uri, source.storage_options),
        sink=Place(sink.table_uri, sink.storage_options),
        fields=tuple(map(field_spec, pipeline.schema_.fields)),
        compression=source.compression,
        parquet_compression=sink.compression,
        file_bytes=sink.file_size_mb * 1024 * 1024,
        row_group_bytes=sink.row_group_size_bytes,
        partition_template=by.prefix_template or "" if by and by.column is None else "",
        partition_rules=_partition_rules(by) if by else (),
        sort_by=tuple(SortKey(key.column, key.descending) for key in sink.sort_by),
        on_bad_record=pipeline.error_handling.on_bad_record,
        max_bad_fraction=pipeline.error_handling.max_bad_fraction,
        metadata_columns=sink.metadata_columns,
        unexpected_fields=pipeline.schema_.unexpected_fields,
        transform=pipeline.transform or "",
        deduplicate_by=tuple(pipeline.deduplicate_by),
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


def build(config: Config, engine: Engine) -> list[SourcePipeline]:
    """Every source of every pipeline, wired. Opens no connection."""
    return [
        _source_pipeline(config, (name, source_name), engine)
        for name, pipeline in config.pipelines.items()
        for source_name in pipeline.sources
    ]


def _source_pipeline(
    config: Config,
    where: tuple[str, str],
    engine: Engine,
    *,
    source: SourceSettings | None = None,
    scope: Scope | None = None,
    suffix: str = "",
) -> SourcePipeline:
    return SourcePipeline(parts_of(config, where, engine, source, suffix), scope)


def parts_of(
    config: Config,
    where: tuple[str, str],
    engine: Engine,
    source: SourceSettings | None = None,
    suffix: str = "",
) -> Parts:
    """What a source is made of. Opens no connection."""
    name, source_name = where
    pipeline = config.pipelines[name]
    source = pipeline.sources[source_name] if source is None else source
    sink = pipeline.sink
    activity = SourceActivity(f"{name}/{source_name}", source.source_uri, time.time)
    dlq_uri = pipeline.error_handling.dlq_path or f"{sink.table_uri.rstrip('/')}/{DLQ_FOLDER}"
    stores = Stores(
        Metered(open_storage(source.source_uri, source.storage_options), activity.beat),
        Metered(open_storage(sink.table_uri, sink.storage_options), activity.beat),
        Metered(open_storage(dlq_uri, sink.storage_options), activity.beat),
    )
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
        suffix,
        activity=activity,
        infer=_inferred(name, pipeline, source, stores).fields if pipeline.schema_.infer else None,
    )


def _inferred(
    name: str, pipeline: PipelineSettings, source: SourceSettings, stores: Stores
) -> InferredSchema:
    return InferredSchema(name, pipeline, stores.source, source.compression, stores.sink, time.time)


DLQ_FOLDER = join(STATE_FOLDER, "dlq")


class NoEngine:
    """Stands in where nothing may be ingested: `plan` and `status` need no Spark."""

    def ingest(self, job: IngestJob) -> IngestResult:
        """Refuse: reaching this is a bug."""
        raise BlizzardError(f"{job.output_prefix}: this command does not ingest")

    def cancel(self, output_prefix: str) -> None:
        """Nothing runs, nothing to end."""


def spark_engine(config: Config, app_name: str) -> StoppableEngine:
    """Spark as it is configured. Starts nothing before the first job."""
    from blizzard_py.spark import SparkEngine  # noqa: PLC0415  # see `LateEngine`

    return SparkEngine(config.spark.master, config.spark.conf, app_name)


def run_daemon(config: Config, *, once: bool) -> int:
    """Run every source until the work is done or a signal comes. Returns the exit code."""
    if not config.pipelines:
        raise ConfigError("configuration", ["pipelines: is required to run blizzard"])
    log = get_logger()
    engine = LateEngine(partial(spark_engine, config, "blizzard"))
    stop = threading.Event()
    limits = config.global_
    loop = Loop(once, limits.poll_jitter_secs, limits.shutdown_grace_secs)
    workers = build(config, engine)
    panel = Panel("blizzard", [w.activity for w in workers], time.time)
    with stop_on_signals(stop), served(config.metrics, panel):
        log.info("started", sources=[w.name for w in workers], once=once)
        try:
            with shown({w.name: w.meter for w in workers}, _terminal() if once else None):
                code = run(workers, loop, stop)
        finally:
            engine.stop()
        log.info("stopped", exit_code=code)
    return code


def _terminal() -> Console | None:
    """Where a person watches, None in a container or a pipe."""
    console = Console(stderr=True)
    return console if console.is_terminal else None


def validate_transforms(config: Config) -> None:
    """Raise `ConfigError` for transforms that cannot be used; no Spark starts without any.

    A Spark of this machine judges them, so that no cluster needs to be there; a
    Connect client may have no Java, so there it is its server. Where columns are
    inferred, nobody can say before the first batch, which is preceded by the same check.
    """
    chosen = {
        name: pipeline
        for name, pipeline in config.pipelines.items()
        if pipeline.transform is not None and not pipeline.schema_.infer
    }
    if not chosen:
        return
    from blizzard_py.spark import checking_engine  # noqa: PLC0415  # see `LateEngine`

    engine = checking_engine(config.spark.master, config.spark.conf)
    problems: list[str] = []
    try:
        for name, pipeline in chosen.items():
            source = next(iter(pipeline.sources.values()))  # all sources have one schema
            try:
                engine.check(name, ingest_settings(pipeline, source))
            except ConfigError as error:
                problems += [f"{error.source}: {problem}" for problem in error.problems]
    finally:
        engine.stop()
    if problems:
        raise ConfigError("configuration", problems)


def backfill(config: Config, where: tuple[str, str], chosen: Range, *, replay: bool) -> int:
    """Ingest a closed range of a source beside its live daemon. Returns the exit code.

    Raises `ConfigError` for an unknown source and `RangeRefused`.
    """
    source = source_of(config, where)
    for prefix in (chosen.first, chosen.last):
        if accepts(source.compression)(prefix):
            raise RangeRefused(f"{prefix!r} is a file; --from and --to are partitions")
    live = _source_pipeline(config, where, NoEngine())
    state = checkpoint.load(live.sink, live.checkpoint_path, state_from_json)
    check_range(chosen, state, _backfills_of(live), replay=replay)
    if state is None:
        raise StateError(f"{live.name}: its checkpoint is gone")
    scope = Scope(chosen.gap, partial(is_ours, state, replay=replay))
    engine = LateEngine(partial(spark_engine, config, "blizzard-backfill"))
    stop = threading.Event()
    worker = _source_pipeline(
        config,
        where,
        engine,
        # The range is the only bound: the same depth, no lookback and no late files.
        source=source.model_copy(
            update={
                "partition_filter": source.partition_filter
                and source.partition_filter.model_copy(update={"lookback": None}),
                "partition_depth": state.progress.depth,
                "late_sweep_interval_secs": 0,
            }
        ),
        scope=scope,
        suffix=f"{BACKFILL}{chosen.slug}",
    )
    with stop_on_signals(stop):
        try:
            with shown({worker.name: worker.meter}, _terminal()):
                return run([worker], Loop(True, 0, config.global_.shutdown_grace_secs), stop)
        finally:
            engine.stop()


def source_of(config: Config, where: tuple[str, str]) -> SourceSettings:
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


def _backfills_of(live: SourcePipeline) -> list[Range]:
    """The ranges of this source's backfills so far, from the names of their checkpoints."""
    stem = live.checkpoint_path.removesuffix("_checkpoint.json") + BACKFILL
    names = [
        entry.path.removeprefix(stem).removesuffix("_checkpoint.json")
        for page in live.sink.list_range(stem, f"{stem}\U0010ffff")
        for entry in page.entries
        if entry.path.endswith("_checkpoint.json")
    ]
    return [found for found in map(Range.from_slug, names) if found is not None]


def explain(config: Config, uri: str) -> Explanation:
    """What became of the file at ``uri``, or will. Raises `ConfigError` if it is no URI."""
    roots = {
        f"{name}/{source_name}": source.source_uri
        for name, pipeline in config.pipelines.items()
        for source_name, source in pipeline.sources.items()
    }
    place = located(uri, roots)
    if place.source is None or place.path is None:
        return unmatched(place)
    pipeline_name, _, source_name = place.source.partition("/")
    parts = parts_of(config, (pipeline_name, source_name), NoEngine())
    try:
        found = _backfills_of(SourcePipeline(parts))
    except NotFound:  # a local table that nothing was written to yet
        found = []
    ours = [r for r in found if _lies_in(r.gap, place.path)]
    return explain_file(parts, place, {f"{parts.id}{BACKFILL}{r.slug}": r.slug for r in ours})


def _lies_in(gap: Gap, path: str) -> bool:
    until = gap.until
    return order_key(gap.after) < order_key(path) and (
        until is None or order_key(path) < order_key(until)
    )


def schema(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Every pipeline's columns and where they come from. Writes nothing.

    A sample is of the new files of the first source that has any.
    """
    pipelines: dict[str, Any] = {}
    errors: list[str] = []
    for name in config.pipelines:
        try:
            pipelines[name] = _schema_of(config, name)
        except BlizzardError as error:
            errors.append(f"{name}: {error}")
    return {"pipelines": pipelines}, errors


def _schema_of(config: Config, name: str) -> dict[str, Any]:
    pipeline = config.pipelines[name]
    declared = tuple(map(field_spec, pipeline.schema_.fields))
    if not pipeline.schema_.infer:
        return described("declared", declared)
    for source_name in pipeline.sources:
        parts = parts_of(config, (name, source_name), NoEngine())
        found = _inferred(name, pipeline, parts.source, parts.stores)
        kept = found.kept()
        if kept is not None:
            return described("inferred", found.combined(kept), kept)
        worker = SourcePipeline(parts)
        files = worker.discover(worker.load()).files
        if files:
            sampled = found.inferred(files)
            return described("sample", found.combined(sampled), sampled)
    return described("unknown", declared)


def plan(config: Config) -> tuple[dict[str, Any], list[str]]:
    """What the next poll of every source would do, and the errors of those that failed."""
    return _collect(config, _plan_source)


def status(config: Config) -> tuple[dict[str, Any], list[str]]:
    """The state of every source, from storage alone, and the errors of unreadable ones."""
    return _collect(config, _status_of)


def _collect(
    config: Config, describe: Callable[[SourcePipeline], dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    pipelines: dict[str, Any] = {}
    errors: list[str] = []
    for source in build(config, NoEngine()):
        sources = pipelines.setdefault(source.pipeline, {"sources": {}})["sources"]
        try:
            sources[source.source_name] = describe(source)
        except BlizzardError as error:
            errors.append(f"{source.name}: {error}")
    return {"pipelines": pipelines}, errors


def _as_good_as(state: SourceState) -> SourceState:
    """The state with what is being published done, since it will be."""
    for batch in state.in_flight:
        if batch.phase == "publishing":
            state = advanced(state, batch, (), batch.started_ts, 0)
    return state


def _plan_source(source: SourcePipeline) -> dict[str, Any]:
    state = _as_good_as(source.load())
    found = source.discover(state)
    return {
        "state": state.progress.state,
        "watermark": state.progress.value,
        "files": [{"path": entry.path, "size": entry.size} for entry in found.files],
        "list_requests": found.requests,
        "keys_listed": found.keys,
    }


def _status_of(source: SourcePipeline) -> dict[str, Any]:
    state = source.load()
    return {
        "state": state.progress.state,
        "watermark": state.progress.value,
        "partition_watermarks": {
            partition: known.watermark
            for partition, known in sorted(state.progress.partitions.items())
            if partition and known.watermark is not None
        },
        "grace_period_secs": source.grace_period_secs(state),
        "last_update_ts": state.last_update_ts,
        "lag": _lag_of(source, state),
        "dead_letters": _letters_of(source),
        "in_flight": [
            {
                "batch": batch.batch,
                "attempt": batch.attempt,
                "phase": batch.phase,
                "started_ts": batch.started_ts,
                "files": len(batch.files),
                "outputs": len(batch.outputs),
            }
            for batch in state.in_flight
        ],
        "totals": asdict(state.totals),
    }


# Objects of a dead-letter queue that `status` counts: a request for each thousand.
LETTERS_COUNTED = 10_000


def _lag_of(source: SourcePipeline, state: SourceState) -> dict[str, Any]:
    """How long the oldest waiting file has waited. A source out of reach is no error here."""
    try:
        found = source.backlog(_as_good_as(state))
    except StorageError as error:
        return {"secs": None, "files": None, "complete": False, "error": str(error)}
    if found is None:
        return {"secs": None, "files": None, "complete": False, "error": None}
    waited = None if found.oldest_ts is None else max(0.0, time.time() - found.oldest_ts)
    return {
        "secs": 0.0 if waited is None and found.complete else waited,
        "files": found.files,
        "complete": found.complete,
        "error": None,
    }


def _letters_of(source: SourcePipeline) -> dict[str, Any]:
    found = list(islice(source.dead_letters(), LETTERS_COUNTED + 1))
    counted = found[:LETTERS_COUNTED]
    return {
        "objects": len(counted),
        "bytes": sum(letter.size for letter in counted),
        "newest_ts": max((letter.modified for letter in counted), default=None),
        "complete": len(found) == len(counted),
    }
