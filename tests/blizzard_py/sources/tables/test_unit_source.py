"""A SQLite table read by work units, from the configuration to manifests."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from blizzard_core.errors import ColdStartRefused, SourceError, StateError, Unavailable
from blizzard_py.__main__ import main
from blizzard_py.app import inspection
from blizzard_py.state.source_state import checkpoint_path
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


@pytest.mark.promise("G-153")
def test_late_rows_in_grace_take_the_place_of_what_was_published(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path, grace="3d")
    shop.put(("2020-02-20", "s1", "old"), ("2020-02-01", "s1", "far"))
    shop.run()
    shop.execute("UPDATE answers SET text = 'new' WHERE text = 'old'")
    shop.put(("2020-02-02", "s1", "too late"), ("2020-02-21", "s1", "late"))
    shop.run()
    assert shop.texts() == ["far", "late", "new"]


@pytest.mark.promise("G-165")
def test_changed_unit_spec_stops_until_the_units_are_reset(shop: UnitShop) -> None:
    shop.put(("2020-01-05", "s1", "a"), ("2020-02-03", "s2", "b"))
    shop.run()
    shop.units["partition"] = "yearly"
    with pytest.raises(StateError, match="reset --units"):
        shop.run()
    reset = ["checkpoint", "reset", str(shop.path()), "--pipeline", "p", "--source", "answers"]
    done = CliRunner().invoke(main, [*reset, "--units", "--yes"])
    assert done.exit_code == 0, done.output
    shop.run()
    assert shop.texts() == ["a", "b"]
    *_, last = groups_of(shop.lake, ID)
    assert last.seq == 2
    assert last.replace == ((f"{ID}/", f"{ID}0"),)


@pytest.mark.promise("G-165")
def test_lost_checkpoint_is_refused_and_fresh_start_is_clean(shop: UnitShop) -> None:
    shop.put(("2020-01-05", "s1", "a"))
    shop.run()
    (shop.lake / checkpoint_path(ID)).unlink()
    shop.units["partition"] = "daily"
    with pytest.raises(ColdStartRefused):
        shop.run()
    shop.run(fresh=True)
    assert shop.texts() == ["a"]


def test_marked_units_are_read_again_from_their_beginning(shop: UnitShop) -> None:
    shop.put(("2020-01-05", "s1", "a"), ("2020-01-05", "s2", "b"), ("2020-02-05", "s1", "c"))
    shop.run()
    shop.execute("UPDATE answers SET text = upper(text)")
    command = ["backfill", str(shop.path()), "--pipeline", "p", "--source", "answers"]
    done = CliRunner().invoke(
        main, [*command, "--from", "2020-01-10", "--to", "2020-01-11", "--values", "s1"]
    )
    assert done.exit_code == 0, done.output
    shop.run()
    assert shop.texts() == ["A", "b", "c"]


def test_a_unit_that_is_forgotten_is_read_again(shop: UnitShop) -> None:
    shop.put(("2020-01-05", "s1", "a"), ("2020-01-05", "s2", "b"))
    shop.run()
    shop.execute("UPDATE answers SET text = upper(text)")
    command = ["checkpoint", "set", str(shop.path()), "--pipeline", "p", "--source", "answers"]
    done = CliRunner().invoke(
        main, [*command, "--unit", "2020-01-01/s2", "--high", "none", "--yes"]
    )
    assert done.exit_code == 0, done.output
    shop.run()
    assert shop.texts() == ["B", "a"]


def test_unit_watermark_is_refused_after_a_units_reset(shop: UnitShop) -> None:
    """The next group removes all published rows, including those below such a watermark."""
    shop.put(("2020-01-05", "s1", "a"))
    shop.run()
    place = [str(shop.path()), "--pipeline", "p", "--source", "answers", "--yes"]
    assert CliRunner().invoke(main, ["checkpoint", "reset", "--units", *place]).exit_code == 0
    unit = ["--unit", "2020-01-01/s1", "--high", "2020-01-20"]
    done = CliRunner().invoke(main, ["checkpoint", "set", *unit, *place])
    assert done.exit_code == 1
    assert "starts over" in done.output
    shop.run()
    assert shop.texts() == ["a"]


def test_unit_watermark_is_refused_after_a_plain_reset(shop: UnitShop) -> None:
    shop.put(("2020-01-05", "s1", "a"))
    shop.run()
    place = [str(shop.path()), "--pipeline", "p", "--source", "answers", "--yes"]
    assert CliRunner().invoke(main, ["checkpoint", "reset", *place]).exit_code == 0
    unit = ["--unit", "2020-01-01/s1", "--high", "2020-01-20"]
    done = CliRunner().invoke(main, ["checkpoint", "set", *unit, *place])
    assert done.exit_code == 1
    assert "starts over" in done.output
    shop.run()
    assert shop.texts() == ["a"]


@pytest.mark.promise("G-159")
def test_units_read_early_by_a_fast_clock_are_read_again(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path, now="2020-01-10T00:00:00", partition="daily", grace="1d")
    texts = [f"d{day:02d}" for day in range(1, 31)]
    shop.put(*((f"2020-01-{text[1:]}", "s", text) for text in texts[:9]))
    shop.run()
    shop.passes(days=9)
    shop.run()
    shop.passes(days=-9)
    for day in range(10, 30):
        shop.put((f"2020-01-{day:02d}", "s", f"d{day:02d}"))
        shop.passes(days=1)
        shop.run()
        assert shop.texts() == texts[:day]


def test_unit_with_a_future_end_is_read_up_to_now(tmp_path: Path) -> None:
    until = {"from": "2020-01-01", "to": "2020-03-01"}
    shop = UnitShop(tmp_path, now="2020-01-10T00:00:00", range=until, partition="monthly")
    shop.put(("2020-01-05", "s", "a"), ("2020-02-05", "s", "booked"))
    shop.run()
    shop.put(("2020-01-10 12:00:00", "s", "b"))
    shop.passes(days=1)
    shop.run()
    assert shop.texts() == ["a", "b", "booked"]
    shop.put(("2020-02-01", "s", "c"))
    shop.passes(days=22)
    shop.run()
    assert shop.texts() == ["a", "b", "booked", "c"]
    assert [len(group.replace) for group in groups_of(shop.lake, ID)] == [1, 1, 2]
    shop.passes(days=40)
    shop.run()
    shop.run()
    assert shop.checkpoint()["units"]["closed_to"] == {"{}": "2020-02-01T00:00:00.000Z"}
    assert shop.checkpoint()["group_seq"] == 4


@pytest.mark.parametrize("values", ["a\0b,c", "c,a\0b"])
def test_a_value_that_no_literal_can_hold_costs_itself_alone(
    tmp_path: Path, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A configuration is refused for it; a table of values may bring it all the same.
    monkeypatch.setattr("blizzard_core.settings.yaml_file._NO_TEXT", re.compile("(?!)"))
    shop = UnitShop(tmp_path, values={"name": "survey", "list": values.split(",")})
    shop.put(("2020-01-01", "c", "c1"))
    for _ in range(2):
        with contextlib.suppress(Unavailable):
            shop.run()
        shop.passes(hours=2)
    assert shop.texts() == ["c1"]
    failing = shop.checkpoint()["units"]["open"]
    assert all(unit["failures"] == 2 for key, unit in failing.items() if "\0" in key)


def test_query_refused_for_all_units_is_a_source_error(shop: UnitShop) -> None:
    shop.execute("DROP TABLE answers")
    with pytest.raises(SourceError, match="prepare"):
        shop.run()


def test_no_more_units_are_read_in_a_run_than_are_wished(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path, max_units_per_run=1)
    shop.put(("2020-01-05", "s1", "a"), ("2020-02-05", "s1", "b"))
    shop.run()
    assert shop.texts() == ["a"]
    shop.run()
    assert shop.texts() == ["a", "b"]


@pytest.mark.promise("G-164")
def test_units_of_a_table_that_gives_none_are_not_no_units(tmp_path: Path) -> None:
    found = {"from": {"table": "../surveys", "fields": ["survey"], "filters": {"ok": "y|yes"}}}
    shop = UnitShop(tmp_path, values=found)
    shop.put(("2020-01-05", "s1", "a"), ("2020-01-05", "s2", "b"))
    with pytest.raises(Unavailable, match="is not a Delta table"):
        shop.run()
    surveys = str(tmp_path / "surveys")
    write_deltalake(surveys, pa.table({"survey": ["s2"], "ok": ["no"]}))
    with pytest.raises(Unavailable, match="no row of it passes"):
        shop.run()
    write_deltalake(surveys, pa.table({"survey": ["s1"], "ok": ["yes"]}), mode="append")
    shop.run()
    assert shop.texts() == ["a"]


def test_fewer_values_than_there_must_be_are_a_failure(tmp_path: Path) -> None:
    table = {"from": {"table": str(tmp_path / "surveys"), "fields": ["survey"]}}
    write_deltalake(str(tmp_path / "surveys"), pa.table({"survey": ["s1"]}))
    shop = UnitShop(tmp_path, values=table, min_units=2)
    with pytest.raises(Unavailable, match="2 are wanted"):
        shop.run()


@pytest.mark.promise("G-162")
def test_values_equal_under_a_collation_are_refused(
    tmp_path: Path,
) -> None:
    surveys = str(tmp_path / "surveys")
    write_deltalake(surveys, pa.table({"survey": ["a", "A", "b", "b "]}))
    shop = UnitShop(tmp_path, values={"from": {"table": surveys, "fields": ["survey"]}})
    column = "survey TEXT COLLATE NOCASE"
    shop.execute("DROP TABLE answers", f"CREATE TABLE answers (day TEXT, {column}, text TEXT)")
    shop.put(*(("2020-01-05", name, f"of {name!r}") for name in ("a", "A", "b", "b ")))
    with pytest.raises(Unavailable, match=r"'A' and 'a', 'b' and 'b ' may be the same.*COLLATE"):
        shop.run()
    shop.source["query"] += " COLLATE BINARY"
    shop.run()
    assert shop.texts() == ["of 'A'", "of 'a'", "of 'b '", "of 'b'"]


def test_hostile_values_are_values(tmp_path: Path) -> None:
    names = ["x' OR 1=1 --", "a/b%2F", "😀" * 2500, "back\\slash", "|pipe%", "..", "0"]
    shop = UnitShop(tmp_path, values={"name": "survey", "list": names}, partition="none")
    shop.put(*(("2020-01-05", name, f"row {place}") for place, name in enumerate(names)))
    shop.run()
    assert shop.texts() == [f"row {place}" for place in range(len(names))]
    shop.execute("UPDATE answers SET text = upper(text)")
    command = ["checkpoint", "set", str(shop.path()), "--pipeline", "p", "--source", "answers"]
    for name in names:
        done = CliRunner().invoke(
            main,
            [*command, "--unit", f"2020-01-01/{name}", "--high", "none", "--yes"],
        )
        assert done.exit_code == 0, done.output
    shop.run()
    assert shop.texts() == [f"ROW {place}" for place in range(len(names))]


def test_days_that_a_zone_skips_are_no_units(tmp_path: Path) -> None:
    range_ = {"from": "2011-12-28", "to": "2012-01-02", "zone": "Pacific/Apia"}
    shop = UnitShop(tmp_path, range=range_, partition="daily")
    shop.source["query"] = "SELECT * FROM answers WHERE day >= {from:iso} AND day < {to:iso}"
    shop.put(("2011-12-30 09:59:59", "s", "before"), ("2011-12-30 10:00:00", "s", "after"))
    shop.run()
    assert shop.texts() == ["after", "before"]
    found, errors = inspection.plan(shop.config(), now=shop.now, offline=True, everything=True)
    assert not errors
    begins = [u["name"] for u in found["pipelines"]["p"]["sources"]["answers"]["units"]]
    assert len(begins) == len(set(begins)) == 4
