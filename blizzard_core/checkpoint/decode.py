"""Strict conversion of stored JSON to dataclasses, with the place of every error. Pure.

`msgspec` converts strictly and guesses nothing. This module adds two things: the key of a mapping
in which something is wrong (msgspec writes ``[...]``), and keys that a dataclass does not have.
Another release wrote such a key and would miss it, so it is an error unless ``open_`` allows
other writers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from blizzard_core.errors import StateError

T = TypeVar("T")

RESTORE = "restore it as it was saved"

# How msgspec ends its messages, and the steps of the path that it gives there.
_AT = re.compile(r" - at `(?:key` in `)?\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+|\.\.\.)\]")

# Finds the first place with unknown keys in a value: its path and the keys.
_Walk = Callable[[Any], tuple[str, list[str]] | None]


def decode_document(
    kind: type[T], document: Any, where: str, remedy: str = RESTORE, *, open_: bool = False
) -> T:
    """Convert a JSON value to ``kind``.

    Raises `StateError` with ``where``, the place in the document, the problem, and the ``remedy``.
    Unknown keys are errors at any depth, unless ``open_`` is set.
    """
    try:
        value = _converted(kind, document)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        place, what = _reason(kind, document, error)
        raise StateError(f"{_joined(where, place)}: {what}; {remedy}") from error
    walk = None if open_ else _walk(cast("Hashable", kind))
    unknown = None if walk is None else walk(document)
    if unknown is not None:
        place, keys = unknown
        raise StateError(
            f"{_joined(where, place)}: has {', '.join(keys)}, which this release does not know;"
            f" run the release that wrote it, or {remedy}"
        )
    return value


# msgspec inspects a type at the first conversion and stores the result with the type before it is
# complete: two threads that convert to a new type at the same time crash the process.
_known: set[Any] = set()
_finding_out = threading.Lock()


def _converted(kind: type[T], document: Any) -> T:
    if kind in _known:
        return msgspec.convert(document, kind)
    with _finding_out:
        try:
            return msgspec.convert(document, kind)
        finally:
            _known.add(kind)


def _joined(where: str, place: str) -> str:
    return f"{where}: {place.removeprefix('.')}" if place else where


# -- the place of an error --------------------------------------------------------


def _reason(kind: Any, document: Any, error: Exception) -> tuple[str, str]:
    """Return the place of the error, as far as it is known, and its description."""
    try:
        return _locate(kind, document, str(error))
    except UnicodeEncodeError:  # msgspec encodes text as UTF-8 in an unexpected place
        return "", str(error)


def _locate(kind: Any, document: Any, message: str) -> tuple[str, str]:
    """Split a message of msgspec into the place, with its missing keys, and the rest."""
    match = _AT.search(message)
    if match is None:
        return "", message
    place = ""
    steps: list[str | int] = []
    here = document
    for step in _STEP.finditer(match["path"]):
        key: str | int
        if step["key"] is not None:
            key = step["key"]
            place += f".{key}"
        elif step["index"] != "...":
            key = int(step["index"])
            place += f"[{key}]"
        else:
            key = _culprit(kind, document, steps, here, message)
            # Other items of the mapping may be wrong in the same way; they are ignored.
            document = _with(document, steps, {key: here[key]})
            place += f"[{key!r}]"
        here = here[key]
        steps.append(key)
    return place, message[: match.start()]


def _culprit(
    kind: Any, document: Any, steps: list[str | int], mapping: Mapping[str, Any], message: str
) -> str:
    """Find by halving the key whose value msgspec refuses with this message."""
    keys = list(mapping)
    while len(keys) > 1:
        half = keys[: len(keys) // 2]
        try:
            msgspec.convert(_with(document, steps, {key: mapping[key] for key in half}), kind)
        except msgspec.ValidationError as error:
            keys = half if str(error) == message else keys[len(half) :]
        else:
            keys = keys[len(half) :]
    return keys[0]


def _with(document: Any, steps: list[str | int], value: Any) -> Any:
    """Return a copy of the document with another value in one place."""
    if not steps:
        return value
    changed = document.copy()
    changed[steps[0]] = _with(document[steps[0]], steps[1:], value)
    return changed


# -- unknown keys -----------------------------------------------------------------


@cache
def _walk(kind: Hashable) -> _Walk | None:
    """Return a function that finds unknown keys in values of a type; None if there can be none."""
    if is_dataclass(kind):
        return partial(_in_fields, *_fields(get_type_hints(kind)))
    origin, args = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        # Of the types here at most one is an object or a list: msgspec asks for that, too.
        walk = next((found for arg in args if (found := _walk(arg)) is not None), None)
        return None if walk is None else partial(_some, walk)
    if not isinstance(origin, type):
        return None
    inner = _walk(args[-1 if issubclass(origin, Mapping) else 0])
    return None if inner is None else partial(_first, inner)


def _fields(hints: dict[str, Any]) -> tuple[frozenset[str], list[tuple[str, _Walk]]]:
    """Return a dataclass's keys, and the keys below which unknown ones can occur."""
    deeper = [(name, walk) for name, hint in hints.items() if (walk := _walk(hint)) is not None]
    return frozenset(hints), deeper


def _in_fields(
    names: frozenset[str], deeper: list[tuple[str, _Walk]], value: Mapping[str, Any]
) -> tuple[str, list[str]] | None:
    if not value.keys() <= names:
        return "", sorted(value.keys() - names)
    for name, walk in deeper:
        found = walk(value[name]) if name in value else None
        if found is not None:
            return f".{name}{found[0]}", found[1]
    return None


def _some(walk: _Walk, value: Any) -> tuple[str, list[str]] | None:
    return walk(value) if isinstance(value, dict | list) else None


def _first(walk: _Walk, values: Any) -> tuple[str, list[str]] | None:
    """Return the first unknown keys in the items of a list or a mapping."""
    named = values.items() if isinstance(values, Mapping) else enumerate(values)
    for name, value in named:
        found = walk(value)
        if found is not None:
            return f"[{name!r}]{found[0]}", found[1]
    return None
