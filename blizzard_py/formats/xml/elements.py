"""Elements as Python values, by expat.

An element without attributes and child elements is its text. Another one is a dictionary: child
elements by name, attributes by name with a prefix, text that is not blank under the value tag. What
occurs several times is `Repeated`. `Attributed` elements have text and attributes alone.

An element with the attribute ``nil`` of XML Schema is null, or `Nil` with its other attributes. If
it has content all the same, this counts. The prefix of the attribute is ``xsi``, or one that is
declared around it.
"""

from __future__ import annotations

import pyexpat
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from blizzard_core.limits import XML_ATTRIBUTES, XML_LEVELS
from blizzard_core.settings.formats import XmlOptions
from blizzard_py.formats.xml.markup import TOO_DEEP

# Expat scans a token again for each part of it.
_PART_BYTES = 256 << 10
_XML_BLANKS = " \t\r\n"
# Levels outside of a record: the element around all records.
_OUTSIDE = 1
_SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_DECLARED = re.compile(rf"""xmlns:([^\s=]+)\s*=\s*["']{re.escape(_SCHEMA_INSTANCE)}["']""")
_USUAL_NILS = frozenset({"xsi:nil"})
_NIL = {"true": True, "1": True, "false": False, "0": False}


class Repeated(list["Value"]):
    """Values of one name."""


class Attributed(dict[str, "Value"]):
    """An element without child elements."""


class Nil(Attributed):
    """An element without a value."""


Value: TypeAlias = "str | dict[str, Value] | Repeated | None"
Row: TypeAlias = dict[str, Value]


@dataclass(slots=True)
class RecordTrees:
    """Records up to the first that is not well-formed, if ``error`` is not empty.

    ``bad`` has reasons for others that are none of the rows, by their number from 0.
    """

    rows: list[Row]
    bad: dict[int, str]
    error: str = ""


def nil_names(header: bytes) -> frozenset[str]:
    """Return the attributes that say nil where ``header`` declares the namespaces."""
    prefixes = _DECLARED.findall(header.decode(errors="replace"))
    return _USUAL_NILS | {f"{prefix}:nil" for prefix in prefixes}


def read_elements(
    data: bytes, options: XmlOptions, nils: frozenset[str] = _USUAL_NILS
) -> RecordTrees:
    """Return the records of whole elements with blanks between them; a bad one is an empty row.

    ``nils`` are names that `nil_names` returns.
    """
    reader = _Reader(options, nils)
    return RecordTrees(reader.rows, reader.bad, reader.read(data))


class _Reader:
    def __init__(self, options: XmlOptions, nils: frozenset[str]) -> None:
        self._options = options
        self._outer_nils: AbstractSet[str] = nils
        self._nils: AbstractSet[str] = nils
        self.rows: list[Row] = []
        self.bad: dict[int, str] = {}

    def read(self, data: bytes) -> str:
        """Read all, and return expat's error or an empty text."""
        parser = pyexpat.ParserCreate("utf-8")
        parser.buffer_text = True
        self._set_handlers(parser)
        view = memoryview(data)
        try:
            parser.Parse(b"<r>", False)
            for start in range(0, len(data), _PART_BYTES):
                parser.Parse(view[start : start + _PART_BYTES], False)
            parser.Parse(b"</r>", True)
        except pyexpat.ExpatError as error:
            return f"is not well-formed: {pyexpat.ErrorString(error.code)}"
        return ""

    def _set_handlers(self, parser: pyexpat.XMLParserType) -> None:  # noqa: C901  # see below
        """Set functions that are called several times for each value; hence no methods."""
        options = self._options
        value_tag, is_local = options.value_tag, options.ignore_namespace
        rows, bad, attributes = self.rows, self.bad, self._attributes
        outer_nils = self._outer_nils
        node: dict[str, Value] | None = None
        text = ""
        outer: list[tuple[dict[str, Value] | None, str]] = []

        def start(_name: str, given: dict[str, str]) -> None:
            nonlocal node, text
            outer.append((node, text))
            node, text = (attributes(given) if given else None), ""
            if len(outer) > XML_LEVELS + _OUTSIDE:
                bad.setdefault(len(rows), TOO_DEEP)

        def characters(more: str) -> None:
            nonlocal text
            text += more

        def end(name: str) -> None:
            nonlocal node, text
            value: Value = text
            if node is not None:
                if text and text.strip(_XML_BLANKS):
                    _add(node, value_tag, text)
                value = node or None
            node, text = outer.pop()
            if len(outer) == _OUTSIDE:
                rows.append(_as_row(value, value_tag))
                self._nils = outer_nils
                node, text = None, ""
                return
            if is_local:
                name = name.rpartition(":")[2]
            if node is None:
                node = {name: value}
            elif type(node) is not dict:
                node = dict(node)
                _add(node, name, value)
            elif name in node:
                _add(node, name, value)
            else:
                node[name] = value

        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = characters

    def _attributes(self, given: dict[str, str]) -> dict[str, Value] | None:
        """Return an element with its attributes; None if there is none that counts."""
        options = self._options
        if len(given) > XML_ATTRIBUTES:
            self._refuse(f"has an element of more than {XML_ATTRIBUTES:,} attributes")
            return None
        self._declare_nils(given)
        is_nil = False
        found = Attributed()
        for name, text in given.items():
            if name == "xmlns" or name.startswith("xmlns:"):
                continue
            if name in self._nils and (says := _NIL.get(text.strip(_XML_BLANKS))) is not None:
                is_nil = says
                continue
            if options.exclude_attribute:
                continue
            shown = name.rpartition(":")[2] if options.ignore_namespace else name
            _add(found, options.attribute_prefix + shown, text)
        return Nil(found) if is_nil else found or None

    def _declare_nils(self, given: dict[str, str]) -> None:
        """Take further prefixes, which count up to the end of the record."""
        for name, text in given.items():
            if text == _SCHEMA_INSTANCE and name.startswith("xmlns:"):
                if not isinstance(self._nils, set):
                    self._nils = set(self._nils)
                self._nils.add(f"{name.removeprefix('xmlns:')}:nil")

    def _refuse(self, why: str) -> None:
        """Make the record a bad one."""
        self.bad.setdefault(len(self.rows), why)


def _add(node: dict[str, Value], name: str, value: Value) -> None:
    if name not in node:
        node[name] = value
        return
    known = node[name]
    if known is None:
        node[name] = Repeated([None, value])
    elif isinstance(known, Repeated):
        known.append(value)
    else:
        node[name] = Repeated([known, value])


def _as_row(value: Value, value_tag: str) -> Row:
    if isinstance(value, dict):
        return dict(value)
    return {value_tag: value} if isinstance(value, str) and value.strip(_XML_BLANKS) else {}


def is_blank(text: str) -> bool:
    """Return whether there is nothing but blanks."""
    return not text.strip(_XML_BLANKS)
