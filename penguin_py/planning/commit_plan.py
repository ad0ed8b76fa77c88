"""The plan of a commit, from the table's state and the files' footers. Pure.

Files are taken in the given order (oldest first). Each is checked alone and against earlier ones.
A file that does not fit is rejected by name with a reason, and the others are committed.
Everything that could make the table unreadable is decided here, because a commit cannot be undone.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from blizzard_core.table.schema_fit import (
    SchemaMismatch,
    SchemaRules,
    check_growth,
    check_names,
    delta_schema,
    merge,
    table_schema,
)
from penguin_py.intake.file_contract import check_nulls
from penguin_py.intake.file_statistics import StatisticsWriter
from penguin_py.model import Add, CommitPlan, Footer, Rejection, TableState
from penguin_py.planning.partition_values import (
    check_addressable,
    columns_of,
    partition_values,
    typed_columns,
)

# How delta-rs signs the Parquet it writes, compactions included.
DELTA_WRITER = "delta-rs"


@dataclass(frozen=True, slots=True)
class _Fitting:
    """The table as it grows while files are added to the plan; None before the first of all.

    ``latest`` is the schema of the latest file that fitted: most files are alike.
    """

    schema: pa.Schema | None
    partitions: Mapping[str, pa.DataType] | None
    latest: pa.Schema | None = None


def make_plan(
    table: TableState | None,
    footers: Sequence[Footer],
    known_output_ids: Container[str],
    rules: SchemaRules,
) -> CommitPlan:
    """Plan the commit of these files; ``table`` is None if there is no table yet.

    ``known_output_ids`` are those of all commits: a second file with such an id holds the same
    rows. A new table gets its columns from the first file that fits, and its partition columns from
    the rules or that file's path.
    """
    taking = _Taking(table, known_output_ids, rules)
    rejections: list[Rejection] = []
    for footer in footers:
        try:
            taking.take(footer)
        except SchemaMismatch as misfit:
            rejections.append(Rejection(footer.entry, taking.stage, str(misfit)))
    # Statistics come last: they are typed by the schema that the table will have.
    fitting = taking.fitting
    after = fitting.schema if fitting.schema is not None else pa.schema([])
    return CommitPlan(
        adds=tuple(
            _adds(
                taking.accepted,
                columns_without(after, fitting.partitions or ()),
                {} if table is None else table.properties,
            )
        ),
        rejections=tuple(rejections),
        schema=after,
        changed=() if table is None else _changed(table.schema, after),
        partition_columns=tuple(fitting.partitions or ()),
    )


class _Taking:
    """The files that fit so far; ``stage`` is the latest check of the latest file."""

    def __init__(
        self, table: TableState | None, known_output_ids: Container[str], rules: SchemaRules
    ) -> None:
        self._table = table
        self._known = known_output_ids
        self._rules = rules
        self.stage = "partition"
        self.accepted: list[tuple[Footer, dict[str, str | None]]] = []
        self._seen: set[str] = set()
        # By directory: partition values are the same for all files of one.
        self._parsed: dict[str, dict[str, str | None]] = {}
        configured = rules.partition_types
        if table is not None:
            self.fitting = _Fitting(table.schema, table.partition_types)
        elif configured is not None:
            self.fitting = _Fitting(None, typed_columns([*configured], configured))
        else:
            self.fitting = _Fitting(None, None)

    def take(self, footer: Footer) -> None:
        """Add the file and merge its schema. Raises `SchemaMismatch` if the file does not fit."""
        fitting = self.fitting
        self.stage = "partition"
        check_addressable(footer.path)
        partitions = fitting.partitions
        if partitions is None:
            partitions = typed_columns(columns_of(footer.path), None)
        folder = footer.path.rpartition("/")[0]
        values = self._parsed.get(folder)
        if values is None:
            values = partition_values(footer.path, partitions)
        self.stage = "schema"
        schema = _grown(fitting, footer, partitions, self._rules)
        if self._table is not None:
            check_growth(self._table.schema, schema, self._rules.max_new_columns)
        self.stage = "output_id"
        _check_identity(footer.output_id, self._seen)
        _check_identity(footer.output_id, self._known)
        self.stage = "writer"
        _check_writer(footer, self._table)
        self.fitting = _Fitting(schema, partitions, footer.schema)
        # Not before: the first file that fits decides on the columns of a new table.
        self._parsed[folder] = values
        self.accepted.append((footer, values))
        if footer.output_id is not None:
            self._seen.add(footer.output_id)


def _grown(
    fitting: _Fitting,
    footer: Footer,
    partitions: Mapping[str, pa.DataType],
    rules: SchemaRules,
) -> pa.Schema:
    """Return the table's schema with this file. Raises `SchemaMismatch`."""
    if footer.metadata.num_rows == 0:
        raise SchemaMismatch("has no rows")
    schema = fitting.schema
    if schema is not None and fitting.latest is not None and footer.schema.equals(fitting.latest):
        check_nulls(schema, footer)
        return schema
    columns = delta_schema(footer.schema)
    if schema is None:
        check_names(columns, partitions)
        return table_schema(columns, [pa.field(name, kind) for name, kind in partitions.items()])
    merged = merge(schema, columns, partitions, rules.evolution)
    # Under `overwrite` a column that may hold nulls is nullable by now.
    check_nulls(merged, footer)
    return merged


def _check_identity(output_id: str | None, seen: Container[str]) -> None:
    if output_id is not None and output_id in seen:
        raise SchemaMismatch(
            f"carries blizzard.output_id {output_id!r}, which is committed already:"
            " the same rows again"
        )


def _check_writer(footer: Footer, table: TableState | None) -> None:
    """Raise `SchemaMismatch` for an uncommitted file that a Delta writer made for this table.

    Its rows are in the table in other files (a compaction), or that writer will commit them. Files
    older than the table are accepted.
    """
    if table is None or footer.entry.modified < table.created:
        return
    if str(footer.metadata.created_by or "").startswith(DELTA_WRITER):
        raise SchemaMismatch(
            f"was written by {footer.metadata.created_by}, a Delta writer, but is not in the log:"
            " it is that writer's to commit"
        )


def _adds(
    accepted: Sequence[tuple[Footer, Mapping[str, str | None]]],
    columns: pa.Schema,
    properties: Mapping[str, str],
) -> Iterator[Add]:
    write: StatisticsWriter | None = None
    for footer, values in accepted:
        if write is None or not write.serves(footer.metadata, footer.schema):
            write = StatisticsWriter(footer.metadata, footer.schema, columns, properties)
        yield Add(footer.entry, values, write(footer.metadata), footer.output_id)


def columns_without(schema: pa.Schema, partitions: Collection[str]) -> pa.Schema:
    """Return the columns with statistics: all but the partition columns."""
    return pa.schema([field for field in schema if field.name not in partitions])


def _changed(before: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in after
        if before.get_field_index(field.name) < 0 or not before.field(field.name).equals(field)
    )
