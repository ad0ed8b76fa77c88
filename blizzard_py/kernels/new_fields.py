"""A task's report of fields without a column: names, and types if columns are made from them.

A field counts from the first row that has it; a line that becomes a dead letter does not count.
Where files name the type, it is reported. Else values are, if a type can be inferred from them; a
million equal ones add nothing. A duplicate field in a record gives no type: a column of one of the
values would make the other a dead letter.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from blizzard_core.limits import UNEXPECTED_FIELDS, UNEXPECTED_VALUES_BYTES
from blizzard_py.formats.ndjson.extract import OBJECT
from blizzard_py.formats.ndjson.unexpected import shown_name
from blizzard_py.formats.protocol import LineNumbers, Parsed
from blizzard_py.job import FieldSpec, RowSchema, UnexpectedField
from blizzard_py.schema.file_types import named_columns, united
from blizzard_py.schema.inference import NewKinds

_NULL = b"null"
_CONFLICT = 2


@dataclass(slots=True)
class _Found:
    path: str
    values: list[str] = field(default_factory=list)
    types: list[FieldSpec | None] = field(default_factory=list)

    def add_type(self, spec: FieldSpec | None) -> None:
        """Unite the type with one that is known; two without a union are a conflict already."""
        for at, known in enumerate(self.types):
            wider = united(known, spec) if known and spec else None
            if wider is not None or known == spec:
                self.types[at] = wider
                return
        if spec is None or len(self.types) < _CONFLICT:
            self.types.append(spec)


class NewFields:
    """Collects over one task. A file's fields are taken when the file is ingested."""

    def __init__(self, schema: RowSchema) -> None:
        self._evolves = schema.evolves
        self._columns = frozenset(spec.input_name for spec in schema.fields)
        self._left_out = frozenset(schema.left_out)
        self._telling = NewKinds()
        self._found: dict[str, _Found] = {}
        self._room = UNEXPECTED_VALUES_BYTES

    def see(self, parsed: Parsed, rows: LineNumbers, parts: Sequence[tuple[str, bytes]]) -> None:
        """Collect from rows, made of the lines ``rows`` of ``parsed``, which is the parts joined.

        A part is a file's path and whole lines of it.
        """
        names = parsed.unexpected - self._left_out
        if not names or not len(rows):
            return
        if self._evolves:
            self._values(names, rows, parts)
        for name in sorted(names - self._found.keys()):
            if not self._known(name, _file_with(name, parts)):
                return

    def see_columns(
        self, parsed: Parsed, columns: Mapping[str, pa.DataType | None], path: str
    ) -> bool:
        """Collect the types that a file names; return whether `see` has to see values, too.

        ``columns`` are those of `Decoder.columns`.
        """
        if not self._evolves or not columns:
            return True
        if not len(parsed.rows_at):
            return False
        named, has_others = named_columns(columns), False
        top = {shown_name(name): name for name in columns if name not in self._columns}
        inner = sorted(parsed.unexpected - top.keys())
        for shown in (each for each in [*top, *inner] if each not in self._left_out):
            name = top.get(shown)
            has_others |= name is not None and named.get(name) is None
            if (known := self._known(shown, path)) and name in named:
                known.add_type(named[name])
        return has_others

    def take(self, fields: Iterable[UnexpectedField]) -> None:
        """Take the new fields of an ingested file."""
        for each in fields:
            if known := self._known(each.name, each.path):
                for value in each.values:
                    self._add(each.name, known, value.encode())
                for spec in each.types:
                    known.add_type(spec)

    def found_fields(self) -> tuple[UnexpectedField, ...]:
        """Return each field once, in the order in which they were found."""
        return tuple(
            UnexpectedField(name, found.path, tuple(found.values), tuple(found.types))
            for name, found in self._found.items()
        )

    def _values(
        self, names: Collection[str], rows: LineNumbers, parts: Sequence[tuple[str, bytes]]
    ) -> None:
        """Take values of the named fields from rows with a value that is not null."""
        data = b"".join(chunk for _, chunk in parts)
        if not any(_valued(name, data) for name in names):
            return
        lines = data.split(b"\n")
        taken = set(rows.tolist())
        number = 0
        for path, chunk in parts:
            count = chunk.count(b"\n")
            for index in range(number, number + count):
                if index in taken:
                    self._record(path, lines[index])
            number += count

    def _record(self, path: str, line: bytes) -> None:
        try:
            document = OBJECT.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            return
        if document.keys() <= self._columns:
            return
        for name, raw in document.items():
            shown = shown_name(name)
            if name in self._columns or shown in self._left_out or bytes(raw) == _NULL:
                continue
            known = self._known(shown, path)
            if known and not _has_twice(name, line):
                self._add(shown, known, bytes(raw))

    def _known(self, name: str, path: str) -> _Found | None:
        """Return what is known of a field; None if it is one too many."""
        if name not in self._found and len(self._found) < UNEXPECTED_FIELDS:
            self._found[name] = _Found(path)
        return self._found.get(name)

    def _add(self, name: str, known: _Found, raw: bytes) -> None:
        if len(raw) > self._room:
            return
        try:
            if self._telling.adds(name, json.loads(raw, object_pairs_hook=_each_once)):
                known.values.append(raw.decode())
                self._room -= len(raw)
        except (ValueError, RecursionError):
            return


def _has_twice(name: str, line: bytes) -> bool:
    """Return whether a record has the field more than once; its spelling usually excludes it."""
    quoted = json.dumps(name, ensure_ascii=False).encode("utf-8", "replace")
    if line.count(quoted) < 2 and b"\\" not in line:
        return False
    try:
        pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return True
    return sum(key == name for key, _ in pairs) > 1


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises `ValueError` if a name occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _valued(name: str, data: bytes) -> bool:
    """Return whether the field may have a value that is not null; many fields never have one."""
    quoted = json.dumps(name, ensure_ascii=False).encode("utf-8", "replace")
    if quoted not in data:
        return True  # written in another form
    return re.search(re.escape(quoted) + rb"[ \t\r]*:[ \t\r]*(?!null|[ \t\r])", data) is not None


def _file_with(name: str, parts: Sequence[tuple[str, bytes]]) -> str:
    """Return the first file with a record that has the field, else the first of all."""
    quoted = json.dumps(name, ensure_ascii=False).encode("utf-8", "replace")
    for path, chunk in parts:
        if any(name in document for document in _documents(quoted, chunk)):
            return path
    return parts[0][0]


def _documents(quoted: bytes, chunk: bytes) -> Iterator[dict[str, msgspec.Raw]]:
    """Yield the records of the first lines that contain the bytes."""
    at = 0
    for _ in range(10):
        at = chunk.find(quoted, at)
        if at < 0:
            return
        end = chunk.find(b"\n", at)
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            yield OBJECT.decode(chunk[chunk.rfind(b"\n", 0, at) + 1 : end])
        at = end
