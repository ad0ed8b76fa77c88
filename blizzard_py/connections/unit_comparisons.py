"""Comparisons of columns with the ends of a unit, and what follows from them. Pure.

An end of a unit is an instant. A column of dates, or of times without a zone, is compared with the
date or the wall time in the zone `units.range.zone`. Only the statement or the column's type can
say which of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from blizzard_core.errors import SourceError
from blizzard_py.connections.placeholders import BEFORE, FROM, TO, Values

_ONE = r"(?:[A-Za-z_][\w$]*|\"[^\"\0]+\"|`[^`\0]+`|\[[^\]\0]+\])"
_COLUMN = rf"(?<![\w.:$\"`\]])(?:{_ONE}\s*\.\s*){{0,3}}(?P<column>{_ONE})"
_END = r"\{(?P<end>from|to)(?::(?P<form>[^{}]*))?\}"
_OTHER = r"\{(?P<end2>from|to)(?::(?P<form2>[^{}]*))?\}"
_SIGN = r"(?P<sign><=|>=|<>|!=|=|<|>)"
_PATTERNS = tuple(
    re.compile(text, re.IGNORECASE)
    for text in (
        rf"{_COLUMN}\s*{_SIGN}\s*{_END}",
        rf"{_END}\s*{_SIGN}\s*{_COLUMN}(?![\w$])(?!\s*[.(])",
        rf"{_COLUMN}\s+between\s+{_END}\s+and\s+{_OTHER}",
    )
)
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
# Text and comments contain no column. Quoted names are kept.
_TEXTS = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_BARE = re.compile(rf"\{{(from|to)(?::{BEFORE})?\}}")
_ENDS = re.compile(r"\{to(?::([^{}]*))?\}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column sign {end:form}``, the placeholder at ``place`` of the text."""

    column: str
    sign: str
    end: str
    form: str
    place: int


def comparisons(text: str) -> Iterator[Comparison]:
    """Find comparisons of a plain column with an end; comparisons of expressions are left out."""
    plain = _TEXTS.sub(lambda found: " " * len(found[0]), text)
    for pattern in _PATTERNS:
        for found in pattern.finditer(plain):
            if plain[: found.start()].rstrip()[-1:] in {"+", "-", "*", "/", "|", "%"}:
                continue
            column = found["column"].strip('"`[]')
            form, place = found["form"] or "", found.start("end") - 1
            if "end2" in pattern.groupindex:
                yield Comparison(column, ">=", found["end"], form, place)
                last = found.start("end2") - 1
                yield Comparison(column, "<=", found["end2"], found["form2"] or "", last)
            else:
                is_first = found.start("column") < found.start("end")
                sign = found["sign"] if is_first else _FLIPPED.get(found["sign"], found["sign"])
                yield Comparison(column, sign, found["end"], form, place)


def with_dates(text: str, dates: Collection[str]) -> str:
    """Replace an end that is compared with one of these columns by a date: ``{from:date}``."""
    folded = {name.lower() for name in dates}
    places = sorted(
        (
            each.place
            for each in comparisons(text)
            if not each.form and each.column.lower() in folded
        ),
        reverse=True,
    )
    for place in places:
        close = text.index("}", place)
        text = f"{text[:close]}:date{text[close:]}"
    return text


def with_end_before(text: str) -> str:
    """Replace ``{to}`` by the last value before the end, for APIs that include the end."""
    return _ENDS.sub(lambda found: f"{{{TO}:{found[1] or ''}{BEFORE}}}", text)


def end_problems(text: str, *, inclusive: bool) -> Iterator[str]:
    """Yield problems by which a statement reads boundary rows in two units, or in none."""
    signs: dict[str, dict[str, str]] = {}
    forms: dict[str, set[str]] = {}
    for each in comparisons(text):
        signs.setdefault(each.column, {})[each.end] = each.sign
        forms.setdefault(each.column, set()).add(each.form)
    for column, found in signs.items():
        first, last = found.get(FROM), found.get(TO)
        if len(forms[column]) > 1:
            yield (
                f"{column} is compared with {{from}} and {{to}} in two formats: rows on a boundary"
                " would be read twice or not at all; use one format for both"
            )
        elif inclusive and last == "<":
            yield (
                f"`{column} < {{to}}` excludes the end, but `inclusive: true` includes it: rows"
                " before it would not be read; write <=, or remove `advanced.inclusive`"
            )
        elif not inclusive and (first, last) == (">=", "<="):
            yield (
                f"{column} is compared with both ends included: rows on a boundary would be"
                f" read twice; write {column} >= {{from}} AND {column} < {{to}}"
            )
        elif (first, last) == (">", "<"):
            yield (
                f"{column} is compared with both ends excluded: rows on a boundary would not be"
                f" read; write {column} >= {{from}} AND {column} < {{to}}"
            )


def check_instants(
    texts: Sequence[str], units: Sequence[Values], is_instant: Callable[[str], bool]
) -> None:
    """Raise `SourceError` if an end without a format may be compared with wall times.

    In UTC a wall time is the instant. In another zone each end without a format must be compared
    with a column for which ``is_instant`` returns True.
    """
    ends = [one.get(name) for one in units[:1] for name in (FROM, TO)]
    if all(not isinstance(end, datetime) or end.tzinfo is UTC for end in ends):
        return
    for text in texts:
        fine = {each.place for each in comparisons(text) if is_instant(each.column)}
        for found in _BARE.finditer(_TEXTS.sub(lambda aside: " " * len(aside[0]), text)):
            if found.start() not in fine:
                end = found[1]
                raise SourceError(
                    f"{{{end}}} is an instant of a zone other than UTC, and is compared with"
                    " something that is not known to be of times with a zone. Say what stands"
                    f" there: {{{end}:date}} for dates of that zone, {{{end}:datetime}} for its"
                    f" wall time, {{{end}:iso}} for times with a zone or in UTC"
                )
