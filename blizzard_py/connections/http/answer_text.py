"""Records and single values, cut out of an answer as they are written there.

A record stays as the bytes that the API sent. So numbers keep their digits, and the line parser
decides about errors inside a record, as it does for files. Line breaks between tokens become
blanks, so that a record is one line; a JSON string contains none. The answer must be JSON, and each
name on the path must be unique: of two lists with one name, one would be lost.

Many encoders write two things that are not JSON: ``NaN`` or ``Infinity``, and halves of surrogate
pairs. They do not invalidate a whole page. The answer is then cut by means of a copy with harmless
text of the same length in their place.

All functions raise `SourceError`. It names what the answer contains instead, and never a value.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from blizzard_core.errors import SourceError
from blizzard_core.limits import ANSWER_VALUES
from blizzard_core.text import one_line, printable, shortened

# The size of one piece; the kernel's chunks are as large.
CHUNK_BYTES = 2 << 20
# Records that are joined at a time.
_STEP = 4096

_BLANKS = re.compile(rb"[ \t\r\n]*")
# Also inside strings. The copy only tells where values begin and end.
_ODD = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_HARMLESS = {b"N": b"0.0", b"I": b"11111111", b"\\": b"\\ufffd"}
_INTEGER = re.compile(r"-?\d{1,4000}")  # Python refuses to read longer ones
_SHOWN_NAMES = 10
_KINDS = {b'"': "a text", b"t": "a boolean", b"f": "a boolean", b"n": "null", b"[": "a list",
          b"{": "an object"}  # fmt: skip


# Encoders write these for an object without members, or for none.
_EMPTY = frozenset({b"null", b"[]", b'""', b"false"})


class Truncated(SourceError):
    """The JSON ends too early: the answer was cut, or it is wrong."""


class _Missing(Exception):
    """Nothing is at the path; the text says what is there instead.

    ``is_blocked``: a value on the way cannot have names and is not empty.
    """

    def __init__(self, text: str, *, is_blocked: bool = False) -> None:
        super().__init__(text)
        self.is_blocked = is_blocked


class _Name:
    """A name in an object that equals no other name, so that repeated names are visible."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class AnswerText:
    """The text of one answer. ``what`` begins every message: ``GET https://…, page 3``."""

    def __init__(self, body: bytes | bytearray, what: str) -> None:
        self._what = what
        if body.count(b",") > ANSWER_VALUES:
            raise self._error(
                f"more than {ANSWER_VALUES:,} values in one answer; ask for smaller pages"
            )
        start = len(BOM_UTF8) if body.startswith(BOM_UTF8) else 0
        blanks = _BLANKS.match(body, start)
        self._body = memoryview(body)[blanks.end() if blanks else start :]
        self._original: memoryview | None = None
        self._known: dict[str, Mapping[_Name, Raw]] = {}
        self._mend()

    def _mend(self) -> None:
        try:
            self._decoded(self._body, Raw)
        except SourceError:  # half a pair at the end also looks as if the text was cut
            copy = bytearray(self._body)
            for odd in _ODD.finditer(self._body):
                copy[odd.start() : odd.end()] = _HARMLESS[odd[0][:1]]
            self._original, self._body = self._body, memoryview(copy)
            self._decoded(self._body, Raw)

    def _as_sent(self, value: memoryview) -> memoryview:
        """Return a value's bytes as the API sent them."""
        if self._original is None:
            return value
        start = _address(value) - _address(self._body)
        return self._original[start : start + len(value)]

    def records(self, path: str) -> Sequence[Raw]:
        """Return the elements of the list at ``path`` (``""``: the answer itself), for `lines`."""
        try:
            value = self._at(path)
        except _Missing as missing:
            raise self._error(f"records: {missing}") from None
        if _first(value) != b"[":
            there = self._description(path, value)
            raise self._error(f"records: {_named(path)} is {there}, not a list")
        found: list[Raw] = self._decoded(value, list[Raw])
        return found

    def lines(self, records: Sequence[Raw]) -> Iterator[bytes]:
        """Yield these records as NDJSON, one a line, in pieces of whole lines of about 2 MB."""
        if not records:
            return
        step = max(1, min(_STEP, CHUNK_BYTES * len(records) // max(1, len(self._body))))
        for start in range(0, len(records), step):
            yield self._piece(records[start : start + step])

    def _piece(self, records: Sequence[Raw]) -> bytes:
        views: Sequence[Raw | memoryview | bytes] = [*records, b""]
        if self._original is not None:
            views = [*(self._as_sent(memoryview(record)) for record in records), b""]
        piece = b"\n".join(views)
        if piece.count(b"\n") == len(records) and b"\r" not in piece:
            return piece
        flat = (bytes(view).replace(b"\n", b" ").replace(b"\r", b" ") for view in views)
        return b"\n".join(flat)

    def value(self, path: str) -> str | int | None:
        """Return the text or number at ``path``; a number that is no integer is returned as text.

        Returns None if the value or anything on its way is missing, null or empty. A list, a text
        or a number on the way is an error: the path is wrong, or the answer is another one.
        """
        try:
            value = self._as_sent(self._at(path))
        except _Missing as missing:
            if missing.is_blocked:
                raise self._error(str(missing)) from None
            return None
        kind = _first(value)
        if kind == b"n":
            return None
        if kind == b'"':
            text: str = self._decoded(value, str)
            return text
        if kind in _KINDS:
            there = self._description(path, value)
            raise self._error(f"'{path}' is {there}, where a text or a number is needed")
        digits = bytes(value).decode().strip()
        return int(digits) if _INTEGER.fullmatch(digits) else digits

    def missing(self, path: str) -> str:
        """Return why there is nothing at the path, for messages; empty if there is something."""
        try:
            self._at(path)
        except _Missing as missing:
            return str(missing)
        return ""

    def _at(self, path: str) -> memoryview:
        value, so_far = self._body, ""
        for name in path.split(".") if path else ():
            if _first(value) != b"{":
                there = self._description(so_far, value)
                blocked = bytes(value).translate(None, b" \t\r\n") not in _EMPTY
                text = f"{_named(so_far)} is {there}, and has no '{name}'"
                raise _Missing(text, is_blocked=blocked)
            members = self._members(so_far, value)
            found = [raw for key, raw in members.items() if key.text == name]
            if not found:
                names = self._description(so_far, value)
                raise _Missing(f"there is no '{name}': {_named(so_far)} is {names}")
            if len(found) > 1:
                raise self._error(f"the answer has '{name}' more than once")
            value, so_far = memoryview(found[0]), f"{so_far}.{name}" if so_far else name
        return value

    def _members(self, path: str, value: memoryview) -> Mapping[_Name, Raw]:
        if path not in self._known:
            self._known[path] = self._decoded(value, dict[_Name, Raw])
        return self._known[path]

    def _description(self, path: str, value: memoryview) -> str:
        """Return a description of a value; for an object it lists the names."""
        kind = _KINDS.get(_first(value), "a number")
        if kind != "an object":
            return kind
        names = [printable(one_line(key.text)) for key in self._members(path, value)]
        shown = ", ".join(f"'{shortened(name, 40)}'" for name in names[:_SHOWN_NAMES])
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        return f"an object with {shown}{more}" if names else "an object without members"

    def _decoded(self, value: memoryview, kind: Any) -> Any:
        try:
            return msgspec.json.decode(value, type=kind, dec_hook=_name)
        except msgspec.DecodeError as error:
            if "truncated" in str(error):
                raise Truncated(f"{self._what}: the answer is JSON that ends too early") from None
            raise self._error(f"the answer is not JSON: {error}") from None
        except RecursionError:
            raise self._error("the answer is nested too deeply") from None
        except UnicodeDecodeError:
            raise self._error("the answer is not JSON: it is not UTF-8") from None

    def _error(self, problem: str) -> SourceError:
        return SourceError(f"{self._what}: {problem}")


def _name(_kind: type, text: Any) -> _Name:
    return _Name(text)


def _address(value: memoryview) -> int:
    address: int = np.frombuffer(value, np.uint8).ctypes.data
    return address


def _first(value: memoryview) -> bytes:
    return bytes(value[:1])


def _named(path: str) -> str:
    return f"'{path}'" if path else "the answer"
