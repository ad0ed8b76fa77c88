"""Values of types that ``pyarrow.json`` does not have, taken from the lines themselves.

It is a second pass over a chunk, by msgspec, which returns values as the bytes of the line. So
nothing is lost: ``1.10`` stays ``1.10``, a number of forty digits keeps them. It also finds fields
that the schema does not name. Chunks whose schema needs neither skip this pass.

The reader has read the chunk before, so every line holds one object. Of a duplicate field the last
one counts, as in Python; the reader refuses duplicates of the fields that it reads itself. ``NaN``
and ``Infinity``, which the reader accepts, are refused here: they are not JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from blizzard_core.settings.schema import UnexpectedFields
from blizzard_py.job import FieldSpec
from blizzard_py.schema.types import is_extracted

NULL = b"null"

_NULL = msgspec.Raw(NULL)
_PLACE = re.compile(r" \(byte \d+\)| - at `.*`")
OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class SchemaNames:
    """The names that the schema has at one level, and those below structs."""

    names: frozenset[str]
    structs: Mapping[str, SchemaNames]

    @classmethod
    def of(cls, fields: Sequence[FieldSpec]) -> SchemaNames:
        """Return the names of the fields."""
        structs = {spec.name: cls.of(spec.children) for spec in fields if spec.type == "struct"}
        return cls(frozenset(spec.name for spec in fields), structs)


@dataclass(frozen=True, slots=True)
class Extracted:
    """By row: raw JSON of each extracted column, and unexpected fields as JSON."""

    values: dict[str, list[bytes]]
    rescued: list[str | None]


class Extractor:
    """Extracts one schema's columns and unexpected fields from chunks."""

    def __init__(self, fields: Sequence[FieldSpec], unexpected: UnexpectedFields) -> None:
        self._unexpected = unexpected
        self._names = [spec.name for spec in fields if is_extracted(spec)]
        self._attributes = {name: f"f{index}" for index, name in enumerate(self._names)}
        self._known = SchemaNames.of(fields)
        self._values = _decoder(self._names) if unexpected == "ignore" else None
        # Detects quickly that a chunk has nothing unexpected, unless it would have to parse
        # values that are extracted as a whole.
        whole = any(spec.type == "struct" and is_extracted(spec) for spec in fields)
        if unexpected != "ignore" and not whole:
            self._values = msgspec.json.Decoder(strict_line(fields, self._attributes))

    def extract(self, chunk: bytes, rows: int) -> Extracted:
        """Extract from the chunk's non-blank lines, ``rows`` in number. Raises `ValueError`."""
        if self._values is not None:
            try:
                found = decode_lines(self._values, chunk)
            except ValueError:
                if self._unexpected == "ignore":
                    raise
            else:
                _check_rows(found, rows)
                values = {
                    name: [bytes(getattr(row, attribute)) for row in found]
                    for name, attribute in self._attributes.items()
                }
                return Extracted(values, [None] * rows)
        documents: list[dict[str, msgspec.Raw]] = decode_lines(OBJECT, chunk)
        _check_rows(documents, rows)
        rescued = [self._left_over(document) for document in documents]
        values = {
            name: [bytes(document.get(name, _NULL)) for document in documents]
            for name in self._names
        }
        return Extracted(values, rescued)

    def _left_over(self, document: Mapping[str, msgspec.Raw]) -> str | None:
        found = left_over(document, self._known)
        if not found:
            return None
        if self._unexpected == "fail":
            name = next(paths(found), "")
            raise ValueError(f"unexpected field {name!r}, which the schema lacks")
        return _text(found)


def decode_lines(decoder: Any, chunk: bytes) -> list[Any]:
    """Return the values of the chunk's lines. Raises `ValueError` if msgspec refuses one."""
    try:
        found: list[Any] = decoder.decode_lines(chunk)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(_PLACE.sub("", str(error))) from error
    return found


def members(raw: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object as raw JSON, none for null. Raises `ValueError`."""
    if raw == NULL:
        return {}
    return {name: bytes(value) for name, value in _decoded(OBJECT, raw, "an object").items()}


def elements(raw: bytes) -> list[bytes]:
    """Return the elements of a JSON array as raw JSON, none for null. Raises `ValueError`."""
    if raw == NULL:
        return []
    return [bytes(value) for value in _decoded(_LIST, raw, "an array")]


def compact(raw: bytes) -> str:
    """Return the JSON text without white space between tokens, otherwise unchanged."""
    if raw.startswith((b"{", b"[")) and (b" " in raw or b"\t" in raw or b"\r" in raw):
        try:
            raw = msgspec.json.format(raw, indent=-1)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(str(error)) from error
    return raw.decode()


def coerced(raw: bytes) -> str:
    """Return a string's content; for any other value its JSON text."""
    if not raw.startswith(b'"'):
        return compact(raw)
    text: str = _decoded(_TEXT, raw, "a string")
    return text


def _decoded(decoder: Any, raw: bytes, kind: str) -> Any:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{raw.decode()} is not {kind}") from error


def _check_rows(found: Sequence[Any], rows: int) -> None:
    if len(found) != rows:
        raise ValueError("more than one JSON object in a line")


def _decoder(names: Sequence[str]) -> Any:
    columns = [(f"f{index}", msgspec.Raw, _NULL) for index in range(len(names))]
    renamed = {f"f{index}": name for index, name in enumerate(names)}
    return msgspec.json.Decoder(msgspec.defstruct("Line", columns, rename=renamed, gc=False))


def strict_line(fields: Sequence[FieldSpec], attributes: Mapping[str, str]) -> Any:
    """Return a type that accepts the fields and no others, also in structs."""
    columns: list[tuple[str, Any, Any]] = []
    renamed = {}
    for index, spec in enumerate(fields):
        attribute = attributes.get(spec.name, f"p{index}")
        renamed[attribute] = spec.name
        if spec.name in attributes:
            columns.append((attribute, msgspec.Raw, _NULL))
        elif spec.type == "struct":
            columns.append((attribute, strict_line(spec.children, {}) | None, None))
        else:
            columns.append((attribute, Any, None))
    return msgspec.defstruct("Line", columns, rename=renamed, gc=False, forbid_unknown_fields=True)


# Raw JSON by name, or the rest of a struct.
LeftOver = dict[str, "msgspec.Raw | LeftOver"]


def left_over(document: Mapping[str, msgspec.Raw], known: SchemaNames) -> LeftOver:
    """Return a record's fields without a column. Raises `ValueError` if a struct is not JSON."""
    found: LeftOver = {}
    if not document.keys() <= known.names:
        found.update((n, raw) for n, raw in document.items() if n not in known.names)
    for name, inner in known.structs.items():
        raw = bytes(document.get(name, _NULL))
        # A value that should be an object and is not is refused when the column is made.
        if raw.startswith(b"{"):
            deeper = left_over(_decoded(OBJECT, raw, "an object"), inner)
            if deeper:
                found[name] = deeper
    return found


def paths(found: LeftOver) -> Iterator[str]:
    """Yield the names of left-over fields; those of a struct as ``struct.name``."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in paths(value))
        else:
            yield name


def _text(found: LeftOver) -> str:
    pairs = (
        f"{json.dumps(name, ensure_ascii=False)}:"
        + (_text(value) if isinstance(value, dict) else compact(bytes(value)))
        for name, value in found.items()
    )
    return "{" + ",".join(pairs) + "}"
