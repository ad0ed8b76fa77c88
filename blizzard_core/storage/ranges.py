"""Ranges of paths: the parts of a store that a listing covers. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from blizzard_core.storage.protocol import Range, order_key

# The last of ASCII, which every server understands.
_LAST_ASCII = "~"
_LAST_CODE = 0x10FFFF
# Surrogates lie between; no name has them.
_LAST_BELOW, _FIRST_ABOVE = 0xD7FF, 0xE000


def name_after(text: str) -> str | None:
    """Return the first text above all that begin with ``text``; None if there is none."""
    for end in range(len(text) - 1, -1, -1):
        code = ord(text[end])
        if code < _LAST_CODE:
            return text[:end] + chr(_FIRST_ABOVE if code == _LAST_BELOW else code + 1)
    return None


def name_before(text: str) -> str:
    """Return a text below ``text``, with few names between them."""
    code = ord(text[-1])
    if not code:
        return text[:-1]
    return text[:-1] + chr(_LAST_BELOW if code == _FIRST_ABOVE else code - 1) + _LAST_ASCII


def folder_of(after: str, until: str | None) -> str:
    """Return the innermost folder, with its slash, that holds all names of a range; empty if none.

    A listing of that folder alone carries no foreign keys, and needs the right to list no others.
    """
    end = after.rfind("/") + 1
    while end:
        last = name_after(after[:end])
        if until is not None and last is not None and order_key(until) <= order_key(last):
            return after[:end]
        end = after.rfind("/", 0, end - 1) + 1
    return ""


class Ranges:
    """Ascending, disjoint ranges of paths; overlapping ones are joined.

    Keys are those of `order_key`. A folder's key ends with ``/``.
    """

    def __init__(self, ranges: Iterable[Range]) -> None:
        found: list[Range] = []
        self._lows: list[bytes] = []
        self._highs: list[bytes | None] = []
        keyed = [
            (order_key(after), None if until is None else order_key(until), after, until)
            for after, until in ranges
        ]
        for low, high, after, until in sorted(keyed, key=lambda keys: keys[0]):
            if not found or (self.end is not None and self.end <= low):
                found.append(Range(after, until))
                self._lows.append(low)
                self._highs.append(high)
            elif self.end is not None and (high is None or high > self.end):
                found[-1] = found[-1]._replace(until=until)
                self._highs[-1] = high
        self.ranges = tuple(found)

    @property
    def end(self) -> bytes | None:
        """The key at which the last range ends; None if it has no end."""
        return self._highs[-1] if self._highs else b""

    def has_file(self, key: bytes) -> bool:
        """Return whether a file lies in a range."""
        at = bisect_left(self._lows, key) - 1
        return at >= 0 and self._ends_above(at, key)

    def range_over(self, low: str, high: str | None) -> Range | None:
        """Return the range that holds all paths above ``low`` and below ``high``, if one does."""
        at = bisect_right(self._lows, order_key(low)) - 1
        end = None if at < 0 else self._highs[at]
        holds = end is None or (high is not None and order_key(high) <= end)
        return self.ranges[at] if at >= 0 and holds else None

    def within(self, others: Iterable[Range]) -> tuple[Range, ...]:
        """Return the parts of ascending ranges that lie in these."""
        return tuple(part for each in others for part in self._parts(each))

    def _parts(self, other: Range) -> Iterator[Range]:
        first = max(0, bisect_right(self._lows, order_key(other.after)) - 1)
        for each in self.ranges[first:]:
            if other.until is not None and order_key(other.until) <= order_key(each.after):
                return
            after = max(other.after, each.after, key=order_key)
            ends = [until for until in (other.until, each.until) if until is not None]
            until = min(ends, key=order_key, default=None)
            if until is None or order_key(after) < order_key(until):
                yield Range(after, until)

    def reach_into(self, folder: bytes) -> bool:
        """Return whether a path below the folder may lie in a range."""
        at = bisect_left(self._lows, folder)
        if at < len(self._lows) and self._lows[at].startswith(folder):
            return True  # a range begins below it
        return at > 0 and self._ends_above(at - 1, folder)

    def start_in(self, folder: bytes) -> bytes:
        """Return where the ranges begin in a folder: nothing in it that sorts below is needed."""
        at = bisect_left(self._lows, folder)
        if at == len(self._lows) or self._lows[at] == folder:
            return folder
        if at > 0 and self._ends_above(at - 1, folder):
            return folder
        name, slash, _ = self._lows[at].removeprefix(folder).partition(b"/")
        # A range begins behind its first name, and within its first folder.
        return folder + name + (slash or b"\0")

    def hold_all_of(self, folder: bytes) -> bool:
        """Return whether every path below the folder lies in one range."""
        at = bisect_right(self._lows, folder) - 1
        if at < 0 or not self._ends_above(at, folder):
            return False
        high = self._highs[at]
        return high is None or not high.startswith(folder)

    def _ends_above(self, at: int, key: bytes) -> bool:
        high = self._highs[at]
        return high is None or key < high
