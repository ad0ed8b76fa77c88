"""Texts of dates and times in the formats of `strftime`, rewritten as ISO 8601 by whole columns.

A text is of a format only if the format prints that text again: two digits for `%d`, the name of
the month in full for `%B`, no blank more. Names may be in any case. Arrow's `strptime` is not used:
it reads `31.02.2024` as 2 March and `24` as the year 24. Its `strftime`, which would find these,
takes three times as long as everything here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.time_formats import PARTS, spelled_out

_NAIVE = pa.timestamp("us")
_UTC = pa.timestamp("us", tz="UTC")
# Not made by `pa.scalar`, which loads pandas: 0.4 s and 40 MB of a daemon that reads no file.
_NONE = pa.nulls(1, pa.string())[0]
_HOURS = [f"{hour % 12 or 12:02d}{'am' if hour < 12 else 'pm'}" for hour in range(24)]
# Two digits below are of the 21st century, as everywhere in POSIX.
_CENTURY_FROM = "69"


def _padded(text: pa.Array) -> pa.Array:
    return pc.ascii_lpad(text, 2, "0")


def _full_year(text: pa.Array) -> pa.Array:
    century = pc.if_else(pc.greater_equal(text, _CENTURY_FROM), "19", "20")
    return pc.binary_join_element_wise(century, text, "")


def _number_of(names: list[str]) -> Callable[[pa.Array], pa.Array]:
    lower = [name.lower() for name in names]
    return lambda text: _place_in(lower, pc.ascii_lower(text))


def _place_in(names: list[str], text: pa.Array) -> pa.Array:
    """Return the places of the texts among the names, from 0, as two digits."""
    two_digits = pa.array([f"{place:02d}" for place in range(len(names))])
    return two_digits.take(pc.index_in(text, value_set=pa.array(names)))


def _any_of(names: list[str]) -> str:
    return f"(?i:{'|'.join(names)})"


# Independent of the locale of this process.
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_MONTHS_3 = [name[:3] for name in _MONTHS]
_CLOCK_24 = r"(?:[01]\d|2[0-3])"
_SIXTY = r"[0-5]\d"
_MONTH = r"(?:0[1-9]|1[0-2])"
_DAY = r"(?:0[1-9]|[12]\d|3[01])"


@dataclass(frozen=True, slots=True)
class _Code:
    """The texts of a code, their width (0: several) and what ISO 8601 has for them."""

    pattern: str
    width: int = 0
    iso: Callable[[pa.Array], pa.Array] | None = None


_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_REAL_DAY = (
    r"^(?:\d{4}-(?:(?:0[13578]|1[02])-\d\d|(?:0[469]|11)-(?:[012]\d|30)|02-(?:[01]\d|2[0-8]))"
    rf"|{_LEAP_YEAR}-02-29)"
)

# Runs that are ISO 8601 already are one code.
_RUNS = {
    "%Y-%m-%d": ("date", _Code(rf"\d{{4}}-{_MONTH}-{_DAY}", 10)),
    "%H:%M:%S": ("clock", _Code(rf"{_CLOCK_24}:{_SIXTY}:{_SIXTY}", 8)),
}
_CODES = {
    "%Y": _Code(r"\d{4}", 4),
    "%y": _Code(r"\d{2}", 2, _full_year),
    "%m": _Code(_MONTH, 2),
    "%-m": _Code(r"(?:[1-9]|1[0-2])", 0, _padded),
    "%b": _Code(_any_of(_MONTHS_3), 0, _number_of(["", *_MONTHS_3])),
    "%B": _Code(_any_of(_MONTHS), 0, _number_of(["", *_MONTHS])),
    "%d": _Code(_DAY, 2),
    "%-d": _Code(r"(?:[1-9]|[12]\d|3[01])", 0, _padded),
    "%H": _Code(_CLOCK_24, 2),
    "%-H": _Code(r"(?:1?\d|2[0-3])", 0, _padded),
    "%I": _Code(r"(?:0[1-9]|1[0-2])", 2),
    "%-I": _Code(r"(?:[1-9]|1[0-2])", 0, _padded),
    "%M": _Code(_SIXTY, 2),
    "%S": _Code(_SIXTY, 2),
    "%f": _Code(r"\d{1,6}"),
    "%p": _Code(r"(?i:am|pm)", 2, pc.ascii_lower),
    "%z": _Code(rf"(?:Z|[+-]{_CLOCK_24}:?{_SIXTY})"),
}
_TOKEN = re.compile(rf"{'|'.join(_RUNS)}|%-?[A-Za-z%]|[^%]+")


class TimeFormat:
    """A checked format (`check_time_format`), ready for columns."""

    def __init__(self, form: str) -> None:
        self._codes: dict[str, _Code] = {}
        # Where each part is, in bytes, as long as all have one width.
        self._slices: dict[str, tuple[int, int]] | None = {}
        pattern, at = "", 0
        for token in _TOKEN.findall(spelled_out(form)):
            part, code = _RUNS.get(token) or (PARTS.get(token), _CODES.get(token))
            if part is None or code is None:
                text = token.replace("%%", "%")
                pattern += re.escape(text)
                at += len(text.encode())
                continue
            group = part.replace(" ", "_")
            self._codes[group] = code
            pattern += f"(?P<{group}>{code.pattern})"
            if self._slices is not None:
                self._slices[group] = (at, at + code.width)
                at += code.width
                if not code.width:
                    self._slices = None
        self._pattern = f"^{pattern}$"
        self.has_zone = "zone" in self._codes

    def iso(self, texts: pa.StringArray) -> pa.StringArray:
        """Return the texts as ISO 8601, null where a text is not of the format."""
        found = self._joined_parts(texts)
        try:
            found.cast(_UTC if self.has_zone else _NAIVE)
        except ValueError:  # a month does not have the day; all else was checked
            found = pc.if_else(pc.match_substring_regex(found, _REAL_DAY), found, _NONE)
        return found

    def _joined_parts(self, texts: pa.StringArray) -> pa.StringArray:
        parts = self._parts(texts)
        date = parts.get("date")
        if date is None:
            date = _joined("-", parts["year"], parts["month"], parts["day"])
        clock = parts.get("clock")
        if clock is None:
            if "hour" not in parts:
                return date
            hour = parts["hour"]
            if "half_of_the_day" in parts:
                hour = _joined("", hour, parts["half_of_the_day"])
                hour = _place_in(_HOURS, hour)
            clock = _joined(":", hour, parts.get("minute", "00"), parts.get("second", "00"))
        if "fraction" in parts:
            clock = _joined(".", clock, parts["fraction"])
        if self.has_zone:
            clock = _joined("", clock, parts["zone"])
        return _joined("T", date, clock)

    def _parts(self, texts: pa.StringArray) -> Mapping[str, pa.StringArray]:
        if self._slices is None:
            found = pc.extract_regex(texts, self._pattern)
            parts = {name: pc.struct_field(found, name) for name in self._codes}
        else:
            fits = pc.match_substring_regex(texts, self._pattern)
            if not pc.all(fits, min_count=0).as_py():
                texts = pc.if_else(fits, texts, _NONE)
            data = texts.cast(pa.binary())
            parts = {
                name: pc.binary_slice(data, *ends).cast(pa.string())
                for name, ends in self._slices.items()
            }
        return {
            name: part if (iso := self._codes[name].iso) is None else iso(part)
            for name, part in parts.items()
        }


def _joined(separator: str, *parts: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, separator)


@lru_cache(maxsize=256)
def time_format(form: str) -> TimeFormat:
    """Return the format, which is made once."""
    return TimeFormat(form)
