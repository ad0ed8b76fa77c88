"""Whether a file's columns fit the table's, and what the table becomes. Pure.

Rules, top level and nested alike:

* A file may be narrower than the table (``int32`` in a ``long`` column, ``float``
  in a ``double``): every reader widens. A wider or another type is refused,
  since readers overflow or give up on the whole table.
* A file may lack a nullable column; it reads as null.
* A new column joins the table as nullable under ``merge`` and is refused under
  ``strict``. So do new fields of a struct; inside lists and maps they are refused.
* Names that differ only in case are refused: Delta is case-insensitive there.

Under ``overwrite`` the arriving file wins as far as the files committed before it
stay readable: besides what ``merge`` does, a wider type of it becomes the table's
type, and a required column that it lacks or may have nulls in becomes nullable.
No mode drops a column or changes a type into an unrelated one: files committed
earlier would have values that no reader can fit to the schema.

Column order does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from penguin_py.model import Misfit

_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date32,
    pa.types.is_decimal128,
)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)

# Within lists and maps no mode adds fields.
_FIXED = "fixed"
_ADDING = ("merge", "overwrite")
_INSIDE = "fields inside lists and maps cannot be added"


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in the types a Delta table can have. Raises `Misfit` for one it cannot.

    And for fields of a struct, however deep, whose names differ only in case.
    """
    return pa.schema([_delta_field(field) for field in schema])


def table_schema(file: pa.Schema, partitions: Iterable[pa.Field]) -> pa.Schema:
    """The schema of a new table: a file's columns, then the partition columns."""
    return pa.schema([*file, *partitions])


def merge(table: pa.Schema, file: pa.Schema, partitions: Collection[str], mode: str) -> pa.Schema:
    """The table's schema once it holds this file. Raises `Misfit`.

    ``file`` comes from `delta_schema`. The result keeps the table's columns in
    their order and adds the new ones behind.
    """
    check_names(file, partitions)
    return pa.schema(_merged_fields(list(table), list(file), mode, "", partitions))


def check_names(file: pa.Schema, partitions: Collection[str]) -> None:
    """Refuse columns that collide with each other or with the path's. Raises `Misfit`."""
    _check_case([field.name for field in file], "")
    taken = {name.lower() for name in partitions}
    for field in file:
        if field.name.lower() in taken:
            raise Misfit(
                f"holds column {field.name!r}, which is a partition column;"
                " partition values come from the path alone"
            )


def _merged_fields(
    table: list[pa.Field], file: list[pa.Field], mode: str, where: str, partitions: Collection[str]
) -> list[pa.Field]:
    given = {field.name: field for field in file}
    lowered = {field.name.lower(): field.name for field in table}
    merged: list[pa.Field] = []
    for field in table:
        other = given.get(field.name)
        name = f"{where}{field.name}"
        if other is None:
            if not field.nullable and field.name not in partitions:
                if mode != "overwrite":
                    raise Misfit(f"lacks column {name!r}, which the table requires")
                merged.append(_nullable(field))
            else:
                merged.append(field)
        else:
            kept = _nullable(field) if mode == "overwrite" and other.nullable else field
            merged.append(kept.with_type(_merged_type(field.type, other.type, mode, name)))
    for field in file:
        if lowered.get(field.name.lower(), field.name) != field.name:
            raise Misfit(
                f"has column {where + field.name!r}, which differs only in case from the table's"
                f" {where + lowered[field.name.lower()]!r}"
            )
        if field.name not in lowered.values():
            if mode not in _ADDING:
                remedy = "schema_evolution: merge would add it" if mode == "strict" else _INSIDE
                raise Misfit(f"has column {where + field.name!r}, which the table lacks ({remedy})")
            merged.append(_nullable(field))
    return merged


def _merged_type(table: pa.DataType, file: pa.DataType, mode: str, name: str) -> pa.DataType:
    if pa.types.is_struct(table) and pa.types.is_struct(file):
        return pa.struct(_merged_fields(list(table), list(file), mode, f"{name}.", ()))
    if pa.types.is_list(table) and pa.types.is_list(file):
        _merged_type(table.value_type, file.value_type, _FIXED, f"{name}[]")
        return table
    if pa.types.is_map(table) and pa.types.is_map(file):
        _merged_type(table.key_type, file.key_type, _FIXED, f"{name}[key]")
        _merged_type(table.item_type, file.item_type, _FIXED, f"{name}[value]")
        return table
    if mode == "overwrite" and _fits(file, table):
        return file
    if not _fits(table, file):
        wider = "wider than" if _fits(file, table) else "not compatible with"
        raise Misfit(f"column {name!r} is {file}, {wider} the table's {table}")
    return table


def _fits(table: pa.DataType, file: pa.DataType) -> bool:
    if pa.types.is_signed_integer(table) and pa.types.is_signed_integer(file):
        return bool(file.bit_width <= table.bit_width)
    if pa.types.is_float64(table) and pa.types.is_float32(file):
        return True
    return bool(table == file)


def _check_case(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name or names.count(name) > 1:
            raise Misfit(
                f"has columns {where + other!r} and {where + name!r}: the same name"
                " or different only in case"
            )


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_nullable(True)


def _delta_field(field: pa.Field, where: str = "") -> pa.Field:
    return pa.field(field.name, _delta_type(field.type, where + field.name), field.nullable)


def _delta_type(kind: pa.DataType, name: str) -> pa.DataType:
    found: pa.DataType | None = None
    if pa.types.is_dictionary(kind):
        found = _delta_type(kind.value_type, name)
    # Below the top level everything is nullable: Delta readers differ on nested NOT NULL.
    elif pa.types.is_struct(kind):
        _check_case([field.name for field in kind], f"{name}.")
        found = pa.struct([_nullable(_delta_field(field, f"{name}.")) for field in kind])
    elif any(test(kind) for test in _LISTS):
        found = pa.list_(pa.field("element", _delta_type(kind.value_type, name)))
    elif pa.types.is_map(kind):
        found = pa.map_(_delta_type(kind.key_type, name), _delta_type(kind.item_type, name))
    else:
        found = _flat_type(kind)
    if found is None:
        raise Misfit(f"column {name!r} is {kind}, for which Delta has no type")
    return found


def _flat_type(kind: pa.DataType) -> pa.DataType | None:
    if any(test(kind) for test in _PLAIN):
        return kind
    if any(test(kind) for test in _TEXT):
        return pa.string()
    if any(test(kind) for test in _BYTES):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz is not None else None)
    return None
