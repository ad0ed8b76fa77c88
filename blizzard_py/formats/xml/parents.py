"""The open elements around records, and the namespaces that they declare."""

from __future__ import annotations

import re

from blizzard_core.limits import RAW_BYTES, XML_LEVELS
from blizzard_py.formats.xml.markup import RowNames
from blizzard_py.lines.failure import FileFailed

_DECLARATION = re.compile(
    rb"[ \t\r\n](xmlns(?::[^ \t\r\n=]+)?)[ \t\r\n]*=[ \t\r\n]*(\"[^\"]*\"|'[^']*')"
)


class Parents:
    """The open elements, from the root on.

    ``fits`` says whether a record may stand here; ``has_fitted`` whether one might, in an element
    that the path to records names. ``header`` has the declarations of namespaces in force.
    """

    def __init__(self, names: RowNames) -> None:
        self._row = names
        self._names: list[bytes] = []
        self._namespaces: list[dict[bytes, bytes]] = [{}]
        self.fits = names.fits(())
        self.has_fitted = False
        self._passed = 0  # so many of the elements had a record's name in them
        self.header = b""

    def __len__(self) -> int:
        return len(self._names)

    @property
    def innermost(self) -> bytes:
        """The name of the innermost element, empty outside of the root."""
        return self._names[-1] if self._names else b""

    def open(self, name: bytes, tag: bytes) -> None:
        """Take a start tag. Raises `FileFailed` beyond a limit."""
        if len(self._names) == XML_LEVELS:
            raise FileFailed("parse", f"has elements of more than {XML_LEVELS} levels")
        namespaces = self._namespaces[-1]
        if b"xmlns" in tag:
            namespaces = namespaces | dict(_DECLARATION.findall(tag))
            if sum(len(part) for pair in namespaces.items() for part in pair) > RAW_BYTES:
                raise FileFailed("parse", f"declares namespaces of more than {RAW_BYTES:,} bytes")
        self._names.append(name)
        self._namespaces.append(namespaces)
        self._changed()
        self.has_fitted |= self.fits and bool(self._row.parents)

    def close(self) -> None:
        """Close the innermost element."""
        self._close(len(self._names) - 1)

    def close_to(self, name: bytes) -> None:
        """Close the innermost element of the name with all in it; nothing if there is none."""
        if name in self._names:
            self._close(len(self._names) - 1 - self._names[::-1].index(name))

    def pass_row(self) -> None:
        """Take note of an element of a record's name where no record may stand."""
        self._passed = len(self._names)

    def close_unfit(self) -> bool:
        """Close elements until a record may stand here; return whether this loses no record.

        Elements of a record's name in a closed one might have been records.
        """
        for levels in range(len(self._names), -1, -1):
            if self._row.fits(self._names[:levels]):
                is_safe = self._passed <= levels
                self._close(levels)
                return is_safe
        return False

    def _close(self, levels: int) -> None:
        """Keep so many elements."""
        del self._names[levels:], self._namespaces[levels + 1 :]
        self._passed = min(self._passed, levels)
        self._changed()

    def _changed(self) -> None:
        self.fits = self._row.fits(self._names)
        self.header = b" ".join(b"%b=%b" % pair for pair in self._namespaces[-1].items())
