"""The writer's schema as a tree of types, checked before anything is decoded.

Each use of a named type becomes a type of its own. `decoding_schema` is what fastavro gets: the
same bytes under the simplest types, with generated names. No logical type, no name and no default
of the file reaches it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any

from blizzard_core.limits import AVRO_COLUMNS, AVRO_LEVELS, AVRO_SCHEMA_BYTES
from blizzard_py.lines.failure import FileFailed, bounded

_SIMPLE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_ITEMS = {"array": "items", "map": "values"}
_LEAST_BYTES = {"null": 0, "float": 4, "double": 8}
# Logical types by the types that may have them; a schema's other ones mean nothing.
_LOGICAL = {
    "int": {"date", "time-millis"},
    "long": {"time-micros"}
    | {
        f"{zone}timestamp-{unit}"
        for zone in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
    "string": {"uuid"},
    "bytes": {"decimal"},
    "fixed": {"decimal", "uuid"},
}
# Begins the reason for a file whose schema is not read.
FILE_SCHEMA = "the file's Avro schema"
_UUID_BYTES, _DURATION_BYTES = 16, 12
_DECIMAL_DIGITS = 76
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class FieldRule:
    """The aliases and the default of a record's field in a reader's schema; the default is JSON."""

    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type of the schema.

    ``names`` are a record's fields or an enum's symbols. ``children`` are a record's fields, a
    union's branches, or the one item. ``size`` is that of a fixed, ``digits`` and ``scale`` are a
    decimal's.

    ``name`` is that of a named type, without its namespace, and ``aliases`` are its others.
    ``rules`` are of a record's fields, ``default`` is an enum's.

    A value takes ``least`` bytes or more. It has ``cells`` values without repeated ones. Those are
    at most ``density`` for each byte.
    """

    kind: str
    logical: str = ""
    names: tuple[str, ...] = ()
    children: tuple[AvroType, ...] = ()
    size: int = 0
    digits: int = 0
    scale: int = 0
    least: int = 1
    cells: int = 1
    density: float = 0.0
    name: str = ""
    aliases: tuple[str, ...] = ()
    rules: tuple[FieldRule, ...] = ()
    default: str | None = None

    @property
    def branch(self) -> AvroType | None:
        """The type of a union that only adds null; None for other unions."""
        branches = [child for child in self.children if child.kind != "null"]
        return branches[0] if len(branches) == 1 else None


@lru_cache(maxsize=16)
def record_type(text: str) -> AvroType:
    """Return the type of a file's records. Raises `FileFailed` for a schema that is not read."""
    if len(text) > AVRO_SCHEMA_BYTES:
        raise refused(f"longer than {AVRO_SCHEMA_BYTES:,} bytes")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refused(f"not JSON ({error})") from error
    found = _Schema().type_of(document, "", 0, ())
    if found.kind != "record":
        raise refused(f"no record, but {found.kind}")
    return found


def refused(why: str) -> FileFailed:
    """Return the failure of a file whose schema is not read."""
    return FileFailed("parse", f"{FILE_SCHEMA} is {why}")


class _Schema:
    def __init__(self) -> None:
        self._named: dict[str, tuple[Any, str]] = {}
        self._types = 0

    def type_of(self, schema: Any, space: str, level: int, within: tuple[str, ...]) -> AvroType:
        """Return a type; ``within`` are the full names of the records around it."""
        self._types += 1
        if self._types > AVRO_COLUMNS:
            raise refused(f"of more than {AVRO_COLUMNS:,} types")
        if level > AVRO_LEVELS:
            raise refused(f"deeper than {AVRO_LEVELS} levels")
        if isinstance(schema, list):
            return self._union(schema, space, level, within)
        document = {"type": schema} if isinstance(schema, str) else schema
        kind = document.get("type") if isinstance(document, dict) else None
        if isinstance(kind, dict | list):
            return self.type_of(kind, space, level + 1, within)
        if not isinstance(kind, str):
            raise refused(f"invalid at {_shown(schema)}")
        if kind in _SIMPLE:
            return _simple(kind, document)
        return self._complex(kind, document, space, level, within)

    def _complex(
        self,
        kind: str,
        schema: Mapping[str, Any],
        space: str,
        level: int,
        within: tuple[str, ...],
    ) -> AvroType:
        if kind in {"record", "error", "enum", "fixed"}:
            return self._definition(schema, space, level, within)
        if kind in _ITEMS:
            return _repeated(kind, self.type_of(schema.get(_ITEMS[kind]), space, level + 1, within))
        return self._by_name(kind, space, level, within)

    def _by_name(self, name: str, space: str, level: int, within: tuple[str, ...]) -> AvroType:
        full = next((full for full in (_full(name, space), name) if full in self._named), None)
        if full is None:
            raise refused(f"without a definition of the type {_shown(name)}")
        if full in within:
            raise refused(f"recursive: {_shown(full)} contains itself, which is not read")
        schema, its_space = self._named[full]
        return self._defined(schema, full, its_space, level, within)

    def _definition(
        self, schema: Mapping[str, Any], space: str, level: int, within: tuple[str, ...]
    ) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise refused(f"invalid: a type without a name at {_shown(schema)}")
        own = schema.get("namespace")
        full = _full(name, own if isinstance(own, str) else space)
        if full in self._named and self._named[full][0] is not schema:
            raise refused(f"invalid: {_shown(full)} is defined twice")
        if full in within:
            raise refused(f"invalid: {_shown(full)} is defined in itself")
        inner = full.rpartition(".")[0]
        self._named[full] = (schema, inner)
        return self._defined(schema, full, inner, level, within)

    def _defined(
        self, schema: Mapping[str, Any], full: str, space: str, level: int, within: tuple[str, ...]
    ) -> AvroType:
        name, aliases = _unqualified(full), _aliases(schema)
        if schema["type"] == "enum":
            symbols, default = _names(schema.get("symbols"), full), schema.get("default")
            default = default if isinstance(default, str) else None
            return AvroType("enum", names=symbols, name=name, aliases=aliases, default=default)
        if schema["type"] == "fixed":
            return replace(_fixed(schema, full), name=name, aliases=aliases)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise refused(f"invalid: the record {_shown(full)} has no list of fields")
        names = _names([field.get("name") for field in fields], full)
        around = (*within, full)
        children = tuple(
            self.type_of(field.get("type"), space, level + 1, around) for field in fields
        )
        return AvroType(
            "record",
            names=names,
            children=children,
            least=sum(child.least for child in children),
            cells=1 + sum(child.cells for child in children),
            density=sum(child.density for child in children),
            name=name,
            aliases=aliases,
            rules=tuple(
                FieldRule(_aliases(field), "default" in field, field.get("default"))
                for field in fields
            ),
        )

    def _union(
        self, branches: list[Any], space: str, level: int, within: tuple[str, ...]
    ) -> AvroType:
        if not branches or any(isinstance(branch, list) for branch in branches):
            raise refused("invalid: a union is empty or directly in another one")
        children = tuple(self.type_of(branch, space, level, within) for branch in branches)
        return AvroType(
            "union",
            children=children,
            least=1 + min(child.least for child in children),
            cells=1 + sum(child.cells for child in children),
            density=sum(child.density for child in children),
        )


def _aliases(schema: Mapping[str, Any]) -> tuple[str, ...]:
    found = schema.get("aliases")
    names = found if isinstance(found, list) else []
    return tuple(_unqualified(name) for name in names if isinstance(name, str))


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _names(names: Any, full: str) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise refused(f"invalid: the names in {_shown(full)} are no list of texts")
    if len(set(names)) < len(names):
        raise refused(f"invalid: a name in {_shown(full)} occurs twice")
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        raise refused(f"invalid: a name in {_shown(full)} is not Unicode") from error
    return tuple(names)


def _simple(kind: str, schema: Mapping[str, Any]) -> AvroType:
    found = AvroType(
        kind,
        logical=_logical(kind, schema),
        least=_LEAST_BYTES.get(kind, 1),
    )
    return _decimal(found, schema) if found.logical == "decimal" else found


def _fixed(schema: Mapping[str, Any], full: str) -> AvroType:
    size = schema.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= AVRO_SCHEMA_BYTES:
        raise refused(f"invalid: the size of {_shown(full)} is {_shown(size)}")
    if schema.get("logicalType") == "duration" and size == _DURATION_BYTES:
        raise refused(f"one with a duration ({_shown(full)}), which no column can hold")
    logical = _logical("fixed", schema)
    if logical == "uuid" and size != _UUID_BYTES:
        logical = ""
    found = AvroType("fixed", logical=logical, size=size, least=size)
    return _decimal(found, schema) if logical == "decimal" else found


def _logical(kind: str, schema: Mapping[str, Any]) -> str:
    logical = schema.get("logicalType")
    return logical if isinstance(logical, str) and logical in _LOGICAL.get(kind, ()) else ""


def _decimal(found: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """Return the type with its digits. Digits that cannot be make it plain bytes, as Avro says."""
    digits, scale = schema.get("precision", 0), schema.get("scale", 0)
    if type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits or not digits:
        return AvroType(found.kind, size=found.size, least=found.least)
    if digits > _DECIMAL_DIGITS:
        raise refused(f"one with a decimal of {digits} digits; at most {_DECIMAL_DIGITS} are read")
    return AvroType(
        found.kind,
        logical="decimal",
        size=found.size,
        digits=digits,
        scale=scale,
        least=found.least,
    )


def _repeated(kind: str, item: AvroType) -> AvroType:
    least = item.least + (kind == "map")
    if not least:
        raise refused("one with an array of values without bytes, whose number nothing limits")
    cells = item.cells + (kind == "map")
    return AvroType(kind, children=(item,), density=item.density + cells / least)


def _shown(value: Any) -> str:
    return bounded(repr(value)[: 2 * _SHOWN_CHARACTERS], _SHOWN_CHARACTERS)


def decoding_schema(records: AvroType) -> dict[str, Any]:
    """Return a schema of an array of the records, for fastavro."""
    return {"type": "array", "items": _plain(records, count())}


def _plain(node: AvroType, names: count[int]) -> Any:
    found: Any
    match node.kind:
        case "string":
            found = "bytes"  # whether it is UTF-8 is a question of the one record
        case "int" | "enum":
            found = "long"
        case "fixed":
            found = {"type": "fixed", "name": f"n{next(names)}", "size": node.size}
        case "array":
            found = {"type": "array", "items": _plain(node.children[0], names)}
        case "map":
            # The same bytes. A dictionary would lose a key that occurs twice.
            pair = _record(("key", "value"), (_KEY, *node.children), names)
            found = {"type": "array", "items": pair}
        case "record":
            found = _record([f"f{at}" for at in range(len(node.names))], node.children, names)
        case "union" if node.branch is not None:
            found = [_plain(child, names) for child in node.children]
        case "union":
            # A record around each branch, which takes no bytes, shows which one it is.
            found = [
                "null" if child.kind == "null" else _record((f"v{at}",), (child,), names)
                for at, child in enumerate(node.children)
            ]
        case kind:
            found = kind
    return found


_KEY = AvroType("bytes")


def _record(fields: Any, children: tuple[AvroType, ...], names: count[int]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": f"n{next(names)}",
        "fields": [
            {"name": field, "type": _plain(child, names)}
            for field, child in zip(fields, children, strict=True)
        ],
    }
