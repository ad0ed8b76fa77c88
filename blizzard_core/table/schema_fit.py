"""Merging of a file's columns into a table's schema. Pure.

Rules, top level and nested alike:

* A file may be narrower than the table (``int32`` in a ``long`` column, ``float`` in a
  ``double``). Every reader in use today widens, though the protocol expects the table's own types.
  A wider or unrelated type is rejected, since readers overflow or fail on the whole table.
* A file may lack a nullable column; it reads as null. Inside a map it may not, and a map's key may
  not be narrower: some readers fail there.
* A new column joins the table as nullable under ``merge`` and is rejected under ``strict``. So do
  new fields of a struct; inside lists and maps they are rejected.
* Names that differ only in case are rejected: Delta is case-insensitive. So are empty names.

Under ``overwrite`` the arriving file wins as far as earlier files stay readable. Besides the rules
of ``merge``, its wider type becomes the table's type, and a required column that it lacks or may
have nulls in becomes nullable. No mode drops a column or changes a type into an unrelated one:
earlier files would have values that no reader can fit to the schema.

Column order does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from blizzard_core.limits import NEW_COLUMNS

# The types that partition values have, by the names that the configuration gives them.
PARTITION_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "boolean": pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """The schema settings of a table.

    ``partition_types`` are its partition columns in order, None if not configured.
    ``max_new_columns`` limits the new columns of one commit to an existing table, fields of structs
    counted.
    """

    partition_types: Mapping[str, str] | None
    evolution: str
    max_new_columns: int = NEW_COLUMNS


class SchemaMismatch(ValueError):
    """A file cannot join the table; the message gives the reason, without the file's name.

    Raised and caught inside the pure layers only. The file is wrong, so it goes to quarantine and
    never stops the table.
    """


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
_LISTS = (pa.types.is_list, pa.types.is_large_list)

_INSIDE = "fields inside lists and maps cannot be added"
_STRICT = "schema_evolution: merge would add it"


@dataclass(frozen=True, slots=True)
class _Mode:
    """The changes that a file may make: add fields, widen or relax them, be narrower, lack fields.

    ``refusal`` is the reason for rejecting a new field if ``adds`` is not set.
    """

    adds: bool
    widens: bool
    narrow: bool
    lacks: bool = True
    refusal: str = _STRICT

    def inside(self) -> _Mode:
        """Return the mode within lists, where nothing is added or widened."""
        return replace(self, adds=False, widens=False, refusal=_INSIDE)

    def within_map(self, *, key: bool) -> _Mode:
        """Return the mode within maps, where no field may be missing either."""
        return replace(self.inside(), lacks=False, narrow=self.narrow and not key)


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in types that a Delta table can have.

    Raises `SchemaMismatch` for a type that Delta lacks, and for struct fields, at any depth, whose
    names differ only in case.
    """
    return pa.schema([_delta_field(field) for field in schema])


def check_note(noted: pa.Schema, file: pa.Schema) -> None:
    """Raise `SchemaMismatch` if the writer noted other columns than it wrote.

    delta-rs fails on other names, polars uses the noted types. A noted type that Delta lacks is
    ignored: if it matters, ``file`` has it too and is rejected for it.
    """
    if noted.names != file.names:
        raise SchemaMismatch("has other columns than its writer noted; write it anew")
    for given, found in zip(noted, file, strict=True):
        try:
            same = _delta_field(given).type == _delta_field(found).type
        except SchemaMismatch:
            continue
        if not same:
            raise SchemaMismatch(
                f"column {found.name!r} is {found.type}, and its writer noted {given.type};"
                " write it anew"
            )


def table_schema(file: pa.Schema, partitions: Iterable[pa.Field]) -> pa.Schema:
    """Return the schema of a new table: a file's columns, then the partition columns."""
    return pa.schema([*file, *partitions])


def merge(
    table: pa.Schema, file: pa.Schema, partitions: Collection[str], evolution: str
) -> pa.Schema:
    """Return the table's schema with this file merged. Raises `SchemaMismatch`.

    ``file`` comes from `delta_schema`. The result keeps the table's columns in
    their order and adds the new ones behind.
    """
    check_names(file, partitions)
    mode = _Mode(evolution != "strict", evolution == "overwrite", narrow=True)
    return pa.schema(_merged_fields(list(table), list(file), mode, "", partitions))


def check_growth(before: pa.Schema, after: pa.Schema, most: int) -> None:
    """Raise `SchemaMismatch` for more than ``most`` new columns, or for any if all are nested.

    Fields of structs count. The log entry that adds columns together with files needs a filter that
    matches no file, and delta-rs takes none on a nested column.
    """
    if after is before or after.equals(before):
        return
    if all(pa.types.is_nested(field.type) for field in before):
        raise SchemaMismatch(
            "changes the columns of a table that has nested ones only, which cannot be done"
            " together with a file; add the columns first, with ALTER TABLE"
        )
    added = _count_fields(after) - _count_fields(before)
    if added > most:
        raise SchemaMismatch(
            f"brings the commit to {added:,} new columns; advanced.max_new_columns is {most:,}"
        )


def _count_fields(fields: Iterable[pa.Field]) -> int:
    return sum(
        1 + (_count_fields(field.type) if pa.types.is_struct(field.type) else 0) for field in fields
    )


def check_names(file: pa.Schema, partitions: Collection[str]) -> None:
    """Raise `SchemaMismatch` for columns that collide with each other or with the path's."""
    _check_case([field.name for field in file], "")
    used_names = {name.lower() for name in partitions}
    for field in file:
        if field.name.lower() in used_names:
            raise SchemaMismatch(
                f"holds column {field.name!r}, which is a partition column;"
                " partition values come from the path alone"
            )


def _merged_fields(
    table: list[pa.Field],
    file: list[pa.Field],
    mode: _Mode,
    where: str,
    partitions: Collection[str],
) -> list[pa.Field]:
    given = {field.name: field for field in file}
    lowered = {field.name.lower(): field.name for field in table}
    known = {field.name for field in table}
    merged: list[pa.Field] = []
    for field in table:
        other = given.get(field.name)
        name = f"{where}{field.name}"
        if other is None:
            if not mode.lacks:
                raise SchemaMismatch(f"lacks field {name!r}, without which some readers fail")
            if not field.nullable and field.name not in partitions:
                if not mode.widens:
                    raise SchemaMismatch(f"lacks column {name!r}, which the table requires")
                merged.append(_nullable(field))
            else:
                merged.append(field)
        else:
            present = _nullable(field) if mode.widens and other.nullable else field
            merged.append(present.with_type(_merged_type(field.type, other.type, mode, name)))
    for field in file:
        if lowered.get(field.name.lower(), field.name) != field.name:
            raise SchemaMismatch(
                f"has column {where + field.name!r}, which differs only in case from the table's"
                f" {where + lowered[field.name.lower()]!r}"
            )
        if field.name not in known:
            if not mode.adds:
                raise SchemaMismatch(
                    f"has column {where + field.name!r}, which the table lacks ({mode.refusal})"
                )
            merged.append(_nullable(field))
    return merged


def _merged_type(table: pa.DataType, file: pa.DataType, mode: _Mode, name: str) -> pa.DataType:
    if pa.types.is_struct(table) and pa.types.is_struct(file):
        return pa.struct(_merged_fields(list(table), list(file), mode, f"{name}.", ()))
    if pa.types.is_list(table) and pa.types.is_list(file):
        _merged_type(table.value_type, file.value_type, mode.inside(), f"{name}[]")
        return table
    if pa.types.is_map(table) and pa.types.is_map(file):
        key, value = mode.within_map(key=True), mode.within_map(key=False)
        _merged_type(table.key_type, file.key_type, key, f"{name}[key]")
        _merged_type(table.item_type, file.item_type, value, f"{name}[value]")
        return table
    if mode.widens and _widens(table, file):
        return file
    if table == file or (mode.narrow and _widens(file, table)):
        return table
    how = "not compatible with"
    if _widens(table, file):
        how = "wider than"
    elif _widens(file, table):
        how = "narrower than"
    raise SchemaMismatch(f"column {name!r} is {file}, {how} the table's {table}")


def _widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether the second type holds every value of the first and is larger."""
    if pa.types.is_signed_integer(narrow) and pa.types.is_signed_integer(wide):
        return bool(narrow.bit_width < wide.bit_width)
    return bool(pa.types.is_float32(narrow) and pa.types.is_float64(wide))


def _check_case(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise SchemaMismatch(
                f"has a column without a name{f' in {where[:-1]!r}' if where else ''}"
            )
        other = seen.get(name.lower())
        if other is not None:
            raise SchemaMismatch(
                f"has columns {where + other!r} and {where + name!r}: the same name"
                " or different only in case"
            )
        seen[name.lower()] = name


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
        raise SchemaMismatch(f"column {name!r} is {kind}, for which Delta has no type")
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
