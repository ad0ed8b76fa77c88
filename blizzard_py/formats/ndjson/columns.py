"""Conversion of columns from the JSON reader's types to the table's types.

If the types are equal, there is no conversion and no cost. Dates, base64, epochs, ``float32`` and
required fields inside structs and lists are converted or checked as whole columns. JSON, maps and
their containers come from `extract` as raw JSON and go through the reader again, one level down. So
a number is read by the same rules at every depth.

Each row's verdict depends on that row alone.
"""

from __future__ import annotations

import binascii
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from blizzard_core.settings.schema import UnexpectedFields
from blizzard_py.formats.ndjson.extract import NULL, Extractor, coerced, compact, elements, members
from blizzard_py.formats.ndjson.fast.pieces import bare, with_bare
from blizzard_py.job import FieldSpec
from blizzard_py.schema.types import (
    EPOCH_DIGITS,
    FIRST_DAY,
    MAX_MICROS,
    MIN_MICROS,
    arrow_type,
    is_extracted,
    read_schema,
    read_type,
    table_schema,
)

_T = TypeVar("_T")

# A column in a reason: as this module names it, or as the reader does.
_NAMED = re.compile(r"^column '((?:[^'\\]|\\.)*)'|Column\(/([^)]*)\)")
_PATH_SIGN = re.compile(r"[./\[]")
_READERS_NAME = re.compile(r"Column\(/v((?:/[^)]*)?)\)")


class RecordSchema:
    """The schema of a line: for the reader, and for the table.

    ``read`` is the reader's ``explicit_schema`` (it ignores fields that are not named); ``table``
    is the schema of `finish`.
    """

    def __init__(
        self, fields: Sequence[FieldSpec], unexpected: UnexpectedFields = "ignore"
    ) -> None:
        self.unexpected = unexpected
        self._rescued = unexpected == "capture"
        self.read: pa.Schema = read_schema(fields)
        self.table: pa.Schema = table_schema(fields, rescued=self._rescued)
        self.fields = tuple(fields)
        self._specs = {spec.name: spec for spec in self.fields}
        self._as_read = unexpected == "ignore" and not any(map(_is_converted, fields))
        self._extractor = (
            Extractor(fields, unexpected)
            if unexpected != "ignore" or any(map(is_extracted, fields))
            else None
        )

    def __reduce__(self) -> tuple[type[Self], tuple[Sequence[FieldSpec], UnexpectedFields]]:
        # The schema goes to child processes, but decoders cannot.
        return type(self), (self.fields, self.unexpected)

    def named(self, error: ValueError, line: bytes) -> ValueError:
        """Return the reader's error about a single line, with the column's name if known."""
        # The reader may only get values that are known to be objects: `null` crashes it.
        text = str(error)
        if text.startswith("JSON parse error") and "required field" not in text:
            return error  # about the line as a whole
        by_reader = isinstance(error, pa.ArrowInvalid) and "Column(" not in text
        if not by_reader or _same_error(line, [], error):  # the latter is not JSON at all
            return error
        fields = list(self.read)
        while len(fields) > 1:
            half, rest = fields[: len(fields) // 2], fields[len(fields) // 2 :]
            fields = half if _same_error(line, half, error) else rest
        return _refused(fields[0].name, error) if _same_error(line, fields, error) else error

    def declared(self, reason: str) -> str:
        """Return the declared type of the column that a reason names, to stand behind it.

        It is empty for a struct, in which something else is wrong.
        """
        named = _NAMED.search(reason)
        path = "" if named is None else named[1] or named[2]
        spec = self._specs.get(path) or self._specs.get(_PATH_SIGN.split(path)[0])
        if spec is None or spec.type == "struct":
            return ""
        return f" (declared: {_type_text(spec)})"

    def finish(self, table: pa.Table, chunk: bytes) -> pa.Table:
        """Return the reader's rows in the columns of ``table``.

        There must be one for each line of the chunk that is not blank. Raises `ValueError` naming
        the column and the value.
        """
        if self._as_read:
            return with_bare(table.cast(self.table))  # the reader drops nullability
        rows = table.num_rows
        extracted = None if self._extractor is None else self._extractor.extract(chunk, rows)
        columns = []
        for spec in self.fields:
            if extracted is not None and is_extracted(spec):
                column = _built(spec, extracted.values[spec.name], spec.name)
            else:
                column = _converted(spec, _one_chunk(table.column(spec.name)), spec.name)
            _check_required(spec, column.null_count, spec.name)
            columns.append(column)
        if extracted is not None and self._rescued:
            columns.append(pa.array(extracted.rescued, pa.string()))
        return pa.Table.from_arrays([bare(column) for column in columns], schema=self.table)


def read_json(chunk: bytes, schema: pa.Schema) -> pa.Table:
    """Return the reader's table of the chunk, a row for each object. Raises `ValueError`."""
    return pj.read_json(
        pa.BufferReader(chunk),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(chunk) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _same_error(line: bytes, fields: Sequence[pa.Field], error: ValueError) -> bool:
    try:
        read_json(line, pa.schema(fields))
    except ValueError as other:
        return str(other) == str(error)
    return False


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_converted(spec: FieldSpec) -> bool:
    """Return whether the reader's column may differ from the table's, or needs a check."""
    if is_extracted(spec) or spec.type == "timestamp" or read_type(spec) != arrow_type(spec):
        return True
    return any(not child.nullable or _is_converted(child) for child in spec.children)


def _check_required(spec: FieldSpec, nulls: int, path: str) -> None:
    if nulls and not spec.nullable:
        raise ValueError(f"column {path!r}: is required, and null or missing")


def _refused(path: str, why: object) -> ValueError:
    return ValueError(f"column {path!r}: {why}")


def _type_text(spec: FieldSpec) -> str:
    """Return a type as a person declares it."""
    match spec.type:
        case "decimal":
            return f"decimal({spec.precision},{spec.scale})"
        case "timestamp" if spec.unit != "iso":
            return f"timestamp, unit: {spec.unit}"
        case "list" | "map":
            return f"{spec.type} of {_type_text(spec.children[0])}"
        case _:
            return spec.type


# --- columns from the reader ----------------------------------------------------------------


def _converted(spec: FieldSpec, array: pa.Array, path: str) -> pa.Array:
    if not _is_converted(spec):
        return array
    if spec.type == "struct":
        return _struct(spec, [array.field(i) for i in range(len(spec.children))], array, path)
    if spec.type == "list":
        item = spec.children[0]
        values = _converted(item, array.values, f"{path}[]")
        _check_required(item, values.null_count, f"{path}[]")
        return pa.ListArray.from_arrays(
            array.offsets, values, type=arrow_type(spec), mask=_mask(array)
        )
    if spec.type == "timestamp":
        return _instants(array, path) if spec.unit == "iso" else _epoch(array, path)
    if spec.type == "decimal":
        return _decimal(array, arrow_type(spec), path)
    try:
        return _CONVERT[spec.type](array)
    except ValueError as error:  # pa.ArrowInvalid is one
        raise _refused(path, error) from error


def _struct(spec: FieldSpec, columns: Sequence[pa.Array], parent: pa.Array, path: str) -> pa.Array:
    """Return a struct of its fields' columns as read; ``parent`` says where it is null."""
    children = []
    for child, column in zip(spec.children, columns, strict=True):
        name = f"{path}.{child.name}"
        children.append(_converted(child, column, name))
        if not child.nullable:
            missing = pc.and_(column.is_null(), parent.is_valid())
            _check_required(child, pc.sum(missing).as_py() or 0, name)
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(spec)), mask=_mask(parent))


def _mask(array: pa.Array) -> pa.Array | None:
    """Return where the array is null, if anywhere, in the form of Arrow's constructors."""
    return array.is_null() if array.null_count else None


def _date(array: pa.Array) -> pa.Array:
    days = array.cast(pa.date32())
    first = pc.min(days.cast(pa.int32())).as_py()
    if first is not None and first < FIRST_DAY:
        raise ValueError("a day before 0001-01-01")
    return days


def _float(array: pa.Array) -> pa.Array:
    narrow = array.cast(pa.float32())
    beyond = pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(array)))
    if pc.any(beyond).as_py():
        value = array.filter(beyond)[0].as_py()
        raise ValueError(f"{value!r} is too large for float32")
    return narrow


def _binary(array: pa.Array) -> pa.Array:
    return pa.array([None if v is None else _bytes(v) for v in array.to_pylist()], pa.binary())


def _bytes(text: str) -> bytes:
    try:
        found = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # binascii.Error is one
        raise ValueError(f"{text!r} is not base64: {error}") from error
    # Unused bits must be zero, so that each value has one text.
    if binascii.b2a_base64(found, newline=False).decode() != text:
        raise ValueError(f"{text!r} is not base64: its last character has bits to spare")
    return found


def _decimal(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    try:
        array.validate(full=True)
        return array.cast(kind)
    except ValueError as error:
        raise _refused(path, error) from error


def _instants(array: pa.Array, path: str) -> pa.Array:
    """Refuse times outside the calendar: a year 0, or an offset that leads out of it.

    Python and most readers cannot read a table's row with such a time.
    """
    lowest, highest = pc.min_max(array.cast(pa.int64())).as_py().values()
    if lowest is not None and (lowest < MIN_MICROS or highest > MAX_MICROS):
        raise _refused(path, "the time lies outside the years 1 to 9999 in UTC")
    return array


def _epoch(array: pa.Array, path: str) -> pa.Array:
    """Return times from decimals whose fractional digits are those of the unit."""
    whole = pa.Array.from_buffers(
        pa.decimal128(EPOCH_DIGITS, 0), len(array), array.buffers(), offset=array.offset
    )
    lowest, highest = pc.min_max(whole).as_py().values()
    if lowest is not None and (lowest < MIN_MICROS or highest > MAX_MICROS):
        value = pc.min_max(array).as_py()["min" if lowest < MIN_MICROS else "max"]
        raise _refused(path, f"{value:f} lies outside the years 1 to 9999; is `unit` right?")
    return whole.cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))


_CONVERT: dict[str, Callable[[pa.Array], pa.Array]] = {
    "binary": _binary,
    "date": _date,
    "float32": _float,
}


# --- columns from raw JSON ------------------------------------------------------------------


def from_json(spec: FieldSpec, raws: Sequence[bytes]) -> pa.Array:
    """Return a column of raw JSON values, including ``null``, each already checked to be JSON.

    Raises `ValueError` for a value of another type.
    """
    return _built(spec, raws, spec.name)


def _built(spec: FieldSpec, raws: Sequence[bytes], path: str) -> pa.Array:
    """Return a column of raw JSON values. Raises `ValueError` for a value of another type."""
    if spec.type == "json":
        return pa.array([None if raw == NULL else compact(raw) for raw in raws], pa.string())
    if spec.coerce:
        return pa.array([None if raw == NULL else coerced(raw) for raw in raws], pa.string())
    if not is_extracted(spec):
        return _read_again(spec, raws, path)
    nulls = pa.array([raw == NULL for raw in raws], pa.bool_()) if NULL in raws else None
    if spec.type == "struct":
        return _struct_of_members(spec, _parts(members, raws, path), nulls, path)
    if spec.type == "list":
        lists = _parts(elements, raws, path)
        keys: list[str] = []
    else:
        maps = _parts(members, raws, path)
        lists = [list(found.values()) for found in maps]
        keys = [key for found in maps for key in found]
    offsets = pa.array(itertools.accumulate(map(len, lists), initial=0), pa.int32())
    item = spec.children[0]
    inner = f"{path}[]"
    values = _built(item, [raw for found in lists for raw in found], inner)
    _check_required(item, values.null_count, inner)
    if spec.type == "list":
        return pa.ListArray.from_arrays(offsets, values, type=arrow_type(spec), mask=nulls)
    return pa.MapArray.from_arrays(
        offsets, pa.array(keys, pa.string()), values, type=arrow_type(spec), mask=nulls
    )


def _parts(split: Callable[[bytes], _T], raws: Sequence[bytes], path: str) -> list[_T]:
    """Return the parts of each value; none for null."""
    try:
        return [split(raw) for raw in raws]
    except ValueError as error:
        raise _refused(path, error) from error


def _struct_of_members(
    spec: FieldSpec, rows: Sequence[dict[str, bytes]], nulls: pa.Array | None, path: str
) -> pa.Array:
    children = []
    for child in spec.children:
        name = f"{path}.{child.name}"
        column = _built(child, [row.get(child.name, NULL) for row in rows], name)
        missing = column.is_null() if nulls is None else pc.and_not(column.is_null(), nulls)
        _check_required(child, pc.sum(missing).as_py() or 0, name)
        children.append(column)
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(spec)), mask=nulls)


def _read_again(spec: FieldSpec, raws: Sequence[bytes], path: str) -> pa.Array:
    """Return values of a type that the reader knows, each read as the one member of an object."""
    alone = replace(spec, name="v", nullable=True)
    if not raws:
        return pa.array([], arrow_type(spec))
    chunk = b"".join(b'{"v":%b}\n' % raw for raw in raws)
    try:
        table = read_json(chunk, read_schema([alone]))
    except ValueError as error:
        text = _READERS_NAME.sub(lambda found: f"Column(/{path}{found[1]})", str(error))
        raise _refused(path, text) from error
    return _converted(alone, _one_chunk(table.column("v")), path)
