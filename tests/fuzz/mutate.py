"""Mutations that keep JSON documents and Parquet files well-formed."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.support.thrift_tree import edited, places

# Texts in JSON that no value of Python's is written as; put in for a text that is no one else's.
_MARK = "\x00put here\x00"
_RAW = (
    *("1" * 400, "1e400", "-0", "NaN", "Infinity", "1.0", "0.1e-400", '"\\ud800"', '"\\u0000"'),
    *("[" * 2000 + "]" * 2000, '{"a":' * 1500 + "1" + "}" * 1500, '{"a":1,"a":2}', ""),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 0.5, 1e308),
    *("", "a", "..", "../x", "/", "a/b", "%2e%2e/", "\u2028", "\x7f", "2024-01-28", "9999-12-31"),
    *("x" * 300, [], {}, [[]], [None], {"": None}, {"a": {}}),
)
_PIECES = (
    "../",
    "/",
    "..",
    "%",
    "%2e%2e/",
    "~",
    "\0",
    "\n",
    "\u2028",
    "\udc80",
    "é",
    "x" * 300,
    "9",
)
_INTEGERS = (0, 1, -1, 2, 7, 127, 128, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))


def json_document(data: bytes, chance: Random) -> bytes | None:
    """Return a JSON document with up to three of its values, names or levels changed."""
    try:
        root = [json.loads(data)]
    except (ValueError, RecursionError):
        return None
    raw = chance.choice(_RAW)
    for _ in range(chance.randint(1, 3)):
        _changed(root, chance)
    try:
        text = json.dumps(root[0], ensure_ascii=chance.random() < 0.5)
        return text.replace(json.dumps(_MARK), raw).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None


def json_lines(data: bytes, chance: Random) -> bytes | None:
    """One of some lines of JSON changed, doubled or taken away."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    changed = json_document(lines[at], chance)
    if changed is None:
        return None
    lines[at : at + 1] = chance.choice([[changed], [changed], [lines[at], changed], []])
    return b"\n".join(lines)


def behind(head: int, change: Callable[[bytes, Random], bytes | None]) -> Any:
    """``change`` for bytes that begin with ``head`` bytes of something else."""

    def mutate(data: bytes, chance: Random) -> bytes | None:
        changed = change(data[head:], chance)
        return None if changed is None else data[:head] + changed

    return mutate


def parquet(data: bytes, chance: Random) -> bytes | None:
    """Return a Parquet file with up to three values of its footer changed."""

    def edit(tree: Any) -> None:
        for _ in range(chance.randint(1, 3)):
            _edit_footer(tree, chance)

    try:
        return edited(data, edit)
    except Exception:  # no footer to take apart, whichever way that shows
        return None


def _changed(root: list[Any], chance: Random) -> None:
    found: list[tuple[Any, Any]] = []
    _json_places(root, found)
    holder, key = chance.choice(found)
    other, its = chance.choice(found)
    match chance.randrange(9):
        case 0 | 1:
            holder[key] = chance.choice(_VALUES)
        case 2:
            holder[key] = _MARK
        case 3:
            holder[key] = other[its]
        case 4:
            holder[key] = [holder[key]]
        case 7 | 8 if isinstance(holder[key], str):
            holder[key] = _pieced(holder[key], chance)
        case 5 if holder is not root:
            del holder[key]
        case 6 if isinstance(holder, dict):
            holder[chance.choice(["", "path", "a", "..", _MARK])] = holder.pop(key)


def _pieced(text: str, chance: Random) -> str:
    """Insert something into a text, preferably at the end of one of its parts."""
    ends = [at for at, each in enumerate(text) if not each.isalnum()]
    at = chance.choice([0, len(text), *ends, *(end + 1 for end in ends)])
    return text[:at] + chance.choice(_PIECES) + text[at:]


def _json_places(value: Any, found: list[tuple[Any, Any]], depth: int = 0) -> None:
    if len(found) > 500 or depth > 50:
        return
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _json_places(value[key], found, depth + 1)


def _edit_footer(tree: Any, chance: Random) -> None:
    every = list(places(12, tree))
    holder, key = chance.choice(every)
    found = holder[key]
    if isinstance(holder, list):
        if chance.random() < 0.3:
            holder.insert(key, found)
        elif chance.random() < 0.3:
            del holder[key]
        else:
            holder[key] = _other(found, chance)
        return
    kind, value = found
    if chance.random() < 0.15:
        del holder[key]
    elif isinstance(value, int | bytes) and not isinstance(value, bool):
        holder[key] = (kind, _other(value, chance))
    elif isinstance(value, tuple) and value[1]:
        holder[key] = (kind, (value[0], value[1] * chance.choice([0, 2, 3])))


def _other(value: Any, chance: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([*_INTEGERS, value + 1, value - 1, -value])
    if isinstance(value, bytes):
        return chance.choice([b"", value[:-1], value + b"\xff", value * 2, b"\0" * len(value)])
    return value
