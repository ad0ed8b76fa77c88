"""Groups that a source has published."""

from __future__ import annotations

from blizzard_core.handover.groups import Group, decode_group, seq_of
from tests.support.memory_store import MemoryStorage

ID = "events_main"


def groups_of(sink: MemoryStorage, source_id: str = ID) -> list[Group]:
    found = sorted(p for p in sink.objects if p.startswith(f"_blizzard/groups/{source_id}/"))
    numbers = [seq_of(path) for path in found]
    return [
        decode_group(sink.read(path), path, source_id, number or 0)
        for path, number in zip(found, numbers, strict=True)
    ]
