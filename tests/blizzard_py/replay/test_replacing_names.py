"""Files whose names are alike but for a byte that is no UTF-8: each is replaced alone."""

from __future__ import annotations

import pytest

from blizzard_core.handover.groups import Group
from tests.blizzard_py.ingest.test_group_publishing import groups_of
from tests.blizzard_py.replay.test_replacing_files import ReplaceWorld
from tests.support.request_world import DAY

BYTE, WORD = f"{DAY}/7\udcff.json", rf"{DAY}/7\udcff.json"


def alike() -> ReplaceWorld:
    world = ReplaceWorld()
    world.put(BYTE, "byte")
    world.put(WORD, "word")
    world.drain()
    return world


def last(world: ReplaceWorld) -> Group:
    return groups_of(world.sink)[-1]


@pytest.mark.parametrize(("path", "name"), [(BYTE, r"7\udcff.json"), (WORD, r"7\\udcff.json")])
def test_alike_names_are_replaced_one_by_one(path: str, name: str) -> None:
    world = alike()
    world.put(path, "mended")
    assert [file.state for file in world.only(path).files] == ["replaced"]
    assert last(world).source_files == (f"mem://raw/{DAY}/{name}",)
