"""The text of a JSON document as a stream, with the tokens around its array of records.

Tokens are read in a time and memory that do not depend on the size of a value. Values off the path
are skipped by their brackets; they are not validated.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence

from blizzard_core.limits import RAW_BYTES
from blizzard_py.lines.failure import FileFailed

SLICE_BYTES = 2 << 20

_NOT_BLANK = re.compile(rb"[^ \t\r\n]")
_PLAIN = re.compile(rb'[^"\\]*+(?:(?>\\[\s\S][^"\\]*+))*+')
_UNBRACKETED = re.compile(rb'[^"{}\[\]]*+')
_SCALAR = re.compile(rb'[^ \t\r\n,:"{}\[\]]*+')
_QUOTE, _ESCAPE, _COMMA, _COLON = b'"\\,:'
_OPEN, _CLOSE, _OPEN_ARRAY = b"{}["
_OPENING = b"{["
END = -1


def damaged(what: str, offset: int, remedy: str = "write the file again") -> FileFailed:
    """Return the failure of a file whose structure is wrong at an offset."""
    return FileFailed("parse", f"{what} at byte {offset}; {remedy}")


class DocumentText:
    """A document's bytes, read once from the start to the end.

    A byte order mark is skipped; offsets count it.
    """

    def __init__(self, blocks: Iterable[bytes], target: int = SLICE_BYTES) -> None:
        self._blocks = iter(blocks)
        self._target = target
        self._held = b""
        self._data = self._joined(4)
        self._at = 0
        self._base = 0
        if self._data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in self._data[:4]:
            raise damaged("UTF-16 or UTF-32", 0, "set the encoding of the format")
        if self._data.startswith(BOM_UTF8):
            self._at = len(BOM_UTF8)

    @property
    def offset(self) -> int:
        """The offset of the next byte."""
        return self._base + self._at

    def peek(self) -> int:
        """Return the next byte that is not blank, without consuming it; `END` behind the last."""
        while True:
            if found := _NOT_BLANK.search(self._data, self._at):
                self._at = found.start()
                return self._data[self._at]
            if not self._advance():
                return END

    def take(self) -> None:
        """Consume one byte."""
        self._at += 1

    def slices(self) -> Iterator[bytes]:
        """Yield the rest, no line end cut in two; its last slice may be given back in part."""
        while self._at < len(self._data) or self._advance():
            rest = self._data[self._at :]
            self._at = len(self._data)
            yield rest

    def give_back(self, count: int) -> None:
        """Return to a place within the last slice, so many bytes before its end."""
        self._at -= count

    def string(self) -> bytes:
        """Consume a string behind its opening quote and return it, or the start of a long one."""
        parts: list[bytes] = []
        size = 0
        escaped = False
        while self._at < len(self._data) or self._advance():
            start = self._at
            if escaped:
                self._at += 1
                escaped = False
            else:
                self._at = _PLAIN.match(self._data, start).end()  # type: ignore[union-attr]  # matches all
                if self._at < len(self._data):
                    if self._data[self._at] == _QUOTE:
                        parts.append(self._data[start : self._at])
                        self._at += 1
                        return b"".join(parts)
                    escaped = True
                    self._at += 1
            if size <= RAW_BYTES:
                parts.append(self._data[start : self._at])
                size += self._at - start
        raise damaged("the file ends in a string", self.offset)

    def skip(self) -> None:
        """Consume one value."""
        first = self.peek()
        if first == _QUOTE:
            self.take()
            self.string()
        elif first == END:
            raise damaged("the file ends in an object", self.offset)
        elif first in _OPENING:
            self._skip_brackets()
        elif not self._skip_scalar():
            raise damaged("a value is missing", self.offset)

    def _skip_brackets(self) -> None:
        depth = 0
        while self._at < len(self._data) or self._advance():
            self._at = _UNBRACKETED.match(self._data, self._at).end()  # type: ignore[union-attr]  # matches all
            if self._at == len(self._data):
                continue
            found = self._data[self._at]
            self._at += 1
            if found == _QUOTE:
                self.string()
            else:
                depth += 1 if found in _OPENING else -1
                if not depth:
                    return
        raise damaged("the file ends in an object or array", self.offset)

    def _skip_scalar(self) -> bool:
        start = self.offset
        while True:
            self._at = _SCALAR.match(self._data, self._at).end()  # type: ignore[union-attr]  # matches all
            if self._at < len(self._data) or not self._advance():
                return self.offset > start

    def _advance(self) -> bool:
        """Go on to the next slice. Return False at the end."""
        data = self._joined(self._target)
        if data:
            self._base += len(self._data)
            self._data, self._at = data, 0
        return bool(data)

    def _joined(self, target: int) -> bytes:
        """Return the next slice; a carriage return at its end comes with the following one."""
        parts, size = [self._held], len(self._held)
        self._held = b""
        for block in self._blocks:
            parts.append(block)
            size += len(block)
            if size >= target:
                break
        else:
            return b"".join(parts)
        data = b"".join(parts)
        if not data.endswith(b"\r"):
            return data
        self._held = b"\r"
        return data[:-1] or self._joined(target)


def enter_array(text: DocumentText, keys: Sequence[str]) -> None:
    """Consume the document up to the array of records, and its bracket."""
    for level, key in enumerate(keys):
        path = ".".join(keys[: level + 1])
        _enter(text, _OPEN, ".".join(keys[:level]), "an object")
        first = True
        while True:
            name = _next_name(text, first=first)
            if name is None:
                raise damaged(f"{path} is missing: its object ends", text.offset, _RECORDS)
            if name == key:
                break
            text.skip()
            first = False
    _enter(text, _OPEN_ARRAY, ".".join(keys), "an array")


def leave_array(text: DocumentText, keys: Sequence[str]) -> None:
    """Consume the document behind the array of records, to the last byte."""
    for level in range(len(keys), 0, -1):
        while (name := _next_name(text, first=False)) is not None:
            if name == keys[level - 1]:
                path = ".".join(keys[:level])
                raise damaged(f"{path} stands a second time", text.offset)
            text.skip()
    if text.peek() != END:
        raise damaged("text follows the document", text.offset)


_RECORDS = "set format.records to the path of the array of records, or write the file again"


def _enter(text: DocumentText, bracket: int, path: str, kind: str) -> None:
    if text.peek() != bracket:
        raise damaged(f"{path or 'the document'} is not {kind}", text.offset, _RECORDS)
    text.take()


def _next_name(text: DocumentText, *, first: bool) -> str | None:
    """Consume the name of an object's next member and its colon; None at the object's end."""
    found = text.peek()
    if found == _CLOSE:
        text.take()
        return None
    if not first:
        _expect(text, _COMMA)
    _expect(text, _QUOTE)
    name = text.string()
    _expect(text, _COLON)
    return _decode(name)


def _expect(text: DocumentText, byte: int) -> None:
    found = text.peek()
    if found == END:
        raise damaged("the file ends in an object", text.offset)
    if found != byte:
        raise damaged(f"{chr(byte)} is missing", text.offset)
    text.take()


def _decode(name: bytes) -> str:
    if _ESCAPE in name:
        try:
            return str(json.loads(b'"%s"' % name, strict=False))
        except ValueError:
            pass  # not the name of a path
    return name.decode("utf-8", "replace")
