"""Values of cells as text, each with its kind.

A cell is one text here, whose first letter is its kind. So a column of a piece is one Arrow array,
and the kinds are separated again where the declared type is known.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from functools import lru_cache

# Text, a JSON literal (number, boolean), a date or time, an error of Excel, no value with a reason.
TEXT, LITERAL, MOMENT, ERROR, NO_VALUE = "tjdex"

_SIMPLE = re.compile(r"[1-9]\d{0,14}|0", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NUMBER_CHARACTERS = 400
# Excel has 15 digits. Files have up to 17, so that the same binary number comes back.
_EXACT_DIGITS, _BINARY_DIGITS = 15, 17
_FIRST_PLAIN, _LAST_PLAIN = -7, 20
_DAY = 86_400_000
_HOUR, _MINUTE = 3_600_000, 60_000
_EPOCH_1904 = dt.date(1904, 1, 1).toordinal()
# Serial 60 is 29 February 1900, a day that never was: days before it count from another one.
_EPOCH_1900 = dt.date(1899, 12, 30).toordinal()
_NO_DAY = 60
# More days than any calendar has.
_FAR = 1e8
_ESCAPED = re.compile(r"(?:_x[0-9A-Fa-f]{4}_)+")
# Formats of dates and times, by the numbers that files do not spell out.
_BUILT_IN = {
    **dict.fromkeys([14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)], "date"),
    **dict.fromkeys([18, 19, 20, 21, *range(32, 36), 45, 47], "time"),
    22: "both",
    46: "elapsed",
}
_LITERALS = re.compile(r'"[^"]*"?|\\.|_.|\*.', re.DOTALL)
_ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]")
# Digits of a number, which no date has; a time has some behind its seconds.
_DIGITS = re.compile(r"(?<!s)[.,]0|(?<![.,0])0|[#?]")
_BRACKETS = re.compile(r"\[[^\]]*\]?")
_AM_PM = re.compile(r"am/pm|a/p")


def moment_kind(number: int, code: str | None) -> str:
    """Return what a number format shows: ``date``, ``time``, ``both``, ``elapsed``, or nothing."""
    if code is None:
        return _BUILT_IN.get(number, "")
    first = _LITERALS.sub("", code).partition(";")[0].lower()
    plain = _BRACKETS.sub("", _ELAPSED.sub("s", first))
    if _DIGITS.search(plain) or "general" in plain:
        return ""
    if _ELAPSED.search(first):
        return "elapsed"
    rest = _AM_PM.sub("h", plain)
    has_time = "h" in rest or "s" in rest
    has_date = bool(set("ydge") & set(rest)) or ("m" in rest and not has_time) or "mmm" in rest
    if has_date:
        return "both" if has_time else "date"
    return "time" if has_time else ""


def number_cell(text: str) -> str:
    """Return a number as Excel shows the plain number: ``1``, never ``1.0``.

    A binary fraction has its shortest digits, an integer all of its digits.
    """
    return _number_cell(text) if len(text) <= _NUMBER_CHARACTERS else _no_number(text)


def _no_number(text: str) -> str:
    return f"{NO_VALUE}{text[:40]!r} is no number"


@lru_cache(4096)  # only short texts come here, since all of them are kept
def _number_cell(text: str) -> str:
    if _SIMPLE.fullmatch(text):
        return LITERAL + text
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return _no_number(text)
    if abs(float(text)) == float("inf"):
        return f"{NO_VALUE}{text[:40]} is beyond Excel's numbers"
    value = Decimal(text)
    digits = len(str(value.as_tuple().digits).strip("(, 0)").replace(", ", ""))
    is_integer = text.lstrip("+-").isdigit()
    if not is_integer and _EXACT_DIGITS < digits <= _BINARY_DIGITS:
        value = Decimal(repr(float(text)))
    if not value:
        return LITERAL + "0"
    if not _FIRST_PLAIN <= value.adjusted() <= _LAST_PLAIN and not is_integer:
        return LITERAL + f"{value:E}"
    plain = f"{value:f}"
    return LITERAL + (plain.rstrip("0").rstrip(".") if "." in plain else plain)


def moment_cell(text: str, kind: str, *, is_1904: bool) -> str:
    """Return the date or time that a number is, as ISO 8601 with milliseconds, Excel's finest."""
    if len(text) > _NUMBER_CHARACTERS:
        return _no_number(text)
    return _moment_cell(text, kind, is_1904=is_1904)


@lru_cache(4096)
def _moment_cell(text: str, kind: str, *, is_1904: bool) -> str:
    found = _number_cell(text)
    if found[0] != LITERAL:
        return found
    shown = found[1:]
    serial = max(-_FAR, min(_FAR, float(shown)))
    millis = round(serial * _DAY)
    if kind == "time" and serial < 1 and millis == _DAY:
        millis -= 1  # no time of a day is rounded to the next one
    days, rest = divmod(millis, _DAY)
    if kind == "elapsed":
        return f"{MOMENT}{'-' if millis < 0 else ''}{_clock(abs(millis))}"
    if kind == "time" and not days:
        return MOMENT + _clock(rest)
    first = _EPOCH_1904 if is_1904 else _EPOCH_1900 + (days < _NO_DAY)
    is_day = days >= 0 if is_1904 else days > 0 and days != _NO_DAY
    if not is_day or first + days > dt.date.max.toordinal():
        return f"{NO_VALUE}{shown} is no day of a calendar; correct the date"
    day = dt.date.fromordinal(first + days).isoformat()
    return f"{MOMENT}{day}T{_clock(rest)}" if rest or kind != "date" else MOMENT + day


def _clock(millis: int) -> str:
    hours, rest = divmod(millis, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    seconds, rest = divmod(rest, 1000)
    return f"{hours:02}:{minutes:02}:{seconds:02}" + (f".{rest:03}" if rest else "")


def unescaped(text: str) -> str:
    """Return a text with the characters that Excel writes as ``_x000D_``."""
    return _ESCAPED.sub(_characters, text) if "_x" in text else text


def _characters(match: re.Match[str]) -> str:
    codes = re.findall(r"_x(....)_", match[0])
    units = b"".join(int(code, 16).to_bytes(2, "little") for code in codes)
    try:
        return units.decode("utf-16-le")
    except UnicodeDecodeError:
        return match[0]
