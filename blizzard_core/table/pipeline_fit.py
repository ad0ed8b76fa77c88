"""Check of a pipeline's columns against its table, before the first file is written. Pure.

Promise: a refused configuration would have every file rejected by Penguin, so a working
configuration is never refused. Problems of some files only (nulls in a required column) are
warnings, since a file without nulls is accepted.

Each finding names both types and the ways out, because the user changed one of two things and may
want to change the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from blizzard_core.table.extent import check_extent
from blizzard_core.table.schema_fit import (
    PARTITION_TYPES,
    SchemaMismatch,
    SchemaRules,
    check_growth,
    check_names,
    delta_schema,
    merge,
    table_schema,
)

_TYPE_WAYS = (
    "declare the table's type in schema.fields, CAST it in `transform`, give the column another"
    " name, or write to a new table"
)


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns of an existing table, including its partition columns, in order."""

    schema: pa.Schema
    partition_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """``refused``: no file of the pipeline would be committed; ``warnings``: some would not be."""

    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def pipeline_fit(
    table: TableShape | None, written: pa.Schema, rules: SchemaRules, *, exact_nulls: bool
) -> Fit:
    """Compare the columns of a pipeline's files with the table; None: a new table.

    ``written`` are the files' columns, without those in directory names. ``exact_nulls`` says that
    a nullable column may really hold nulls; Spark calls a query's column nullable unless it can
    prove otherwise.
    """
    try:
        columns = delta_schema(written)
    except SchemaMismatch as mismatch:
        return Fit((f"{mismatch}; {_TYPE_WAYS}",))
    try:
        check_extent(columns)
    except SchemaMismatch as mismatch:
        return Fit((f"{mismatch}; declare what is nested as `json`, or leave columns out",))
    if table is None:
        return Fit(tuple(_of_new(columns, rules)))
    nulls = tuple(_nulls(table, columns, rules)) if exact_nulls else ()
    return Fit((*_partitioning(table, rules), *_columns(table, columns, rules)), nulls)


def _of_new(columns: pa.Schema, rules: SchemaRules) -> Iterator[str]:
    types = rules.partition_types or {}
    try:
        check_names(columns, types)
        table_schema(columns, [pa.field(name, PARTITION_TYPES[types[name]]) for name in types])
    except SchemaMismatch as mismatch:
        yield str(mismatch)


def _partitioning(table: TableShape, rules: SchemaRules) -> Iterator[str]:
    """Yield problems of partition columns: other names or types than the table's."""
    if rules.partition_types is None:
        return
    own, theirs = tuple(rules.partition_types), table.partition_columns
    if own != theirs:
        yield (
            f"the table is partitioned by {_listed(theirs)}, and sink.partition_by makes"
            f" directories of {_listed(own)}; give it those of the table, or write to a new table"
        )
        return
    for name, given in rules.partition_types.items():
        kind = table.schema.field(name).type
        wanted = PARTITION_TYPES[given]
        if not (kind == wanted or pa.types.is_string(kind) or _are_integers(kind, wanted)):
            yield (
                f"partition column {name!r} is {given} by the configuration, and {kind} in the"
                " table; set sink.partition_by.types to the table's, or write to a new table"
            )


def _columns(table: TableShape, columns: pa.Schema, rules: SchemaRules) -> Iterator[str]:
    """Yield one problem per column that does not fit, so all can be fixed at once."""
    partitions = table.partition_columns
    lowered = {field.name.lower(): field for field in table.schema}
    found = False
    for field in columns:
        known = lowered.get(field.name.lower())
        others = [known] if known is not None and known.name not in partitions else []
        try:
            _merged(pa.schema(others), pa.schema([field]), partitions, rules)
        except SchemaMismatch as mismatch:
            found = True
            yield f"{mismatch}; {_way_out(known, rules)}"
    given = {field.name.lower() for field in columns}
    for field in table.schema:
        if field.name.lower() in given or field.name in partitions:
            continue
        try:
            _merged(pa.schema([field]), pa.schema([]), (), rules)
        except SchemaMismatch as mismatch:
            found = True
            yield f"{mismatch}; give it in schema.fields or `transform`, or make it nullable there"
    if not found:
        yield from _growth(table, columns, rules)


def _growth(table: TableShape, columns: pa.Schema, rules: SchemaRules) -> Iterator[str]:
    try:
        after = _merged(table.schema, columns, table.partition_columns, rules)
        check_growth(table.schema, after, rules.max_new_columns)
    except SchemaMismatch as mismatch:
        yield str(mismatch)


def _nulls(table: TableShape, columns: pa.Schema, rules: SchemaRules) -> Iterator[str]:
    if rules.evolution == "overwrite":  # it makes such columns nullable
        return
    for field in table.schema:
        place = columns.get_field_index(field.name)
        if not field.nullable and place >= 0 and columns.field(place).nullable:
            yield (
                f"column {field.name!r} may be null, and the table requires it: Penguin refuses"
                " each file with a null in it; declare it `nullable: false`, so that such a"
                " record is a dead letter instead"
            )


def _merged(
    table: pa.Schema, file: pa.Schema, partitions: tuple[str, ...], rules: SchemaRules
) -> pa.Schema:
    return merge(table, file, partitions, rules.evolution)


def _way_out(known: pa.Field | None, rules: SchemaRules) -> str:
    if known is None:
        return "set the table's schema_evolution to merge, leave the column out, or add it there"
    if rules.evolution != "overwrite":
        return f"{_TYPE_WAYS}; schema_evolution: overwrite takes what is only wider"
    return _TYPE_WAYS


def _are_integers(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(pa.types.is_integer(one) and pa.types.is_integer(other))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) if names else "nothing"
