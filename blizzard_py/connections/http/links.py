"""Parser of ``Link`` headers by the grammar of RFC 8288. Pure.

The client's own parser splits at every ``;`` and ``,`` and drops a link that it cannot read. A
dropped link would look like the last page. So here an unreadable header is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_OWS = re.compile(r"[ \t]*")
_TARGET = re.compile(r"<([^<>]*)>")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# More than a token of the grammar: servers write URLs and several relations without quotes.
# A '<' would begin the next link after a missing comma.
_BARE = re.compile(r'[^",;<>]*')


class LinkError(ValueError):
    """A header is not a list of links. The text names the position and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link. Names of ``params`` are in lower case; of a repeated name the first counts."""

    target: str
    params: Mapping[str, str]

    def has_relation(self, name: str) -> bool:
        """Return whether ``rel`` holds this relation, in any case and among others."""
        return name in self.params.get("rel", "").lower().split()


def links(headers: Sequence[str]) -> list[Link]:
    """Read the links of all ``Link`` headers, in their order. Raises `LinkError`."""
    return [link for header in headers for link in _Scanner(header).links()]


class _Scanner:
    """A scanner that reads one header from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def links(self) -> Iterator[Link]:
        while not self._is_over():
            if self._skip(","):  # an element of the list may be empty
                continue
            yield self._link()
            if not self._is_over() and not self._skip(","):
                raise self._error("',' or ';'")

    def _link(self) -> Link:
        target = self._match(_TARGET)
        if target is None:
            raise self._error("a URL in '<' and '>'")
        params: dict[str, str] = {}
        while self._skip(";"):
            name = self._match(_NAME)
            if name is not None:
                value = self._value() if self._skip("=") else ""
                params.setdefault(name[0].lower(), value)
        return Link(target[1].strip(), params)

    def _value(self) -> str:
        self._blanks()
        if self._text.startswith('"', self._at):
            quoted = self._match(_QUOTED)
            if quoted is None:
                raise self._error("a closing quotation mark")
            return _ESCAPED.sub(r"\1", quoted[1])
        bare = self._match(_BARE)
        return "" if bare is None else bare[0].strip()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._blanks()
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _skip(self, sign: str) -> bool:
        self._blanks()
        is_there = self._text.startswith(sign, self._at)
        self._at += is_there
        return is_there

    def _is_over(self) -> bool:
        self._blanks()
        return self._at == len(self._text)

    def _blanks(self) -> None:
        found = _OWS.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _error(self, expected: str) -> LinkError:
        return LinkError(f"{expected} is missing at character {self._at + 1}")
