"""What Spark makes of a query over event time: the columns of its input and of its output."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from blizzard_core.errors import ConfigError
from blizzard_core.settings.event_time import EventTimeSettings
from blizzard_py.engines.spark.transform import check, record_schema, schema_refusal
from blizzard_py.engines.spark.transform_guard import spark_said
from blizzard_py.job import IngestSettings
from blizzard_py.streaming.accepting import PLACE, accepting
from blizzard_py.streaming.operators import Definition, frame_of, refusal, with_batch
from blizzard_py.streaming.source import StagedRows


def definition_of(
    root: SparkSession,
    pipeline: str,
    given: EventTimeSettings,
    settings: IngestSettings,
) -> Definition:
    """The query, after what its input really has. Raises `ConfigError` with the key."""
    accept = accepting(settings)
    if found := refusal(root, given):
        raise ConfigError(f"pipelines.{pipeline}.event_time.aggregates.{found[0]}", [found[1]])
    schema = check(root, pipeline, accept) if accept.transform else record_schema(accept)
    where = f"pipelines.{pipeline}"
    problems = list(_input_problems(given, schema, transformed=bool(accept.transform)))
    if problems:
        raise ConfigError(f"{where}.event_time", problems)
    wanted = [name for name in PLACE if name in settings.metadata_columns]
    passing = tuple(n for n in schema.names if n not in PLACE or n in wanted)
    return Definition(given, schema, passing, settings.emitted_batch)


def _input_problems(given: EventTimeSettings, schema: pa.Schema, *, transformed: bool) -> list[str]:
    if not transformed:
        return []  # the configuration was checked without Spark
    found = [
        f"the transform must hand on {name} (SELECT {name}, …), by which late rows are found"
        for name in PLACE
        if name not in schema.names
    ]
    asked = {"column": [given.column], "deduplicate": given.deduplicate, "group_by": given.group_by}
    for key, names in asked.items():
        found += [
            f"{key}: {name!r} is no column that the transform gives"
            for name in names
            if name not in schema.names
        ]
    if given.column in schema.names:
        field = schema.field(given.column)
        if not pa.types.is_timestamp(field.type):
            found.append(f"column: {given.column!r} is {field.type}; it must be a timestamp")
        elif field.nullable:
            found.append(
                f"column: {given.column!r} may be null in what the transform gives, and a row"
                " without a time belongs nowhere; hand on a field that is declared nullable: false"
            )
    return found


def check_query(
    root: SparkSession,
    pipeline: str,
    given: EventTimeSettings,
    settings: IngestSettings,
) -> pa.Schema:
    """The columns of the query's output. Raises `ConfigError` for one that cannot be used.

    Spark starts it, over nothing.
    """
    from blizzard_py.streaming.query import StreamQuery  # noqa: PLC0415  # it imports what we do

    where = f"pipelines.{pipeline}.event_time"
    definition = definition_of(root, pipeline, given, settings)
    session = root.newSession()
    session.dataSource.register(StagedRows)
    try:
        frame = with_batch(frame_of(session, definition, ""), definition, 0)
    except PySparkException as error:
        if not isinstance(error, AnalysisException):
            raise
        raise ConfigError(where, [spark_said(str(error))]) from None
    if why := schema_refusal(frame.schema, settings):
        raise ConfigError(where, [why])
    with TemporaryDirectory(prefix="blizzard-check-") as folder:
        query = StreamQuery(root, definition, Path(folder), 0, pipeline)
        query.stop()
    return query.schema
