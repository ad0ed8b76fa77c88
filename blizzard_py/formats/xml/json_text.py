"""Elements as JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from blizzard_py.formats.xml.elements import Repeated, Value

# What a text that is a value of JSON is written as.
Plain = Callable[[str], str]
Path = tuple[str, ...]
_BLANKS = " \t\r\n"


def json_text(
    value: Value,
    trims: bool,
    plain: Plain | None = None,
    lists: Collection[Path] = (),
    path: Path = (),
) -> str:
    """Return an element as JSON; texts are strings, unless ``plain`` writes them otherwise.

    What comes several times is an array, and so is what does elsewhere, at the ``lists``.
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        text = value.strip(_BLANKS) if trims else value
        return json.dumps(text, ensure_ascii=False) if plain is None else plain(text)
    if isinstance(value, Repeated):
        return f"[{','.join(json_text(each, trims, plain, lists, path) for each in value)}]"
    members = []
    for name, inner in value.items():
        below = (*path, name)
        text = json_text(inner, trims, plain, lists, below)
        if below in lists and not isinstance(inner, Repeated):
            text = f"[{text}]"
        members.append(f"{json.dumps(name, ensure_ascii=False)}:{text}")
    return f"{{{','.join(members)}}}"


def repeated_paths(value: Value, path: Path = ()) -> set[Path]:
    """Return the paths of what comes several times in an element."""
    found: set[Path] = set()
    if isinstance(value, Repeated):
        found.add(path)
        for each in value:
            found |= repeated_paths(each, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(inner, str):
                found |= repeated_paths(inner, (*path, name))
    return found
