"""The element that is a record of an XML file, told by the file's beginning. Pure."""

from __future__ import annotations

import contextlib
import pyexpat
import re
from collections import Counter

from pydantic import ValidationError

from blizzard_core.settings.formats import XmlOptions

# A record is rarely deeper.
_LEVELS = 8
_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")
Path = tuple[str, ...]


def row_tag_of(text: str) -> str:
    """Return the ``row_tag``: the outermost element that comes several times in its parent.

    Of several such elements it is the one with most inside. Without any it is the first one in the
    root. The root itself is the record if the element has nothing but text and stands beside other
    texts, which would be lost. Empty if there is none, or if the file has entities, which are not
    read.
    """
    if "<!ENTITY" in text:
        return ""
    found = _Elements()
    parser = pyexpat.ParserCreate("utf-8")
    parser.StartElementHandler = found.start
    parser.EndElementHandler = found.end
    with contextlib.suppress(pyexpat.ExpatError):  # what was read up to there counts
        parser.Parse(_DECLARATION.sub("", text, count=1).encode("utf-8", "replace"))
    path = found.record()
    if path is None:
        return ""
    others = (other for other in found.counts if other[: len(path)] != path)
    is_unique = all(path[-1] not in other for other in others)
    try:
        return XmlOptions(type="xml", row_tag="/".join(path[-1 if is_unique else -2 :])).row_tag
    except ValidationError:
        return ""


class _Elements:
    """The paths of elements, how often each comes in one parent, and how many are in it."""

    def __init__(self) -> None:
        self.counts: Counter[Path] = Counter()
        self._repeated: dict[Path, None] = {}
        self._inside: Counter[Path] = Counter()
        self._with_attributes: set[Path] = set()
        self._path: list[str] = []
        self._siblings: list[Counter[str]] = [Counter()]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take a start tag."""
        self._path.append(name)
        if len(self._path) <= _LEVELS:
            path = tuple(self._path)
            self.counts[path] += 1
            if attributes:
                self._with_attributes.add(path)
            self._siblings[-1][name] += 1
            self._siblings.append(Counter())
            if self._siblings[-2][name] == 2:
                self._repeated[path] = None
            for end in range(1, len(path)):
                self._inside[path[:end]] += 1

    def end(self, _name: str) -> None:
        """Take an end tag."""
        if len(self._path) <= _LEVELS:
            self._siblings.pop()
        self._path.pop()

    def record(self) -> Path | None:
        """Return the path of a record."""
        if self._repeated:
            least = min(map(len, self._repeated))
            outermost = [path for path in self._repeated if len(path) == least]
            found = max(outermost, key=lambda path: self._inside[path])
            return found[:1] if self._is_field(found) else found
        inner = [path for path in self.counts if len(path) == 2]
        return max(inner, key=lambda path: self._inside[path], default=None)

    def _is_field(self, path: Path) -> bool:
        """Return whether an element in the root is a text that stands beside other texts."""
        texts = [
            other
            for other in self.counts
            if len(other) == 2 and not self._inside[other] and other not in self._with_attributes
        ]
        return path in texts and len(texts) > 1
