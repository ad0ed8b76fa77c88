"""Records as Arrow columns of text, nested as the declared types are.

`Conformer` makes values of the texts. A record whose elements have another form than its columns is
bad here: an element that comes twice without a list, or child elements where the type has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.formats import XmlOptions
from blizzard_py.formats.xml.elements import Attributed, Nil, Repeated, Row, Value, is_blank
from blizzard_py.formats.xml.json_text import json_text
from blizzard_py.job import FieldSpec

# Their empty text is a value.
_TEXTS = frozenset({"string", "binary", "json"})
_NESTED = frozenset({"struct", "list", "map", "json"})

_SEVERAL = "comes several times; declare a list"

Values: TypeAlias = "Sequence[Value | None]"


class Columns:
    """The columns of some records. ``bad`` has reasons by the records' numbers."""

    def __init__(self, rows: Sequence[Row], options: XmlOptions) -> None:
        self._rows = rows
        self._options = options
        self.bad: dict[int, str] = {}

    def batch(self, fields: Sequence[FieldSpec]) -> pa.RecordBatch:
        """Return the declared columns; what a record does not have is null."""
        rows = self._rows
        if not fields:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        at = range(len(rows))
        columns = []
        for spec in fields:
            name = spec.name
            columns.append(self._column(spec, [row.get(name) for row in rows], at))
        return pa.RecordBatch.from_arrays(columns, [spec.name for spec in fields])

    def _column(self, spec: FieldSpec, values: Values, at: Sequence[int]) -> pa.Array:
        """Return a column; ``at`` are the records of the values."""
        if spec.type == "list":
            return self._list(spec, values, at)
        if spec.type == "struct":
            return self._struct(spec, self._single(spec, values, at), at)
        if spec.type == "map":
            return self._map(spec, self._single(spec, values, at), at)
        if spec.type == "json":
            return pa.array([None if v is None else self._json(v) for v in values], pa.string())
        return self._texts(spec, values, at)

    def _json(self, value: Value) -> str:
        return json_text(value, self._options.ignore_surrounding_spaces)

    def _single(self, spec: FieldSpec, values: Values, at: Sequence[int]) -> Values:
        """Return the values without those that come several times."""
        found: list[Value | None] = list(values)
        for place, value in enumerate(values):
            if isinstance(value, Repeated):
                self._refuse(at[place], spec, _SEVERAL)
                found[place] = None
        return found

    def _refuse(self, row: int, spec: FieldSpec, why: str) -> None:
        self.bad.setdefault(row, f"column {spec.name!r}: {why}")

    def _texts(self, spec: FieldSpec, values: Values, at: Sequence[int]) -> pa.Array:
        try:
            found = pa.array(values, pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # not all of them are texts
            texts = [self._text(spec, v, row) for row, v in zip(at, values, strict=True)]
            found = pa.array(texts, pa.string())
        return self._with_nulls(spec, found)

    def _text(self, spec: FieldSpec, value: Value | None, row: int) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, Attributed):
            empty = None if isinstance(value, Nil) else ""
            inner = value.get(self._options.value_tag, empty)
            if inner is None or isinstance(inner, str):
                return inner
        if spec.coerce:
            return self._json(value)
        several = isinstance(value, Repeated)
        self._refuse(row, spec, _SEVERAL if several else "has child elements; declare a struct")
        return None

    def _with_nulls(self, spec: FieldSpec, texts: pa.Array) -> pa.Array:
        nulls = self._options.null_value
        if spec.type in _TEXTS and not nulls:
            return texts
        trims = self._options.ignore_surrounding_spaces or spec.type not in _TEXTS
        plain = pc.ascii_trim_whitespace(texts) if trims else texts
        if spec.type not in _TEXTS:
            nulls = [*nulls, ""]
        is_null = pc.is_in(plain, value_set=pa.array(nulls, pa.string()))
        if not pc.any(is_null, min_count=0).as_py():
            return texts
        return pc.if_else(is_null, pa.scalar(None, pa.string()), texts)

    def _struct(self, spec: FieldSpec, values: Values, at: Sequence[int]) -> pa.Array:
        tag = self._options.value_tag
        inner = [_children(value, tag) for value in values]
        mask = pa.array([value is None for value in inner], pa.bool_())
        children = []
        for child in spec.children:
            name = child.name
            children.append(self._column(child, [v.get(name) if v else None for v in inner], at))
        names = [child.name for child in spec.children]
        return pa.StructArray.from_arrays(children, names, mask=mask)

    def _list(self, spec: FieldSpec, values: Values, at: Sequence[int]) -> pa.Array:
        items: list[Value] = []
        rows: list[int] = []
        sizes = []
        for row, value in zip(at, values, strict=True):
            some = _several(value)
            items += some
            rows += [row] * len(some)
            sizes.append(len(some))
        inner = self._column(spec.children[0], items, rows)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.ListArray.from_arrays(_offsets(sizes), inner, mask=mask)

    def _map(self, spec: FieldSpec, values: Values, at: Sequence[int]) -> pa.Array:
        inner = [_children(value, self._options.value_tag) for value in values]
        sizes = [len(value) if value else 0 for value in inner]
        rows = [row for row, size in zip(at, sizes, strict=True) for _ in range(size)]
        keys = list(chain.from_iterable(value for value in inner if value))
        items = [item for value in inner if value for item in value.values()]
        return pa.MapArray.from_arrays(
            _offsets(sizes),
            pa.array(keys, pa.string()),
            self._column(spec.children[0], items, rows),
            mask=pa.array([value is None for value in inner], pa.bool_()),
        )


def _children(value: Value | None, value_tag: str) -> Mapping[str, Value] | None:
    """Return what stands in an element; None for an empty one."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str) or is_blank(value):
        return None
    return {value_tag: value}


def _several(value: Value | None) -> list[Value]:
    if isinstance(value, Repeated):
        return value
    return [] if value is None else [value]


def _offsets(sizes: Sequence[int]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())


def left_over(row: Mapping[str, Value], fields: Sequence[FieldSpec], value_tag: str) -> Row:
    """Return what has no column: elements and attributes, also within structs."""
    known = {spec.name: spec for spec in fields}
    found: Row = {name: value for name, value in row.items() if name not in known}
    for name, spec in known.items():
        value = row.get(name)
        inner: Row = {}
        if spec.type == "struct":
            children = _children(value, value_tag)
            inner = left_over(children, spec.children, value_tag) if children else {}
        elif isinstance(value, Attributed) and spec.type not in _NESTED and not spec.coerce:
            inner = {key: text for key, text in value.items() if key != value_tag}
        if inner:
            found[name] = inner
    return found


def paths(found: Mapping[str, Value], fields: Sequence[FieldSpec]) -> Iterator[str]:
    """Yield the names of what `left_over` returns; those within a column as ``column.name``."""
    known = {spec.name: spec for spec in fields}
    for name, value in found.items():
        spec = known.get(name)
        if spec is not None and isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in paths(value, spec.children))
        else:
            yield name
