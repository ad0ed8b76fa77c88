"""Groups, end to end: in order, each once, and nothing left of what they replace."""

from __future__ import annotations

import json
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from blizzard_core.handover.groups import group_path
from penguin_py.delta import output_ids
from tests.support.group_publisher import Publisher, S, group_states, ids, reading, rows, unit
from tests.support.penguin_readers import by_scan, rows_of
from tests.support.s3_server import S3Server
from tests.support.table_harness import TableHarness


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_second_reading_replaces_the_first(
    world: TableHarness, place: str, request: pytest.FixtureRequest
) -> None:
    if place == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        world = TableHarness(f"s3://{s3.new_bucket()}/lake/events", world.pool, s3.options)
    source = Publisher(world)
    source.group([rows("a", 0, [1, 2])], replace=[reading(S, "a", 0)])
    source.group([rows("b", 0, [3])], replace=[reading(S, "b", 0)])
    assert world.run() == 2
    assert ids(world) == [1, 2, 3]
    source.group([rows("a", 0, [10])], replace=[reading(S, "a", 0)])
    assert world.run() == 1
    assert ids(world) == [3, 10]
    assert world.run() == 0
    assert group_states(world) == {S: {"last": 3, "blocked": None}}


@pytest.mark.promise("G-087")
def test_a_reading_without_rows_removes(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([], replace=[reading(S, "a", 0)])  # before there is a table
    source.group([rows("a", 0, [1]), rows("a", 5, [2])], replace=[reading(S, "a", 0)])
    world.run()
    source.group([], replace=[reading(S, "a", 5)])
    world.run()
    assert ids(world) == [1]
    assert group_states(world)[S]["last"] == 3
    marks = [
        i
        for v in range(2)
        for a in world.actions(v)
        for i in a.get("commitInfo", {}).get("penguin", {}).get("output_ids", [])
    ]
    assert [m for m in marks if m.startswith("p_s")] == ["p_s/1", "p_s/2", "p_s/3"]


@pytest.mark.promise("G-086")
def test_rows_in_a_compacted_file_are_found_and_the_others_stay(world: TableHarness) -> None:
    source = Publisher(world)
    world.put("normal.parquet", {"id": [100]})
    for number, key in enumerate("abcd"):
        source.group([rows(key, 0, [number, number + 10])], replace=[reading(S, key, 0)])
    world.run()
    world.delta().optimize.compact()
    assert len(world.delta_paths()) == 1
    source.group([rows("b", 0, [7])], replace=[reading(S, "b", 0)])
    world.run()
    assert ids(world) == [0, 2, 3, 7, 10, 12, 13, 100]
    assert len(world.delta_paths()) == 2
    note = json.loads(world.storage.read("_penguin/events_rewriting.json"))
    assert note == {"planned": {}, "doomed": []}


@pytest.mark.promise("G-086")
def test_rows_appended_to_a_unit_by_another_engine_are_replaced(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 0, [1])], replace=[reading(S, "a", 0)])
    world.run()
    write_deltalake(
        world.delta(), pa.table(rows("a", 3, [5])), mode="append", storage_options=world.options
    )
    source.group([rows("a", 0, [2])], replace=[reading(S, "a", 0)])
    world.run()
    assert ids(world) == [2]


def test_source_files_say_which_rows_go(world: TableHarness) -> None:
    files = {"id": [1, 2], "_source_file": ["s3://raw/a", "s3://raw/b"]}
    world.put("0.parquet", files, output_id="p/s/0/1/0")
    world.run()
    source = Publisher(world)
    again = {"id": [10], "_source_file": ["s3://raw/a"]}
    source.group([again], source_files=["s3://raw/a"], outputs=["p/s/0/1/0"])
    world.run()
    assert ids(world) == [2, 10]


@pytest.mark.promise("G-088")
def test_group_waits_for_an_output_and_replaces_all_of_it(world: TableHarness) -> None:
    world.put("0.parquet", {"id": [0]})
    world.run()
    source = Publisher(world)
    source.group([{"id": [10]}], outputs=["p/s/0/1/0"])
    assert world.run() == 0
    assert "waits until output 'p/s/0/1/0'" in group_states(world)[S]["blocked"]
    world.put("1.parquet", {"id": [1]}, output_id="p/s/0/1/0")
    world.run()
    assert ids(world) == [0, 10]


def test_outputs_that_were_compacted_block(world: TableHarness) -> None:
    for number in range(2):
        world.put(f"{number}.parquet", {"id": [number]}, output_id=f"p/s/0/1/{number}")
    world.run()
    world.delta().optimize.compact()
    source = Publisher(world)
    group = source.group([{"id": [10]}], outputs=["p/s/0/1/0"])
    penguin = world.penguin()
    assert world.run(penguin) == 0
    told = penguin.activity.to_json()["groups"][S]["blocked"]
    assert "are in no file of its own" in told
    assert group_path(S, 1) in told
    assert ids(world) == [0, 1]
    del group


@pytest.mark.promise("G-088")
@pytest.mark.parametrize("harm", ["missing", "size", "id", "rows", "schema"])
def test_a_file_unlike_its_manifest_blocks_its_source_alone(world: TableHarness, harm: str) -> None:
    source, other = Publisher(world), Publisher(world, "q")
    world.put("0.parquet", {"id": [0], "_unit": ["x"]})
    world.run()
    group = source.group([rows("a", 0, [1])], replace=[reading(S, "a", 0)])
    path = group.files[0].path
    good = world.storage.read(path)
    if harm == "missing":
        world.storage.delete(path)
    elif harm == "size":
        world.put(path, good + b"x")
    else:
        bad = {
            "id": (rows("a", 0, [1]), "p/s/9/1/0"),
            "rows": (rows("a", 0, [1, 2]), "p/s/1/1/0"),
            "schema": ({"id": ["text"], "_unit": ["x"]}, "p/s/1/1/0"),
        }[harm]
        source.seq -= 1
        changed = source.group({path: bad[0]}, ids=[bad[1]], replace=group.replace)
        file = changed.files[0]
        if harm != "schema":
            source.put(replace(changed, files=(replace(group.files[0], size=file.size),)))
    other.group([{"id": [50], "_unit": ["q/a/0"]}], ids=["q/1"])
    world.put("1.parquet", {"id": [9], "_unit": ["x"]})
    world.run()
    assert ids(world) == [0, 9, 50]
    assert path in group_states(world)[S]["blocked"]
    world.put(path, good)
    source.put(group)
    world.run()
    assert ids(world) == [0, 1, 9, 50]
    assert group_states(world) == {
        "p_s": {"last": 1, "blocked": None},
        "q": {"last": 1, "blocked": None},
    }


@pytest.mark.promise("G-089")
def test_a_manifest_that_is_not_understood_stops_all_groups(world: TableHarness) -> None:
    source, other = Publisher(world), Publisher(world, "q")
    world.put(group_path(S, 1), b'{"v": 2}')
    other.group([{"id": [50], "_unit": ["q/a/0"]}], ids=["q/1"])
    assert world.run() == 0
    found = group_states(world)
    assert "version 2" in found[S]["blocked"]
    source.group([rows("a", 0, [1])])
    world.run()
    assert ids(world) == [1, 50]


@pytest.mark.promise("G-089")
def test_a_number_that_is_missing_stops_all_groups(world: TableHarness) -> None:
    source = Publisher(world)
    first = source.group([rows("a", 0, [1])], put=False)
    source.group([rows("a", 0, [2])], replace=[reading(S, "a", 0)])
    assert world.run() == 0
    assert (
        f"{group_path(S, 1)}: is missing, and number 2 is there"
        in group_states(world)[S]["blocked"]
    )
    source.put(first)
    world.run()
    assert ids(world) == [2]


def test_new_columns_come_in_an_entry_before(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 0, [1])], replace=[reading(S, "a", 0)])
    world.run()
    source.group([rows("a", 0, [2], extra=["x"])], replace=[reading(S, "a", 0)])
    assert world.run() == 1
    assert world.rows() == [{"id": 2, "_unit": unit(S, "a", 0), "extra": "x"}]
    assert world.delta().version() == 2


@pytest.mark.promise("G-092")
@pytest.mark.parametrize("pattern", [r".*\.parquet", r"unit-.*"])
def test_files_of_groups_are_never_found_by_listing(world: TableHarness, pattern: str) -> None:
    world.put("0.parquet", {"id": [0]})
    world.put("unit-1.parquet", {"id": [1]}, output_id="p/s/1/1/1")
    world.run(file_pattern=pattern)
    world.now += 30 * 86_400
    world.run(file_pattern=pattern)
    found = world.penguin(file_pattern=pattern).reconcile(dry_run=True)
    assert not found.due
    expected = {"0.parquet"} if pattern.startswith(".") else set()
    if expected:
        assert world.paths() == expected


def test_tables_from_which_nothing_may_be_removed_take_no_group(
    tmp_path: Path, pool: Executor
) -> None:
    world = TableHarness(str(tmp_path / "table"), pool)
    append_only = {"delta.appendOnly": "true"}
    write_deltalake(world.uri, pa.table(rows("a", 0, [1])), configuration=append_only)
    source = Publisher(world)
    source.group([rows("a", 0, [2])], replace=[reading(S, "a", 0)])
    world.run()
    assert "'delta.appendOnly' = 'false'" in group_states(world)[S]["blocked"]
    assert world.delta().version() == 0


def test_groups_apply_while_a_table_has_no_deletion_vectors(tmp_path: Path, pool: Executor) -> None:
    world = TableHarness(str(tmp_path / "table"), pool)
    enabled = {"delta.enableDeletionVectors": "true"}
    write_deltalake(world.uri, pa.table(rows("a", 0, [1])), configuration=enabled)
    assert "deletionVectors" in (world.delta().protocol().writer_features or [])
    source = Publisher(world)
    for number in (2, 3):
        source.group([rows("a", 0, [number])], replace=[reading(S, "a", 0)])
        world.run()
    assert group_states(world)[S]["blocked"] is None
    assert rows_of(by_scan(world.delta()), ["id"]) == [(3,)]


@pytest.mark.promise("G-093")
def test_numbers_outlive_the_mirror_and_the_log(
    tmp_path: Path, pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 10)
    world = TableHarness(str(tmp_path / "table"), pool)
    source = Publisher(world)
    for number in range(3):
        source.group([rows("a", 0, [number])], replace=[reading(S, "a", 0)])
    world.run()
    for number in range(10):  # ids go into a segment
        world.put(f"{number:03d}.parquet", {"id": [1000 + number]}, output_id=f"p/n/{number}")
        world.run()
    delta = world.delta()
    delta.create_checkpoint()
    for version in range(delta.version()):
        Path(world.uri, f"_delta_log/{version:020d}.json").unlink()
    write_deltalake(world.delta(), pa.table({"id": [1]}), mode="append", schema_mode="merge")
    Path(world.uri, f"_delta_log/{delta.version():020d}.json").unlink()
    world.storage.delete("_penguin/events_checkpoint.json")
    world.tampered = True
    source.group([rows("a", 0, [7])], replace=[reading(S, "a", 0)])
    world.run()
    assert [number for number in ids(world) if number < 1000 and number != 1] == [7]
    assert group_states(world)[S] == {"last": 4, "blocked": None}
