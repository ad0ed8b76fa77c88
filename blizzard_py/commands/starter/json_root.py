"""The records of JSON files: lines, documents, or elements of an array in them. Pure.

A document is an envelope of its array if its other fields are those of a page or an answer, such as
counts and links. Any other document is a record with all its fields, so that none is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from blizzard_core.settings.formats import JsonOptions, NdjsonOptions
from blizzard_py.commands.starter.heads import Recognized, TextHead

_ENVELOPE = frozenset(
    {
        "count", "total", "totalcount", "totalresults", "totalpages", "page", "pages", "pagesize",
        "perpage", "pagination", "paging", "limit", "offset", "next", "prev", "previous", "cursor",
        "nextcursor", "nextpagetoken", "hasmore", "links", "link", "meta", "metadata", "status",
        "success", "ok", "error", "errors", "warnings", "message", "code", "took", "timedout",
        "generatedat", "requestid", "self", "href", "query", "object",
    }
)  # fmt: skip
_COLLECTION = {"type": "FeatureCollection"}
_LEVELS = 5
_TOKEN = re.compile(r'"((?:(?>[^"\\]|\\.))*+)(?:"\s*(:?)|\\?\Z)|([{}\[\]])|[^"{}\[\]]++', re.DOTALL)
Path = tuple[str, ...]


def recognize_json(heads: Sequence[TextHead], encoding: str) -> Recognized:
    """Return lines, or documents with the path of their array."""
    is_lines = encoding == "utf-8" and all(map(_begins_with_line, heads))
    documents = [_document(head) for head in heads]
    if is_lines and not all(map(_is_alone, heads, documents)):
        return Recognized(NdjsonOptions())
    path: Path | None = None
    if all(
        document is not None or not head.is_whole
        for head, document in zip(heads, documents, strict=True)
    ):
        path = _common_path(heads, documents)
    doubts: tuple[str, ...] = ()
    if path:
        others = sorted(_others(documents, path))
        left = f", and leaves out {', '.join(others)}" if others else ""
        doubts = (f"each element of {'.'.join(path)} is a record{left}",)
    elif inner := next(filter(None, map(_first_list, documents)), ""):
        doubts = (_document_doubt(inner),)
    if is_lines and not path:
        return Recognized(NdjsonOptions(), doubts)
    options = {"type": "json", "records": ".".join(path or ())}
    if encoding.startswith("utf-16"):
        options["encoding"] = encoding
    return Recognized(JsonOptions.model_validate(options), doubts)


def _document_doubt(inner: str) -> str:
    return (
        f"a document is a record; records: {inner} would make one of each element of that array,"
        " without the other fields"
    )


def _begins_with_line(head: TextHead) -> bool:
    """Return whether the first line of a file is an object."""
    first, end, _ = head.text.lstrip().partition("\n")
    try:
        return isinstance(json.loads(first), dict)
    except ValueError:
        return not end and not head.is_whole  # a line that is longer than what was read
    except RecursionError:
        return False


def _is_alone(head: TextHead, document: dict[str, Any] | None) -> bool:
    """Return whether a file of lines is one document, which may be cut."""
    return document is not None or (not head.is_whole and "\n" not in head.text.strip())


def _document(head: TextHead) -> dict[str, Any] | None:
    """Return the document if it is the only one of the file, and an object."""
    text = head.text.strip()
    try:
        document = json.loads(text) if head.is_whole else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _common_path(
    heads: Sequence[TextHead], documents: Sequence[dict[str, Any] | None]
) -> Path | None:
    """Return the path of the array in all files."""
    whole = [document for document in documents if document is not None]
    paths = {_array_path(whole, 1)} if whole else set()
    paths |= {
        _path_in_beginning(head.text)
        for head, document in zip(heads, documents, strict=True)
        if document is None
    }
    return paths.pop() if len(paths) == 1 else None


def _array_path(objects: Sequence[dict[str, Any]], level: int) -> Path | None:
    """Return the path of the array that holds what the objects are about; None without one."""
    names = dict.fromkeys(name for each in objects for name in each)
    if objects and all(each.items() >= _COLLECTION.items() for each in objects):
        return ("features",)
    main = [name for name in names if not _is_envelope(name)]
    if len(main) != 1 or level > _LEVELS or "." in main[0]:
        return None
    values = [each[main[0]] for each in objects if each.get(main[0]) is not None]
    if not values:
        return None
    if all(_is_records(value) for value in values):
        is_list = len(names) == 1 or any(len(value) > 1 for value in values)
        return (main[0],) if is_list else None
    if all(isinstance(value, dict) for value in values):
        inner = _array_path(values, level + 1)
        return (main[0], *inner) if inner else None
    return None


def _is_records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _is_envelope(name: str) -> bool:
    return name.lower().replace("_", "").replace("-", "") in _ENVELOPE


def _others(documents: Sequence[dict[str, Any] | None], path: Path) -> set[str]:
    """Return the fields beside the path."""
    found: set[str] = set()
    for document in documents:
        value: Any = document
        for name in path:
            if isinstance(value, dict):
                found |= value.keys() - {name}
                value = value.get(name)
    return found


def _first_list(document: dict[str, Any] | None) -> str:
    items = (document or {}).items()
    return next((name for name, value in items if value and _is_records(value)), "")


def _path_in_beginning(text: str) -> Path | None:
    """Return the first array of objects of a document that was not read to its end.

    None if a field before it is not one of an envelope.
    """
    path: list[str] = []
    key = ""
    before: dict[int, str] = {}
    for match in _TOKEN.finditer(text):
        if match[2]:
            key = match[1]
            other = before.setdefault(len(path), key)
            if other != key and not _is_envelope(other):
                return None
            before[len(path)] = key
        elif match[3] == "{":
            path.append(key)
            key = ""
        elif match[3] == "}" and path:
            path.pop()
        elif match[3] == "[":
            found = (*path[1:], key)
            is_list = text[match.end() :].lstrip().startswith("{")
            is_short = len(found) <= _LEVELS and not any("." in name for name in found)
            if is_list and key and is_short and not _is_envelope(key):
                return found
            if not _is_envelope(key):
                return None
    return None
