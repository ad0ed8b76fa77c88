"""Templates of the folders that columns come from: ``{tenant}/{stream}/*``. Pure.

A template stands for the first folders of a path. ``{name}`` is the value of a column, the folder
``*`` is any one, and other text stands for itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

PathColumnType = Literal["string", "int32", "int64", "date", "timestamp", "boolean"]

_NAME = re.compile(r"\{([^{}/]*)\}")


def template_names(template: str) -> tuple[str, ...]:
    """Return the names of columns in a template, in order."""
    return tuple(_NAME.findall(template))


@lru_cache(maxsize=64)
def template_expression(template: str) -> re.Pattern[str]:
    """Return an expression for the first folders of a path, with a group for each name."""
    return re.compile("/".join(map(_component, template.split("/"))) + "/", re.DOTALL)


def check_path_template(template: str | None) -> str | None:
    """Check the form of a template. Raises `ValueError`, saying what to write instead."""
    if template is None:
        return None
    for part in template.split("/"):
        if part in {"", ".", ".."}:
            raise ValueError(
                f"{template!r} has an empty folder, '.' or '..': write it relative to"
                " source_uri, as in {tenant}/{stream}"
            )
        around = set(_NAME.sub("", part))
        if len(_NAME.findall(part)) > 1 or (part != "*" and not around.isdisjoint("{}*")):
            raise ValueError(
                f"{template!r} has {part!r}: a folder is *, or text with at most one"
                " {name}, as in {tenant} or day-{day}"
            )
    names = template_names(template)
    if len(set(names)) < max(1, len(names)) or "" in names:
        raise ValueError(f"{template!r} must have a {{name}}, and each name once")
    return template


def _component(part: str) -> str:
    if part == "*":
        return "[^/]+"
    return "([^/]+)".join(map(re.escape, re.split(r"\{[^{}]*\}", part)))
