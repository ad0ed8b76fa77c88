"""Reasons of operators who closed dead letters without a replay.

The letters are closed like those of a replay. ``{source id}/discarded/{letter}.ndjson`` says who
closed them, when and why::

    {"why": "test data of the vendor", "by": "ann@ops-3", "at": "2024-01-28T14:00:00+00:00"}
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import load
from blizzard_core.storage.protocol import Storage, join, listed
from blizzard_py.state.source_state import Closing

_FOLDER = "discarded"


def write_reason(dlq: Storage, source_id: str, letter_id: str, reason: Closing) -> None:
    """Keep it; durable on return. Raises `StorageError`."""
    data = json.dumps(asdict(reason), ensure_ascii=False).encode("utf-8", "backslashreplace")
    dlq.put_atomic(_path(source_id, letter_id), data)


def reason_of(dlq: Storage, source_id: str, letter_id: str) -> Closing | None:
    """Return why these letters were closed; None of letters that nobody closed.

    Raises `StateError`, `StorageError`.
    """
    return load(dlq, _path(source_id, letter_id), partial(decode_document, Closing))


def closed_ids(dlq: Storage, source_id: str) -> frozenset[str]:
    """Return the ids of all letters of a source that were closed. Raises `StorageError`."""
    folder = join(source_id, _FOLDER)
    entries = listed(dlq, f"{folder}/", f"{folder}0")
    names = (entry.path.rpartition("/")[2] for entry in entries)
    return frozenset(name.removesuffix(".ndjson") for name in names)


def _path(source_id: str, letter_id: str) -> str:
    return join(source_id, _FOLDER, f"{letter_id}.ndjson")
