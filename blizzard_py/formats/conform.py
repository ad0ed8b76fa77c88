"""Conversion of a connection's rows to the declared schema, column by column.

**No value is lost silently.** A value is of the declared type, digit for digit and instant for
instant, or its row does not fit. Examples are a number above the type's range, digits that would be
cut off, a time of day in a declared date, an infinity or a year beyond 1 to 9999 in a declared
time, and text that is not of the type. Such a row is a bad record; its neighbours are not affected.
Only binary fractions (``float32``, ``float64``) may be rounded.

Columns are cast as a whole. If that fails, and the error does not name the failing rows, the rows
are halved until they are known, so rows that fit cost few calls. A row that does not fit in one
column is left out of the search in others. A column that is missing, or of a
type that can never be converted, raises `SourceError`.

Times without a zone are UTC. A ``timestamp`` with a ``unit`` is a number since 1970. Structs,
lists, maps and any JSON may come as Arrow's own types or as JSON text, which is read like a line's
value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import SourceError
from blizzard_core.settings.format_options import ValueOptions
from blizzard_py.formats.nested_arrays import is_list, list_offsets, map_entries
from blizzard_py.formats.protocol import LineNumbers
from blizzard_py.formats.row_text import declared_members, joined, json_text, members
from blizzard_py.formats.scalars import NoSuchCast, cast_scalar
from blizzard_py.formats.texts import (
    UnfitTexts,
    compact_json,
    json_values,
    text_values,
)
from blizzard_py.job import FieldSpec
from blizzard_py.lines.failure import bounded
from blizzard_py.schema.types import arrow_type, table_schema

# A value that an error quotes may have any length.
_MAX_QUOTE = 200
_NESTED = frozenset({"struct", "list", "map", "json"})
_KEY = FieldSpec("key", "string", nullable=False)
# Types for which the line parser accepts one notation, and connections have several.
_WRITTEN_OTHERWISE = frozenset(
    {"string", "int32", "int64", "float32", "float64", "boolean", "date", "binary"}
)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Conformed:
    """The rows that fit, in the declared columns, with their indices; reasons for the others."""

    table: pa.Table
    rows_at: LineNumbers
    bad: Mapping[int, str]


class Conformer:
    """Casts batches to the declared fields; with ``rescued`` it adds a last column of nulls.

    With ``texts`` text columns are read by `text_values`, at every depth.
    """

    def __init__(
        self,
        fields: Sequence[FieldSpec],
        *,
        rescued: bool = False,
        texts: ValueOptions | None = None,
    ) -> None:
        self._fields = tuple(fields)
        self._texts = texts
        self.table: pa.Schema = table_schema(fields, rescued=rescued)
        self._rescued = rescued

    def conform(self, batch: pa.RecordBatch) -> Conformed:
        """Return the result for a batch; undeclared columns are left out.

        Raises `SourceError` for columns that cannot have the declared type.
        """
        columns, bad = self._values(batch, each_once=True)
        if self._rescued:
            columns.append(pa.nulls(batch.num_rows, pa.string()))
        rows_at = np.arange(batch.num_rows)
        table = pa.Table.from_arrays(
            columns, schema=pa.schema([field.with_nullable(True) for field in self.table])
        )
        if bad:
            kept = np.ones(batch.num_rows, np.bool_)
            kept[list(bad)] = False
            rows_at = rows_at[kept]
            table = table.filter(pa.array(kept))
        return Conformed(table.cast(self.table), rows_at, dict(sorted(bad.items())))

    def values(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], dict[int, str]]:
        """Return the declared columns, and the reasons for rows that do not fit.

        A value that does not fit is null. Raises `SourceError` as `conform` does.
        """
        return self._values(batch, each_once=False)

    def _values(
        self, batch: pa.RecordBatch, *, each_once: bool
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """Return the result of `values`; with ``each_once`` bad rows may be null in all columns."""
        bad: dict[int, str] = {}
        there = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns = []
        for spec in self._fields:
            skipped = np.array(sorted(bad) if each_once else [], np.int64)
            columns.append(_one_chunk(_column(there, spec, self._texts, bad, skipped)))
        return columns, bad

    def text_of(
        self, batch: pa.RecordBatch, row: int, unread: frozenset[str] = frozenset()
    ) -> bytes:
        """Return the row for a dead letter, as a line that becomes the same row once it fits.

        The columns ``unread`` are written as if they were not declared.
        """
        fields = {spec.name: spec for spec in self._fields if spec.name not in unread}
        told = zip(batch.schema.names, batch.slice(row, 1).columns, strict=True)
        parts = {name: _members(fields.get(name), one, self._texts)[0] for name, one in told}
        return joined(parts)


def _members(spec: FieldSpec | None, array: pa.Array, texts: ValueOptions | None) -> list[str]:
    """Return values as the line parser reads them for the declared type, with all digits."""
    if spec is None or not len(array):
        return members(array)
    try:
        found = _fitting_members(spec, _plain(array, spec), texts)
    except (ValueError, NoSuchCast, SourceError):  # this may be the reason for the letter
        if len(array) > 1:
            alone = (array.slice(at, 1) for at in range(len(array)))
            return [text for one in alone for text in _members(spec, one, texts)]
        is_struct = spec.type == "struct" and pa.types.is_struct(array.type)
        return [_fields_text(spec, array, texts)] if is_struct else members(array)
    return members(array) if found is None else found


def _fitting_members(
    spec: FieldSpec, plain: pa.Array, texts: ValueOptions | None
) -> list[str] | None:
    """Return values in the declared type; None if the line parser reads them as they are."""
    told = plain.to_pylist() if pa.types.is_string(plain.type) else None
    if spec.type in _NESTED and told is not None:
        return ["null" if text is None else compact_json(text.encode()).decode() for text in told]
    if spec.type in _NESTED or (spec.unit != "iso" and pa.types.is_temporal(plain.type)):
        return declared_members(spec, _cast(spec, plain, texts))
    if told is not None and texts is not None and spec.unit == "iso":
        return members(_cast(spec, plain, texts))
    if spec.type not in _WRITTEN_OTHERWISE:
        return None
    found = members(_cast(spec, plain, texts))
    if told is None:
        return found
    pairs = zip(told, found, strict=True)
    return [text if text and _is_number(spec, text) else other for text, other in pairs]


def _fields_text(spec: FieldSpec, one: pa.Array, texts: ValueOptions | None) -> str:
    """Return a struct of which a part does not fit; its other parts are as declared."""
    specs = {child.name: child for child in spec.children}
    told = zip((field.name for field in one.type), one.flatten(), strict=True)
    parts = {name: _members(specs.get(name), value, texts)[0] for name, value in told}
    return joined(parts).decode()


def _is_number(spec: FieldSpec, text: str) -> bool:
    return spec.type in {"float32", "float64"} and _NUMBER.fullmatch(text) is not None


def _column(
    there: Mapping[str, pa.Array],
    spec: FieldSpec,
    texts: ValueOptions | None,
    bad: dict[int, str],
    skipped: LineNumbers,
) -> pa.Array:
    if spec.name not in there:
        known = ", ".join(there)
        raise SourceError(
            f"column {spec.name!r} no longer exists (existing: {bounded(known)}); correct"
            " schema.fields or the query"
        )
    array = _plain(there[spec.name], spec)
    try:
        found = _cast_but(spec, array, texts, bad, skipped)
    except NoSuchCast as error:
        raise SourceError(
            f"column {spec.name!r} is {array.type}, which cannot be {_named(spec)}; correct"
            " schema.fields, or cast it in a query"
        ) from error
    # Of the result: JSON's null is a text before it is a null.
    if not spec.nullable and found.null_count:
        for row in np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False)).tolist():
            bad.setdefault(row, f"column {spec.name!r}: is required, and null")
    return found


def _cast_but(
    spec: FieldSpec,
    array: pa.Array,
    texts: ValueOptions | None,
    bad: dict[int, str],
    skipped: LineNumbers,
) -> pa.Array:
    """Return the column as `_cast_rows`; if any row fails, those in ``skipped`` are null."""
    if not len(skipped):
        return _cast_rows(spec, array, texts, 0, bad)
    try:
        return _cast(spec, array, texts)
    except ValueError:
        rows = np.delete(np.arange(len(array)), skipped)
    if not len(rows):
        return pa.nulls(len(array), arrow_type(spec))
    found: dict[int, str] = {}
    part = _cast_rows(spec, array.take(pa.array(rows)), texts, 0, found)
    bad |= {int(rows[row]): reason for row, reason in found.items()}
    places = np.full(len(array), -1)
    places[rows] = np.arange(len(rows))
    return _one_chunk(part).take(pa.array(places, mask=places < 0))


def _cast_rows(
    spec: FieldSpec, array: pa.Array, texts: ValueOptions | None, start: int, bad: dict[int, str]
) -> pa.Array:
    """Return the column, with null in rows that do not fit; these are added to ``bad``."""
    try:
        return _cast(spec, array, texts)
    except ValueError as error:  # pa.ArrowInvalid is one
        if len(array) == 1:
            bad.setdefault(start, _reason(spec, error))
            return pa.nulls(1, arrow_type(spec))
        if isinstance(error, UnfitTexts) and pa.types.is_string(array.type):
            for row, why in error.reasons().items():
                bad.setdefault(start + row, _reason(spec, ValueError(why)))
            rest = pc.if_else(error.unfit, pa.scalar(None, array.type), array)
            return _cast_rows(spec, rest, texts, start, bad)
    middle = len(array) // 2
    halves = (array.slice(0, middle), array.slice(middle))
    first = _cast_rows(spec, halves[0], texts, start, bad)
    return pa.concat_arrays([first, _cast_rows(spec, halves[1], texts, start + middle, bad)])


def _reason(spec: FieldSpec, error: ValueError) -> str:
    text = str(error)
    named = text.startswith("column ")
    return bounded(text if named else f"column {spec.name!r}: {text}", _MAX_QUOTE)


def _named(spec: FieldSpec) -> str:
    return f"decimal({spec.precision},{spec.scale})" if spec.type == "decimal" else spec.type


def _one_chunk(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _plain(array: pa.Array, spec: FieldSpec) -> pa.Array:
    """Return the values without storage details: extensions, dictionaries, views."""
    kind = array.type
    if isinstance(kind, pa.UuidType) and spec.type == "string":
        return pa.array([value and str(value) for value in array.to_pylist()], pa.string())
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage, spec)
    if pa.types.is_dictionary(kind):
        return _plain(array.dictionary_decode(), spec)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    return array


def _cast(spec: FieldSpec, array: pa.Array, texts: ValueOptions | None) -> pa.Array:
    """Return the values in the declared type. Raises `ValueError` or `NoSuchCast`."""
    if texts is not None and pa.types.is_string(array.type):
        return text_values(spec, array, texts)
    target = arrow_type(spec)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if spec.type in _NESTED:
        return _nested(spec, array, texts)
    if spec.type == "string" and pa.types.is_nested(array.type):
        return _json_text(array)
    return cast_scalar(spec, array)


def _nested(spec: FieldSpec, array: pa.Array, texts: ValueOptions | None) -> pa.Array:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return json_values(spec, array)
    if spec.type == "json":
        return _json_text(array)
    if spec.type == "struct" and pa.types.is_struct(kind):
        return _struct(spec, array, texts)
    if spec.type == "list" and is_list(kind):
        return _list(spec, array, texts)
    if spec.type == "map" and pa.types.is_map(kind):
        return _map(spec, array, texts)
    raise NoSuchCast


def _json_text(array: pa.Array) -> pa.Array:
    try:
        texts = [
            None if value is None else json_text(value)
            for value in array.to_pylist(maps_as_pydicts="strict")
        ]
    except (KeyError, OverflowError, TypeError) as error:
        # A duplicate key or one that is not text, a day outside Python's range, another zone.
        raise ValueError(f"cannot be JSON: {error}") from error
    return pa.array(texts, pa.string())


def _struct(spec: FieldSpec, array: pa.Array, texts: ValueOptions | None) -> pa.Array:
    kind = array.type
    children = []
    flat = array.flatten()
    for child in spec.children:
        at = kind.get_field_index(child.name)
        if at < 0:
            raise SourceError(
                f"column {spec.name!r} no longer has field {child.name!r}; correct schema.fields"
            )
        column = _cast(child, _plain(flat[at], child), texts)
        children.append(column)
        if not child.nullable and pc.any(pc.and_(column.is_null(), array.is_valid())).as_py():
            raise ValueError(f"{child.name!r} in it is required, and null")
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(spec)), mask=array.is_null())


def _list(spec: FieldSpec, array: pa.Array, texts: ValueOptions | None) -> pa.Array:
    item = spec.children[0]
    # To cast lists of nulls to lists makes arrays that are not valid.
    values = _cast(item, _plain(array.flatten(), item), texts)
    if not item.nullable and values.null_count:
        raise ValueError("an item in it is required, and null")
    return pa.ListArray.from_arrays(
        list_offsets(array), values, type=arrow_type(spec), mask=array.is_null()
    )


def _map(spec: FieldSpec, array: pa.Array, texts: ValueOptions | None) -> pa.Array:
    item = spec.children[0]
    offsets, keys, items = map_entries(array)
    keys = cast_scalar(_KEY, _plain(keys, _KEY))
    values = _cast(item, _plain(items, item), texts)
    return pa.MapArray.from_arrays(
        offsets, keys, values, type=arrow_type(spec), mask=array.is_null()
    )
