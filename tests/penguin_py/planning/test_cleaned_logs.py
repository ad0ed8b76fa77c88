"""Output ids stay known where the log was cleaned up and our state is old, lost or another's."""

from __future__ import annotations

import shutil
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from blizzard_core.errors import StateError
from penguin_py.delta.writer import LogWriter
from penguin_py.model import CommitConflict
from tests.support.group_publisher import Publisher
from tests.support.table_harness import TableHarness

MIRROR = "_penguin/events_checkpoint.json"


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> TableHarness:
    return TableHarness(str(tmp_path / "table"), pool, tampered=True)


def name(number: int) -> str:
    return f"01a2109e-3f30-7000-b189-0399d8eb76{number}.parquet"


def committed(world: TableHarness, *numbers: int) -> None:
    for number in numbers:
        world.put(name(number), {"id": [number]}, output_id=f"p/s/b{number}/1/0")
        world.run()


def cleaned(world: TableHarness, *, up_to: int) -> None:
    """Make a log checkpoint, and remove the entries that it covers up to a version."""
    world.delta().create_checkpoint()
    for version in range(up_to):
        Path(world.uri, f"_delta_log/{version:020d}.json").unlink()


def copied_back(world: TableHarness, saved: Path) -> None:
    shutil.rmtree(Path(world.uri, "_penguin"))
    shutil.copytree(saved, Path(world.uri, "_penguin"))


def saved(world: TableHarness, folder: Path) -> Path:
    return Path(shutil.copytree(Path(world.uri, "_penguin"), folder / "copy"))


def again(world: TableHarness, number: int, **settings: object) -> list[int]:
    """Publish an output a second time, under another name; what the table has then."""
    world.put(name(90 + number % 10), world.storage.read(name(number)))
    world.run(**settings)
    return [row["id"] for row in world.rows()]


@pytest.mark.promise("G-091")
def test_a_state_older_than_a_cleaned_log_stops_with_the_remedy(
    world: TableHarness, tmp_path: Path
) -> None:
    committed(world, 10)
    copy = saved(world, tmp_path)
    committed(world, 11, 12, 13)
    cleaned(world, up_to=3)
    committed(world, 14)
    copied_back(world, copy)
    with pytest.raises(StateError, match=r"events_checkpoint\.json: is older than the table"):
        world.run()
    world.storage.delete(MIRROR)  # the remedy that the message names
    assert again(world, 11) == [10, 11, 12, 13, 14]
    assert "p/s/b11/1/0" in world.quarantined()[name(91)]
    committed(world, 99)
    assert len(world.rows()) == 6


def test_an_older_state_is_no_matter_while_the_log_has_it_all(
    world: TableHarness, tmp_path: Path
) -> None:
    committed(world, 10)
    copy = saved(world, tmp_path)
    committed(world, 11, 12, 13)
    cleaned(world, up_to=1)
    copied_back(world, copy)
    assert again(world, 11) == [10, 11, 12, 13]


@pytest.mark.promise("G-091")
def test_ids_come_from_footers_where_all_state_is_lost(world: TableHarness) -> None:
    committed(world, 10, 11, 12)
    cleaned(world, up_to=2)
    shutil.rmtree(Path(world.uri, "_penguin"))
    assert again(world, 10) == [10, 11, 12]
    assert "committed already" in world.quarantined()[name(90)]
    assert again(world, 11) == [10, 11, 12]  # and they are remembered


@pytest.mark.promise("G-091")
def test_ids_of_compacted_rows_come_from_the_mirror_of_another(world: TableHarness) -> None:
    committed(world, 10, 11, 12)
    world.delta().optimize.compact()
    cleaned(world, up_to=4)
    assert again(world, 11, name="renamed") == [10, 11, 12]


def test_a_stream_of_others_and_a_cleaned_log_stop_nobody(world: TableHarness) -> None:
    committed(world, 10, 11)
    for number in range(3):
        mark = CommitProperties(app_transactions=[Transaction("a-stream", number)])
        rows = pa.table({"id": pa.array([100 + number], pa.int64())})
        write_deltalake(world.delta(), rows, mode="append", commit_properties=mark)
    cleaned(world, up_to=4)
    assert sorted(again(world, 10)) == [10, 11, 100, 101, 102]


@pytest.mark.promise("G-091")
@pytest.mark.parametrize("is_group", [False, True])
def test_no_commit_lands_below_the_log_checkpoint(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch, *, is_group: bool
) -> None:
    committed(world, 10)
    if is_group:
        Publisher(world).group([{"id": [11]}], outputs=["p/s/b10/1/0"])
    else:
        world.put(name(11), {"id": [11]}, output_id="p/s/b11/1/0")
    slow = world.penguin()
    write = LogWriter.write

    def paused(*arguments: Any) -> None:
        """Stand still for longer than the log's entries are kept."""
        monkeypatch.setattr(LogWriter, "write", write)
        for number in range(4):
            rows = pa.table({"id": pa.array([100 + number], pa.int64())})
            write_deltalake(world.delta(), rows, mode="append")
        cleaned(world, up_to=4)
        write(*arguments)

    monkeypatch.setattr(LogWriter, "write", paused)
    if not is_group:  # a group is planned anew at once
        with pytest.raises(CommitConflict, match="did not land"):
            world.run(slow)
    world.run(slow)
    assert not Path(world.uri, f"_delta_log/{1:020d}.json").exists()
    expected = [11, 100, 101, 102, 103]
    assert sorted(row["id"] for row in world.rows()) == (expected if is_group else [10, *expected])
    assert not world.quarantined()
