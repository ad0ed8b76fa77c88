"""The form of delimited text: its delimiter, the lines before the header, and the header. Pure.

The delimiter is the one that gives nearly all records one number of fields above 1. Whether the
first record is a header is told by the types of its values and of those below. Where nothing tells
it, all text is a header above text, and everything else is a record, which loses nothing.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from blizzard_core.settings.formats import CsvOptions, TextFileOptions
from blizzard_core.settings.schema import column_name
from blizzard_core.text import counted
from blizzard_py.commands.starter.heads import Recognized, TextHead
from blizzard_py.commands.starter.notation import common_form, form_of, notation_of
from blizzard_py.schema.column_names import is_odd

_DELIMITERS = (",", ";", "\t", "|")
# The share of records that must have the same number of fields, but for a few at the end.
_EVEN = 0.95
_TRAILERS = 2
_RECORDS = 1000
_TITLE_ROWS = 10
_YEAR = re.compile(r"(19|20)\d\d")
_SEPARATOR = re.compile(r"sep=([,;|\t])\s*", re.IGNORECASE)
Rows = list[list[str]]
_Verdict = Literal["header", "record", ""]


@dataclass(frozen=True, slots=True)
class _Table:
    """The records of one file, and the lines before the first of them.

    ``skip`` is 0 if nothing but comments and empty lines stands there. ``trailers`` are records
    behind the table with another number of fields. ``is_whole`` says that nothing follows.
    """

    path: str
    delimiter: str
    skip: int
    line: int
    rows: Rows
    has_comments: bool = False
    trailers: tuple[str, ...] = ()
    is_whole: bool = False

    @property
    def below(self) -> Rows:
        """The records behind the first of the same number of fields."""
        return [row for row in self.rows[1:] if len(row) == len(self.rows[0])]


def recognize_delimited(heads: Sequence[TextHead], encoding: str) -> Recognized:
    """Return the options of CSV; text without a delimiter is lines, unless it has a header."""
    tables = [table for head in heads if (table := _table(head)).rows]
    if not tables:
        return Recognized(CsvOptions(type="csv"))
    most = Counter(table.delimiter for table in tables).most_common(1)[0][0]
    odd = {
        table.path: f"its delimiter seems to be {table.delimiter!r}, and not {most!r}"
        for table in tables
        if table.delimiter != most
    }
    tables = [table for table in tables if table.path not in odd]
    if not most and not all(_is_name_list(table) for table in tables) and encoding == "utf-8":
        return Recognized(
            TextFileOptions(type="text"),
            ("no delimiter was found, so each line is a row of the column value",),
        )
    options: dict[str, Any] = {"type": "csv"}
    if encoding != "utf-8":
        options["encoding"] = encoding
    if most and most != ("\t" if ".tsv" in tables[0].path.lower() else ","):
        options["delimiter"] = most
    if any(table.has_comments for table in tables):
        options["comment"] = "#"
    skips = {table.skip for table in tables}
    skip = skips.pop() if len(skips) == 1 else 0
    if skips:
        odd |= {
            table.path: f"its header follows {counted(table.skip, 'line')}, unlike others;"
            " skip_rows would drop records of the others"
            for table in tables
            if table.skip
        }
        tables = [table for table in tables if table.path not in odd] or tables
    if skip:
        options["skip_rows"] = skip
    return _with_columns(tables, options, odd)


def _with_columns(
    tables: Sequence[_Table], options: dict[str, Any], odd: dict[str, str]
) -> Recognized:
    """Return the format with the names of the columns and the notation of their values."""
    doubts: list[str] = []
    verdicts = {table.path: _verdict(table) for table in tables}
    if "header" in verdicts.values() or not _is_headerless(tables, verdicts):
        odd |= {path: "it has no header" for path, told in verdicts.items() if told == "record"}
        tables = [table for table in tables if table.path not in odd]
        if set(verdicts.values()) == {""}:
            doubts.append("all values are text, so the first record is taken for the header")
        names = tables[0].rows[0]
        rows = [row for table in tables for row in table.below if table.rows[0] == names]
        names = [name.strip() for name in names]
        is_twice = len({name.lower() for name in names if name}) < sum(map(bool, names))
        if is_twice or any(map(_unnamed, tables)):  # without a name a column would be lost
            what = "a name twice" if is_twice else "a column without a name"
            doubts.append(
                f"the header has {what}, so columns go by position; files with another order need"
                " their own source"
            )
            options |= _by_position(tables)
            names = options["columns"]
    else:
        names = [f"column_{n}" for n in range(1, len(tables[0].rows[0]) + 1)]
        options |= {"header": False, "columns": names}
        rows = [row for table in tables for row in table.rows if len(row) == len(names)]
        doubts.append(
            "no header was found; if there is one, it became a row: set header: true, and leave out"
            " columns"
        )
    notation = notation_of(
        [column_name(name) for name in names],
        [row for row in rows if len(row) == len(names)],
        is_comma_delimited="delimiter" not in options and ".tsv" not in tables[0].path.lower(),
    )
    return Recognized(
        CsvOptions.model_validate(options | notation.options),
        (*doubts, *notation.doubts, *_ends(tables)),
        frozenset(notation.as_text),
        odd,
    )


def _ends(tables: Sequence[_Table]) -> Iterator[str]:
    """Yield a doubt for the first table with lines behind it, and for one with a total."""
    for table in [table for table in tables if table.trailers][:1]:
        yield (
            f"lines behind the table become dead letters, as {table.trailers[0]!r} of"
            f" {table.path}; small files are quarantined because of them, unless you raise"
            " error_handling.max_bad_fraction"
        )
    for table in [table for table in tables if _has_total(table)][:1]:
        yield (
            f"{table.path} ends with {table.delimiter.join(table.rows[-1])!r}, which may be a"
            " total; it becomes a row, and its columns have types that allow it"
        )


def _has_total(table: _Table) -> bool:
    """Return whether the last record has text where all others have values of another form."""
    *above, last = table.below or [[]]
    return (
        table.is_whole
        and len(above) > 1
        and any(
            form_of(text) == "text" and common_form(texts) not in {"text", ""}
            for text, texts in zip(last, zip(*above, strict=True), strict=True)
        )
    )


def _by_position(tables: Sequence[_Table]) -> dict[str, Any]:
    """Return the options for columns by position: the header is skipped, if it can be."""
    names: list[str] = []
    for place, name in enumerate(map(str.strip, tables[0].rows[0]), 1):
        used = {each.lower() for each in names}
        free = name or f"column_{place}"
        names.append(free if free.lower() not in used else f"{free}_{place}")
    lines = {table.line + 1 for table in tables}
    is_one_line = not any("\n" in name for name in tables[0].rows[0])
    is_same = all(table.rows[0] == tables[0].rows[0] for table in tables)
    skip = {"skip_rows": lines.pop()} if len(lines) == 1 and is_one_line and is_same else {}
    return {"header": False, "columns": names, **skip}


def _is_name_list(table: _Table) -> bool:
    """Return whether a single column of a .csv file has a name."""
    return ".csv" in table.path.lower() and not is_odd(table.rows[0][0].strip())


def _is_headerless(tables: Sequence[_Table], verdicts: dict[str, _Verdict]) -> bool:
    if "record" in verdicts.values():
        return True
    names = [{name.strip() for name in table.rows[0]} for table in tables]
    return len(names) > 1 and not set.intersection(*names)


def _verdict(table: _Table) -> _Verdict:
    """Return what the first record is, as far as the types of the values tell it."""
    first, below = [name.strip() for name in table.rows[0]], table.below
    columns = list(zip(*below, strict=True)) or [()] * len(first)
    unnamed = _unnamed(table)
    if len(unnamed) > 1:
        return "record"
    if _is_series(first, below):
        return "header"
    forms = [common_form(texts) for texts in columns]
    typed = [
        (form_of(name), form) for name, form in zip(first, forms, strict=True) if form_of(name)
    ]
    if any(name == form != "text" for name, form in typed):
        return "record"
    if any(name == "text" and form not in {"text", ""} for name, form in typed):
        return "header"
    if unnamed:
        return "record"
    is_unlike = any(name not in {"text", ""} for name, _ in typed)
    is_twice = len(set(filter(None, first))) < len([name for name in first if name])
    return "record" if is_unlike or is_twice else ""


def _unnamed(table: _Table) -> list[int]:
    """Return the places of columns with values whose first record has none, like an index's."""
    columns = zip(*table.rows, strict=True)
    return [
        place
        for place, (name, *texts) in enumerate(columns, 1)
        if not name.strip() and any(map(str.strip, texts))
    ]


def _is_series(first: Sequence[str], below: Rows) -> bool:
    """Return whether years name columns, as in `country,2021,2022`, and no record has such years.

    Other numbers in a row may be values.
    """
    return _has_years(first) and below != [] and not any(map(_has_years, below))


def _has_years(row: Sequence[str]) -> bool:
    years = [int(text) for text in map(str.strip, row) if _YEAR.fullmatch(text)]
    is_consecutive = all(after - before == 1 for before, after in pairwise(years))
    return form_of(row[0]) == "text" and len(years) > 1 and is_consecutive


def _table(head: TextHead) -> _Table:
    """Return the records by the delimiter that gives most fields in an even number."""
    separator = _SEPARATOR.fullmatch(head.text.splitlines()[0])
    found = [
        table
        for delimiter in (separator[1] if separator else _DELIMITERS)
        for escape in (None, "\\")
        if (table := _split(head, delimiter, escape, title=bool(separator))) is not None
    ]
    if found:
        return max(found, key=lambda table: len(table.rows) * len(table.rows[0]))
    return _Table(head.path, "", 0, 0, [[line] for line in head.text.splitlines() if line.strip()])


def _split(head: TextHead, delimiter: str, escape: str | None, *, title: bool) -> _Table | None:
    """Return the table that a delimiter gives; None if its records are uneven."""
    rows = _records(head, delimiter, escape)[title:]
    if not rows:
        return None
    counts = Counter(len(row) for _, row in rows)
    width = max(counts, key=lambda each: (counts[each], each))
    comments = [line for line, row in rows if row[0].startswith("#") and len(row) != width]
    if any(row[0].startswith("#") and len(row) == width for _, row in rows):
        comments = []
    begin = next(at for at, (_, row) in enumerate(rows) if len(row) == width)
    begin += _titles([row for _, row in rows[begin:] if len(row) == width])
    body = [row for line, row in rows[begin:] if line not in comments]
    trailers: list[str] = []
    for _ in range(_TRAILERS):
        if len(body) > 2 and len(body[-1]) != width:
            trailers.insert(0, delimiter.join(body.pop()))
    even = [row for row in body if len(row) == width]
    if width < 2 or begin > _TITLE_ROWS or len(even) < _EVEN * len(body):
        return None
    line = rows[begin][0]
    has_title = title or any(at not in comments for at, _ in rows[:begin])
    if has_title:
        comments = [at for at in comments if at > line]
    skip = line if has_title else 0
    behind = tuple(trailers) if head.is_whole else ()
    return _Table(head.path, delimiter, skip, line, even, bool(comments), behind, head.is_whole)


def _records(head: TextHead, delimiter: str, escape: str | None) -> list[tuple[int, list[str]]]:
    """Return the records that are not blank, each with the lines before it."""
    reader = csv.reader(io.StringIO(head.text, newline=""), delimiter=delimiter, escapechar=escape)
    rows: list[tuple[int, list[str]]] = []
    before = 0
    try:
        for row in reader:
            if row:
                rows.append((before, row))
            before = reader.line_num
            if len(rows) > _RECORDS:
                break
    except csv.Error:
        return []
    return rows if head.is_whole else rows[:-1]  # the last one may be cut


def _titles(rows: Rows) -> int:
    """Return how many rows before the header are titles of one filled field."""
    for at, row in enumerate(rows[:_TITLE_ROWS]):
        if all(map(str.strip, row)):
            table = _Table("", ",", 0, 0, rows[at:])
            is_title = all(sum(map(bool, map(str.strip, each))) == 1 for each in rows[:at])
            return at if is_title and _verdict(table) == "header" else 0
    return 0
