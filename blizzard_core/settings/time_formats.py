"""Formats of dates and times in text and in paths: the strftime codes that readers know."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Self

from pydantic import Field, model_validator

from blizzard_core.settings.base import Settings

# What each code gives. A code that may have several widths has a dash, or is `%f`.
PARTS = {
    "%Y": "year",
    "%y": "year",
    "%m": "month",
    "%-m": "month",
    "%b": "month",
    "%B": "month",
    "%d": "day",
    "%-d": "day",
    "%H": "hour",
    "%-H": "hour",
    "%I": "hour",
    "%-I": "hour",
    "%M": "minute",
    "%S": "second",
    "%f": "fraction",
    "%p": "half of the day",
    "%z": "zone",
}
_SHORT = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M"}
_DATE = ("year", "month", "day")
# Each part of a time needs the one before it.
_CLOCK = ("hour", "minute", "second", "fraction")
_CODE = re.compile(r"%(?:-?[A-Za-z]|.|$)", re.DOTALL)
_AMBIGUOUS = re.compile(r"%(?:-[A-Za-z]|f)(?:\d|%[^zp%])")
_JAVA = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MMMM": "%B",
    "MMM": "%b",
    "MM": "%m",
    "M": "%-m",
    "dd": "%d",
    "d": "%-d",
    "HH": "%H",
    "H": "%-H",
    "hh": "%I",
    "h": "%-I",
    "mm": "%M",
    "ss": "%S",
    "a": "%p",
    "XXX": "%z",
    "XX": "%z",
    "X": "%z",
    "Z": "%z",
}
# What a pattern of Java has at least; other letters are as likely a word.
_JAVA_LIKE = re.compile(r"(?:yyyy|uuuu|yy|MM|dd|HH|mm|ss|[-_:. T'])+")
# Codes that end up in directories. Others, such as `%D`, hold separators or depend on the locale.
_DIRECTORY_CODES = "YmdFHjMSGVyUWbBaAuwIps%"
_JAVA_CODE = re.compile(rf"'(?P<text>(?:[^']|'')*)'|(?P<fraction>S+)|{'|'.join(_JAVA)}")


def moment_of(text: str) -> float:
    """Return the epoch seconds of an ISO 8601 time with a zone. Raises `ValueError` for others."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(
            f"{text!r} must be a time with its zone, such as 2026-01-31T00:00:00Z, and no age: that"
            " is advanced.min_age"
        )
    return found.timestamp()


def check_moment(text: str) -> str:
    """Check a time as `moment_of` does, and return it as written."""
    moment_of(text)
    return text


def spelled_out(form: str) -> str:
    """Return the format with `%F`, `%T` and `%R` replaced by the codes they stand for."""
    return _CODE.sub(lambda code: _SHORT.get(code[0], code[0]), form)


def check_time_format(form: str, *, has_time: bool) -> None:
    """Check a format of dates or, with ``has_time``, of times.

    Raises `ValueError` if a code is unknown, repeated or ambiguous, or if a part is missing.
    """
    if "%" not in form:
        raise ValueError(f"{form!r} has no strftime code; write {_from_java(form)!r}")
    codes = [code for code in _CODE.findall(spelled_out(form)) if code != "%%"]
    problem = next(_code_problems(form, codes), None)
    problem = problem or next(
        _part_problems([PARTS[code] for code in codes], has_time=has_time), None
    )
    if problem:
        raise ValueError(f"{form!r} has {problem}")


def check_template(template: str) -> None:
    """Check the strftime template of directories.

    Raises `ValueError` if it has no code or an unknown one, or a pattern of Java.
    """
    right = "/".join(map(_without_java, template.split("/")))
    if right != template:
        raise ValueError(
            f"prefix_template {template!r} has no strftime code where a date is meant; write"
            f" {right!r}"
        )
    codes = [code for code in _CODE.findall(template) if code != "%%"]
    odd = [code for code in codes if code[-1] not in _DIRECTORY_CODES or code == "%"]
    if odd:
        raise ValueError(
            f"prefix_template {template!r} has {odd[0]}, which is unknown; use"
            f" {' '.join(f'%{code}' for code in _DIRECTORY_CODES)}"
        )
    if not codes:
        raise ValueError(
            f"prefix_template {template!r} has no strftime code, so all rows would be in one"
            " directory; write 'date=%Y-%m-%d', or name a column under `columns`"
        )


def _without_java(component: str) -> str:
    """Return a component of a template with strftime codes for a pattern of Java."""
    key, sign, value = component.rpartition("=")
    is_java = _JAVA_LIKE.fullmatch(value) and re.search("[yuMdHms]", value)
    return f"{key}{sign}{_from_java(value)}" if is_java else component


def _code_problems(form: str, codes: list[str]) -> Iterator[str]:
    for code in codes:
        if code not in PARTS:
            yield f"{code}, which is unknown; use {' '.join((*PARTS, *_SHORT))}"
    if {"%I", "%-I"}.isdisjoint(codes) == ("%p" in codes):
        yield "only one of %I and %p, which need each other"
    if _AMBIGUOUS.search(spelled_out(form)):
        yield "codes of several widths that no character separates"


def _part_problems(parts: list[str], *, has_time: bool) -> Iterator[str]:
    for part in parts:
        if parts.count(part) > 1:
            yield f"the {part} twice"
        if not has_time and part not in _DATE:
            yield f"the {part}, which a date would lose"
    for part in _DATE:
        if part not in parts:
            yield f"no {part}"
    for before, part in (*pairwise(_CLOCK), ("hour", "zone")):
        if part in parts and before not in parts:
            yield f"the {part} without the {before}"


def _from_java(form: str) -> str:
    """Return the format that a Java pattern stands for."""

    def code(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return found["text"].replace("''", "'") or "'"
        return "%f" if found["fraction"] else _JAVA[found[0]]

    return _JAVA_CODE.sub(code, form)


# strftime codes of fixed width whose text sorts in time.
_SORTABLE_CODES = frozenset({"%Y", "%m", "%d", "%j", "%F", "%H", "%%"})


class PartitionFilter(Settings):
    """The partitions that a cold start reads.

    The start moves with time, but never past a file that was found and is not done.
    """

    prefix_template: str = Field(examples=["date=%Y-%m-%d/hour=%H"])
    """A strftime template of fixed width: `date=%Y-%m-%d/hour=%H`."""
    lookback: int | None = Field(default=None, ge=0, examples=[48])
    """Distance back from now, in the template's finest unit; default: everything."""

    @model_validator(mode="after")
    def _sorts_in_time(self) -> Self:
        check_template(self.prefix_template)
        codes = re.findall(r"%-?[A-Za-z%]", self.prefix_template)
        odd = [code for code in codes if code not in _SORTABLE_CODES]
        if odd:
            known = " ".join(sorted(_SORTABLE_CODES))
            raise ValueError(f"prefix_template has {odd[0]}, which does not sort; use {known}")
        if not {"%Y", "%F"} & set(codes):
            raise ValueError("prefix_template must contain the year (%Y or %F)")
        if "" in self.prefix_template.split("/"):
            raise ValueError("prefix_template must not begin or end with / or have two in a row")
        return self

    @property
    def depth(self) -> int:
        """The number of path components of a partition."""
        return self.prefix_template.count("/") + 1
