"""Tables, work units and replacements: state that is older than the table, or lost.

Numbers of groups that were applied are never given out again, and rows above an older watermark
never come twice.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from blizzard_core.daemon import run
from blizzard_core.errors import ColdStartRefused, StateError
from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main
from blizzard_py.ingest.batch_records import BatchRecords
from penguin_py.app import build as tables_of
from tests.support.scenario import ndjson
from tests.support.table_drill import ONCE, Drill
from tests.support.unit_shop import WHERE, UnitShop


def commit(shop: UnitShop) -> None:
    with tables_of(load_config(shop.path())) as tables:
        assert run(tables, ONCE, threading.Event()) == 0


def one_round(shop: UnitShop, number: int, **options: Any) -> None:
    if number:
        shop.put((f"2020-02-{10 + number}", "x", f"r{number}"))
    shop.run(**options)
    commit(shop)
    shop.passes(days=1)


def texts(shop: UnitShop) -> list[str]:
    found = pa.table(DeltaTable(str(shop.lake)).to_pyarrow_dataset().to_table())
    return sorted(found["text"].to_pylist())


def base(shop: UnitShop) -> list[str]:
    return sorted(text for _, _, text in shop.all())


@pytest.mark.promise("G-208")
@pytest.mark.parametrize("parts", [("_blizzard",), ("_blizzard", "_blizzard_fence")])
def test_older_state_of_units_is_refused_when_manifests_are_too(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    shop = UnitShop(tmp_path)
    one_round(shop, 1)
    shutil.copytree(shop.lake, tmp_path / "copy")
    for number in (2, 3, 4):
        one_round(shop, number)
    for part in parts:
        shutil.rmtree(shop.lake / part)
        shutil.copytree(tmp_path / "copy" / part, shop.lake / part)
    with pytest.raises(StateError, match=r"older than what was published.*reset --units"):
        one_round(shop, 5)


@pytest.mark.promise("G-208")
@pytest.mark.parametrize("parts", [("_blizzard",), ("_blizzard", "_blizzard_fence")])
def test_a_fresh_start_of_units_gives_no_number_again(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    shop = UnitShop(tmp_path)
    for number in (1, 2, 3):
        one_round(shop, number)
    for part in parts:
        shutil.rmtree(shop.lake / part)
    shop.execute("UPDATE answers SET text = text || '-corrected'")
    with pytest.raises(ColdStartRefused):
        one_round(shop, 4)
    one_round(shop, 0, fresh=True)
    for _ in range(2):
        one_round(shop, 0)
    assert texts(shop) == base(shop)


def lake_shop(folder: Path) -> UnitShop:
    """Return a shop whose source is a Delta table with a plain watermark: its versions."""
    shop = UnitShop(folder)
    for key in ("units", "query"):
        shop.source.pop(key)
    shop.document["connections"] = {"shop": {"driver": "delta", "uri": str(folder)}}
    shop.source.update({"table": "src", "watermark": {}})
    return shop


def lake_round(shop: UnitShop, number: int) -> None:
    rows = {"day": [f"2020-02-{10 + number}"], "survey": ["x"], "text": [f"r{number}"]}
    write_deltalake(str(shop.folder / "src"), pa.table(rows), mode="append")
    shop.run()
    commit(shop)
    shop.passes(days=1)


@pytest.mark.promise("G-196")
def test_an_older_watermark_of_a_table_is_refused(tmp_path: Path) -> None:
    shop = lake_shop(tmp_path)
    checkpoint = shop.lake / "_blizzard/answers_checkpoint.json"
    lake_round(shop, 1)
    saved = checkpoint.read_bytes()
    lake_round(shop, 2)
    lake_round(shop, 3)
    newest = checkpoint.read_bytes()
    checkpoint.write_bytes(saved)
    with pytest.raises(StateError, match=r"is stale.*`blizzard checkpoint set --column`"):
        lake_round(shop, 4)
    checkpoint.write_bytes(newest)
    lake_round(shop, 5)
    assert texts(shop) == ["r1", "r2", "r3", "r4", "r5"]


@pytest.mark.promise("G-197")
def test_an_older_watermark_is_refused_while_outputs_wait(tmp_path: Path) -> None:
    shop = lake_shop(tmp_path)
    lake_round(shop, 1)
    shutil.copytree(shop.lake, tmp_path / "copy")
    rows = {"day": ["2020-02-12"], "survey": ["x"], "text": ["r2"]}
    write_deltalake(str(shop.folder / "src"), pa.table(rows), mode="append")
    shop.run()  # Penguin is down
    for part in ("_blizzard", "_blizzard_fence"):
        shutil.rmtree(shop.lake / part)
        shutil.copytree(tmp_path / "copy" / part, shop.lake / part)
    with pytest.raises(StateError, match=r"waits for its commit.*`blizzard checkpoint set --col"):
        shop.run()
    assert set_version(shop, 1) == 0
    shop.run()
    commit(shop)
    assert texts(shop) == ["r1", "r2"]


@pytest.mark.promise("G-197")
def test_older_units_replace_waiting_outputs(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path)
    one_round(shop, 1)
    shutil.copytree(shop.lake, tmp_path / "copy")
    shop.put(("2020-02-23", "x", "r2"))
    shop.run()  # Penguin is down
    for part in ("_blizzard", "_blizzard_fence"):
        shutil.rmtree(shop.lake / part)
        shutil.copytree(tmp_path / "copy" / part, shop.lake / part)
    for _ in range(2):
        one_round(shop, 0)
    assert texts(shop) == base(shop)


def set_version(shop: UnitShop, version: int) -> int:
    """Set the version from which to read; return the command's exit code."""
    where = ("--pipeline", WHERE[0], "--source", WHERE[1], "--yes")
    column = ("--column", f"version={version}")
    command = ["checkpoint", "set", str(shop.path()), *where, *column]
    return CliRunner().invoke(main, command).exit_code


@pytest.mark.promise("G-207")
def test_stale_checkpoint_with_published_batch_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = lake_shop(tmp_path)
    checkpoint = shop.lake / "_blizzard/answers_checkpoint.json"
    saves: list[bytes] = []
    with monkeypatch.context() as watched:
        write = BatchRecords.write

        def save_and_write(*arguments: Any) -> None:
            saves.append(checkpoint.read_bytes())
            write(*arguments)

        watched.setattr(BatchRecords, "write", save_and_write)
        lake_round(shop, 1)
    lake_round(shop, 2)
    checkpoint.write_bytes(saves[0])
    with pytest.raises(StateError, match="is stale"):
        lake_round(shop, 3)
    assert set_version(shop, 1) == 0
    shop.run()
    commit(shop)
    assert texts(shop) == ["r1", "r2", "r3"]


@pytest.mark.promise("G-207")
@pytest.mark.parametrize("parts", [("_blizzard",), ("_blizzard", "_blizzard_fence")])
def test_a_lost_watermark_of_a_table_is_set_again(tmp_path: Path, parts: tuple[str, ...]) -> None:
    shop = lake_shop(tmp_path)
    lake_round(shop, 1)
    lake_round(shop, 2)
    for part in parts:
        shutil.rmtree(shop.lake / part)
    with pytest.raises(ColdStartRefused, match=r"`blizzard checkpoint set --column`"):
        lake_round(shop, 3)
    assert set_version(shop, 1) == 0
    shop.run()
    commit(shop)
    assert texts(shop) == ["r1", "r2", "r3"]


@pytest.mark.parametrize("content", [b"null", b"{}", b""])
def test_invalid_checkpoint_of_a_table_is_refused(tmp_path: Path, content: bytes) -> None:
    shop = lake_shop(tmp_path)
    lake_round(shop, 1)
    (shop.lake / "_blizzard/answers_checkpoint.json").write_bytes(content)
    with pytest.raises(StateError, match=r"answers_checkpoint\.json"):
        lake_round(shop, 2)
    assert texts(shop) == ["r1"]


@pytest.mark.promise("G-208")
def test_a_replacement_after_a_rebuild_of_older_state_arrives(tmp_path: Path) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    drill.document["pipelines"]["events"]["sink"]["metadata_columns"] = ["_source_file"]
    drill.write_config()
    drill.rounds()
    shutil.copytree(drill.lake / "_blizzard", tmp_path / "night")
    name = "date=2024-01-20/1700-a.ndjson.gz"

    def replaced(text: str) -> str:
        drill.put(name, ndjson(*({"id": i, "text": text} for i in range(3))))
        where = ("--pipeline", "events", "--source", "main", "--replace")
        span = ("--from", name, "--to", name)
        done = drill.call("blizzard", "backfill", str(drill.config), *where, *span)
        assert done.returncode == 0, done.stderr
        drill.start_once()
        table = pa.table(DeltaTable(str(drill.lake)).to_pyarrow_dataset().to_table())
        [found] = {row["text"] for row in table.to_pylist() if row["id"] < 3}
        return str(found)

    assert [replaced("first"), replaced("second")] == ["first", "second"]
    shutil.rmtree(drill.lake / "_blizzard")
    shutil.copytree(tmp_path / "night", drill.lake / "_blizzard")
    if drill.rebuild():
        assert drill.rebuild("--done-before", "date=2024-01-23") == 0
    assert replaced("third") == "third"
