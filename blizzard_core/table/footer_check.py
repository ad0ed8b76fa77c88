"""Checks of a footer's bytes before a library reads them. Pure.

Promise: the library can read every part of a checked footer. Its functions for column chunks and
their statistics cannot raise errors. If a footer contradicts itself, or a column is encrypted,
they end the process, and with it all tables, at each start again. So their assumptions are checked
against the schema here.

Chunks that some reader cannot use are rejected by name: an uncommon codec, an unknown encoding,
data in another file, invalid text.

Format: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
in Thrift's compact protocol. Only the necessary parts are read, the rest is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from blizzard_core.limits import FOOTER_LEVELS
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_core.table.thrift import (
    BINARY,
    INTEGERS,
    LIST,
    STRUCT,
    encode_length,
    encode_list_head,
    read_bytes,
    read_count,
    read_field,
    read_int,
    read_unsigned,
    skip_value,
    unreadable,
)

_FIXED = 7
# Bytes of a value, by physical type: bool, int32, int64, int96, float, double. Of byte
# arrays (6) it is any number, of fixed ones (7) that of the schema.
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
_BYTE_ARRAY = 6
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
# None, snappy, gzip, lz4, zstd, lz4_raw.
_CODECS = frozenset({0, 1, 2, 5, 6, 7})
# No reader has the first one, and Spark lacks the second one.
_REFUSED_CODECS = {3: "LZO", 4: "Brotli"}
_ENCODINGS = frozenset({0, 2, 3, 4, 5, 6, 7, 8, 9})
# As bytes of a list: each encoding takes one byte.
_ENCODING_BYTES = frozenset(2 * encoding for encoding in _ENCODINGS)
_PAGES = range(4)
_ENCRYPTED = "is encrypted, and readers have no key for it; write it without encryption"


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A flat column: its path, physical type, bytes of a value (None: any), deepest levels.

    ``spelled`` is the path as a row group has it.
    """

    path: list[bytes]
    spelled: bytes
    type: int
    width: int | None
    repetition: int
    definition: int


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of the schema, which is a tree in the order of a walk."""

    name: bytes
    children: int
    repetition: int
    type: int
    length: int


class FooterCheck:
    """Checks footers. Files that arrive together are alike, so the latest schema is kept.

    Threads may share it: the stored schema is replaced in one step.
    """

    def __init__(self) -> None:
        self._latest: tuple[bytes, Sequence[_Leaf]] = (b"", ())

    def __call__(self, footer: bytes, end: int) -> None:
        """Refuse a footer that contradicts itself. Raises `SchemaMismatch`.

        ``end`` is where the file's data ends and its footer begins.
        """
        try:
            self._check(footer, end)
        except IndexError:
            raise unreadable("it ends too early") from None

    def _check(self, footer: bytes, end: int) -> None:
        head, leaves = self._latest
        at, number = (len(head), 2) if head and footer.startswith(head) else (0, 0)
        while footer[at]:
            number, kind, at = read_field(footer, at, number)
            if number in (2, 4, 5) and kind != LIST:
                raise unreadable(f"its field {number} is no list")
            if number == 2:
                leaves, at = _schema(footer, at)
                self._latest = (footer[:at], leaves)
            elif number == 4:
                at = _row_groups(footer, at, leaves, end)
            elif number == 5:
                at = _pairs(footer, at)
            elif number == 6 and kind == BINARY:
                writer, at = read_bytes(footer, at)
                _check_text(writer, "its writer's name")
            elif number == 8:
                raise SchemaMismatch(_ENCRYPTED)
            else:
                at = skip_value(footer, at, kind)


def _check_text(found: bytes, what: str) -> None:
    try:
        found.decode("utf-8")
    except UnicodeDecodeError:
        raise unreadable(f"{what} is not valid UTF-8") from None


# The schema.


def _schema(data: bytes, at: int) -> tuple[list[_Leaf], int]:
    size, at = read_count(data, at, STRUCT)
    elements: list[_Element] = []
    for _ in range(size):
        element, at = _element(data, at)
        elements.append(element)
    if not elements:
        raise unreadable("it has no schema")
    walk = iter(elements)
    root = next(walk)
    return list(_leaves(walk, root.children, [], 0, 0)), at


def _element(data: bytes, at: int) -> tuple[_Element, int]:
    numbers: dict[int, int] = {}
    name, number = b"", 0
    while data[at]:
        number, kind, at = read_field(data, at, number)
        if kind in INTEGERS:
            numbers[number], at = read_int(data, at)
        elif number == 4 and kind == BINARY:
            name, at = read_bytes(data, at)
            _check_text(name, "a column's name")
        else:
            at = skip_value(data, at, kind)
    found = _Element(
        name,
        numbers.get(5, 0),
        numbers.get(3, _REQUIRED),
        numbers.get(1, -1),
        numbers.get(2, 0),
    )
    if found.repetition not in (_REQUIRED, _OPTIONAL, _REPEATED):
        raise unreadable("it has a column that is neither required, optional nor repeated")
    return found, at + 1


def _leaves(
    walk: Iterator[_Element], children: int, path: list[bytes], repetition: int, definition: int
) -> Iterator[_Leaf]:
    """Yield the flat columns of the next ``children`` elements and their descendants."""
    if len(path) > FOOTER_LEVELS:
        raise unreadable(f"its columns are nested more than {FOOTER_LEVELS} levels deep")
    for _ in range(children):
        element = next(walk, None)
        if element is None:
            raise unreadable("its schema ends too early")
        name = [*path, element.name]
        repeated = repetition + (element.repetition == _REPEATED)
        defined = definition + (element.repetition != _REQUIRED)
        if element.children > 0:
            yield from _leaves(walk, element.children, name, repeated, defined)
        else:
            width = element.length if element.type == _FIXED else _WIDTHS.get(element.type)
            yield _Leaf(name, _spelled(name), element.type, width, repeated, defined)


def _spelled(path: Sequence[bytes]) -> bytes:
    parts = b"".join(encode_length(len(part)) + part for part in path)
    return encode_list_head(len(path), BINARY) + parts


# Row groups and their column chunks.


def _row_groups(data: bytes, at: int, leaves: Sequence[_Leaf], end: int) -> int:
    size, at = read_count(data, at, STRUCT)
    for _ in range(size):
        at = _row_group(data, at, leaves, end)
    return at


def _row_group(data: bytes, at: int, leaves: Sequence[_Leaf], end: int) -> int:
    chunks: list[tuple[_Leaf, dict[int, int], int]] = []
    rows, number = 0, 0
    while data[at]:
        number, kind, at = read_field(data, at, number)
        if number == 1 and kind == LIST:
            size, at = read_count(data, at, STRUCT)
            if size != len(leaves):
                raise unreadable(f"a row group has {size:,} of {len(leaves):,} columns")
            for leaf in leaves:
                found, nulls, at = _chunk(data, at, leaf)
                _check_place(found, end)
                chunks.append((leaf, found, nulls))
        elif number == 3 and kind in INTEGERS:
            rows, at = read_int(data, at)
        else:
            at = skip_value(data, at, kind)
    if len(chunks) != len(leaves):
        raise unreadable("a row group has no columns")
    # `check_rows` reports an impossible row count.
    for leaf, found, nulls in chunks if rows >= 0 else ():
        values = found.get(5, 0)
        # A column of lists has at least as many values as rows; an empty list counts as one.
        if values < rows if leaf.repetition else values != rows:
            raise unreadable(f"{_name(leaf)} has {values:,} values in {rows:,} rows")
        if not 0 <= nulls <= values:
            raise unreadable(f"{_name(leaf)} has {nulls:,} nulls among {values:,} values")
    return at + 1


def _check_place(found: dict[int, int], end: int) -> None:
    start = found.get(9, -1)
    if 11 in found:
        start = min(start, found[11])
    size = found.get(7, -1)
    if start < 0 or size < 0:
        raise unreadable("it says that data begins before the file does")
    if start + size > end:
        raise SchemaMismatch("is cut off: its footer points past the end of its data")


def _chunk(data: bytes, at: int, leaf: _Leaf) -> tuple[dict[int, int], int, int]:
    """Return the numbers of a column chunk, and its nulls (0 if unknown)."""
    found: dict[int, int] = {}
    nulls, number = 0, 0
    while data[at]:
        number, kind, at = read_field(data, at, number)
        if number == 3 and kind == STRUCT:
            found, nulls, at = _chunk_metadata(data, at, leaf)
        elif number == 1:
            raise SchemaMismatch("has its data in another file; write the columns into one")
        elif number in (8, 9):
            raise SchemaMismatch(_ENCRYPTED)
        else:
            at = skip_value(data, at, kind)
    if found.get(1) != leaf.type:
        raise unreadable(f"{_name(leaf)} is of another type than the schema says")
    if found.get(4) not in _CODECS:
        codec = _REFUSED_CODECS.get(found.get(4, -1), f"codec {found.get(4)}")
        raise SchemaMismatch(
            f"{_name(leaf)} is compressed with {codec}, which not every reader has;"
            " write it with zstd, snappy, gzip or lz4"
        )
    return found, nulls, at + 1


def _chunk_metadata(data: bytes, at: int, leaf: _Leaf) -> tuple[dict[int, int], int, int]:
    found: dict[int, int] = {}
    nulls, number = 0, 0
    while head := data[at]:
        # Inlined `_field` and `_whole`, because this is most of a footer.
        at += 1
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            number, at = read_int(data, at)
        if kind in INTEGERS:
            value = data[at]
            at += 1
            if value > 127:
                value, at = read_unsigned(data, at - 1)
            found[number] = (value >> 1) ^ -(value & 1)
        elif number == 12:
            nulls, at = _statistics(data, at, leaf)
        elif number in _CHECKS:
            at = _CHECKS[number](data, at, leaf)
        else:
            at = skip_value(data, at, kind)
    return found, nulls, at + 1


def _encodings(data: bytes, at: int, leaf: _Leaf) -> int:
    size, at = read_count(data, at, 5)
    if not _ENCODING_BYTES.issuperset(data[at : at + size]):
        raise unreadable(f"{_name(leaf)} has an unknown encoding")
    return at + size


def _path(data: bytes, at: int, leaf: _Leaf) -> int:
    if not data.startswith(leaf.spelled, at):
        raise unreadable(f"{_name(leaf)} is called otherwise in a row group")
    return at + len(leaf.spelled)


def _statistics(data: bytes, at: int, leaf: _Leaf) -> tuple[int, int]:
    """Return the number of nulls (0 if unknown); check the size of the bounds."""
    nulls, number = 0, 0
    while data[at]:
        number, kind, at = read_field(data, at, number)
        if kind == BINARY:
            size, at = read_unsigned(data, at)
            at += size
            if leaf.width is not None and number in (1, 2, 5, 6) and size != leaf.width:
                raise unreadable(f"{_name(leaf)} has a bound of {size:,} bytes")
        elif number == 3 and kind in INTEGERS:
            nulls, at = read_int(data, at)
        else:
            at = skip_value(data, at, kind)
    return nulls, at + 1


def _encoding_counts(data: bytes, at: int, leaf: _Leaf) -> int:
    size, at = read_count(data, at, STRUCT)
    for _ in range(size):
        number = 0
        while data[at]:
            number, kind, at = read_field(data, at, number)
            if kind not in INTEGERS:
                at = skip_value(data, at, kind)
                continue
            value, at = read_int(data, at)
            known = _PAGES if number == 1 else _ENCODINGS
            if number in (1, 2) and value not in known:
                raise unreadable(f"{_name(leaf)} has pages of an unknown kind")
        at += 1
    return at


def _sizes(data: bytes, at: int, leaf: _Leaf) -> int:
    """Check that histograms of levels have as many entries as there are levels, or none."""
    number = 0
    while data[at]:
        number, kind, at = read_field(data, at, number)
        deepest = {2: leaf.repetition, 3: leaf.definition}.get(number)
        if deepest is not None and kind == LIST:
            size, _ = read_count(data, at, 6)
            if size not in (0, deepest + 1):
                raise unreadable(f"{_name(leaf)} has {size:,} levels counted")
        elif number == 1 and leaf.type != _BYTE_ARRAY:
            raise unreadable(f"{_name(leaf)} has the sizes of a text, and is none")
        at = skip_value(data, at, kind)
    return at + 1


def _geometry(_data: bytes, _at: int, leaf: _Leaf) -> int:
    raise SchemaMismatch(f"{_name(leaf)} is a geometry, for which Delta has no type")


# Further checks of a chunk, by field number.
_CHECKS: Mapping[int, Callable[[bytes, int, _Leaf], int]] = {
    2: _encodings,
    3: _path,
    13: _encoding_counts,
    16: _sizes,
    17: _geometry,
}


def _name(leaf: _Leaf) -> str:
    return f"column {b'.'.join(leaf.path).decode('utf-8', 'replace')!r}"


def _pairs(data: bytes, at: int) -> int:
    """Check that the writer's notes are text, since some readers require it."""
    size, at = read_count(data, at, STRUCT)
    for _ in range(size):
        number = 0
        while data[at]:
            number, kind, at = read_field(data, at, number)
            if kind != BINARY:
                at = skip_value(data, at, kind)
                continue
            note, at = read_bytes(data, at)
            _check_text(note, "a note of its writer")
        at += 1
    return at
