"""A source's groups in the table: their manifests, and the state of the committers.

Committers of any name may commit to the table, each with a state of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from blizzard_core.errors import NotFound
from blizzard_core.handover.groups import (
    APPLIED_KEY,
    BLOCKED_KEY,
    COMMITTERS_FOLDER,
    GROUPS_FOLDER,
    Group,
    decode_group,
    group_path,
    seq_of,
)
from blizzard_core.storage.protocol import Entry, Storage, join, listed
from blizzard_core.text import json_object

_STATE = "_checkpoint.json"


def blocked_by(sink: Storage, source_id: str) -> str | None:
    """Return why a committer holds back the source's next group; None if no one does.

    The text is for people. Costs a LIST and a GET for each committer. Raises `StorageError`.
    """
    reasons = (block.get(source_id) for block in _blocks(sink, BLOCKED_KEY))
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def applied_groups(sink: Storage, source_id: str) -> int:
    """Return the number of the source's last group in the table, 0 if there is none.

    A committer that crashed may have applied more, which it records when it runs again. Same
    costs and errors as `blocked_by`.
    """
    numbers = (block.get(source_id) for block in _blocks(sink, APPLIED_KEY))
    return max((number for number in numbers if isinstance(number, int)), default=0)


def committer_of(entry: Entry) -> str:
    """Return the name of the committer that this state belongs to."""
    return entry.path.rpartition("/")[2].removesuffix(_STATE)


def _blocks(sink: Storage, key: str) -> Iterator[dict[str, Any]]:
    for entry in committer_states(sink):
        try:
            document = json_object(sink.read(entry.path))
        except NotFound:  # deleted meanwhile
            continue
        block = (document or {}).get(key)  # it may be another program's file
        if isinstance(block, dict):
            yield block


def committer_states(sink: Storage) -> list[Entry]:
    """Return the state files of committers. One LIST. Raises `StorageError`."""
    found = listed(sink, f"{COMMITTERS_FOLDER}/", f"{COMMITTERS_FOLDER}0")  # "0" follows "/"
    return [entry for entry in found if entry.path.endswith(_STATE)]


def numbers_from(sink: Storage, source_id: str, seq: int) -> set[int]:
    """Return the numbers from ``seq`` on that have a manifest. Raises `StorageError`."""
    folder = join(GROUPS_FOLDER, source_id)
    before = group_path(source_id, seq).removesuffix(".json")
    return {
        number
        for entry in listed(sink, before, f"{folder}0")  # "0" follows "/"
        if (number := seq_of(entry.path)) is not None
        # Not in deeper folders.
        and entry.path == group_path(source_id, number)
    }


def manifest(sink: Storage, source_id: str, seq: int) -> Group:
    """Return the group of that number. Raises `NotFound`, or `StateError` if it is invalid."""
    path = group_path(source_id, seq)
    return decode_group(sink.read(path), f"{sink.uri}/{path}", source_id, seq)
