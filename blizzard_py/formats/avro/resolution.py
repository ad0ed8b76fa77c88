"""Schema resolution: values of a file's schema become those of the reader's, as Avro specifies.

Both sides are Arrow arrays in the types of `stored_type`. So fastavro reads a file by its own
schema, and the rest of this package sees only the reader's. `Resolver` compares the schemas once
for each file and returns functions for its arrays.

Three things differ from the specification. Names of records do not matter, except to choose the
branch of a union. A branch of the same type comes before earlier ones that lose digits. Units of
times are converted, where the specification would read the number in another unit.

Specification: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.limits import AVRO_COMPARISONS
from blizzard_py.formats.avro.defaults import default_array
from blizzard_py.formats.avro.schema import FILE_SCHEMA, AvroType, record_type, refused
from blizzard_py.formats.avro.values import check_symbols, stored_type
from blizzard_py.formats.nested_arrays import mapped_items, struct_of
from blizzard_py.lines.failure import FileFailed, bounded

# Maps an array, and where its values are present, to the reader's array. An absent value lies in
# something that is null. Raises `ValueError` for values that the reader's type cannot have.
Change = Callable[[pa.Array, pa.Array], pa.Array]

_FRACTIONS = {"float", "double"}
_BYTES = {"bytes", "string"}
_PROMOTED = {
    "int": {"long", *_FRACTIONS},
    "long": _FRACTIONS,
    "float": {"double"},
    "string": _BYTES,
    "bytes": _BYTES,
}
_PER_SECOND = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_NAME_CHARACTERS = 200


class Mismatch(Exception):
    """A field whose type cannot be read as the reader's, or that the file lacks (``writer``)."""

    def __init__(self, where: str, writer: AvroType | None, reader: AvroType) -> None:
        super().__init__(where)
        self._where, self._writer, self._reader = where, writer, reader

    def __str__(self) -> str:
        """Return the reason; it is made late, since a union tries many types."""
        if self._writer is None:
            return f"field {self._where!r} is not in the file, and has no default"
        types = f"{_named(self._writer)} in the file, not {_named(self._reader)}"
        return f"field {self._where!r} is {types}"


@dataclass(frozen=True, slots=True)
class ResolvedField:
    """A field of the reader's record; ``source`` is its number in the file, None for a default."""

    source: int | None
    change: Change


@lru_cache(maxsize=16)
def resolved_fields(writer: str, reader: str) -> tuple[ResolvedField, ...]:
    """Return the fields of the reader's records, by the texts of both schemas.

    Raises `FileFailed` if the file cannot be read by the reader's schema.
    """
    try:
        return Resolver().fields(record_type(writer), record_type(reader), "")
    except Mismatch as error:
        why = bounded(str(error), _NAME_CHARACTERS)
        raise FileFailed("parse", f"{FILE_SCHEMA} does not fit avro_schema: {why}") from error


class Resolver:
    """Compares types, each pair once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Change | Mismatch] = {}

    def fields(self, writer: AvroType, reader: AvroType, where: str) -> tuple[ResolvedField, ...]:
        """Return the fields of a record. Raises `Mismatch`."""
        found = []
        places = {name: place for place, name in enumerate(writer.names)}
        for name, node, rule in zip(reader.names, reader.children, reader.rules, strict=True):
            path = f"{where}{name}"
            source = next((places[own] for own in (name, *rule.aliases) if own in places), None)
            if source is not None:
                change = self.change(writer.children[source], node, path)
            elif rule.has_default:
                change = _constant(default_array(node, rule.default))
            else:
                raise Mismatch(path, None, node)
            found.append(ResolvedField(source, change))
        return tuple(found)

    def change(self, writer: AvroType, reader: AvroType, where: str) -> Change:
        """Return how values of a type become those of another one. Raises `Mismatch`."""
        pair = (id(writer), id(reader))
        if pair not in self._known:
            if len(self._known) == AVRO_COMPARISONS:
                raise refused(f"compared with avro_schema in more than {AVRO_COMPARISONS:,} steps")
            try:
                self._known[pair] = self._compared(writer, reader, where)
            except Mismatch as error:
                self._known[pair] = error
        found = self._known[pair]
        if isinstance(found, Mismatch):
            raise found
        return found

    def _compared(self, writer: AvroType, reader: AvroType, where: str) -> Change:
        if "union" in {writer.kind, reader.kind}:
            return self._union(writer, reader, where)
        if writer.kind != reader.kind and reader.kind not in _PROMOTED.get(writer.kind, ()):
            raise Mismatch(where, writer, reader)
        match writer.kind:
            case "record":
                return _record(self.fields(writer, reader, f"{where}."), reader)
            case "array" | "map":
                inner = self.change(writer.children[0], reader.children[0], f"{where}[]")
                return _items(inner)
            case "enum":
                _check_names(writer, reader, where)
                return _enum(writer, reader)
            case "fixed":
                _check_names(writer, reader, where)
                if writer.size != reader.size:
                    raise Mismatch(where, writer, reader)
        return _number(writer, reader, where)

    def _union(self, writer: AvroType, reader: AvroType, where: str) -> Change:
        theirs = writer.children if writer.kind == "union" else (writer,)
        ours = reader.children if reader.kind == "union" else (reader,)
        branches = [self._branch(each, ours, where) for each in theirs]
        if not any(branches) or (
            # A file whose only known branch is null has nothing to read.
            all(
                each.kind == "null" or not found
                for each, found in zip(theirs, branches, strict=True)
            )
            and any(each.kind != "null" for each in theirs)
        ):
            raise Mismatch(where, writer, reader)
        return _by_branch(writer, reader, branches)

    def _branch(
        self, writer: AvroType, ours: Sequence[AvroType], where: str
    ) -> tuple[int, Change] | None:
        """Return the first of the reader's branches that a type matches; the same type first."""
        is_same = [
            each.kind == writer.kind and (each.kind != "record" or _is_named(writer, each))
            for each in ours
        ]
        for number in sorted(range(len(ours)), key=lambda at: not is_same[at]):
            try:
                return number, self.change(writer, ours[number], where)
            except Mismatch:
                continue
        return None


def _named(node: AvroType) -> str:
    if node.kind == "union":
        return f"a union of {' and '.join(map(_named, node.children))}"
    if node.logical == "decimal":
        return f"decimal({node.digits},{node.scale})"
    return " ".join(filter(None, [node.logical or node.kind, node.name]))


def _is_named(writer: AvroType, reader: AvroType) -> bool:
    return writer.name in (reader.name, *reader.aliases)


def _check_names(writer: AvroType, reader: AvroType, where: str) -> None:
    if not _is_named(writer, reader):
        raise Mismatch(where, writer, reader)


def _number(writer: AvroType, reader: AvroType, where: str) -> Change:
    """Return the change of a value without parts, by its kind and its logical type."""
    factor = 1.0
    if writer.logical and reader.logical:
        their_family, _, their_unit = writer.logical.rpartition("-")
        family, _, unit = reader.logical.rpartition("-")
        same_digits = (writer.digits, writer.scale) == (reader.digits, reader.scale)
        if writer.logical == reader.logical and not same_digits:
            raise Mismatch(where, writer, reader)
        if writer.logical != reader.logical:
            if family != their_family or unit not in _PER_SECOND:
                raise Mismatch(where, writer, reader)
            factor = _PER_SECOND[unit] / _PER_SECOND[their_unit]
    if writer.kind in {"int", "long"} and reader.kind in _FRACTIONS:
        return lambda array, _: array.cast(pa.float64(), safe=False)
    if factor > 1:
        return lambda array, _: pc.multiply_checked(array, int(factor))
    if factor < 1:
        return lambda array, _: _divided(array, round(1 / factor))
    return lambda array, _: array


def _divided(array: pa.Array, divisor: int) -> pa.Array:
    numbers = array.fill_null(0).to_numpy()
    if np.any(numbers % divisor):
        raise ValueError("a time has more digits than avro_schema's unit")
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers // divisor, pa.int64(), mask=mask)


def _enum(writer: AvroType, reader: AvroType) -> Change:
    symbols = {symbol: number for number, symbol in enumerate(reader.names)}
    default = -1 if reader.default is None else symbols[reader.default]
    numbers = pa.array([symbols.get(symbol, default) for symbol in writer.names], pa.int64())

    def change(array: pa.Array, _: pa.Array) -> pa.Array:
        check_symbols(writer, array)
        found = numbers.take(array)
        if pc.any(pc.equal(found, -1)).as_py():
            symbol = writer.names[array.filter(pc.equal(found, -1))[0].as_py()]
            raise ValueError(f"the symbol {symbol!r} is not in avro_schema, which has no default")
        return found

    return change


def _record(fields: Sequence[ResolvedField], reader: AvroType) -> Change:
    kind = stored_type(reader)

    def change(array: pa.Array, present: pa.Array) -> pa.Array:
        present = pc.and_(present, array.is_valid())
        parts = array.flatten()
        values = [
            field.change(array if field.source is None else parts[field.source], present)
            for field in fields
        ]
        if not values:
            return pa.array([{} if each else None for each in array.is_valid().to_pylist()], kind)
        return struct_of([f"f{at}" for at in range(len(values))], values, array)

    return change


def _items(inner: Change) -> Change:
    return lambda array, _: mapped_items(array, lambda values: inner(values, _all_of(values)))


def _by_branch(
    writer: AvroType, reader: AvroType, branches: Sequence[tuple[int, Change] | None]
) -> Change:
    """Return the change of values whose branches have a branch of the reader, or none."""

    def change(array: pa.Array, present: pa.Array) -> pa.Array:
        # Of each of the reader's branches: the values, and in which rows they are.
        found: dict[int, list[tuple[pa.Array, pa.Array]]] = {}
        for (node, values, rows), branch in zip(
            _parts(writer, array, present), branches, strict=True
        ):
            if branch is not None:
                number, inner = branch
                found.setdefault(number, []).append((inner(values, rows), rows))
            elif pc.any(rows).as_py():
                raise ValueError(f"is {_named(node)}, which avro_schema does not have")
        return _joined(reader, found, len(array))

    return change


def _parts(
    writer: AvroType, array: pa.Array, present: pa.Array
) -> list[tuple[AvroType, pa.Array, pa.Array]]:
    """Return the values of each branch of the file's type, and in which rows they are."""
    if writer.kind != "union":
        return [(writer, array, present)]
    children = array.flatten() if writer.branch is None else [array] * len(writer.children)
    valid = array.is_valid()
    parts = []
    for node, values in zip(writer.children, children, strict=True):
        is_null = node.kind == "null"
        rows = pc.invert(valid) if is_null else values.is_valid()
        parts.append((node, pa.nulls(len(array)) if is_null else values, pc.and_(present, rows)))
    return parts


def _joined(
    reader: AvroType, found: dict[int, list[tuple[pa.Array, pa.Array]]], length: int
) -> pa.Array:
    """Return the reader's values from those of its branches."""
    nodes = reader.children if reader.kind == "union" else (reader,)
    columns = [
        _chosen(found.get(at, []), stored_type(node), length) for at, node in enumerate(nodes)
    ]
    if reader.kind != "union":
        return columns[0]
    if reader.branch is not None:
        return columns[nodes.index(reader.branch)]
    empty = np.ones(length, np.bool_)
    for at, parts in found.items():
        for _, rows in parts if nodes[at].kind != "null" else ():
            empty &= ~rows.to_numpy(zero_copy_only=False)
    fields = [pa.field(f"v{at}", column.type) for at, column in enumerate(columns)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(empty))


def _chosen(parts: Sequence[tuple[pa.Array, pa.Array]], kind: pa.DataType, length: int) -> pa.Array:
    """Return one array of several, of which each has the values of its rows; null in others."""
    if not parts:
        return pa.nulls(length, kind)
    if len(parts) == 1:
        return parts[0][0]
    places = np.full(length, -1, np.int64)
    for number, (_, rows) in enumerate(parts):
        places[rows.to_numpy(zero_copy_only=False)] = number
    at = places * length + np.arange(length)
    whole = pa.concat_arrays([values for values, _ in parts])
    return whole.take(pa.array(at, pa.int64(), mask=places < 0))


def _constant(value: pa.Array) -> Change:
    return lambda array, _: value.take(pa.array(np.zeros(len(array), np.int64)))


def _all_of(array: pa.Array) -> pa.Array:
    return pa.array(np.ones(len(array), np.bool_))
