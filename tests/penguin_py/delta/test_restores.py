"""Files removed by RESTORE come again only as a copy under a new name."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.support.group_publisher import Publisher
from tests.support.s3_server import S3Server
from tests.support.table_harness import TableHarness


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, pool: Executor) -> TableHarness:
    if getattr(request, "param", "local") == "local":
        found = TableHarness(str(tmp_path / "table"), pool)
    else:
        s3: S3Server = request.getfixturevalue("s3")
        found = TableHarness(f"s3://{s3.new_bucket()}/lake/events", pool, s3.options)
    for number in (1, 2):
        rows = {"id": [number], "_source_file": [f"s3://raw/{number}"]}
        found.put(name(number), rows, output_id=output(number))
        found.run()
    return found


def name(number: int) -> str:
    return f"01a2109e-3f30-7000-b189-0399d8eb76{number:02d}.parquet"


def output(number: int) -> str:
    return f"p/s/b{number}/1/0"


def copied(world: TableHarness, number: int, to: int) -> list[int]:
    """Copy a file to a new name; what the table has then."""
    world.put(name(to), world.storage.read(name(number)))
    world.run()
    return ids(world)


def ids(world: TableHarness) -> list[int]:
    return sorted(row["id"] for row in world.rows())


@pytest.mark.promise("G-090")
@pytest.mark.parametrize("world", ["local", "s3"], indirect=True)
def test_a_copy_brings_back_what_a_restore_took_out(world: TableHarness) -> None:
    world.delta().restore(0)
    world.run()
    assert ids(world) == [1]  # nothing comes by itself
    world.put(name(11), world.storage.read(name(2)))
    _, found, forecast = world.penguin().outlook()
    assert ([entry.path for entry in found], forecast.rejections) == ([name(11)], ())
    world.run()
    assert ids(world) == [1, 2]
    assert copied(world, 2, 12) == [1, 2]
    assert copied(world, 1, 13) == [1, 2]
    assert {*world.quarantined()} == {name(12), name(13)}


def test_a_copy_comes_once_after_two_restores(world: TableHarness) -> None:
    world.delta().restore(0)
    assert copied(world, 2, 11) == [1, 2]
    world.delta().restore(0)
    assert copied(world, 2, 12) == [1, 2]
    assert copied(world, 2, 13) == [1, 2]


def test_rows_that_were_compacted_before_a_restore_come_back(world: TableHarness) -> None:
    world.delta().optimize.compact()
    world.delta().restore(0)
    assert copied(world, 2, 11) == [1, 2]


@pytest.mark.promise("G-090")
@pytest.mark.parametrize("how", ["later", "forward", "compacted"])
def test_copy_of_rows_still_in_a_restored_table_is_rejected(world: TableHarness, how: str) -> None:
    if how == "compacted":
        world.delta().optimize.compact()
    world.put(name(3), {"id": [3], "_source_file": ["s3://raw/3"]}, output_id=output(3))
    world.run()
    before = world.delta().version()
    world.delta().restore(0 if how == "forward" else before - 1)
    if how == "forward":
        world.delta().restore(before)
    expected = [1, 2, 3] if how == "forward" else [1, 2]
    assert copied(world, 2, 11) == expected
    assert name(11) in world.quarantined()


@pytest.mark.promise("G-090")
def test_copy_of_reingested_or_discarded_rows_is_rejected(world: TableHarness) -> None:
    world.put(name(3), {"id": [3], "_source_file": ["s3://raw/3"]}, output_id=output(3))
    world.run()
    world.delta().restore(0)
    rows = {"id": [20], "_source_file": ["s3://raw/2"]}
    Publisher(world).group([rows], source_files=["s3://raw/2"], outputs=[output(2)])
    world.run()
    world.penguin().discard([output(3)], None, dry_run=False)
    assert copied(world, 2, 11) == [1, 20]
    assert copied(world, 3, 12) == [1, 20]


def test_a_copy_of_a_file_of_a_group_is_refused(world: TableHarness) -> None:
    group = Publisher(world).group([{"id": [7], "_source_file": ["s3://raw/7"]}])
    world.run()
    world.delta().restore(1)
    world.put(name(11), world.storage.read(group.files[0].path))
    world.run()
    assert ids(world) == [1, 2]


def test_after_a_restore_to_a_time_a_copy_stays_refused(world: TableHarness) -> None:
    world.delta().restore(0)
    path = f"_delta_log/{2:020d}.json"
    by_version, by_time = b'{"version":"0"}', b'{"version":null,"timestamp":"2026-01-01 00:00:00"}'
    data = world.storage.read(path)
    assert by_version in data
    world.storage.delete(path)
    world.storage.put_atomic(path, data.replace(by_version, by_time))  # as Spark writes it
    assert copied(world, 2, 11) == [1]
    assert name(11) in world.quarantined()
