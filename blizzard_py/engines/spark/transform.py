"""The second job's frames: accepted records, deduplicated, transformed, checked."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from blizzard_core.errors import ConfigError
from blizzard_core.handover.groups import UNIT_COLUMN
from blizzard_py.engines.spark.deduplication import without_duplicates
from blizzard_py.engines.spark.failures import first_line, is_data_failure
from blizzard_py.engines.spark.transform_guard import (
    VIEW_PREFIX,
    query_refusal,
    refusal_of,
    spark_message,
    wrapped,
)
from blizzard_py.engines.spark.worker import nothing, read_partition
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.job import POSITION, AddedColumns, IngestSettings, JobFile, OutputLayout, SqlSteps
from blizzard_py.kernels.sql_stage import DIRECTORY, PARTITION, by_path
from blizzard_py.kernels.write.metadata import Metadata

_PLAIN = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
)

# Types with one text in a path, and an order.
_IN_A_PATH = (BooleanType, DateType, IntegerType, LongType, StringType, TimestampType)


def needs_second(sql: SqlSteps) -> bool:
    """Return whether the records of a batch go through Spark SQL."""
    return bool(sql.transform or sql.deduplicate_by)


def staged_columns(added: AddedColumns, sql: SqlSteps) -> AddedColumns:
    """Return the added columns of the first job: the wanted ones and a record's position."""
    return added.with_metadata(POSITION if sql.deduplicate_by else ())


def record_schema(settings: IngestSettings) -> pa.Schema:
    """Return the schema of `read_records`: declared columns, and columns that only pass through."""
    declared = RecordSchema(settings.schema.fields, settings.schema.unexpected_fields).table
    schema = Metadata(staged_columns(settings.added_columns, settings.sql)).schema(declared)
    if by_path(settings.layout):
        schema = schema.append(DIRECTORY)
    return schema


def records(
    spark: SparkSession, settings: IngestSettings, packed: Sequence[tuple[JobFile, ...]]
) -> DataFrame:
    """Return the accepted records, read by a task for each of ``packed``; empty without any."""
    schema = record_schema(settings)
    read = functools.partial(read_partition, settings.sink, packed, schema) if packed else nothing
    count = max(1, len(packed))
    return spark.range(0, len(packed), 1, count).mapInArrow(
        read, from_arrow_schema(schema, prefer_timestamp_ntz=False)
    )


@contextlib.contextmanager
def transformed(spark: SparkSession, frame: DataFrame, statement: str) -> Iterator[DataFrame]:
    """Yield the result of the pipeline's statement; without a statement the frame itself.

    Raises `PySparkException` if Spark refuses the statement. The frame is valid inside the block
    only.
    """
    if not statement:
        yield frame
        return
    with _view(frame) as view:
        yield spark.sql(wrapped(statement, view))


def check(spark: SparkSession, name: str, settings: IngestSettings) -> pa.Schema:
    """Return the schema of the Parquet files.

    Reads no record: the statement is analysed over an empty frame of the declared columns. ``name``
    is the pipeline's. Raises `ConfigError` for a statement that cannot be used.
    """
    sql, layout = settings.sql, settings.layout
    given = (*settings.schema.fields, *settings.added_columns.path)
    names = {field.name for field in given}
    missing = [column for column in sql.deduplicate_by if column not in names]
    if missing:
        raise ConfigError(
            f"pipelines.{name}.deduplicate_by",
            [
                f"{column!r} is not a field of the schema; duplicates are removed before the"
                " transform"
                for column in missing
            ],
        )
    empty = without_duplicates(records(spark, settings, ()), settings, 1)
    if not sql.transform:
        return _output_schema(empty.schema, layout)
    schema: StructType | None = None
    try:
        with _view(empty) as view:
            refusal = refusal_of(spark, sql.transform, view)
            if refusal is None:
                schema = spark.sql(wrapped(sql.transform, view)).schema
    except PySparkException as error:
        # A constant of the statement may fail during analysis.
        if not isinstance(error, AnalysisException) and not is_data_failure(error):
            raise
        refusal = spark_message(str(error))
    if schema is not None:
        refusal = schema_refusal(schema, layout, settings.added_columns)
    if schema is None or refusal is not None:
        raise ConfigError(f"pipelines.{name}.transform", [str(refusal)])
    return _output_schema(schema, layout)


def check_written(spark: SparkSession, name: str, statement: str) -> None:
    """Raise `ConfigError` for a statement that is no query, whatever the columns will be."""
    refusal = query_refusal(spark, statement)
    if refusal is not None:
        raise ConfigError(f"pipelines.{name}.transform", [refusal])


def _output_schema(schema: StructType, layout: OutputLayout) -> pa.Schema:
    """Return the Parquet files' schema: times are microseconds in UTC."""
    dropped = {PARTITION} if by_path(layout) else set()
    remaining = StructType([field for field in schema.fields if field.name not in dropped])
    return to_arrow_schema(remaining, timezone="UTC")


def schema_refusal(schema: StructType, layout: OutputLayout, added: AddedColumns) -> str | None:
    """Return why a table cannot have such columns; None if it can."""
    names = [field.name for field in schema.fields]
    lowered = [name.lower() for name in names]
    twice = [name for name in names if lowered.count(name.lower()) > 1]
    if twice:
        return f"gives column {twice[0]!r} twice (Delta ignores case); rename one with AS"
    if by_path(layout) and PARTITION not in names:
        return (
            f"must select {PARTITION}, the directory that sink.partition_by gives a record's file"
            f" (SELECT {PARTITION}, …); it is not written to the files"
        )
    if added.unit and UNIT_COLUMN not in names:
        return (
            f"must select {UNIT_COLUMN}, the column by which rows of its sources are replaced"
            f" (SELECT {UNIT_COLUMN}, …)"
        )
    if set(names) <= ({PARTITION} if by_path(layout) else set()):
        return "gives no column for the table"
    for field in schema.fields:
        if (unfit := _unfit(field.dataType)) is not None:
            return f"column {field.name!r} has type {unfit}, {_REMEDIES.get(unfit, _NO_REMEDY)}"
    return _partition_refusal(schema, layout)


def _partition_refusal(schema: StructType, layout: OutputLayout) -> str | None:
    types = {field.name: field.dataType for field in schema.fields}
    for rule in layout.partition_rules:
        kind = types.get(rule.column)
        if kind is None:
            return f"must give the column {rule.column!r}, which sink.partition_by names"
        if rule.template and not isinstance(kind, TimestampType):
            return f"must give {rule.column!r} as a timestamp, which sink.partition_by requires"
        if not rule.template and not isinstance(kind, _IN_A_PATH):
            return (
                f"gives {rule.column!r} as {first_line(kind.simpleString())}, which"
                " sink.partition_by cannot make a directory of; CAST it to STRING"
            )
    for sorted_by in layout.sort_by:
        kind = types.get(sorted_by.column)
        if not isinstance(kind, (*_IN_A_PATH, FloatType, DoubleType)):
            return f"must give the column {sorted_by.column!r} with an order: sink.sort_by names it"
    moved = {rule.column for rule in layout.partition_rules if rule.moves}
    lowered = {name.lower(): name for name in types if name not in moved}
    for key in _partition_keys(layout):
        if key.lower() in lowered:
            return f"gives column {lowered[key.lower()]!r}, which is a key of sink.partition_by"
    return None


def _partition_keys(layout: OutputLayout) -> Iterator[str]:
    templates = [rule.template for rule in layout.partition_rules]
    for template in filter(None, (*templates, layout.partition_template)):
        for part in template.split("/"):
            yield part.partition("=")[0]
    yield from (rule.key for rule in layout.partition_rules if rule.key)


_NO_REMEDY = "which a Delta table does not support; CAST it to another type"
_REMEDIES = {
    "timestamp_ntz": "which has no time zone; CAST(… AS TIMESTAMP) reads it as UTC",
    "void": "since it is null in every row; choose a type with CAST(NULL AS …)",
}


def _unfit(kind: DataType) -> str | None:
    """Return the first nested type that a Delta table does not support, by its SQL name."""
    if isinstance(kind, TimestampNTZType):
        return "timestamp_ntz"
    if isinstance(kind, ArrayType):
        return _unfit(kind.elementType)
    if isinstance(kind, MapType):
        return _unfit(kind.keyType) or _unfit(kind.valueType)
    if isinstance(kind, StructType):
        return next(filter(None, (_unfit(field.dataType) for field in kind.fields)), None)
    return None if isinstance(kind, _PLAIN) else first_line(kind.simpleString())


@contextlib.contextmanager
def _view(frame: DataFrame) -> Iterator[str]:
    """Yield a unique name for a view of the frame: jobs of several pipelines share the session."""
    name = f"{VIEW_PREFIX}{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        with contextlib.suppress(Exception):  # the session may be gone; its own error matters more
            frame.sparkSession.catalog.dropTempView(name)
