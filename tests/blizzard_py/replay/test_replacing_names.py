"""Files whose names are alike but for a byte that is no UTF-8: each is replaced alone."""

from __future__ import annotations

import json

import pytest

from blizzard_core.groups import Group
from blizzard_py.replay import ReplaceRefused
from tests.blizzard_py.ingest.test_group_publishing import groups_of
from tests.blizzard_py.replay.test_given_files import DAY
from tests.blizzard_py.replay.test_replacing_files import ReplaceWorld

BYTE, WORD = f"{DAY}/7\udcff.json", rf"{DAY}/7\udcff.json"


def alike(*, together: bool = True) -> ReplaceWorld:
    world = ReplaceWorld()
    world.put(BYTE, "byte")
    if not together:
        world.drain()
    world.put(WORD, "word")
    world.drain()
    return world


def older(world: ReplaceWorld) -> None:
    """The journal as a release wrote it in which both files had one name in their rows."""
    for path, (data, moment) in list(world.sink.objects.items()):
        if path.startswith("_blizzard/journal/"):
            document = json.loads(data.decode("utf-8", "surrogatepass"))
            document["names_root"] = document["names_root"].removesuffix("/")
            written = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
            world.sink.objects[path] = (written, moment)


def last(world: ReplaceWorld) -> Group:
    return groups_of(world.sink)[-1]


@pytest.mark.parametrize(("path", "name"), [(BYTE, r"7\udcff.json"), (WORD, r"7\\udcff.json")])
def test_alike_names_are_replaced_one_by_one(path: str, name: str) -> None:
    world = alike()
    world.put(path, "mended")
    assert [file.state for file in world.only(path).files] == ["replaced"]
    assert last(world).source_files == (f"mem://raw/{DAY}/{name}",)


@pytest.mark.parametrize("path", [BYTE, WORD])
def test_alike_names_of_older_rows_go_together(path: str) -> None:
    world = alike()
    older(world)
    with pytest.raises(ReplaceRefused, match="come along"):
        world.only(path)
    assert groups_of(world.sink) == []
    assert {file.state for file in world.only(BYTE, WORD).files} == {"replaced"}
    assert last(world).source_files == ()


def test_a_new_row_is_not_named_as_an_older_one_of_another_file() -> None:
    world = ReplaceWorld()
    world.put(WORD, "word")
    world.drain()
    older(world)
    world.put(BYTE, "byte")
    world.put(f"{DAY}/8.json", "8")
    world.drain()
    with pytest.raises(ReplaceRefused, match=r"8\.json"):
        world.only(BYTE)
    assert {file.state for file in world.only(BYTE, f"{DAY}/8.json").files} == {"replaced"}
    assert last(world).source_files == ()


def test_plain_names_of_older_rows_are_replaced_alone() -> None:
    world = ReplaceWorld()
    older(world)
    world.put(f"{DAY}/1.json", "mended")
    assert [file.state for file in world.only(f"{DAY}/1.json").files] == ["replaced"]
    assert last(world).source_files == (f"mem://raw/{DAY}/1.json",)
