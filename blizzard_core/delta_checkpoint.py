"""Which checkpoint of a Delta log to begin with. Reads only.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#checkpoints
"""

from __future__ import annotations

import re

from blizzard_core.delta_json import LOG
from blizzard_core.errors import NotFound
from blizzard_core.json_text import json_value
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Storage

# Parquet begins and ends with it; between the two is at least a footer and its length.
_MAGIC = b"PAR1"
_SHORTEST = 12
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")


def newest_checkpoint(storage: Storage, version: int) -> tuple[int, list[str]] | None:
    """Version and files of the newest whole checkpoint at or before ``version``.

    ``_last_checkpoint`` may name one that is not read here; an older one does as well. So it does
    where a writer died: a file that is empty or cut is passed over with a warning.
    """
    hint = _hint(storage)
    found = None
    if hint is not None and hint <= version:
        found = _newest_listed(storage, f"{LOG}/{hint:020d}", version)
    return found or _newest_listed(storage, f"{LOG}/", version)


def _newest_listed(storage: Storage, start: str, version: int) -> tuple[int, list[str]] | None:
    found: dict[int, dict[int, list[str]]] = {}
    for page in storage.list_range(start, f"{LOG}/:"):  # ":" follows "9"
        for entry in page.entries:
            match = _CHECKPOINT.fullmatch(entry.path.removeprefix(f"{LOG}/"))
            if match is not None and int(match[1]) <= version:
                parts = found.setdefault(int(match[1]), {})
                parts.setdefault(int(match[3] or 1), []).append(entry.path)
    for number in sorted(found, reverse=True):
        for count, paths in found[number].items():
            if len(paths) == count and all(_is_whole(storage, path) for path in paths):
                return number, paths
    return None


def _is_whole(storage: Storage, path: str) -> bool:
    """Whether a checkpoint's file begins and ends as Parquet does."""
    size = storage.stat(path)
    if size is None:
        return False
    ends = (0, len(_MAGIC)), (size.size - len(_MAGIC), size.size)
    if size.size >= _SHORTEST and all(storage.read_range(path, *at) == _MAGIC for at in ends):
        return True
    get_logger().warning(
        "log_checkpoint_ignored",
        path=f"{storage.uri}/{path}",
        bytes=size.size,
        error="is empty or cut off; an older checkpoint or the commits count",
        remedy="delete the file",
    )
    return False


def _hint(storage: Storage) -> int | None:
    """What ``_last_checkpoint`` says. Only a hint: without it the whole log is listed."""
    try:
        document = json_value(storage.read(f"{LOG}/_last_checkpoint"))
    except (NotFound, ValueError):
        return None
    number = document.get("version") if isinstance(document, dict) else None
    return number if isinstance(number, int) else None
