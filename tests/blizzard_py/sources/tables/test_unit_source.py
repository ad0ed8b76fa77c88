"""A SQLite table read by work units, from the configuration to manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.group_reader import groups_of
from tests.support.unit_shop import ID, UnitShop

SURVEYS = {"values": {"name": "survey", "list": "s1,s2"}}


@pytest.fixture
def shop(tmp_path: Path) -> UnitShop:
    return UnitShop(tmp_path, **SURVEYS)


def test_units_are_read_once_and_the_last_one_grows(shop: UnitShop) -> None:
    shop.put(("2020-01-05", "s1", "a"), ("2020-02-03", "s2", "b"), ("2020-02-03", "s3", "no"))
    shop.run()
    assert shop.texts() == ["a", "b"]
    [group] = groups_of(shop.lake, ID)
    assert group.replace == ((f"{ID}/", f"{ID}0"),)
    shop.put(("2020-02-22 12:00:00", "s1", "c"))
    shop.passes(days=1)
    shop.run()
    assert shop.texts() == ["a", "b", "c"]
    _, second = groups_of(shop.lake, ID)
    begin = "2020-02-01T00:00:00.000Z"
    assert [low for low, _ in second.replace] == [
        f"{ID}/{begin}/{name}/2020-02-22T09:30:00.000Z" for name in ("s1", "s2")
    ]


def test_late_rows_in_grace_take_the_place_of_what_was_published(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path, grace_days=3)
    shop.put(("2020-02-20", "s1", "old"), ("2020-02-01", "s1", "far"))
    shop.run()
    shop.execute("UPDATE answers SET text = 'new' WHERE text = 'old'")
    shop.put(("2020-02-02", "s1", "too late"), ("2020-02-21", "s1", "late"))
    shop.run()
    assert shop.texts() == ["far", "late", "new"]
