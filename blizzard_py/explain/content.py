"""The content of a file as `explain` shows it: how it is stored, and its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Match = Literal["equal", "converted", "never"]

# So many names or types the text shows; JSON has all of them.
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column that a file names, and the declared one of that name.

    ``type`` is the file's own word for its type, None in files of texts. ``column`` is the declared
    type, None without a column. ``match`` says whether values of the type are those of the column,
    are converted, or can never be.
    """

    name: str
    type: str | None
    column: str | None
    match: Match | None


@dataclass(frozen=True, slots=True)
class Content:
    """Facts from the beginning of a file.

    ``columns`` are those of its header or schema, in an archive of the first member. They are None
    if records name them, or if it cannot be read. Then ``missing``, which are columns that the file
    lacks, and ``unexpected``, which are its fields without a column, are None too. ``problem`` is
    why the file cannot be read, as far as its beginning shows. ``path_columns`` are the values of
    columns that come from its path.
    """

    format: str
    codecs: tuple[str, ...]
    members: tuple[str, ...]
    columns: tuple[FileColumn, ...] | None
    missing: tuple[str, ...] | None
    unexpected: tuple[str, ...] | None
    problem: str | None
    path_columns: Mapping[str, str | None]


def content_lines(found: Content) -> Iterator[str]:
    """Yield the lines for people."""
    yield f"  format     {', '.join((found.format, *found.codecs))}"
    if found.path_columns:
        values = [f"{name}={value}" for name, value in found.path_columns.items()]
        yield f"  path       {_first(values)}"
    if found.members:
        yield f"  members    {len(found.members):,}: {_first(found.members)}"
    if found.columns is not None:
        where = f" of {found.members[0]}" if found.members else ""
        names = [column.name for column in found.columns]
        yield f"  columns    {len(names):,} in the file{where}: {_first(names)}"
        yield from _types([each for each in found.columns if each.match not in {None, "equal"}])
    if found.missing:
        yield f"  missing    {_first(found.missing)}: not in the file"
    if found.problem is not None:
        yield f"  unreadable {found.problem}"


def _types(columns: Sequence[FileColumn]) -> Iterator[str]:
    for each in columns[:_SHOWN]:
        becomes = "is converted to" if each.match == "converted" else "can never be"
        yield f"  type       {each.name}: {each.type} in the file {becomes} {each.column}"
    if len(columns) > _SHOWN:
        yield f"  type       and {len(columns) - _SHOWN:,} more that differ"


def _first(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"
