"""`plan` and `reconcile --dry-run` predict what `run` and `reconcile` do."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner

from blizzard_core.settings.document import Config
from penguin_py.__main__ import main
from penguin_py.delta.table import DeltaLog
from penguin_py.intake.reconcile import BEYOND
from penguin_py.planning.batch_planner import Forecast
from tests.support.counting_storage import CountingStorage
from tests.support.flat_settings import nested
from tests.support.table_harness import TableHarness, parquet
from tests.support.thrift_footer import column, footer, group, parquet_file, root

DAY = "date=2024-01-01"
BY_DATE = {"partition_by": {"prefix_template": "date=%Y-%m-%d"}}
# Files that each break the contract in another way, by the stage at which they do.
BAD: dict[str, tuple[str, bytes]] = {
    f"{DAY}/b-cut.parquet": ("read", parquet({"id": [1]})[:-9]),
    f"{DAY}/b-junk.parquet": ("read", b"junk that is long enough"),
    f"{DAY}/b-nanos.parquet": (
        "schema",
        parquet(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))})),
    ),
    f"{DAY}/b-null.parquet": ("schema", parquet(pa.table({"id": [1], "n": pa.nulls(1)}))),
    f"{DAY}/b-rows.parquet": (
        "schema",
        parquet_file(footer([root(1), column("id")], 7, [group(["id"], 3)])),
    ),
    f"{DAY}/b-text.parquet": ("schema", parquet({"id": ["x"]})),
    f"{DAY}/b-twice.parquet": ("output_id", parquet({"id": [1]}, output_id="one")),
    f"{DAY}/b-wide.parquet": ("schema", parquet({f"c{n}": [1] for n in range(1001)})),
    "date=tomorrow/b.parquet": ("partition", parquet({"id": [1]})),
}


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> TableHarness:
    found = TableHarness(str(tmp_path / "events"), pool, now=time.time())
    found.put(f"{DAY}/a.parquet", {"id": [0]}, output_id="one")
    found.run(**BY_DATE)
    return found


def refusals(forecast: Forecast) -> dict[str, str]:
    return {rejection.entry.path: rejection.reason for rejection in forecast.rejections}


@pytest.mark.promise("G-104")
def test_plan_and_poll_refuse_for_the_same_reasons(world: TableHarness) -> None:
    for path, (_, data) in BAD.items():
        world.put(path, data)
    world.put(f"{DAY}/c.parquet", {"id": [2], "new": [1]})
    before = sorted(Path(world.uri).rglob("*"))
    _, files, told = world.penguin(**BY_DATE).outlook()
    assert sorted(Path(world.uri).rglob("*")) == before
    assert {entry.path for entry in files} == {*BAD, f"{DAY}/c.parquet"}
    assert {r.entry.path: r.stage for r in told.rejections} == {p: s for p, (s, _) in BAD.items()}
    world.run(**BY_DATE)
    assert world.quarantined() == refusals(told)
    assert world.paths() == {f"{DAY}/a.parquet", f"{DAY}/c.parquet"}


@pytest.mark.promise("G-104")
def test_a_dry_sweep_refuses_what_the_sweep_refuses(world: TableHarness) -> None:
    world.put(f"{DAY}/z.parquet", {"id": [9]})
    penguin = world.penguin(**BY_DATE, grace_period=0)
    for _ in range(2):  # its grace is over with the second scan, so polls pass what comes below
        world.run(penguin)
        world.now += 1
    world.put(f"{DAY}/z1.parquet", {"id": [9]})
    world.run(penguin)
    for path, (_, data) in BAD.items():
        if path.startswith(DAY):
            world.put(path, data)
    world.put(f"{DAY}/b-fine.parquet", {"id": [5]})
    sweeper = world.penguin(**BY_DATE, grace_period=0)
    found, told = sweeper.sweep_outlook()
    assert {entry.path for entry in found.stragglers} == {
        *(path for path in BAD if path.startswith(DAY)),
        f"{DAY}/b-fine.parquet",
    }
    assert not world.quarantined()
    sweeper.reconcile(dry_run=False)
    world.run(sweeper)
    assert world.quarantined() == refusals(told)
    assert f"{DAY}/b-fine.parquet" in world.paths()


def test_a_plan_knows_what_is_not_ours_and_what_is_too_old(world: TableHarness) -> None:
    world.put(f"{DAY}/f.parquet", {"id": [1]})
    _, _, told = world.penguin(**BY_DATE, own_prefixes=[]).outlook()
    assert [entry.path for entry in told.waiting] == [f"{DAY}/f.parquet"]
    never = {"own_prefixes": [], "foreign_min_age": None}
    _, _, told = world.penguin(**BY_DATE, **never).outlook()
    assert "is not ours" in refusals(told)[f"{DAY}/f.parquet"]
    # Nobody knows any more whether the log had this one and removed it.
    world.storage.delete("_penguin/events_checkpoint.json")
    os.utime(Path(world.uri, f"{DAY}/f.parquet"), (1e9, 1e9))
    _, _, told = world.penguin(**BY_DATE, app_id="other").outlook()
    assert refusals(told) == {f"{DAY}/f.parquet": BEYOND}


def test_a_plan_reads_one_commits_footers_and_counts_the_rest(world: TableHarness) -> None:
    for number in range(7):
        world.put(f"{DAY}/b{number}.parquet", {"id": [number]})
    storage: Any = CountingStorage(world.storage)
    table = world.table(**BY_DATE, max_files_per_commit=3)
    penguin = world.penguin_on(table, storage, DeltaLog(table, storage, world.pool))
    _, files, told = penguin.outlook()
    assert (len(files), told.unread) == (7, 4)
    assert len([asked for asked in storage.asked if asked.startswith(f"read_range {DAY}")]) == 3


def test_the_commands_show_each_refusal_with_its_reason(
    tmp_path: Path, world: TableHarness
) -> None:
    config = tmp_path / "c.yaml"
    block = {"table_uri": world.uri, "max_files_per_commit": 2, **BY_DATE}
    config.write_text(yaml.safe_dump(nested(Config, {"tables": {"events": block}})))
    world.put(f"{DAY}/b.parquet", b"junk that is \x1b[31mlong enough")
    world.put(f"{DAY}/c.parquet", {"id": [1]})
    world.put(f"{DAY}/d.parquet", {"id": [2]}, output_id="two")
    asked = ["plan", str(config), "--log-level", "error"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0
    shown = " ".join(done.output.split())
    assert f"events: refused: {DAY}/b.parquet: is not Parquet" in shown
    assert f"events: waits: {DAY}/c.parquet" in shown
    assert "1 file behind the next commit not looked into" in shown
    document = json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)
    found = document["tables"]["events"]
    assert [(r["path"], r["stage"]) for r in found["refused"]] == [(f"{DAY}/b.parquet", "read")]
    assert found["waiting"] == [f"{DAY}/c.parquet"]
    assert found["not_looked_into"] == 1
