"""The advice of a refusal works: the resulting table is accepted.

The logs are written by hand as Delta's own commands leave them, since no Spark with Delta is
there: https://github.com/delta-io/delta, `PreDowngradeTableFeatureCommand.scala` and
`alterDeltaTableCommands.scala`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from blizzard_core.errors import StateError
from blizzard_core.table.contract import FEATURES, feature_objections
from tests.support.foreign_tables import commit, field, make, metadata, with_features
from tests.support.penguin_readers import assert_all_read
from tests.support.table_harness import TableHarness, parquet

PLAIN = {"minReaderVersion": 1, "minWriterVersion": 2}
LEGACY = ["appendOnly", "invariants"]
BOUNDARY = "delta.requireCheckpointProtectionBeforeVersion"


def added(world: TableHarness, path: str, value: int, **more: Any) -> dict[str, Any]:
    """A file of another engine's with this row, and the action that adds it."""
    data = parquet({"x": [value]})
    world.put(path, data)
    stats = json.dumps({"numRecords": 1, "minValues": {"x": value}, "maxValues": {"x": value}})
    told = {"path": path, "partitionValues": {}, "size": len(data), "modificationTime": 1}
    return {"add": {**told, "dataChange": True, "stats": stats, **more}}


def log_of(world: TableHarness) -> dict[str, int]:
    """The log's files, and when each was written."""
    found = Path(world.uri, "_delta_log").iterdir()
    return {file.name: file.stat().st_mtime_ns for file in found}


def drop_history(world: TableHarness, before: int) -> None:
    """As TRUNCATE HISTORY: everything before the checkpoint of this version goes."""
    world.delta().create_checkpoint()
    for file in Path(world.uri, "_delta_log").glob("0*"):
        if int(file.name[:20]) < before:
            file.unlink()


def assert_takes(world: TableHarness, rows: list[int]) -> None:
    """Penguin commits to the table, and readers find these rows and its own."""
    world.put("ours.parquet", {"x": [9]})
    world.run()
    assert not world.quarantined()
    assert_all_read(world, [(value,) for value in [*rows, 9]])


@pytest.mark.parametrize(
    "name", [name for name, feature in FEATURES.items() if "delta-rs" in feature.why]
)
@pytest.mark.unreadable_tables("not all readers know the feature, and nothing is committed")
def test_delta_rs_itself_refuses_the_feature(world: TableHarness, name: str) -> None:
    """A release of it that does not should have the table taken."""
    make(world, with_features(name))
    table = world.delta()
    with pytest.raises((CommitFailedError, DeltaError), match="Unsupported table features"):
        table.create_write_transaction([], "append", table.schema(), [])


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["domainMetadata", "rowTracking"], ["rowTracking", "domainMetadata"]),
        (["domainMetadata", "clustering"], ["clustering", "domainMetadata"]),
        (
            ["inCommitTimestamp", "vacuumProtocolCheck", "coordinatedCommits-preview"],
            ["coordinatedCommits-preview", "inCommitTimestamp", "vacuumProtocolCheck"],
        ),
        (["fancy", "checkpointProtection", "typeWidening"], ["typeWidening", "checkpointPro"]),
    ],
)
def test_objections_list_features_before_their_dependencies(
    names: list[str], order: list[str]
) -> None:
    found = [text.removeprefix("the table feature ") for text in feature_objections(names)]
    assert all(text.startswith(name) for text, name in zip(found, order, strict=False))


@pytest.mark.promise("G-181")
@pytest.mark.parametrize("name", ["typeWidening", "vacuumProtocolCheck"])
@pytest.mark.unreadable_tables("not all readers know the feature")
def test_a_feature_is_dropped_with_its_history(world: TableHarness, name: str) -> None:
    make(world, with_features(*LEGACY, name))
    with pytest.raises(StateError, match=rf"DROP FEATURE {name} TRUNCATE HISTORY"):
        world.run()
    commit(world, 1, added(world, "spark.parquet", 1))
    commit(world, 2, {"protocol": PLAIN}, {"metaData": metadata()})
    drop_history(world, 2)
    assert_takes(world, [1])


@pytest.mark.promise("G-181")
@pytest.mark.parametrize("name", ["typeWidening", "deletionVectors"])
def test_a_feature_dropped_without_history_names_the_rest(world: TableHarness, name: str) -> None:
    make(world, with_features(*LEGACY, name))
    protected = with_features(*LEGACY, "checkpointProtection")
    commit(world, 1, added(world, "spark.parquet", 1))
    told = {"metaData": metadata(properties={BOUNDARY: "2"})}
    commit(world, 2, {"protocol": protected}, told)
    world.delta().create_checkpoint()
    before = log_of(world)
    with pytest.raises(StateError, match="DROP FEATURE checkpointProtection TRUNCATE HISTORY"):
        world.run(delta_checkpoint_interval=1, delta_log_cleanup=True)
    assert log_of(world) == before
    commit(world, 3, {"protocol": PLAIN}, {"metaData": metadata()})
    drop_history(world, 3)
    assert_takes(world, [1])


@pytest.mark.promise("G-181")
def test_a_daemon_leaves_protected_history_alone(world: TableHarness) -> None:
    """The feature comes while it runs: it commits, compacts, cleans and vacuums no more."""
    often = {"optimize": {"interval": "1s"}, "vacuum": {}}
    penguin = world.penguin(delta_checkpoint_interval=1, delta_log_cleanup=True, **often)
    world.put("a.parquet", {"x": [1]})
    world.run(penguin)
    told = {"metaData": metadata(properties={BOUNDARY: "1"})}
    commit(world, 1, {"protocol": with_features(*LEGACY, "checkpointProtection")}, told)
    before = log_of(world)
    world.put("b.parquet", {"x": [2]})
    for _ in range(3):
        world.now += 100_000
        with pytest.raises(StateError, match="checkpointProtection"):
            world.run(penguin)
    assert log_of(world) == before
    assert Path(world.uri, "b.parquet").exists()


@pytest.mark.promise("G-181")
def test_row_tracking_is_dropped_before_its_domain(world: TableHarness) -> None:
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":0}'}
    enabled = {"delta.enableRowTracking": "true"}
    make(world, with_features(*LEGACY, "domainMetadata", "rowTracking"), properties=enabled)
    tracked = added(world, "spark.parquet", 1, baseRowId=0, defaultRowCommitVersion=1)
    commit(world, 1, tracked, {"domainMetadata": {**domain, "removed": False}})
    with pytest.raises(StateError, match=r"'false'.*DROP FEATURE rowTracking.*domainMetadata"):
        world.run()
    commit(world, 2, {"metaData": metadata(properties={"delta.enableRowTracking": "false"})})
    without = with_features(*LEGACY, "domainMetadata")
    gone = {"domainMetadata": {**domain, "removed": True}}
    commit(world, 3, {"protocol": without}, {"metaData": metadata()}, gone)
    with pytest.raises(StateError, match="DROP FEATURE domainMetadata"):
        world.run()
    commit(world, 4, {"protocol": PLAIN})
    assert_takes(world, [1])


@pytest.mark.promise("G-181")
@pytest.mark.unreadable_tables("deltalake's dataset opens no table with the feature")
def test_column_mapping_ends_with_its_mode(world: TableHarness) -> None:
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "x"}
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    make(world, with_features(*LEGACY, "columnMapping"), fields=[field(**mapped)], properties=mode)
    old = added(world, "old.parquet", 1)
    commit(world, 1, old)
    with pytest.raises(StateError, match=r"'delta\.columnMapping\.mode' = 'none'"):
        world.run()
    remove = {"path": "old.parquet", "deletionTimestamp": 1, "dataChange": False}
    commit(
        world,
        2,
        {"metaData": metadata(properties={"delta.columnMapping.mode": "none"})},
        {"remove": remove},
        added(world, "new.parquet", 1, dataChange=False),
    )
    world.put("ours.parquet", {"x": [9]})
    world.run()
    assert sorted(world.delta_paths()) == ["new.parquet", "ours.parquet"]


@pytest.mark.promise("G-181")
@pytest.mark.unreadable_tables("deltalake's dataset opens no table with the feature")
def test_checkpoints_are_classic_again(world: TableHarness) -> None:
    """Also where the log begins at a checkpoint that is not."""
    protocol = with_features(*LEGACY, "v2Checkpoint")
    policy = metadata(properties={"delta.checkpointPolicy": "v2"})
    file = added(world, "spark.parquet", 1)
    commit(world, 0, {"protocol": protocol}, {"metaData": policy}, file)
    commit(world, 1)
    actions = [{"checkpointMetadata": {"version": 1}}, {"protocol": protocol}, {"metaData": policy}]
    name = f"_delta_log/{1:020d}.checkpoint.76afb606-345d-48b9-8c23-e02b7ad937de.json"
    world.put(name, "".join(f"{json.dumps(action)}\n" for action in [*actions, file]).encode())
    Path(world.uri, "_delta_log", f"{0:020d}.json").unlink()
    with pytest.raises(StateError, match=r"'delta\.checkpointPolicy' = 'classic'.*checkpoint\(\)"):
        world.run()
    classic = metadata(properties={"delta.checkpointPolicy": "classic"})
    commit(world, 2, {"metaData": classic})
    world.delta().create_checkpoint()
    world.put("ours.parquet", {"x": [9]})
    world.run()
    assert sorted(world.delta_paths()) == ["ours.parquet", "spark.parquet"]
