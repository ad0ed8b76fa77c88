"""Columns of the types that files name, and the union of two files' types. Pure.

A file's schema says nothing about later files, so these columns and all their parts are nullable.
Hostile schemas cannot make a row grow without limit: a part that is too deep, too wide or has an
odd name becomes ``json``, as in `inference`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from blizzard_core.limits import INFERRED_LEVELS, INFERRED_VALUES
from blizzard_core.settings.schema import DECIMAL_DIGITS, FieldType
from blizzard_py.job import FieldSpec
from blizzard_py.schema.arrow_fields import field_of
from blizzard_py.schema.column_names import can_be_struct

_WIDER: Mapping[frozenset[FieldType], FieldType] = {
    frozenset({"int32", "int64"}): "int64",
    frozenset({"float32", "float64"}): "float64",
    frozenset({"date", "timestamp"}): "timestamp",  # the day's midnight
}
_ITEM_NAMES: Mapping[FieldType, str] = {"list": "element", "map": "value"}
_INTEGER_DIGITS: Mapping[FieldType, int] = {"int32": 10, "int64": 19}


def named_columns(types: Mapping[str, pa.DataType | None]) -> dict[str, FieldSpec | None]:
    """Return the columns of a file by name, None for those that only values give a type.

    A column that is null, or whose items are, is left out: its type may be that of other files.
    """
    return {
        name: None if kind is None else _column(name, kind)
        for name, kind in types.items()
        if kind is None or not _has_null(kind)
    }


def united(left: FieldSpec, right: FieldSpec) -> FieldSpec | None:
    """Return the narrowest column that holds the values of both types; None if there is none."""
    if left.type == right.type and left.children and right.children:
        return _united_parts(left, right)
    if "decimal" in {left.type, right.type}:
        return _united_decimals(left, right)
    if left == right:
        return left
    wider = _WIDER.get(frozenset({left.type, right.type}))
    return None if wider is None else replace(left, type=wider)


def _united_parts(left: FieldSpec, right: FieldSpec) -> FieldSpec | None:
    """Return a struct with the fields of both, or a list or map of the united items."""
    others = {child.input_name: child for child in right.children}
    children: list[FieldSpec] = []
    for child in left.children:
        other = others.pop(child.input_name, child)
        found = united(child, replace(other, name=child.name, source=child.source))
        if found is None:
            return None
        children.append(found)
    children += others.values()
    return _bounded(replace(left, children=tuple(children)))


def _united_decimals(left: FieldSpec, right: FieldSpec) -> FieldSpec | None:
    digits = [_digits(left), _digits(right)]
    if None in digits:
        return None
    scale = max(each[1] for each in digits if each)
    precision = scale + max(each[0] - each[1] for each in digits if each)
    if precision > DECIMAL_DIGITS:
        return None
    return replace(left, type="decimal", precision=precision, scale=scale)


def _digits(spec: FieldSpec) -> tuple[int, int] | None:
    if spec.type == "decimal":
        return spec.precision, spec.scale
    whole = _INTEGER_DIGITS.get(spec.type)
    return None if whole is None else (whole, 0)


def _has_null(kind: pa.DataType) -> bool:
    """Return whether a part has no type, such as that of lists that are always empty."""
    if pa.types.is_null(kind):
        return True
    return any(_has_null(kind.field(at).type) for at in range(kind.num_fields))


def _column(name: str, kind: pa.DataType) -> FieldSpec:
    return _bounded(_nullable(field_of(pa.field(name, kind)), 1))


def _nullable(spec: FieldSpec, level: int) -> FieldSpec:
    """Return a column of which every part is nullable, and json where it has no common form."""
    names = [child.name for child in spec.children]
    has_form = spec.type != "struct" or can_be_struct(names)
    if not has_form or (spec.children and level > INFERRED_LEVELS):
        return FieldSpec(spec.name, "json", nullable=True)
    children = [_nullable(child, level + 1) for child in spec.children]
    if spec.type in _ITEM_NAMES:  # writers name it differently
        children = [replace(child, name=_ITEM_NAMES[spec.type]) for child in children]
    return replace(spec, nullable=True, children=tuple(children))


def _bounded(spec: FieldSpec) -> FieldSpec:
    """Return a column of a limited number of values and fields."""
    names = [child.name for child in spec.children]
    if _values([spec]) > INFERRED_VALUES or (spec.type == "struct" and not can_be_struct(names)):
        return FieldSpec(spec.name, "json", nullable=True)
    return spec


def _values(specs: Sequence[FieldSpec]) -> int:
    return sum(_values(spec.children) if spec.children else 1 for spec in specs)
