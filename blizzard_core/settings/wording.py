"""What is wrong with a value of a configuration, in words for whoever wrote it. Pure.

The validator's own words name our classes and its types, which nobody has heard of who writes YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

_NAMES = "names consist of letters, digits, `_`, `.` and `-`"
_TRUTH, _WHOLE, _NUMBER = "must be true or false", "must be a whole number", "must be a number"
_TEXT, _LIST, _BLOCK = "must be text", "must be a list", "must be a block of keys"

# By the validator's name for what is wrong; in braces what it knows besides.
_SAID = {
    "bool_parsing": _TRUTH,
    "bool_type": _TRUTH,
    "dict_type": _BLOCK,
    "extra_forbidden": "unknown key",
    "finite_number": "must be a number, and not infinite",
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_type": _WHOLE,
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": _LIST,
    "literal_error": "must be {expected}",
    "missing": "is required",
    "model_attributes_type": _BLOCK,
    "model_type": _BLOCK,
    "string_too_long": "must have {max_length} characters at most",
    "string_type": f"{_TEXT}; put quotes around it",
    "too_long": "has {actual_length} entries, {max_length} at most are allowed",
    "tuple_type": _LIST,
    "union_tag_invalid": "must be one of {expected_tags}",
}
# What a text has to look like, by its pattern.
_LOOKS = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": _NAMES,
    r"^https?://[^/?#]+": "must be an address, as in `https://api.example.com/v2`",
    r"^[^:\s]+:\d{1,5}$": "must be a host and a port, as in `0.0.0.0:9090`",
}
# A step in the validator's locations that is none in the file: which of several types it tried.
_TRIED = re.compile(r".*\[.*\]|str|int|float|bool|constrained-\w+")


def said(item: Mapping[str, Any]) -> str:
    """What one of the validator's errors says."""
    kind, context = item["type"], item.get("ctx", {})
    if kind in _SAID:
        return _SAID[kind].format_map({name: _shown(value) for name, value in context.items()})
    if kind == "string_pattern_mismatch":
        named = _NAMES if "[key]" in item["loc"] else _LOOKS.get(context["pattern"])
        return named or f"must match {context['pattern']}"
    if kind in ("string_too_short", "too_short"):
        few = context["min_length"]
        return "must not be empty" if few == 1 else f"must have {few} at least"
    return str(item["msg"]).removeprefix("Value error, ")


def _shown(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, float) else value


def tried(part: str | int) -> bool:
    """Whether a step of a location names a type that was tried."""
    return isinstance(part, str) and _TRIED.fullmatch(part) is not None


def together(found: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Problems by their places; what one place may be instead is one problem."""
    for place, messages in groupby(found, lambda each: each[0]):
        texts = list(dict.fromkeys(message for _, message in messages))
        first, *others = texts
        more = [text.removeprefix("must be ") for text in others]
        alike = all(text.startswith("must be ") for text in texts)
        yield from (
            [f"{place}: {' or '.join([first, *more])}"]
            if alike
            else (f"{place}: {text}" for text in texts)
        )
