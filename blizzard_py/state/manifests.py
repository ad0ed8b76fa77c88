"""The manifests of a source's groups that lie in the table, for whoever writes them."""

from __future__ import annotations

from blizzard_core.errors import NotFound
from blizzard_core.handover.groups import GROUPS_FOLDER, Group, decode_group, group_path, seq_of
from blizzard_core.storage.protocol import Storage, join


def numbers_from(sink: Storage, source_id: str, seq: int) -> set[int]:
    """The numbers of this one and above that there are manifests of. Raises `StorageError`."""
    folder = join(GROUPS_FOLDER, source_id)
    before = group_path(source_id, seq).removesuffix(".json")
    found: set[int] = set()
    try:
        for page in sink.list_range(before, f"{folder}0"):  # "0" follows "/"
            for entry in page.entries:
                number = seq_of(entry.path)
                # Nothing that lies deeper, whatever put it there.
                if number is not None and entry.path == group_path(source_id, number):
                    found.add(number)
    except NotFound:  # a local table without any
        return set()
    return found


def manifest(sink: Storage, source_id: str, seq: int) -> Group:
    """The group of that number. Raises `NotFound`, `StateError` if it is not understood."""
    path = group_path(source_id, seq)
    return decode_group(sink.read(path), f"{sink.uri}/{path}", source_id, seq)
