"""A filter of lines that may be records, used only for chunks that failed.

It decides nothing. Lines that it suspects are parsed alone; errors that it misses are found by
bisection. It only saves calls of the parser. msgspec decodes a line into a struct of the schema in
about a microsecond; a call of ``pyarrow.json`` takes a hundred.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pyarrow as pa

_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_floating, float),
    (pa.types.is_timestamp, dt.datetime),
    (pa.types.is_date, dt.date),
)


def plausibility(schema: pa.Schema) -> Callable[[bytes], bool]:
    """Return a function that says whether a line looks like an object of ``schema``.

    It checks types and ranges. If msgspec does not support the names, all lines look right.
    """
    try:
        decode = msgspec.json.Decoder(_struct("Record", schema)).decode
    except ValueError:
        return lambda _line: True

    def plausible(line: bytes) -> bool:
        try:
            decode(line)
            if not line.isascii():  # undeclared fields are not decoded
                line.decode()
        except (ValueError, RecursionError):  # msgspec.DecodeError is the former
            return False
        return True

    return plausible


def _struct(name: str, fields: Any) -> type[msgspec.Struct]:
    """Return a struct of Arrow fields, renamed because names may be no identifiers."""
    members: list[Any] = []
    for index, field in enumerate(fields):
        kind = _type(field.type)
        members.append((f"f{index}", kind | None, None) if field.nullable else (f"f{index}", kind))
    rename = {f"f{index}": field.name for index, field in enumerate(fields)}
    return msgspec.defstruct(name, members, rename=rename, kw_only=True, gc=False)


def _type(kind: pa.DataType) -> Any:
    """Return the Python type that msgspec checks; `object` if there is no equivalent."""
    for is_kind, found in _SCALARS:
        if is_kind(kind):
            return found
    if pa.types.is_signed_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    if pa.types.is_list(kind):
        return list[_type(kind.value_type) | None]  # type: ignore[misc]  # built from data
    if pa.types.is_struct(kind):
        return _struct("Nested", kind)
    return object
