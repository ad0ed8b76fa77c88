"""Check of pipelines against the tables they write to, before the first batch.

Used by `validate`, `plan` and, before a daemon's first batch, `run`. Each check uses the table's
present log and Penguin's settings in the same document. A table without `tables` in the document
has Penguin's defaults, as in Penguin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from blizzard_core.errors import BlizzardError, BucketMissing, ConfigError, StorageError
from blizzard_core.log import get_logger
from blizzard_core.settings.document import Config
from blizzard_core.settings.tables import TableSettings
from blizzard_core.storage.opening import normalize_uri, open_storage
from blizzard_core.table.pipeline_fit import Fit, pipeline_fit
from blizzard_core.table.schema_fit import SchemaRules
from blizzard_py.connections.lakes.sink_table import SinkTable, sink_table
from blizzard_py.job import FieldSpec, IngestSettings, Place
from blizzard_py.kernels.write.metadata import Metadata
from blizzard_py.kernels.write.parquet_file import output_format
from blizzard_py.schema.evolution import Takes
from blizzard_py.schema.types import table_schema

# The columns that a pipeline's query gives. Raises `ConfigError` for one that cannot be used.
QueryColumns = Callable[[str, IngestSettings], pa.Schema]


def check_table(
    config: Config, pipeline: str, columns: QueryColumns | None, settings: IngestSettings
) -> None:
    """Raise `ConfigError` if the pipeline's table accepts none of its files.

    ``columns`` are those of its query; without it they are the declared ones. Raises `StateError`,
    `StorageError` if the log cannot be read. Reasons to refuse some files are logged.
    """
    made = None if columns is None else columns(pipeline, settings)
    fit = _fit_of(config, pipeline, settings, made)
    for warning in fit.warnings:
        get_logger(pipeline=pipeline).warning("table_may_refuse", reason=warning)
    if fit.refused:
        where = _where(pipeline, settings.sink)
        raise ConfigError("configuration", [f"{where}: {each}" for each in fit.refused])


def check_tables(
    config: Config, pipelines: Iterable[tuple[str, IngestSettings, pa.Schema | None]]
) -> tuple[list[str], list[str]]:
    """Return the problems of pipelines with their tables, and notes for people.

    Of each pipeline its name, what its jobs are told and, if it has a query, the columns that
    gives. That a table could not be looked at is something to know: it may be out of reach
    from where the configuration is written. Raises `BucketMissing`, which is so from anywhere.
    """
    problems: dict[str, None] = {}
    notes: dict[str, None] = {}
    for name, settings, made in pipelines:
        where = _where(name, settings.sink)
        try:
            fit = _fit_of(config, name, settings, made)
        except BucketMissing:
            raise
        except StorageError as error:
            notes[f"{where}: the table could not be looked at: {error}"] = None
        except BlizzardError as error:
            problems[f"{where}: {error}"] = None
        else:
            problems |= {f"{where}: {each}": None for each in fit.refused}
            notes |= {f"{where}: {each}": None for each in fit.warnings}
    return [*problems], [*notes]


def takes_columns(config: Config, pipeline: str, settings: IngestSettings) -> Takes:
    """Return the table's present objection to other columns than those of the settings.

    Raises `StateError`, `StorageError` if its log cannot be read.
    """
    table = _table_of(settings.sink)
    rules = _rules_of(config, pipeline)

    def refusal(rules: SchemaRules, fields: Sequence[FieldSpec]) -> str:
        fit = _fit(table, _written(settings.with_fields(fields), None), rules)
        return "; ".join(fit.refused)

    shape = None if table is None else table.shape
    kinds = {} if shape is None else {field.name: field.type for field in shape.schema}
    never = replace(rules, max_new_columns=sys.maxsize)
    return Takes(partial(refusal, never), partial(refusal, rules), kinds.get)


def table_differences(config: Config, pipeline: str, settings: IngestSettings) -> dict[str, Any]:
    """Columns of one side alone, and what the table refuses; nothing where there is no table.

    Raises `StateError`, `StorageError` where its log cannot be read.
    """
    table = _table_of(settings.sink)
    if table is None:
        return {}
    written = _written(settings, None)
    refused = _fit(table, written, _rules_of(config, pipeline)).refused
    shape = table.shape
    known = [] if shape is None else shape.schema.names
    outside = set(written.names) | (set() if shape is None else {*shape.partition_columns})
    return {
        "lacks": [name for name in written.names if shape is not None and name not in known],
        "only": [name for name in known if name not in outside],
        "refused": list(refused),
    }


def _fit_of(config: Config, pipeline: str, settings: IngestSettings, made: pa.Schema | None) -> Fit:
    rules = _rules_of(config, pipeline)
    written = _written(settings, made)
    return _fit(_table_of(settings.sink), written, rules, exact_nulls=made is None)


def _table_of(sink: Place) -> SinkTable | None:
    return sink_table(open_storage(sink.uri, sink.options))


def _fit(
    table: SinkTable | None, written: pa.Schema, rules: SchemaRules, *, exact_nulls: bool = True
) -> Fit:
    if table is not None and table.objections:
        return Fit(table.objections)
    shape = None if table is None else table.shape
    return pipeline_fit(shape, written, rules, exact_nulls=exact_nulls)


def _where(pipeline: str, sink: Place) -> str:
    return f"pipelines.{pipeline}: {sink.uri}"


def _written(settings: IngestSettings, made: pa.Schema | None) -> pa.Schema:
    """Return the columns of the Parquet files: declared or ``made``, and ours."""
    if made is None:
        schema, added = settings.schema, settings.added_columns
        declared = table_schema(schema.fields, rescued=schema.unexpected_fields == "capture")
        made = Metadata(added).schema(declared)
    return output_format(settings.layout, made).schema


def _rules_of(config: Config, name: str) -> SchemaRules:
    pipeline = config.pipelines[name]
    uri = normalize_uri(pipeline.sink.table_uri)
    table = next(
        (each for each in config.tables.values() if normalize_uri(each.table_uri) == uri),
        TableSettings(table_uri=uri),
    )
    by = table.partition_by or pipeline.sink.partition_by
    return SchemaRules(
        by.column_types(pipeline.field_types) if by else {},
        table.schema_evolution,
        table.advanced.max_new_columns,
    )
