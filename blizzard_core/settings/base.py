"""Blocks and durations: the common part of every block of the configuration.

A duration is ``30s``, ``5m``, ``1h30m`` or ``7d``, the same in words (``10 minutes``), ISO 8601
(``PT5M``, ``P30D``), or ``months=1`` where months are allowed; they differ in length. A number
without a unit is refused, because its unit would be a guess. 0 needs none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo

from blizzard_core.storage.opening import normalize_uri, problems_of

# Names become parts of file names and of Spark job groups.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Options = dict[str, str]


def _one_spelling(uri: str) -> str:
    """Return a URI in the one spelling in which it is compared, stored and shown.

    An invalid URI stays as written, for the error message that names it.
    """
    return uri if not uri or problems_of(uri, {}) else normalize_uri(uri)


Uri = Annotated[str, AfterValidator(_one_spelling)]


class Settings(BaseModel):
    """Base of all blocks: unknown keys are refused and values never change.

    No error quotes a value, since it may be a secret. Infinite numbers are refused.
    """

    # The key that a plain text stands for, in blocks that may be text.
    text_key: ClassVar[str] = ""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _read_block(cls, data: Any) -> Any:
        """Bring a block into the form of its fields.

        One step for all: pydantic prepares each validator of each block, which takes longer than
        all else of a short configuration.
        """
        if cls.text_key and isinstance(data, str):
            data = {cls.text_key: data}
        if not isinstance(data, dict):
            if cls.text_key and not isinstance(data, cls):
                raise ValueError("must be text or a block of keys")
            return data
        # Keys that begin with `x-` hold anchors and notes.
        return {
            key: cls._without_truth(key, value)
            for key, value in data.items()
            if not str(key).startswith("x-")
        }

    @classmethod
    def _without_truth(cls, key: Any, value: Any) -> Any:
        """Make the field of a number refuse `true`, although Python counts it as 1."""
        if isinstance(value, bool) and key in cls.model_fields:
            kinds = set(_kinds(cls.model_fields[key].annotation))
            if "bool" not in kinds and not kinds.isdisjoint(("int", "float")):
                return _NO_NUMBER
        return value


# In place of `true`: it is no number, and no value of any other type.
_NO_NUMBER = object()


def check_kind(
    settings: Settings, kind: str, needed: Mapping[str, Sequence[str]], free: Sequence[str] = ()
) -> None:
    """Raise `ValueError` for keys that the kind lacks, or that belong to another kind.

    Keys in ``free`` are allowed with any kind.
    """
    missing = [key for key in needed[kind] if getattr(settings, key) is None]
    if missing:
        raise ValueError(f"kind {kind} needs {', '.join(missing)}")
    others = sorted({key for keys in needed.values() for key in keys} - {*needed[kind], *free})
    odd = [key for key in others if getattr(settings, key) is not None]
    if odd:
        raise ValueError(f"{', '.join(odd)}: not used by kind {kind}; leave it out")


def _kinds(annotation: Any) -> Iterator[str]:
    """Yield the names of the types that a value may have."""
    if get_origin(annotation) in {Union, UnionType, Annotated}:
        for each in get_args(annotation):
            yield from _kinds(each)
    elif isinstance(annotation, type):
        yield annotation.__name__


# A shorter token could be guessed.
MIN_TOKEN = 16
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
_SECOND = 1_000_000
_MILLI = 1000
# From the longest on; a week and a day have always as many hours.
_MICROS = {
    "week": 7 * 86_400 * _SECOND,
    "day": 86_400 * _SECOND,
    "hour": 3600 * _SECOND,
    "minute": 60 * _SECOND,
    "second": _SECOND,
    "millisecond": _MILLI,
    "microsecond": 1,
}
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
_SHORT = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second"}
_SHORT |= {"min": "minute", "sec": "second", "ms": "millisecond", "us": "microsecond"}
_SHORT |= {"mo": "month", "y": "year"}

_NUMBER = r"\d+(?:\.\d+)?"
_PART = re.compile(rf"({_NUMBER}) *([a-zA-Z]+)")
_WORDS = re.compile(rf"{_PART.pattern}(?: *{_PART.pattern})*")
_PAIR = re.compile(rf"([a-zA-Z]+) *= *({_NUMBER})")
_PAIRS = re.compile(rf"{_PAIR.pattern}(?: *, *{_PAIR.pattern})*")
_ISO = re.compile(
    rf"P(?:({_NUMBER})Y)?(?:({_NUMBER})M)?(?:({_NUMBER})W)?(?:({_NUMBER})D)?"
    rf"(?:T(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_ISO_UNITS = ("year", "month", "week", "day", "hour", "minute", "second")
_CLOSING_DAY = re.compile(r"closing_day *= *(\d+)(?!\.)")
_LONGEST_MONTH = 31
_YEARS = 100
_EXAMPLES = "`30s`, `5m`, `1h`, `7d` or `P30D`"


@dataclass(frozen=True, slots=True)
class CalendarSpan:
    """A duration in two parts: months, which differ in length, and microseconds."""

    months: int
    micros: int


def parse_duration(text: str) -> CalendarSpan:
    """Return a duration as months and microseconds.

    Raises `ValueError` for text that is no duration, or longer than 100 years.
    """
    months = micros = Decimal(0)
    for amount, unit in duration_parts(text):
        months += amount * _MONTHS.get(unit, 0)
        micros += amount * _MICROS.get(unit, 0)
    if months != int(months):
        raise ValueError("has a part of a month")
    if micros != int(micros):
        raise ValueError("is finer than a microsecond")
    if months > _YEARS * 12 or micros > _YEARS * 36_525 * _MICROS["day"] // 100:
        raise ValueError(f"is more than {_YEARS} years")
    return CalendarSpan(int(months), int(micros))


def duration_parts(text: str) -> list[tuple[Decimal, str]]:
    """Return the amounts of a duration, each with its unit (``day``, ``month``).

    Raises `ValueError`.
    """
    found = []
    for number, named in _parts(text.strip()):
        unit = _SHORT.get(named, named.lower().removesuffix("s"))
        if unit not in _MONTHS and unit not in _MICROS:
            known = ", ".join([*_MICROS, *_MONTHS])
            raise ValueError(f"there is no unit {named!r}; known: {known}")
        found.append((Decimal(number), unit))
    return found


def _parts(text: str) -> list[tuple[str, str]]:
    """Return the numbers of a duration, each with its unit as written."""
    if _WORDS.fullmatch(text):
        return _PART.findall(text)
    if _PAIRS.fullmatch(text):
        return [(number, unit) for unit, number in _PAIR.findall(text)]
    iso = _ISO.fullmatch(text)
    found = [] if iso is None else zip(iso.groups(), _ISO_UNITS, strict=True)
    found_parts = [(number, unit) for number, unit in found if number is not None]
    if found_parts:
        return found_parts
    if text.startswith("-"):
        raise ValueError("must be at least 0")
    if text == "0":
        return [(text, "second")]
    if re.fullmatch(_NUMBER, text):
        raise ValueError(f"must be a duration with its unit: {text}s, {text}m, {text}h or {text}d")
    raise ValueError(f"must be a duration such as {_EXAMPLES}")


def to_micros(text: str) -> int:
    """Return a duration of fixed length in microseconds. Raises `ValueError`."""
    found = parse_duration(text)
    if found.months:
        raise ValueError("has months or years, which differ in length; give days")
    return found.micros


def to_signed_micros(text: str) -> int:
    """Return a duration in microseconds; a leading minus makes it negative.

    Raises `ValueError`.
    """
    bare = text.strip()
    return -to_micros(bare[1:]) if bare.startswith("-") else to_micros(bare)


def format_seconds(secs: float) -> str:
    """Return seconds in the notation of a configuration: ``90s``, ``5m``, ``1h``, ``2d``."""
    for unit, length in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if secs and secs % length == 0:
            return f"{secs / length:.15g}{unit}"
    # No exponent, which would be no duration.
    return f"{Decimal(f'{secs:.15g}'):f}s" if secs else "0"


def check_milliseconds(text: str, found: int) -> str:
    """Return ``text`` if its microseconds are whole milliseconds.

    Raises `ValueError` otherwise, because a watermark moves by milliseconds.
    """
    if found % _MILLI:
        raise ValueError(f"{text!r}: a watermark moves by whole milliseconds")
    return text


def parse_look_back(given: Any) -> dict[str, int]:
    """Parse a look-back: ``2d``, ``months=1, closing_day=5``, or a block of the same; 0 is none.

    Raises `ValueError` for anything else.
    """
    if isinstance(given, dict):
        given = ", ".join(f"{unit}={amount}" for unit, amount in given.items()) or "0"
    text = _text(given)
    if not isinstance(text, str):
        raise ValueError(f"must be a duration such as {_EXAMPLES}")  # noqa: TRY004  # pydantic's
    day = _CLOSING_DAY.search(text)
    if day is not None and not 1 <= int(day[1]) <= _LONGEST_MONTH:
        raise ValueError(f"closing_day must be from 1 to {_LONGEST_MONTH}")
    rest = _CLOSING_DAY.sub("", text).strip(" ,")
    found = parse_duration("0" if day and not rest else rest)
    hours, part = divmod(found.micros, _MICROS["hour"])
    if part:
        raise ValueError("is no whole number of hours")
    amounts = {"months": found.months, "hours": hours, "closing_day": int(day[1]) if day else 0}
    return {unit: amount for unit, amount in amounts.items() if amount}


def _text(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.15g}"
    # A whole number may be too large for a float.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _secs(value: Any) -> Any:
    text = _text(value)
    return to_micros(text) / _SECOND if isinstance(text, str) else value


def _duration(text: str) -> str:
    to_micros(text)
    return text


def _positive(text: str) -> str:
    if to_micros(text) == 0:
        raise ValueError("must be longer than nothing")
    return text


def _delay(text: str) -> str:
    return check_milliseconds(text, to_micros(text))


# For editors: a number with a unit, `months=1`, or as in ISO 8601.
_IN_JSON = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string", "pattern": r"^(\d.*[A-Za-z]|[A-Za-z]+ *=.*\d|P.+|0)$"},
            {"const": 0},
        ]
    }
)
# In seconds, for whoever waits; and as written, for what has to be exact.
_IN_SECONDS = BeforeValidator(_secs)
_AS_TEXT = (AfterValidator(_duration), AfterValidator(_positive), AfterValidator(_delay))
Seconds = Annotated[
    float, _IN_SECONDS, PlainSerializer(format_seconds, return_type=str, when_used="json"), _IN_JSON
]
Duration = Annotated[str, BeforeValidator(_text), _AS_TEXT[0], _IN_JSON]
Length = Annotated[str, BeforeValidator(_text), _AS_TEXT[1], _IN_JSON]
Delay = Annotated[str, BeforeValidator(_text), _AS_TEXT[2], _IN_JSON]
_BACK = BeforeValidator(parse_look_back)
LookBack = Annotated[
    dict[str, int], _BACK, WithJsonSchema({"anyOf": [{"type": ["string", "object"]}, {"const": 0}]})
]


def is_duration(metadata: Iterable[Any]) -> bool:
    """Return whether a type with these annotations is a duration."""
    return any(each in (_IN_SECONDS, _BACK, *_AS_TEXT) for each in metadata)


def as_written(field: FieldInfo, value: Any) -> Any:
    """Return a default as a file has it: seconds with their unit."""
    of_types = (getattr(each, "__metadata__", ()) for each in get_args(field.annotation))
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    if not is_number or not is_duration([*field.metadata, *chain.from_iterable(of_types)]):
        return value
    return format_seconds(value) if value else 0
