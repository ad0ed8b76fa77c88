"""The headers of a Parquet column's pages: what a reader allocates for each, before it does. Pure.

A footer only claims how large its columns are. A page's own header is what Arrow goes by.
"""

from __future__ import annotations

from typing import NamedTuple

from blizzard_core.table.schema_fit import Misfit
from blizzard_core.table.thrift import STRUCT, field, skipped, whole

_INT = 5
DICTIONARY_PAGE = 2
# Numbers that encodings have.
_PLAIN_DICTIONARY, _DELTA_LENGTHS, _DELTA_TEXT, _RLE_DICTIONARY = 2, 6, 7, 8
_DATA_PAGES = {0: 5, 3: 8}  # the field that has the rest, by the page's type
_DICTIONARY = 7
_ENCODING = {5: 2, 8: 4, _DICTIONARY: 2}  # which field of those has the encoding


class PageHeader(NamedTuple):
    """What a page says of itself: bytes as they are stored and unpacked, and its values."""

    kind: int
    stored: int
    unpacked: int
    values: int = 0
    encoding: int = 0

    @property
    def has_data(self) -> bool:
        """Whether it holds rows."""
        return self.kind in _DATA_PAGES

    @property
    def names_entries(self) -> bool:
        """Whether its values are numbers of a dictionary's entries."""
        return self.encoding in {_PLAIN_DICTIONARY, _RLE_DICTIONARY}

    @property
    def has_lengths_apart(self) -> bool:
        """Whether it has as many texts, and as long ones, as a few bytes of it claim."""
        return self.encoding in {_DELTA_LENGTHS, _DELTA_TEXT}


def page_header(data: bytes, at: int) -> tuple[PageHeader, int]:
    """The header that begins there, and where it ends.

    Raises `IndexError` if it ends behind the data, `Misfit` if it makes no sense.
    """
    inner: dict[int, dict[int, int]] = {}
    numbers, at = _numbers(data, at, inner)
    if not numbers.keys() >= {1, 2, 3} or min(numbers[2], numbers[3]) < 0:
        raise Misfit("has a page without a size")
    kind = numbers[1]
    place = _DATA_PAGES.get(kind, _DICTIONARY)
    about = inner.get(place, {})
    values, encoding = about.get(1, 0), about.get(_ENCODING[place], 0)
    return PageHeader(kind, numbers[3], numbers[2], max(0, values), encoding), at


def _numbers(
    data: bytes, at: int, inner: dict[int, dict[int, int]] | None = None
) -> tuple[dict[int, int], int]:
    """The whole numbers of a struct, and of those in it that say how values are encoded."""
    found: dict[int, int] = {}
    number = 0
    while head := data[at]:
        if head > 15:  # as `field` does; most are like this, and there are many
            number, kind, at = number + (head >> 4), head & 15, at + 1
        else:
            number, kind, at = field(data, at, number)
        if kind == _INT:
            found[number], at = whole(data, at)
        elif kind == STRUCT and inner is not None and number in _ENCODING:
            inner[number], at = _numbers(data, at)
        else:
            at = skipped(data, at, kind)
    return found, at + 1
