"""New columns out of fields that no column takes. Pure.

Promise: a new column fits the existing columns and the table. Its type is the one that files name.
If they name none, `inference` derives it from all values that were seen. A field that cannot be a
column is left out by name, with the reason. That stops nothing: its records are ingested without
it, as before.

A field without a type that was always null is neither: its first value decides. If the table
already has a column of that name (the stored schema was lost, or is older than the table), its type
is taken, provided that it can hold the values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from blizzard_core.errors import SchemaConflict
from blizzard_core.limits import INFERRED_COLUMNS
from blizzard_core.settings.schema import column_name
from blizzard_py.job import FieldSpec, UnexpectedField
from blizzard_py.schema.arrow_fields import field_of
from blizzard_py.schema.file_types import united
from blizzard_py.schema.inference import Inference, Rules
from blizzard_py.schema.types import arrow_type

# Why the table would refuse files with these columns; empty if it takes them.
Refuses = Callable[[Sequence[FieldSpec]], str]

_DECLARE = "declare under schema.fields what is wanted of it"


@dataclass(frozen=True, slots=True)
class Takes:
    """A table's answer: ``never`` takes such columns, or ``now`` not so many at once.

    ``kind`` is the type of a column that it has.
    """

    never: Refuses
    now: Refuses
    kind: Callable[[str], pa.DataType | None]


@dataclass(slots=True)
class Evolved:
    """Columns to add in order, names that become none with the reason, and names that wait."""

    added: list[FieldSpec] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)


def evolved(
    columns: Sequence[FieldSpec],
    taken: frozenset[str],
    found: Sequence[UnexpectedField],
    rules: Rules,
    takes: Takes,
) -> Evolved:
    """Return the new columns, and the other fields found besides ``columns``.

    ``taken`` are further lower-case names that columns of the table have already.
    """
    result = Evolved()
    if takes.never(columns):
        return result  # because of existing columns; reported elsewhere
    names = {spec.name.lower(): spec.name for spec in columns}
    exact = {spec.input_name for spec in columns}
    for each in found:
        if each.name in exact or not (each.values or any(each.types)):
            continue  # another source was first, or nothing is known of it yet
        free = replace(rules, taken=frozenset(), read=frozenset())
        column = column_name(each.name)
        spec, reason = _column(each, free, takes.kind(column))
        other = names.get(column.lower())
        if other is not None:
            reason = _same_column(each.name, other)
        elif column.lower() in taken:
            reason = (
                "a partition column, a column of path_columns or of sink.metadata_columns has it"
            )
        elif len(names) >= INFERRED_COLUMNS:
            reason = f"there are {INFERRED_COLUMNS:,} columns; {_DECLARE}"
        elif spec is not None:
            reason = takes.never([*columns, spec])
        if spec is None or reason:
            result.left_out[each.name] = reason
        elif takes.now([*columns, *result.added, spec]):
            result.waiting.append(each.name)
        else:
            result.added.append(spec)
            names[spec.name.lower()] = spec.name
    return result


def _as_known(spec: FieldSpec, known: pa.DataType) -> FieldSpec | None:
    """Return the column in the table's type; None if that type does not hold all its values."""
    if arrow_type(spec) == known:
        return spec
    wider = united(spec, field_of(pa.field(spec.name, known)))
    if wider is not None and arrow_type(wider) == known:
        return wider
    whole_as_float = spec.type == "int64" and known == pa.float64()
    if whole_as_float or (spec.type == "timestamp" and known == pa.string()):
        return replace(spec, type="float64" if whole_as_float else "string")
    if spec.type == "list" and pa.types.is_list(known):
        child = _as_known(spec.children[0], known.value_type)
        return None if child is None else replace(spec, children=(child,))
    if spec.type == "struct" and pa.types.is_struct(known):
        kinds = {field.name: field.type for field in known}
        children = [
            _as_known(child, kinds[child.name]) if child.name in kinds else child
            for child in spec.children
        ]
        found = tuple(child for child in children if child is not None)
        return replace(spec, children=found) if len(found) == len(children) else None
    return None


def _column(
    found: UnexpectedField, rules: Rules, known: pa.DataType | None
) -> tuple[FieldSpec | None, str]:
    """Return the field as a column, or None and the reason; ``known`` is its type in the table."""
    inference = Inference(rules)
    for spec in found.types:
        inference.add_columns({found.name: spec}, found.path)
    name = json.dumps(found.name)
    for value in found.values:
        inference.add(f"{{{name}:{value}}}".encode(), found.path)
    try:
        result = inference.result()
    except SchemaConflict as error:
        return None, str(error)
    if not result.fields:
        return None, _reason(result.left_out)
    spec = result.fields[0]
    return (None if known is None else _as_known(spec, known)) or spec, ""


def _same_column(name: str, other: str) -> str:
    if name.lower() == other.lower() and name != other:
        return f"differs only in case from {other!r}; mend it at the source, or {_DECLARE}"
    return f"its column would be {other!r}, which another field fills; {_DECLARE}"


def _reason(left_out: Mapping[str, str]) -> str:
    return next(iter(left_out.values()), "nothing is known of its values")
