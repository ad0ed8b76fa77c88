"""The other runs of a source, backfills and replays, beside a rebuild of its checkpoint.

What they have taken is done to the rebuilt checkpoint, so none may take more between the look at
them and the write: each is taken over, and is to be as it was looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.checkpoint.fence import FencedFile
from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Storage
from blizzard_py.state.siblings import siblings_of
from blizzard_py.state.source_state import checkpoint_path


class TakenMeanwhile(Exception):
    """A run has saved since it was looked at; the message names its checkpoint."""


def looked_at(sink: Storage, live_id: str) -> dict[str, Any]:
    """The checkpoints of a source's other runs by their paths, whoever has written them.

    Raises `StateError`, `StorageError`.
    """
    found = {}
    for path in map(checkpoint_path, siblings_of(sink, live_id)):
        document = checkpoint.load(sink, path, lambda document, _where: document)
        if document is not None:
            found[path] = _without_writer(document)
    return found


def hold(sink: Storage, live_id: str, seen: Mapping[str, Any]) -> None:
    """Take these checkpoints over: whoever runs on one is fenced at its next save.

    Raises `TakenMeanwhile` if one is not as it was ``seen``, `StateError`, `StorageError`.
    """
    for path in map(checkpoint_path, siblings_of(sink, live_id)):
        try:
            taken = FencedFile(sink, path).take(lambda document, _where: document, _none)
        except NotFound:
            continue
        if path not in seen or _without_writer(taken) != seen[path]:
            raise TakenMeanwhile(f"{sink.uri}/{path}")


def _none() -> Mapping[str, Any]:
    raise NotFound("there is none")


def _without_writer(document: Any) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "writer"}
