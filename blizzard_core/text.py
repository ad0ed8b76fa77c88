"""Foreign text: made safe to show, and JSON that others may have written, parsed strictly.

A terminal executes control characters, a direction mark reverses a name, and a local name that is
not UTF-8 cannot be printed at all.
"""

from __future__ import annotations

import datetime as dt
import difflib
import json
import math
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

# How much of one foreign text is shown in a log line or on a page.
MAX_SHOWN = 2000

# Escapes of undecodable bytes of a name, and such bytes.
_ESCAPED = re.compile(r"(\\+)(?=ud[89a-f][0-9a-f]{2}|[\ud800-\udfff])")


def utf8_name(name: str) -> str:
    r"""Return a file's name as valid UTF-8, different for any two names.

    A byte that is no UTF-8 becomes ``\udcff``. Backslashes before one, or before text that looks
    like one, are doubled. So a name that spells the escape differs from one that has the byte.
    """
    doubled = _ESCAPED.sub(lambda found: found[1] * 2, name)
    return doubled.encode("utf-8", "backslashreplace").decode("utf-8")


def source_file_text(root: str, path: str) -> str:
    """Return the ``_source_file`` of a file below ``root``, even if its name is not UTF-8."""
    return utf8_name(f"{root}/{path}")


def printable(text: str) -> str:
    """Escape control characters, direction marks and undecodable bytes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Escape as `printable` does, but keep line breaks."""
    return "\n".join(printable(line) for line in text.split("\n"))


def json_safe(document: str) -> str:
    r"""Escape unprintable characters of a JSON text as ``\uXXXX``; the values stay the same.

    Outside of its strings JSON has no such characters but line breaks, which stay.
    """
    if document.isprintable():
        return document
    return "".join(c if c.isprintable() or c == "\n" else _unit_escapes(c) for c in document)


def _unit_escapes(character: str) -> str:
    """Return a character as JSON escapes: one UTF-16 unit, or two outside of the BMP."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def shortened(text: str, limit: int = MAX_SHOWN) -> str:
    """Cut the middle of a text that is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def one_line(text: str) -> str:
    """Return the text on one line, with each run of white space as one space."""
    return re.sub(r"\s+", " ", text).strip()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the known word closest to an unknown one, as the end of a sentence."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 file``, ``1,000 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def are(number: int) -> str:
    """Return the verb for `counted`."""
    return "is" if number == 1 else "are"


def plain_span(secs: float) -> str:
    """Return a span of time in its largest unit: ``24 min``, ``3 h``."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if secs >= 2 * size:
            return f"{secs / size:,.0f} {unit}"
    return f"{max(0.0, secs):.0f} s"


def shell_word(text: str) -> str:
    """Quote the text as one word for a POSIX shell, safe to paste anywhere.

    Unprintable characters are written as ``$'…'`` (bash, zsh, ksh): a terminal would execute them
    before the shell sees the quotes.
    """
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_ansi_c, text))}'"


def _ansi_c(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    undecodable = "\udc80" <= character <= "\udcff"
    data = character.encode("utf-8", "surrogateescape" if undecodable else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def iso(moment: float) -> str:
    """Format epoch seconds to the second: ``2026-01-31T23:59:59Z``.

    Others may have written the number: a moment outside the calendar gives a text that says so.
    """
    return _dated(moment, "%Y-%m-%dT%H:%M:%SZ")


def in_utc(moment: float) -> str:
    """Format as `iso` does, for a table whose heading says UTC: ``2026-01-31 23:59:59``."""
    return _dated(moment, "%Y-%m-%d %H:%M:%S")


def _dated(moment: float, form: str) -> str:
    try:
        return dt.datetime.fromtimestamp(moment, dt.UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "a time that no calendar has"


# Of msgspec, also for the few valid texts that it does not take. It has no value that differs.
JSON_REFUSALS = (msgspec.MsgspecError, UnicodeError, RecursionError)
# Possible halves of surrogate pairs, escaped or as bytes; only those from bytes are valid.
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


def json_value(text: bytes | str) -> Any:
    """Parse a JSON text. Raises `ValueError`, and nothing else, for invalid text.

    ``NaN`` and infinities are invalid, also from a number with too many digits for a float: they
    could not be written again. So is nesting deeper than Python's limit.
    """
    with suppress(*JSON_REFUSALS):  # three times as fast
        return msgspec.json.decode(text)
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_object(text: bytes | str) -> dict[str, Any] | None:
    """Parse a JSON object; None for any other text."""
    try:
        value = json_value(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


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
