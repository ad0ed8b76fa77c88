"""Texts of undeclared columns as the JSON values that they look like: columns are made of these."""

from __future__ import annotations

import datetime as dt
import json
import re

from blizzard_core.settings.format_options import ValueOptions

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


def json_value_of(text: str | None, options: ValueOptions) -> str:
    """Return a text as JSON: null, a number, a truth value, an ISO date or time, or text.

    A number with zeros before it, or with a plus, is text: it may be the code of something.
    """
    if text is None:
        return "null"
    plain = text.strip()
    if plain in {"true", "false"}:
        return plain
    number = plain
    if options.thousands or options.decimal != ".":
        number = _plain_number(plain, options)
    if _NUMBER.fullmatch(number):
        return number
    for form in options.timestamp_format:
        if (moment := _moment(plain, form)) is not None:
            return json.dumps(moment.isoformat() + ("" if moment.tzinfo else "Z"))
    for form in options.date_format:
        if (moment := _moment(plain, form)) is not None:
            return json.dumps(moment.date().isoformat())
    return json.dumps(text, ensure_ascii=False)


def _plain_number(text: str, options: ValueOptions) -> str:
    """Return a number as JSON writes it; other text as it is, marked as no number."""
    group = re.escape(options.thousands)
    whole = rf"\d{{1,3}}(?:{group}\d{{3}})+|\d+" if group else r"\d+"
    if re.fullmatch(rf"[+-]?(?:{whole})(?:{re.escape(options.decimal)}\d+)?", text) is None:
        return ""
    return text.replace(options.thousands, "").replace(options.decimal, ".")


def _moment(text: str, form: str) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(text, form.replace("%-", "%"))  # noqa: DTZ007  # may have none
    except ValueError:
        return None
