"""Columns whose values are in a file's path.

A value comes from a folder ``key=value``, with Hive's percent-encoding and its name for null, or
from a place in the template (`blizzard_core.settings.globs`). A path without a value, with
two, or with one that is not of the type is an error for the file: a wrong value would be in every
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from urllib.parse import unquote

import pyarrow as pa

from blizzard_core.handover.outputs import NULL_PARTITION
from blizzard_core.settings.format_options import ValueOptions
from blizzard_core.settings.globs import template_expression, template_names
from blizzard_py.formats.texts import text_values
from blizzard_py.job import FieldSpec
from blizzard_py.lines.failure import FileFailed


@cache
def _iso() -> ValueOptions:
    """Return the notation of paths. To make it takes a while, which a driver does not need."""
    return ValueOptions()


def path_texts(path: str, names: Sequence[str], template: str) -> dict[str, str | None]:
    """Return the text of each column in a path, None for null. Raises `FileFailed`."""
    found = _template_texts(path, template) if template else {}
    for folder in path.split("/")[:-1]:
        key, sign, text = folder.partition("=")
        name = unquote(key)
        if not sign or name not in names:
            continue
        if name in found:
            raise FileFailed("partition", f"its path has two values for path column {name!r}")
        found[name] = None if text == NULL_PARTITION else text
    missing = [name for name in names if name not in found]
    if missing:
        raise FileFailed(
            "partition",
            f"its path has no folder {missing[0]}=… for path column {missing[0]!r}; exclude such"
            " files, or name the folder in advanced.path_template",
        )
    return found


def path_values(path: str, specs: Sequence[FieldSpec], template: str) -> list[pa.Array]:
    """Return the values of a path, each as an array of one. Raises `FileFailed`."""
    texts = path_texts(path, [spec.name for spec in specs], template)
    by_template = template_names(template)
    return [_value(spec, texts[spec.name], spec.name not in by_template) for spec in specs]


@lru_cache(maxsize=4096)  # files of one folder have the same values
def _value(spec: FieldSpec, text: str | None, is_encoded: bool) -> pa.Array:
    try:
        plain = unquote(text, errors="strict") if text is not None and is_encoded else text
        return text_values(spec, pa.array([plain], pa.string()), _iso())
    except ValueError:
        raise FileFailed(
            "partition",
            f"its path has {text!a} for path column {spec.name!r}, which is no {spec.type}",
        ) from None


def _template_texts(path: str, template: str) -> dict[str, str | None]:
    found = template_expression(template).match(path)
    if found is None:
        raise FileFailed("partition", f"its path does not begin as path_template {template!r}")
    return dict(zip(template_names(template), found.groups(), strict=True))
