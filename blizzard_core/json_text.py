"""Strict parsing of JSON that others may have written."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

# Of msgspec, also for the few valid texts that it does not take. It has no value that differs.
_REFUSALS = (msgspec.MsgspecError, UnicodeError, RecursionError)
# Possible halves of surrogate pairs, escaped or as bytes; only those from bytes are valid.
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


def json_value(text: bytes | str) -> Any:
    """Parse a JSON text. Raises `ValueError`, and nothing else, for invalid text.

    ``NaN`` and infinities are invalid, also from a number with too many digits for a float: they
    could not be written again. So is nesting deeper than Python's limit.
    """
    with suppress(*_REFUSALS):  # three times as fast
        return msgspec.json.decode(text)
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def written_value(text: bytes) -> Any:
    """Parse as `json_value` does; reject halves of surrogate pairs in strings."""
    value = json_value(text)
    # Most texts have neither, and this check is a hundred times as fast.
    if (b"\\u" in text or b"\xed" in text) and _HALF_PAIR.search(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return value


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond any number")
    return number
