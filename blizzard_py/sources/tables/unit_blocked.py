"""Why the groups of a source are not in the table: what committers say where they keep their own.

For people only. Committers of any name may commit to the table, each with a state of its own.
"""

from __future__ import annotations

from typing import Any

from blizzard_core.errors import NotFound
from blizzard_core.groups import BLOCKED_KEY, COMMITTERS_FOLDER
from blizzard_core.json_text import json_value
from blizzard_core.storage.protocol import Storage

_STATE = "_checkpoint.json"


def blocked_by(sink: Storage, source_id: str) -> str | None:
    """What a committer says of the source's next group; None if none says that it waits.

    Costs a LIST and a GET for each committer. Raises `StorageError`.
    """
    for path in _states(sink):
        try:
            document = json_value(sink.read(path))
        except (NotFound, ValueError):
            continue  # gone, or not theirs; who else has said it?
        blocked: Any = document.get(BLOCKED_KEY) if isinstance(document, dict) else None
        reason = blocked.get(source_id) if isinstance(blocked, dict) else None
        if isinstance(reason, str):
            return reason
    return None


def _states(sink: Storage) -> list[str]:
    try:
        pages = sink.list_range(f"{COMMITTERS_FOLDER}/", f"{COMMITTERS_FOLDER}0")  # "0" follows "/"
        return [e.path for page in pages for e in page.entries if e.path.endswith(_STATE)]
    except NotFound:  # a local table that nothing was written to yet
        return []
