"""The naming of a source's directories, told from some of its paths. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def _all(form: str, texts: list[str]) -> bool:
    return all(re.fullmatch(form, text, re.ASCII) for text in texts)
