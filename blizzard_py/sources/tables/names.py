"""The names of items: ``000000000017#0`` is task 0 of the source's window 17. Pure."""

from __future__ import annotations

import re

_NAME = re.compile(r"(?P<seq>\d{12})#(?P<task>[^#/\s]+)")


def item_name(seq: int, task: str) -> str:
    """The name of a window's task, which means the same for ever."""
    return f"{seq:012}#{task}"


def parsed_name(name: str) -> tuple[int, str] | None:
    """The window's number and the task's name; None if it is no item's name."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found["seq"]), found["task"])
