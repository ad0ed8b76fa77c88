"""A task's Parquet files of any planner: the rows of the window in batches of limited size.

Exactly the planned files are read. A file that is gone or was replaced fails the task: its rows
would be read twice or never.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import SourceError
from blizzard_core.settings.formats import ParquetOptions
from blizzard_core.storage.protocol import Storage
from blizzard_py.connections.lakes.column_ranges import group_ranges
from blizzard_py.connections.lakes.file_plan import PlannedFile, files_of, window_of
from blizzard_py.connections.lakes.filters import Filter, parse
from blizzard_py.connections.lakes.locations import StorageCache, storage_options, translate_errors
from blizzard_py.connections.lakes.window import RowWindow, mask, may_meet
from blizzard_py.connections.protocol import Rows
from blizzard_py.formats.columnar.batches import BatchRows, FileColumns
from blizzard_py.formats.columnar.file import ParquetFooter, batches, opened
from blizzard_py.formats.columnar.formats import columns_of
from blizzard_py.formats.columnar.int96 import cut_times, int96_columns
from blizzard_py.formats.columnar.rows import StoredFile
from blizzard_py.formats.columnar.statistics import order_in
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.protocol import NO_OFFSET, BadRecord, FileRows, LineNumbers, RecordBytes
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access
from blizzard_py.slices.column_order import ColumnOrder

_FIELD_ID = b"PARQUET:field_id"


def read(access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]) -> Iterator[Rows]:
    """Yield the rows of Delta, Iceberg and Parquet directories. A `Reader`.

    Columns that an older file lacks are null. A row with a time of INT96 that cannot be is a bad
    record; as a watermark such a time is null. Watermarks are compared as they are stored, filters
    with dates in today's calendar.
    """
    stores = StorageCache(storage_options(access))
    form = access.format if isinstance(access.format, ParquetOptions) else None
    selection = RowSelection.of(spec, naming=Naming.of(spec), options=form)
    wanted = [each.name for each in fields] or list(spec["columns"])
    for file in files_of(spec):
        storage = stores.at(file.name.root)
        with translate_errors("a planned file"):
            size = check_unchanged(storage, file)
            yield from _rows(storage, replace(file, size=size), selection, wanted, fields)


@dataclass(frozen=True, slots=True)
class Naming:
    """The files' names of the table's columns, by number: ``ids``, and ``inner`` for nested ones.

    ``beside`` are columns that files may have only in their path.
    """

    ids: Mapping[str, int]
    inner: Mapping[str, str]
    beside: frozenset[str]

    @staticmethod
    def of(spec: Mapping[str, Any]) -> Naming:
        extra_names = frozenset(spec.get("beside") or ())
        return Naming(spec.get("ids") or {}, spec.get("inner") or {}, extra_names)

    def check(
        self, schema: pa.Schema, own: Mapping[str, str], wanted: Sequence[str], where: str
    ) -> None:
        """Raise `SourceError` for values that are only in the path, or below an old name."""
        for name in set(own.values()):
            for inner in _struct_fields(schema.field(name).type):
                now = self.inner.get((inner.metadata or {}).get(_FIELD_ID, b"").decode())
                if now not in {None, inner.name}:
                    raise SourceError(
                        f"{where}: has a field {inner.name} inside {name} that is now called {now};"
                        " renamed nested fields are not read; rewrite the file"
                    )
        missing = sorted(name for name in wanted if name in self.beside and name not in own)
        if missing:
            raise SourceError(
                f"{where}: does not contain {', '.join(missing)}, which partitions the table;"
                " such imported files are not read; rewrite them"
            )


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows of a window that a filter keeps."""

    window: RowWindow | None
    filter: Filter | None

    @classmethod
    def of(cls, spec: Mapping[str, Any], **more: Any) -> Self:
        """Return the choice of a task's spec."""
        return cls(window_of(spec), parse(spec["filter"]), **more)

    @property
    def columns(self) -> list[str]:
        """The columns that decide which rows are read."""
        window = () if self.window is None else self.window.columns
        return [*window, *(self.filter.columns if self.filter else ())]

    def keeps(
        self, stored: Mapping[str, pa.Array], found: Mapping[str, pa.Array], rows: int, where: str
    ) -> pa.Array:
        """Return for each row whether it is read, by the columns that decide it; never null.

        The window looks at ``stored`` values, the filter at those that are ``found``.
        """
        keep = pa.repeat(pa.scalar(value=True), rows)
        if self.window is not None:
            keep = mask(self.window, stored, rows, where)
        return keep if self.filter is None else pc.and_(keep, self.filter.keeps(found))


@dataclass(frozen=True, slots=True)
class RowSelection(RowChoice):
    """The rows of a file that are read, and the names of their columns."""

    naming: Naming
    options: ParquetOptions | None = None

    def about(self, parquet: ParquetFooter) -> FileColumns:
        """Return what a file's values mean. In tables with a log dates are as stored."""
        if self.options is not None:
            return columns_of(parquet, self.options.datetime_rebase_mode)
        return FileColumns(parquet.schema_arrow, int96=int96_columns(parquet))

    @property
    def cuts_nanoseconds(self) -> bool:
        """True if times lose their nanoseconds; else such a row is bad."""
        return self.options is not None and self.options.nanoseconds == "cut"


def check_unchanged(storage: Storage, file: PlannedFile) -> int:
    """Return the file's size. Raises `SourceError` if it is gone or was replaced."""
    found = storage.stat(file.name.path)
    where = f"{storage.uri}/{file.name.path}"
    if found is None:
        raise SourceError(
            f"{where}: planned for this window but gone now: a vacuum, an expiry of snapshots or"
            " a deletion removed it before it was read; restore it, or set the watermark past the"
            " window and read its rows by a backfill; keep removed files for longer than the"
            " daemon may be stopped"
        )
    # Delta's log may omit the size of removed files.
    unknown = not file.size and not file.modified
    same = found.size == file.size and file.modified in {0.0, found.modified}
    if not same and not unknown:
        raise SourceError(
            f"{where}: planned for this window with {file.size} bytes but replaced by another"
            f" file of the same name ({found.size} bytes); write changed rows to new files"
        )
    return found.size


def _rows(
    storage: Storage,
    file: PlannedFile,
    selection: RowSelection,
    wanted: Sequence[str],
    fields: Sequence[FieldSpec],
) -> Iterator[Rows]:
    where = f"{storage.uri}/{file.name.path}"
    conformer = Conformer(fields)
    with opened(StoredFile.of(storage, file.name.path, file.size)) as parquet:
        names = list(dict.fromkeys([*wanted, *selection.columns]))
        own = names_in_file(parquet, names, selection.naming.ids, where)
        selection.naming.check(parquet.schema_arrow, own, names, where)
        groups = _groups(parquet, selection.window, own, file.values)
        about = selection.about(parquet)
        for batch in batches(parquet, groups, sorted(set(own.values()))):
            rows = BatchRows(batch, about, cuts_nanoseconds=selection.cuts_nanoseconds)
            stored, dated = {}, {}
            for name in own.keys() & set(selection.columns):
                here = own[name]
                stored[name] = cut_times(batch.column(here), about.int96.get(here, ()))
                dated[name] = rows.column(here) if here in about.calendars else stored[name]
            keep = selection.keeps(
                _with_values(stored, file.values, selection.columns, batch.num_rows),
                _with_values(dated, file.values, selection.columns, batch.num_rows),
                batch.num_rows,
                where,
            )
            found = {name: rows.column(here) for name, here in own.items() if name in wanted}
            found = _with_values(found, file.values, wanted, batch.num_rows)
            table = pa.RecordBatch.from_arrays(list(found.values()), list(found))
            if rows.bad:
                good = np.isin(np.arange(batch.num_rows), list(rows.bad), invert=True)
                for row in np.flatnonzero(~good & np.asarray(keep)).tolist():
                    if selection.options is None:
                        yield _bad_record(rows, row, table.slice(row, 1), own, conformer)
                    else:
                        yield _bad_letter(rows, row)
                keep = pc.and_(keep, pa.array(good))
            table = table.filter(keep)
            if table.num_rows and selection.options is None:
                yield table
            elif table.num_rows:
                yield FileRows(table, partial(_records, rows, np.flatnonzero(np.asarray(keep))))


def _records(rows: BatchRows, at: LineNumbers, some: Sequence[int]) -> list[RecordBytes]:
    """Return rows as their file has them; ``at`` are the rows of the batch that are read."""
    header, lines = rows.letters(at[list(some)].tolist())
    return [(NO_OFFSET, line, header) for line in lines]


def _bad_letter(rows: BatchRows, row: int) -> BadRecord:
    """Return a row of a folder's file as that has it."""
    header, [line] = rows.letters([row])
    return BadRecord(0, NO_OFFSET, len(line), line, rows.bad[row], header=header)


def _bad_record(
    rows: BatchRows,
    row: int,
    one: pa.RecordBatch,
    own: Mapping[str, str],
    conformer: Conformer,
) -> BadRecord:
    """Return a row of a table with a log, with the values that its file has."""
    stored, failed = rows.record(row), rows.failed(row)
    in_file = set(stored.schema.names)
    arrays = [
        stored.column(own[name]) if own.get(name) in in_file else value
        for name, value in zip(one.schema.names, one.columns, strict=True)
    ]
    unread = frozenset(name for name, here in own.items() if here in failed)
    record = pa.RecordBatch.from_arrays(arrays, one.schema.names)
    head = conformer.text_of(record, 0, unread)
    return BadRecord(0, 0, len(head), head, rows.bad[row])


def names_in_file(
    parquet: ParquetFooter, wanted: Sequence[str], ids: Mapping[str, int], where: str
) -> dict[str, str]:
    """Return the file's names of the table's columns; missing columns are left out.

    With ``ids`` columns are identified by number, as in Iceberg: names may have changed since the
    file was written. A file without numbers has the table's names.
    """
    schema = parquet.schema_arrow
    if len(set(schema.names)) != len(schema.names):
        raise SourceError(f"{where}: has two columns of one name; rewrite the file")
    numbered = {
        int(each.metadata[_FIELD_ID]): each.name
        for each in schema
        if each.metadata and _FIELD_ID in each.metadata
    }
    if ids and numbered:
        return {name: numbered[ids[name]] for name in wanted if ids.get(name) in numbered}
    present = set(schema.names)
    return {name: name for name in wanted if name in present}


def _struct_fields(kind: pa.DataType) -> Iterator[pa.Field]:
    """Yield the fields of structs, at any depth; values of lists and maps have no names."""
    for place in range(kind.num_fields):
        inner = kind.field(place)
        if pa.types.is_struct(kind):
            yield inner
        yield from _struct_fields(inner.type)


def _groups(
    parquet: ParquetFooter,
    window: RowWindow | None,
    own: Mapping[str, str],
    values: Mapping[str, Any],
) -> Sequence[int]:
    """Return the row groups that can have rows of the window, by the footer."""
    every = range(parquet.metadata.num_row_groups)
    if window is None:
        return every
    names = [name for name in window.columns if name in own and name not in values]
    ranges = {name: group_ranges(parquet, own[name]) for name in names}
    found = {name: order_in(parquet, own[name]) for name in names}
    orders: dict[str, ColumnOrder] = {name: order for name, order in found.items() if order}
    if len(orders) < len(window.columns):
        return every
    return [
        group
        for group in every
        if may_meet(window, orders, {name: ranges[name][group] for name in names})
    ]


def _with_values(
    found: Mapping[str, pa.Array], values: Mapping[str, Any], names: Sequence[str], rows: int
) -> dict[str, pa.Array]:
    """Return the table's columns of these rows: from outside the file, from the file, or null."""
    return {
        name: pa.repeat(pa.scalar(values[name]), rows)
        if name in values
        else found.get(name, pa.nulls(rows))
        for name in names
    }
