"""The notation of values in delimited text: nulls, numbers, dates and times. Pure.

An option counts for all columns. It is written only if the columns prove it and none contradicts
it: a value that stays text can be read later, a wrong date or a lost text cannot.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d",
    "%d.%m.%y", "%Y%m%d",
)  # fmt: skip
_CLOCKS = (" %H:%M:%S", " %H:%M", "T%H:%M:%S", " %I:%M:%S %p")
_TIMES = tuple(f"{date}{clock}" for date in _DATES for clock in _CLOCKS)
_DAY_FIRST, _MONTH_FIRST = ("%d/%m", "%d-%m"), ("%m/%d", "%m-%d")
# Words that stand for nothing in any column, and those that may be text.
_NULLS, _NULLS_OR_TEXT = ("NULL", "null", "\\N"), ("NA", "N/A", "-")
_PLAIN_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")
_ONE_GROUP = re.compile(r"[+-]?\d{1,3},\d{3}")
_GROUPED = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d+)?")
_FORMS: Mapping[str, re.Pattern[str]] = {
    "number": re.compile(rf"{_PLAIN_NUMBER.pattern}|{_COMMA_NUMBER.pattern}"),
    "boolean": re.compile(r"true|false", re.IGNORECASE),
    "date": re.compile(r"(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{2,4})([ T].*)?"),
    "clock": re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"),
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE),
    "address": re.compile(r"[^\s@]+@[^\s@]+\.\w+|https?://\S+|\d{1,3}(\.\d{1,3}){3}"),
}


def form_of(text: str) -> str:
    """Return the form of a value; ``text`` for any other, and "" for none."""
    plain = text.strip()
    if not plain or plain in (*_NULLS, *_NULLS_OR_TEXT):
        return ""
    return next((name for name, form in _FORMS.items() if form.fullmatch(plain)), "text")


def common_form(texts: Sequence[str]) -> str:
    """Return the form that all values have; ``text`` for several, "" without a value."""
    forms = {form for text in texts if (form := form_of(text))}
    return forms.pop() if len(forms) == 1 else "text" if forms else ""


@dataclass(slots=True)
class ValueNotation:
    """Options of values; see `Recognized` for the rest."""

    options: dict[str, Any] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    as_text: set[str] = field(default_factory=set)


def notation_of(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, is_comma_delimited: bool
) -> ValueNotation:
    """Return the notation of the columns, from rows that have all of them."""
    found = ValueNotation()
    columns = {
        name: [text.strip() for text in texts if text.strip()]
        for name, texts in zip(names, zip(*rows, strict=True), strict=False)
    }
    nulls = _nulls(columns, found)
    columns = {
        name: kept
        for name, texts in columns.items()
        if (kept := [text for text in texts if text not in nulls])
    }
    if not is_comma_delimited:
        _numbers(columns, found)
    _moments(columns, found)
    return found


def _nulls(columns: Mapping[str, Sequence[str]], found: ValueNotation) -> Sequence[str]:
    """Return the words for nothing. A word in a column of text is text."""
    nulls = [word for word in _NULLS if any(word in texts for texts in columns.values())]
    for word in _NULLS_OR_TEXT:
        holders = [name for name, texts in columns.items() if word in texts]
        texts = [name for name in holders if common_form(columns[name]) in {"text", ""}]
        if holders and not texts:
            nulls.append(word)
        elif texts:
            found.doubts.append(
                f"{word!r} is text, since column {texts[0]} has it; null_value would make it null"
                " in all columns"
            )
    if nulls:
        found.options["null_value"] = ["", *nulls]
    return nulls


def _numbers(columns: Mapping[str, Sequence[str]], found: ValueNotation) -> None:
    """Find a decimal comma, and points between groups of digits."""
    decimals = {
        name: texts
        for name, texts in columns.items()
        if all(map(_COMMA_NUMBER.fullmatch, texts)) and any("," in text for text in texts)
    }
    proven = [
        name
        for name, texts in decimals.items()
        if not all(_ONE_GROUP.fullmatch(text) for text in texts if "," in text)
    ]
    if decimals and not proven:
        found.doubts.append(
            f"column {next(iter(decimals))} is text: its comma may be the decimal one (decimal:"
            ' ",") or stand between thousands (thousands: ",")'
        )
    if not proven:
        return
    found.options["decimal"] = ","
    if not any(map(_GROUPED.fullmatch, (text for name in proven for text in columns[name]))):
        return
    found.options["thousands"] = "."
    for name, texts in columns.items():
        grouped = [text for text in texts if _GROUPED.fullmatch(text)]
        is_proven = any("," in text or text.count(".") > 1 for text in grouped)
        if grouped and not is_proven and all(map(_COMMA_NUMBER.fullmatch, texts)):
            found.as_text.add(name)
            found.doubts.append(
                f"column {name} is text: {grouped[0]} may be a number with thousands, or no number"
            )


def _moments(columns: Mapping[str, Sequence[str]], found: ValueNotation) -> None:
    """Find the formats of dates and times, in one order of day and month."""
    fitting = {
        (key, name): forms
        for key, all_forms in (("date_format", _DATES), ("timestamp_format", _TIMES))
        for name, texts in columns.items()
        if (forms := _fitting(texts, all_forms))
    }
    proofs: dict[bool, str] = {}
    for (_, name), forms in fitting.items():
        orders = set(_orders(forms))
        if len(orders) == 1:
            proofs.setdefault(orders.pop(), name)
    unread: list[str] = []
    for (key, name), forms in fitting.items():
        if (is_unclear := any(True for _ in _orders(forms))) and len(proofs) != 1:
            unread.append(name)
            continue
        form = next(
            form for form in forms if not is_unclear or _is_month_first(form) is next(iter(proofs))
        )
        formats = found.options.setdefault(key, [])
        if form not in formats:
            formats.append(form)
    if len(proofs) == 2:
        found.doubts.append(
            f"{', '.join(unread)}: text, since {proofs[False]} has the day first and"
            f" {proofs[True]} the month, and a format counts for all columns"
        )
    elif unread:
        found.doubts.append(
            f"{', '.join(unread)}: text, since no value shows if the day or the month is first;"
            " set date_format and timestamp_format, such as %d/%m/%Y"
        )


def _orders(forms: Sequence[str]) -> Iterator[bool]:
    """Yield for each format with an order that can be mistaken if it has the month first."""
    for form in forms:
        if form.startswith((*_DAY_FIRST, *_MONTH_FIRST)):
            yield _is_month_first(form)


def _is_month_first(form: str) -> bool:
    return form.startswith(_MONTH_FIRST)


def _fitting(texts: Sequence[str], forms: Sequence[str]) -> list[str]:
    """Return the formats that all values have."""
    if all(text.isdigit() for text in texts):
        return []
    return [form for form in forms if all(_has(text, form) for text in texts)]


def _has(text: str, form: str) -> bool:
    try:
        return dt.datetime.strptime(text, form).strftime(form) == text  # noqa: DTZ007  # no zone
    except ValueError:
        return False
