"""The values of work units: listed, written as text, or fields of a table's rows. Pure.

A unit's ``values`` are a dict, field → text. Its **name** is what its state, its rows and the
command line tell it by: the value; of several fields all, joined with ``|`` (in each, ``%`` and
``|`` as ``%25`` and ``%7C``); ``{}`` where there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# The name of the only unit of a source without values.
LONE = "{}"


def unit_name(values: Mapping[str, Any]) -> str:
    """The name of the unit with these values."""
    raise NotImplementedError


def unit_list(name: Any, units: Any) -> list[dict[str, str]]:
    """The units in a list, or in text with commas: trimmed, each once, in the order given."""
    raise NotImplementedError


def units_from(
    rows: Iterable[Mapping[str, Any]], fields: Any, filters: Mapping[str, str] | None = None
) -> list[dict[str, str]]:
    """The units in rows: ``fields`` of those for which every filter matches the whole value."""
    raise NotImplementedError
