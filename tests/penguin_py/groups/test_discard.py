"""Discarded outputs and groups: waiting work continues, and they never come later."""

from __future__ import annotations

import json
import os
from concurrent.futures import Executor
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from blizzard_core.settings.document import Config
from penguin_py.__main__ import main as penguin
from penguin_py.groups.discard import DiscardRefused
from tests.support.flat_settings import nested
from tests.support.group_publisher import (
    Publisher,
    S,
    group_states,
    ids,
    once_between,
    reading,
    rows,
)
from tests.support.s3_server import S3Server
from tests.support.table_harness import TableHarness, parquet

A = "p/s/a/1/0"
FILES = ["s3://raw/a"]


@pytest.fixture
def remote(pool: Executor, s3: S3Server) -> TableHarness:
    return TableHarness(f"s3://{s3.new_bucket()}/lake/events", pool, s3.options)


def named(*values: object) -> dict[str, list[object]]:
    return {"id": list(values), "_source_file": FILES * len(values)}


def waiting(world: TableHarness) -> Publisher:
    """A group waits for an output that does not fit the table."""
    world.put("0.parquet", {"id": [0], "_source_file": ["s3://raw/0"]}, output_id="p/s/0/1/0")
    world.run()
    world.put("1.parquet", named("text"), output_id=A)
    source = Publisher(world)
    source.group([named(1)], source_files=FILES, outputs=[A])
    world.run()
    assert "1.parquet" in world.quarantined()
    assert f"{A!r} is committed" in group_states(world)[S]["blocked"]
    return source


@pytest.mark.promise("G-094")
def test_a_group_continues_once_its_awaited_output_is_discarded(world: TableHarness) -> None:
    source = waiting(world)
    live = world.penguin()  # a daemon runs on
    world.run(live)
    dry = world.penguin().discard([A], None, dry_run=True)
    assert (dry.outputs, dry.group, dry.rows) == ((A,), None, 0)
    assert "waits" in group_states(world)[S]["blocked"]
    world.penguin().discard([A], None, dry_run=False)
    world.run(live)
    assert ids(world) == [0, 1]
    # Mended, and released from quarantine: its rows are those that were replaced.
    world.put("1.parquet", named(5), output_id=A)
    world.now += 60
    live.reconcile(dry_run=False)
    world.run(live)
    world.put("2.parquet", named(6), output_id=A)
    world.run(world.penguin())
    assert ids(world) == [0, 1]
    source.group([named(2)], source_files=FILES, outputs=["p/s/1/1/0"])
    world.run(live)
    assert ids(world) == [0, 2]
    before = world.delta().version()
    again = world.penguin().discard([A], None, dry_run=False)
    assert again.outputs == (A,)
    assert world.delta().version() == before


def test_on_s3_as_well(remote: TableHarness) -> None:
    waiting(remote)
    remote.penguin().discard([A], None, dry_run=False)
    remote.run()
    assert ids(remote) == [0, 1]


def test_discarded_output_stays_discarded_without_the_mirror(world: TableHarness) -> None:
    waiting(world)
    world.penguin().discard([A], None, dry_run=False)
    world.storage.delete("_penguin/events_checkpoint.json")
    world.run()
    world.put("3.parquet", named(7), output_id=A)
    world.run()
    assert ids(world) == [0, 1]


def test_discard_refuses_outputs_in_the_table(world: TableHarness) -> None:
    world.put("0.parquet", named(1), output_id=A)
    world.run()
    with pytest.raises(DiscardRefused, match=r"is in the table, in 0\.parquet"):
        world.penguin().discard([A], None, dry_run=False)
    with pytest.raises(DiscardRefused, match="no group of p_s waits"):
        world.penguin().discard([], S, dry_run=False)


def test_discard_refuses_when_there_is_no_table(world: TableHarness) -> None:
    with pytest.raises(DiscardRefused, match="there is no table yet"):
        world.penguin().discard([A], None, dry_run=False)


@pytest.mark.promise("G-094")
@pytest.mark.parametrize("harm", ["missing", "schema", "no manifest"])
def test_discarded_group_leaves_the_rows_that_it_would_replace(
    world: TableHarness, harm: str
) -> None:
    world.put("0.parquet", named(0), output_id=A)
    world.run()
    source = Publisher(world)
    bad = named("text" if harm == "schema" else 1)
    group = source.group([bad], source_files=FILES, outputs=[A], put=harm != "no manifest")
    path, output = group.files[0].path, group.files[0].output_id
    if harm == "missing":
        world.storage.delete(path)
    source.group([named(2)], source_files=FILES, outputs=[A] if harm == "no manifest" else [output])
    world.run()
    assert ids(world) == [0]
    blocked = group_states(world)[S]["blocked"]
    assert blocked
    assert "penguin discard" in blocked or harm == "no manifest"
    done = world.penguin().discard([], S, dry_run=False)
    assert (done.group, done.rows, done.lost) == ((S, 1), 0, harm == "no manifest")
    assert ids(world) == [0]
    world.run()
    assert ids(world) == [2]
    assert group_states(world)[S] == {"last": 2, "blocked": None}
    world.put("9.parquet", named(1), output_id=output)
    world.run()
    assert ids(world) == ([1, 2] if harm == "no manifest" else [2])  # of that nobody knows the id


def test_discarded_group_still_removes_its_replaced_outputs(world: TableHarness) -> None:
    world.put("0.parquet", {"id": [100]}, output_id="p/s/0/1/0")
    world.put("1.parquet", {"id": [0, 1]}, output_id=A)
    world.run()
    source = Publisher(world)
    group = source.group([{"id": ["text"]}], outputs=[A])
    source.group([{"id": [2, 3]}], outputs=[group.files[0].output_id])
    world.run()
    assert ids(world) == [0, 1, 100]
    done = world.penguin().discard([], S, dry_run=False)
    assert done.rows == 2
    assert ids(world) == [100]
    world.run()
    assert ids(world) == [2, 3, 100]


def test_rows_mixed_by_another_engine_can_be_discarded(
    world: TableHarness,
) -> None:
    world.put("0.parquet", {"id": [100]}, output_id="p/s/0/1/0")
    world.put("1.parquet", {"id": [0]}, output_id=A)
    world.run()
    world.delta().optimize.compact()
    Publisher(world).group([{"id": [5]}], outputs=[A])
    world.run()
    assert "run `penguin discard --output`" in group_states(world)[S]["blocked"]
    world.delta().delete("id = 0")
    world.penguin().discard([A], None, dry_run=False)
    world.run()
    assert ids(world) == [5, 100]


def test_the_first_commit_checks_the_waits_of_all_its_groups(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([], source_files=FILES, outputs=[A])
    source.group([named(101)], source_files=FILES)
    world.run()
    assert not world.penguin().snapshot().state
    world.put("01a2045f-a660-70ed-ab52-e13091331260.parquet", named(1), output_id=A)
    world.run()
    world.run()
    assert ids(world) == [101]


def test_the_command(tmp_path: Path, pool: Executor) -> None:
    world = TableHarness(str(tmp_path / "table"), pool)
    waiting(world)
    config = tmp_path / "config.yaml"
    document = {"tables": {"events": {"table_uri": world.uri, "own_prefixes": [""]}}}
    config.write_text(yaml.safe_dump(nested(Config, document)))

    def run(*arguments: str) -> tuple[int, str]:
        found = CliRunner().invoke(penguin, ["discard", str(config), *arguments])
        return found.exit_code, found.stdout

    code, text = run("--table", "events", "--output", A, "--dry-run")
    assert (code, text) == (0, f"output {A} would be discarded\n")
    assert run("--table", "none", "--output", A)[0] == 1
    assert run("--table", "events")[0] == 2
    code, text = run("--table", "events", "--output", A, "--json")
    assert (code, json.loads(text)["outputs"]) == (0, [A])
    world.run()
    assert ids(world) == [0, 1]


def test_a_commit_in_between_causes_a_new_plan(world: TableHarness) -> None:
    waiting(world)
    other, found = world.penguin(), world.penguin()

    def does() -> None:
        world.put("7.parquet", {"id": [7], "_source_file": ["s3://raw/7"]}, output_id="p/s/7/1/0")
        world.run(other)

    once_between(found, does)
    found.discard([A], None, dry_run=False)
    world.run(other)
    assert ids(world) == [0, 1, 7]


@pytest.mark.promise("G-097")
def test_discard_first_commits_the_groups_that_can_commit(world: TableHarness) -> None:
    world.put("0.parquet", named(0), output_id="p/s/0/1/0")
    world.run()
    world.put("1.parquet", named(1), output_id=A)  # nobody has looked since
    source = Publisher(world)
    group = source.group([named(2)], source_files=FILES, outputs=[A])
    with pytest.raises(DiscardRefused, match="no group of p_s waits"):
        world.penguin().discard([], S, dry_run=False)
    assert ids(world) == [2]
    with pytest.raises(DiscardRefused, match="is in the table, in unit-"):
        world.penguin().discard([group.files[0].output_id], None, dry_run=False)
    source.group([named(3)], source_files=FILES, outputs=[group.files[0].output_id])
    with pytest.raises(DiscardRefused, match="is not blocked by a problem of its own"):
        world.penguin().discard([], S, dry_run=True)


def test_a_group_waiting_for_another_source_is_not_discarded(world: TableHarness) -> None:
    world.put("0.parquet", named(0), output_id="p/s/0/1/0")
    world.run()
    lost, sound = Publisher(world), Publisher(world, "q")
    lost.group([named(1)], put=False)
    lost.group([named(2)])
    sound.group([{"id": [3], "_source_file": ["s3://raw/3"]}], ids=["q/1"])
    world.run()
    assert "wait for those of p_s" in world.mirror()["blocked"]["q"]
    with pytest.raises(DiscardRefused, match="is not blocked by a problem of its own"):
        world.penguin().discard([], "q", dry_run=False)
    world.penguin().discard([], S, dry_run=False)
    world.run()
    assert ids(world) == [0, 2, 3]


@pytest.mark.promise("G-097")
def test_a_group_repaired_meanwhile_is_not_discarded(world: TableHarness) -> None:
    world.put("0.parquet", named(0), output_id=A)
    world.run()
    source = Publisher(world)
    group = source.group([named(1)], source_files=FILES, outputs=[A])
    data = world.storage.read(group.files[0].path)
    world.storage.delete(group.files[0].path)
    last = group.files[0].output_id
    source.group([named("text")], source_files=FILES, outputs=[last])
    live, found = world.penguin(), world.penguin()

    def does() -> None:
        world.put(group.files[0].path, data)
        world.run(live)

    once_between(found, does)
    with pytest.raises(DiscardRefused, match="was applied meanwhile"):
        found.discard([], S, dry_run=False)
    assert ids(world) == [1]


def test_units_go_on_as_well(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 0, [1])], replace=[reading(S, "a", 0)])
    world.run()
    group = source.group([rows("a", 0, [2])], replace=[reading(S, "a", 0)])
    world.put(group.files[0].path, parquet({"id": [9]}))
    source.group([rows("a", 0, [3])], replace=[reading(S, "a", 0)])
    world.run()
    world.penguin().discard([], S, dry_run=False)
    world.run()
    assert ids(world) == [3]


@pytest.mark.promise("G-096")
@pytest.mark.parametrize("is_overdue", [False, True])
def test_straggler_is_committed_and_not_discarded(world: TableHarness, *, is_overdue: bool) -> None:
    live = world.penguin()

    def put(number: int, rows: dict[str, list[object]], output: str) -> None:
        name = f"01a2109e-3f30-7000-b189-0399d8eb76{number}.parquet"
        world.put(name, rows, output_id=output)
        os.utime(f"{world.uri}/{name}", (world.now, world.now))
        world.run(live)

    for number in (20, 30):
        put(number, {"id": [number], "_source_file": ["s3://raw/0"]}, f"p/s/{number}/1/0")
        for _ in range(12):
            world.now += 60
            world.run(live)
    # A writer that slept publishes below the watermark, past its grace.
    put(10, {"id": [10, 11], "_source_file": ["s3://raw/a", "s3://raw/b"]}, A)
    Publisher(world).group([named(100)], source_files=FILES, outputs=[A])
    world.run(live)
    assert "`penguin reconcile` commits it" in group_states(world)[S]["blocked"]
    if is_overdue:
        world.now += 3 * 86_400
    found = world.penguin().discard([A, "p/s/never/1/0"], None, dry_run=False)
    assert found.outputs == ("p/s/never/1/0",)
    world.run(world.penguin())
    assert ids(world) == [11, 20, 30, 100]  # the group has all of file a, and nothing of b is lost
    with pytest.raises(DiscardRefused, match="is in the table"):
        world.penguin().discard([A], None, dry_run=False)
