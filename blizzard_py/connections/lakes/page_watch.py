"""What a row group may come to in memory, told by its pages' headers as they pass by.

Arrow decodes a batch of rows at a time, and how much that is the footer only claims: a few
bytes may name one long text in each row, or be a list of millions. Here every byte passes that
Arrow is given, so what it can make of them at most is known before it has them. `Unproven` is
raised where that is too much; no honest file is refused for it, see `reading_apart`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from blizzard_core.table.schema_fit import Misfit
from blizzard_py.connections.lakes.page_headers import DICTIONARY_PAGE, PageHeader, page_header

_HEADER_BYTES = 1 << 20
_LEVELS = 4  # of a value of a list: how deep it is, and where its list begins


class Unproven(Exception):
    """A column may take more than it is given."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of values, and where its row group's part of it lies.

    ``width`` is what a value takes, or the place of a text beside the text itself, ``longest``
    the longest text of its dictionary.
    """

    column: str
    begin: int
    end: int
    width: int
    is_binary: bool
    is_flat: bool
    longest: int = 0


class _Page(NamedTuple):
    about: PageHeader
    first: int
    piece: int


@dataclass(slots=True)
class _Walk:
    """The pages of a leaf, as far as they have passed by."""

    leaf: Leaf
    seen: int = 0
    need: int = 0
    _dictionary: int = 0
    _rest: bytes = b""
    _body: int = 0
    _headers: int = 0
    _piece: int = 0
    _next: int = 0
    _pages: list[_Page] = field(default_factory=list)

    def begin(self, done: int, rows: int) -> None:
        """A batch begins behind so many rows: pages that are decoded by now count no more.

        Of lists it is not known which rows a page has, but no piece is asked for before the
        one ahead of it is decoded.
        """
        if self.leaf.is_flat:
            self._pages = [p for p in self._pages if p.first + p.about.values > done]
        else:
            self._pages = [p for p in self._pages if p.piece >= self._piece]
        self._weighed(done, rows)

    def fed(self, data: bytes, done: int, rows: int) -> None:
        """The next bytes, of which Arrow decodes as many as it takes for so many rows."""
        self.seen += len(data)
        self._piece += 1
        data, at, self._rest = self._rest + data, 0, b""
        while True:
            step = min(self._body, len(data) - at)
            at, self._body = at + step, self._body - step
            if at == len(data):
                break
            try:
                header, at = page_header(data, at)
            except IndexError:
                self._rest = data[at:]
                if len(self._rest) > _HEADER_BYTES:
                    raise Unproven(self.leaf.column) from None
                break
            except Misfit as error:
                raise Unproven(self.leaf.column) from error
            self._body = header.stored
            self._counted(header)
        self._weighed(done, rows)

    def _counted(self, header: PageHeader) -> None:
        self._headers += 1
        if header.kind == DICTIONARY_PAGE:
            if self._headers > 1:  # `longest` was looked for at the beginning
                raise Unproven(self.leaf.column)
            self._dictionary = header.unpacked
        elif header.has_data:
            if header.has_lengths_apart:
                raise Unproven(self.leaf.column)
            self._pages.append(_Page(header, self._next, self._piece))
            self._next += header.values

    def _weighed(self, done: int, rows: int) -> None:
        """Of the pages that this batch may reach: the largest, and all their values."""
        leaf, page, values = self.leaf, 0, 0
        # The rest of flat columns is in the width of a row.
        each_value = 0 if leaf.is_flat else _LEVELS + leaf.width + leaf.longest
        for each in self._pages:
            about = each.about
            page = max(page, about.unpacked + about.stored)
            if leaf.is_flat and each.first >= done + rows:
                continue
            values += about.values * each_value
            if leaf.is_binary and not about.names_entries:
                values += about.unpacked
        self.need = 2 * self._dictionary + page + values


class PageWatch:
    """Follows what is read of a row group. Raises `Unproven` above ``allowed`` bytes."""

    def __init__(self, leaves: Iterable[Leaf], allowed: int) -> None:
        ordered = sorted(leaves, key=lambda leaf: leaf.begin)
        for one, other in pairwise(ordered):
            if other.begin < one.end:
                raise Unproven(other.column)
        self._walks = [_Walk(leaf) for leaf in ordered]
        self._next = {walk.leaf.begin: walk for walk in self._walks}
        self._allowed = allowed
        self._done = self._rows = self._fixed = 0

    def begin(self, done: int, rows: int, width: int) -> None:
        """A batch of so many rows begins, each of which takes ``width`` beside its values."""
        self._done, self._rows, self._fixed = done, rows, rows * width
        for walk in self._walks:
            walk.begin(done, rows)
        self._check()

    def passed(self, at: int, data: bytes) -> None:
        """These bytes are about to be given to Arrow."""
        walk = self._next.pop(at, None)
        if walk is None:
            raise Unproven("")
        walk.fed(data, self._done, self._rows)
        if walk.seen < walk.leaf.end - walk.leaf.begin:
            self._next[at + len(data)] = walk
        self._check()

    def _check(self) -> None:
        if self._fixed + sum(walk.need for walk in self._walks) > self._allowed:
            raise Unproven(max(self._walks, key=lambda walk: walk.need).leaf.column)
