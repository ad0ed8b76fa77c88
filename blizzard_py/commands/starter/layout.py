"""The naming of a source's directories, told from some of its paths. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import date
from urllib.parse import unquote

from blizzard_core.handover.outputs import NULL_PARTITION
from blizzard_core.settings.globs import PathColumnType

_YEAR, _MONTH, _DAY, _HOUR = r"\d{4}", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])", r"[0-2]\d"
_DATE = f"{_YEAR}-{_MONTH}-{_DAY}"
# Components that may follow a component with the given last code, with the form of their text. The
# first one that all paths have is used.
_NEXT = {
    "": (("%Y-%m-%dT%H", f"{_DATE}T{_HOUR}"), ("%Y-%m-%d", _DATE), ("%Y", _YEAR)),
    "%Y": (("%m", _MONTH),),
    "%m": (("%d", _DAY),),
    "%d": (("%H", _HOUR),),
}
# Keys that are columns without further thought. A leading zero is part of a text, not of a number.
_KEY, _NUMBER = r"[A-Za-z]\w*", r"0|-?[1-9]\d{0,17}"


def layout_of(paths: Iterable[str]) -> str:
    """Return the strftime template of the directories; "" if they are not times.

    ``date=%Y-%m-%d/hour=%H``, ``%Y/%m/%d``: leading components, each with the same key in all
    paths or with none in any. Other folders may follow below them.
    """
    found = [path.split("/")[:-1] for path in paths]
    if not found:
        return ""
    template: list[str] = []
    last = ""
    for components in zip(*found, strict=False):
        keys = {key for key, sign, _ in (c.rpartition("=") for c in components) if sign}
        bare = [component.rpartition("=")[2] for component in components]
        # Some with a key and some without, or with several: no layout.
        if len(keys) > 1 or (keys and any("=" not in component for component in components)):
            break
        code = next(
            (code for code, form in _NEXT.get(last, ()) if _all(form, bare)),
            None,
        )
        if code is None:
            break
        key = f"{keys.pop()}=" if keys else ""
        template.append(key.replace("%", "%%") + code)
        last = code[-2:]
    return "/".join(template)


def path_columns_of(
    paths: Iterable[str], template: str, fields: Collection[str]
) -> dict[str, PathColumnType]:
    """Return columns from folders such as ``region=eu``, with their types.

    Each path has the key once. Keys of the ``template`` are times that place a row already, and a
    key that the files have among their ``fields`` is in the rows; case does not count.
    """
    found: dict[str, list[str]] = {}
    count = 0
    for path in paths:
        count += 1
        for folder in path.split("/")[:-1]:
            key, sign, text = folder.partition("=")
            if sign:
                found.setdefault(key, []).append(text)
    known = {name.lower() for name in fields}
    known |= {part.partition("=")[0].lower() for part in template.split("/") if "=" in part}
    columns: dict[str, PathColumnType] = {}
    for key, texts in found.items():
        if len(texts) != count or key.lower() in known or not _all(_KEY, [key]):
            continue
        try:
            values = [unquote(text, errors="strict") for text in texts if text != NULL_PARTITION]
        except ValueError:
            continue
        known.add(key.lower())
        columns[key] = _type_of(values)
    return columns


def _type_of(texts: Sequence[str]) -> PathColumnType:
    if texts and _all(_NUMBER, texts):
        return "int64"
    return "date" if texts and all(map(_is_date, texts)) else "string"


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _all(form: str, texts: Sequence[str]) -> bool:
    return all(re.fullmatch(form, text, re.ASCII) for text in texts)
