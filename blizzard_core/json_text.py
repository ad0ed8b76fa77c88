"""JSON that others may have written, read more strictly than the standard library does."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def json_value(text: bytes | str) -> Any:
    """The value of a JSON text. Raises `ValueError`, and nothing else, for what is none.

    ``NaN`` and infinities are none, also where a number has too many digits for a float: nobody
    could write them again. Nor is what is nested deeper than Python goes.
    """
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond any number")
    return number
