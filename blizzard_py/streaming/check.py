"""Spark's analysis of a query over event time: the columns of its input and of its output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from blizzard_core.errors import ConfigError
from blizzard_core.settings.event_time import OURS, Branch, EventTimeSettings
from blizzard_py.engines.spark.transform import check, record_schema, schema_refusal
from blizzard_py.engines.spark.transform_guard import aggregate_refusal, spark_message
from blizzard_py.job import POSITION, AddedColumns, IngestSettings
from blizzard_py.kernels.write.metadata import Metadata
from blizzard_py.streaming.decode_job import decode_settings
from blizzard_py.streaming.operators import Definition, frame_of, refusal
from blizzard_py.streaming.source import StagedRows


def definition_of(
    root: SparkSession,
    pipeline: str,
    definition: tuple[EventTimeSettings, tuple[Branch, ...]],
    settings: IngestSettings,
) -> Definition:
    """Return the query ``asked`` for, with the columns of its real input.

    It is the computation, and each source's part in it. Raises `ConfigError` with the key.
    """
    given, branches = definition
    accept = decode_settings(settings)
    if found := refusal(root, given):
        raise ConfigError(f"pipelines.{pipeline}.event_time.aggregates.{found[0]}", [found[1]])
    is_transformed = bool(accept.sql.transform)
    schema = check(root, pipeline, accept) if is_transformed else record_schema(accept)
    where = f"pipelines.{pipeline}"
    problems = list(_input_problems(given, branches, schema, transformed=is_transformed))
    if problems:
        raise ConfigError(f"{where}.event_time", problems)
    wanted = [name for name in POSITION if name in settings.added_columns.metadata]
    passing = tuple(n for n in schema.names if n not in POSITION or n in wanted)
    return Definition(given, branches, schema, passing, settings.added_columns.emitted_batch)


def _input_problems(
    given: EventTimeSettings, branches: Sequence[Branch], schema: pa.Schema, *, transformed: bool
) -> list[str]:
    if not transformed:
        return []  # the configuration was already checked without Spark
    found = [
        f"the transform must keep {name} (SELECT {name}, …), which identifies late rows"
        for name in POSITION
        if name not in schema.names
    ]
    places = Metadata(AddedColumns(POSITION)).schema(pa.schema([]))
    found += [
        f"the transform gives {name} as {schema.field(name).type}; keep it unchanged"
        for name in POSITION
        if name in schema.names and schema.field(name).type != places.field(name).type
    ]
    found += [
        f"the transform gives {name!r}: names beginning with {OURS} are reserved; rename it with AS"
        for name in schema.names
        if name.lower().startswith(OURS)
    ]
    times = list(dict.fromkeys(branch.column for branch in branches))
    named = {"column": times, "deduplicate": given.deduplicate, "group_by": given.group_by}
    if given.join is not None:
        places = given.join.placed(given.join.columns.values())
        named |= {"join.on": given.join.on, "join.columns": [field for _, field in places]}
    for key, names in named.items():
        found += [
            f"{key}: {name!r} is not a column of the transform's result"
            for name in names
            if name not in schema.names
        ]
    return found + [
        text for name in times if name in schema.names for text in _of_time(schema.field(name))
    ]


def _of_time(field: pa.Field) -> list[str]:
    if not pa.types.is_timestamp(field.type):
        return [f"column: {field.name!r} is {field.type}; it must be a timestamp"]
    if not field.nullable:
        return []
    text = (
        f"column: {field.name!r} may be null in the transform's result, but every row"
        " needs a time; use a field that is declared nullable: false"
    )
    return [text]


def check_query(
    root: SparkSession,
    pipeline: str,
    current: tuple[EventTimeSettings, tuple[Branch, ...]],
    settings: IngestSettings,
) -> pa.Schema:
    """Return the columns of the query's output. Raises `ConfigError` if it cannot be used.

    Spark starts the query, without input.
    """
    from blizzard_py.streaming.query import StreamQuery  # noqa: PLC0415  # it imports what we do

    where = f"pipelines.{pipeline}.event_time"
    definition = definition_of(root, pipeline, current, settings)
    session = root.newSession()
    session.dataSource.register(StagedRows)
    try:
        frame = frame_of(session, definition, "")
    except PySparkException as error:
        if not isinstance(error, AnalysisException):
            raise
        raise ConfigError(where, [spark_message(str(error))]) from None
    if found := aggregate_refusal(frame, set(current[0].aggregates)):
        raise ConfigError(f"{where}.aggregates.{found[0]}", [found[1]])
    if why := schema_refusal(
        definition.written_columns(frame.schema), settings.layout, settings.added_columns
    ):
        raise ConfigError(where, [why])
    with TemporaryDirectory(prefix="blizzard-check-") as folder:
        query = StreamQuery(root, definition, Path(folder), 0, pipeline)
        query.stop()
    return query.schema
