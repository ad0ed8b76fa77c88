"""Snapshots, and windows whose look-back replaces, from the configuration to manifests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from blizzard_core.errors import StateError
from blizzard_py.__main__ import main
from blizzard_py.app import inspection
from tests.support.group_reader import groups_of
from tests.support.unit_shop import ID, UnitShop, snapshots, windows


def test_each_snapshot_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    shop = snapshots(tmp_path)
    shop.put(("2020-01-01", "s", "a"), ("2020-01-02", "s", "b"))
    shop.run()
    assert shop.texts() == ["a", "b"]
    shop.execute("DELETE FROM answers WHERE text = 'a'")
    shop.put(("2020-01-03", "s", "c"))
    shop.run()
    assert shop.texts() == ["b", "c"]
    shop.execute("DELETE FROM answers")
    shop.run()
    assert shop.texts() == []
    assert {group.replace for group in groups_of(shop.lake, ID)} == {((f"{ID}/", f"{ID}0"),)}
    found, errors = inspection.plan(shop.config(), offline=True)
    assert not errors
    assert found["pipelines"]["p"]["sources"]["answers"]["replaces"] == [[f"{ID}/", f"{ID}0"]]
    assert not inspection.status(shop.config())[1]


def test_look_back_replaces_complete_slices(tmp_path: Path) -> None:
    shop = windows(tmp_path)
    shop.put(("2020-01-01", "s", "far"), ("2020-01-09", "s", "old"), ("2020-01-10", "s", "top"))
    shop.run()
    shop.execute("UPDATE answers SET text = 'new' WHERE text = 'old'")
    shop.put(("2020-01-02", "s", "too late"), ("2020-01-08", "s", "late"))
    shop.put(("2020-01-12", "s", "next"), ("2020-01-10", "s", "tie"))
    shop.run()
    assert shop.texts() == ["far", "late", "new", "next", "tie", "top"]
    first, second = groups_of(shop.lake, ID)
    assert first.replace == ((f"{ID}/", f"{ID}0"),)
    assert second.replace == ((f"{ID}/2020-01-07", f"{ID}0"),)
    assert shop.checkpoint()["columns"]["boundaries"] == ["", "2020-01-07", "2020-01-09"]
    shop.put(("2020-01-13", "s", "more"))
    found, errors = inspection.plan(shop.config())
    assert not errors
    planned = found["pipelines"]["p"]["sources"]["answers"]
    assert planned["replaces"] == [[f"{ID}/2020-01-09", f"{ID}0"]]


def test_rows_that_say_no_slice_are_not_replaced(tmp_path: Path) -> None:
    shop = windows(tmp_path)
    mark = shop.source["watermark"]
    shop.put(("2020-01-01", "s", "a"))
    shop.source["watermark"] = {**mark, "reread": "new_only", "key": ["day", "text"]}
    shop.run()
    shop.source["watermark"] = mark
    with pytest.raises(StateError, match="could not take their place"):
        shop.run()


LOOK_BACK = {"columns": ["day"], "bound": "max", "backward": {"days": 3}}


@pytest.mark.parametrize("reread", [None, "new_only"])
@pytest.mark.parametrize("begun", [snapshots, windows])
def test_change_from_replacing_to_appending_is_refused(
    tmp_path: Path, begun: Callable[[Path], UnitShop], reread: str | None
) -> None:
    shop = begun(tmp_path)
    shop.put(("2020-01-01", "s", "a"), ("2020-01-09", "s", "b"))
    shop.run()
    shop.source.pop("snapshot", None)
    shop.source["watermark"] = (
        {**LOOK_BACK, "reread": reread} if reread else {"columns": ["day"], "bound": "max"}
    )
    with pytest.raises(StateError, match="published to be replaced"):
        shop.run()
    assert shop.texts() == ["a", "b"]


@pytest.mark.parametrize("now", [snapshots, windows])
def test_change_from_appending_to_replacing_is_refused(
    tmp_path: Path, now: Callable[[Path], UnitShop]
) -> None:
    shop = now(tmp_path)
    wanted = dict(shop.source)
    shop.source.pop("snapshot", None)
    shop.source["watermark"] = {"columns": ["day"], "bound": "max"}
    shop.put(("2020-01-01", "s", "a"))
    shop.run()
    shop.source.clear()
    shop.source.update(wanted)
    with pytest.raises(StateError, match=r"published to stay|of a source with a watermark"):
        shop.run()
    assert shop.texts() == ["a"]


def test_first_window_starts_at_the_value_of_checkpoint_set(tmp_path: Path) -> None:
    shop = windows(tmp_path)
    shop.put(*((f"2020-01-{day:02d}", "s", f"d{day:02d}") for day in range(1, 20)))
    place = [str(shop.path()), "--pipeline", "p", "--source", "answers", "--yes"]
    columns = ["checkpoint", "set", "--column", "day=2020-01-10"]
    done = CliRunner().invoke(main, [*columns, *place])
    assert done.exit_code == 0, done.output
    shop.run()
    later = [f"d{day:02d}" for day in range(11, 20)]
    assert shop.texts() == later
    shop.put(("2020-01-12", "s", "late"), ("2020-01-20", "s", "new"))
    shop.source["watermark"]["backward"] = {"days": 30}
    shop.run()
    assert shop.texts() == [*later, "late", "new"]


@pytest.mark.parametrize("begun", [snapshots, windows])
def test_after_a_reset_all_is_replaced(tmp_path: Path, begun: Callable[[Path], UnitShop]) -> None:
    shop = begun(tmp_path)
    shop.put(("2020-01-01", "s", "a"), ("2020-01-09", "s", "b"))
    shop.run()
    place = [str(shop.path()), "--pipeline", "p", "--source", "answers", "--yes"]
    assert CliRunner().invoke(main, ["checkpoint", "reset", *place]).exit_code == 0
    if begun is windows:
        columns = ["checkpoint", "set", "--column", "day=2020-01-05"]
        done = CliRunner().invoke(main, [*columns, *place])
        assert done.exit_code == 1
        assert "starts over" in done.output
    shop.run()
    assert shop.texts() == ["a", "b"]
