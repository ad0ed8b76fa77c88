"""Defaults of a reader's schema, from JSON to what Arrow stores. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from blizzard_py.formats.avro.schema import AvroType
from blizzard_py.formats.avro.values import stored_type

_BITS = {"int": 31, "long": 63}
# What JSON has for each kind; bytes are text of which each character is a byte.
_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), (str,)),
    "array": (list,),
    **dict.fromkeys(("map", "record"), (dict,)),
}


def check_defaults(node: AvroType, where: str = "") -> None:
    """Raise `ValueError` for a default that is no value of its type."""
    if node.kind == "enum" and node.default is not None and node.default not in node.names:
        raise ValueError(f"the default {node.default!r} of {node.name} is none of its symbols")
    if node.kind != "record":
        for child in node.children:
            check_defaults(child, where)
        return
    for name, child, rule in zip(node.names, node.children, node.rules, strict=True):
        check_defaults(child, f"{where}{name}.")
        if rule.has_default:
            try:
                _value(child, rule.default)
            except (ValueError, TypeError) as error:
                raise ValueError(f"the default of {where}{name} is no {child.kind}") from error


def default_array(node: AvroType, default: Any) -> pa.Array:
    """Return an array of the one value."""
    return pa.array([_value(node, default)], stored_type(node))


def _value(node: AvroType, found: Any) -> Any:
    """Return the value that Arrow stores. Raises `ValueError` or `TypeError` if there is none."""
    if node.kind == "union":
        return _branch(node, found)
    if type(found) not in _TYPES[node.kind]:
        raise TypeError
    match node.kind:
        case "record":
            return {f"f{at}": _field(node, at, found) for at in range(len(node.names))}
        case "array":
            return [_value(node.children[0], each) for each in found]
        case "map":
            inner = node.children[0]
            return [(key.encode(), _value(inner, each)) for key, each in found.items()]
    return _plain(node, found)


def _plain(node: AvroType, found: Any) -> Any:
    match node.kind:
        case "enum":
            return node.names.index(found)
        case "string":
            return found.encode()
        case "bytes" | "fixed":
            data = found.encode("latin-1")
            if node.kind == "fixed" and len(data) != node.size:
                raise ValueError
            return data
        case "int" | "long" if not -1 << _BITS[node.kind] <= found < 1 << _BITS[node.kind]:
            raise ValueError
        case "float" | "double":
            return float(found)
    return found


def _branch(node: AvroType, found: Any) -> Any:
    """Return the value of the first branch that has it."""
    for at, child in enumerate(node.children):
        try:
            value = _value(child, found)
        except (ValueError, TypeError):
            continue
        return value if node.branch is not None or child.kind == "null" else {f"v{at}": value}
    raise ValueError


def _field(node: AvroType, at: int, found: dict[str, Any]) -> Any:
    rule, name = node.rules[at], node.names[at]
    if name not in found and not rule.has_default:
        raise ValueError
    return _value(node.children[at], found.get(name, rule.default))
