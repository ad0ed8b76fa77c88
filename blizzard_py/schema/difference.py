"""Differences between records and columns: new, missing and changed fields. Pure.

Promise: a field is *changed* only if its column cannot hold values of the kinds that were seen. A
column that was declared for more than a sample shows (``int32``, a date, any JSON) is no
difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from blizzard_core.settings.schema import FieldType
from blizzard_py.job import FieldSpec

# What inference calls values that fit a column of the type. What takes anything is not here.
# Only files name the types int32, float32, date, binary and map.
_FITS: Mapping[FieldType, frozenset[FieldType]] = {
    "string": frozenset({"string", "timestamp", "int32", "float32", "date"}),
    "int32": frozenset({"int64", "int32"}),
    "int64": frozenset({"int64", "int32"}),
    "float32": frozenset({"float64", "int64", "decimal", "int32", "float32"}),
    "float64": frozenset({"float64", "int64", "decimal", "int32", "float32"}),
    "boolean": frozenset({"boolean"}),
    "timestamp": frozenset({"timestamp", "string", "date"}),
    "date": frozenset({"string", "date"}),
    "binary": frozenset({"string", "timestamp", "binary"}),
    "decimal": frozenset({"decimal", "int64", "float64", "string", "int32", "float32"}),
    "struct": frozenset({"struct"}),
    "list": frozenset({"list"}),
    "map": frozenset({"struct", "json", "map"}),
}
_EPOCH = frozenset[FieldType]({"int64", "float64", "string"})


@dataclass(frozen=True, slots=True)
class Changed:
    """A column and what records have in its place; ``name`` is its path within structs."""

    name: str
    column: FieldSpec
    records: FieldSpec


@dataclass(slots=True)
class Difference:
    """By paths: ``new`` are fields without a column, ``missing`` columns that no record has."""

    new: dict[str, FieldSpec] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)


def difference(
    columns: Sequence[FieldSpec], records: Sequence[FieldSpec], nulls: Collection[str]
) -> Difference:
    """Compare the columns with those inferred from a sample of records.

    ``nulls`` are paths that never had a value; they fit any column.
    """
    found = Difference()
    _compare(columns, records, "", nulls, found)
    return found


def _compare(
    columns: Sequence[FieldSpec],
    records: Sequence[FieldSpec],
    outer: str,
    nulls: Collection[str],
    found: Difference,
) -> None:
    known = {spec.input_name: spec for spec in columns}
    seen = {spec.input_name: spec for spec in records}
    found.new |= {f"{outer}{name}": spec for name, spec in seen.items() if name not in known}
    found.missing += [f"{outer}{name}" for name in known if name not in seen]
    for name, spec in known.items():
        if name in seen:
            _types(spec, seen[name], f"{outer}{name}", nulls, found)


def _types(
    column: FieldSpec, records: FieldSpec, path: str, nulls: Collection[str], found: Difference
) -> None:
    if column.coerce or column.type == "json" or path in nulls:
        return
    fits = _FITS[column.type]
    if column.type == "timestamp" and column.unit != "iso":
        fits = _EPOCH
    if records.type not in fits or records.coerce:
        found.changed.append(Changed(path, column, records))
    elif column.type == "struct":
        _compare(column.children, records.children, f"{path}.", nulls, found)
    elif column.type == "list":
        _types(column.children[0], records.children[0], f"{path}[]", nulls, found)
    elif column.type == "map":
        for child in records.children:
            _types(column.children[0], child, f"{path}.{child.input_name}", nulls, found)
