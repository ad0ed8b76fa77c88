"""The table contract: every feature of the protocol is taken and right, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import StateError
from blizzard_core.table.contract import FEATURES, TableDeclaration, objections
from tests.support.foreign_tables import field, make, with_features
from tests.support.penguin_features import stored, table
from tests.support.penguin_readers import assert_all_read, by_scan, rows_of
from tests.support.table_harness import TableHarness


def test_the_documented_table_is_the_contract() -> None:
    assert stored() == table(), "python -m tests.support.penguin_features writes it"


@pytest.mark.parametrize("name", [name for name, feature in FEATURES.items() if feature.takes])
def test_penguin_commits_to_tables_with_accepted_features(world: TableHarness, name: str) -> None:
    make(world, with_features(name))
    world.put("a.parquet", {"x": [1]})
    world.put("b.parquet", {"x": [2], "new": [2]})
    world.run()
    assert not world.quarantined()
    # Not every reader opens tables with each of them; the engine that made it does.
    assert rows_of(by_scan(world.delta()), ["x", "new"]) == [(1, None), (2, 2)]


@pytest.mark.promise("G-181")
@pytest.mark.parametrize(
    "name", [*(name for name, feature in FEATURES.items() if not feature.takes), "fancy"]
)
@pytest.mark.parametrize("readers", [False, True])
@pytest.mark.unreadable_tables("not all readers know the feature, and nothing is committed")
def test_a_feature_that_is_not_is_refused_by_name(
    world: TableHarness, name: str, readers: bool
) -> None:
    protocol = with_features(name)
    if readers:
        protocol |= {"minReaderVersion": 3, "readerFeatures": [name]}
    make(world, protocol)
    world.put("a.parquet", {"x": [1]})
    with pytest.raises(StateError, match=f"feature {name} is not (supported|known here)"):
        world.run()
    assert len(list(Path(world.uri, "_delta_log").iterdir())) == 1


RULES: dict[str, tuple[dict[str, Any], str]] = {
    "a constraint": (
        {"properties": {"delta.constraints.positive": "x > 0"}},
        "constraint 'positive' is not checked here; drop it",
    ),
    "an invariant": (
        {"fields": [field(**{"delta.invariants": '{"expression":{"expression":"x > 0"}}'})]},
        "column 'x' has an invariant",
    ),
    "an invariant within a struct": (
        {
            "fields": [
                field(),
                field(
                    "s",
                    {"type": "struct", "fields": [field("y", **{"delta.invariants": "{}"})]},
                ),
            ]
        },
        r"column 's\.y' has an invariant",
    ),
    "a generated column": (
        {"fields": [field(**{"delta.generationExpression": "1 + 1"})]},
        "column 'x' is generated",
    ),
    "an identity column": (
        {"fields": [field(**{"delta.identity.start": 1, "delta.identity.step": 1})]},
        "column 'x' is an identity column",
    ),
    "a default": ({"fields": [field(CURRENT_DEFAULT="7")]}, "column 'x' has a default"),
    "transactions that expire": (
        {"properties": {"delta.setTransactionRetentionDuration": "interval 1 days"}},
        "setTransactionRetentionDuration is set: .*unset it",
    ),
    "mapped columns": (
        {"properties": {"delta.columnMapping.mode": "name"}},
        "columnMapping",
    ),
    "checkpoints with sidecars": (
        {"properties": {"delta.checkpointPolicy": "v2"}},
        "checkpointPolicy is set: .*classic",
    ),
    "a hidden partition column": (
        {"fields": [field(), field("_day", "string")], "partitions": ["_day"]},
        "partition column '_day' makes directories that start with '_'",
    ),
    "a partition column of floats": (
        {"fields": [field(), field("p", "double")], "partitions": ["p"]},
        "partition column 'p' is double",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_files_might_break_is_refused_by_name(world: TableHarness, rule: str) -> None:
    more, told = RULES[rule]
    make(world, {"minReaderVersion": 1, "minWriterVersion": 4}, **more)
    world.put("a.parquet", {"x": [-1]})
    with pytest.raises(StateError, match=told):
        world.run()


def test_a_dead_compaction_is_recognised_without_a_creation_time(
    world: TableHarness,
) -> None:
    """``createdTime`` is optional: without it no file is older than the table."""
    make(world, {"minReaderVersion": 1, "minWriterVersion": 2})
    first = Path(world.uri, "_delta_log", f"{0:020d}.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        action.get("metaData", {}).pop("createdTime", None)
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    every = {"file_pattern": r".*\.parquet"}
    for number in (1, 2):
        world.put(f"{number}.parquet", {"x": [number]})
    world.run(**every)
    table = world.delta()
    table.optimize.compact()
    Path(world.uri, "_delta_log", f"{table.version():020d}.json").unlink()
    world.run(**every)
    assert world.rows() == [{"x": 1}, {"x": 2}]
    [why] = world.quarantined().values()
    assert "a Delta writer" in why


@pytest.mark.parametrize(("reader", "writer"), [(1, 6), (2, 6), (4, 7), (1, 8)])
def test_a_version_of_the_protocol_that_is_not_known_is_refused(reader: int, writer: int) -> None:
    found = objections(TableDeclaration(reader, writer, (), {}, [field()], ()))
    assert len(found) == 1
    assert "version" in found[0]


@pytest.mark.parametrize("writer", [2, 3, 4, 5])
def test_the_older_versions_are_committed_to(world: TableHarness, writer: int) -> None:
    make(world, {"minReaderVersion": 2 if writer == 5 else 1, "minWriterVersion": writer})
    world.put("a.parquet", {"x": [1]})
    world.run()
    assert rows_of(by_scan(world.delta()), ["x"]) == [(1,)]


@pytest.mark.parametrize(
    "properties", [{"delta.appendOnly": "true"}, {"delta.enableChangeDataFeed": "true"}]
)
def test_new_columns_obey_what_appending_obeys(
    world: TableHarness, properties: dict[str, str]
) -> None:
    make(world, {"minReaderVersion": 1, "minWriterVersion": 4}, properties=properties)
    world.put("a.parquet", {"x": [1], "new": [1]})
    world.run()
    assert_all_read(world, [(1, 1)])
    kinds = {next(iter(action)) for action in world.actions(1)}
    assert kinds == {"commitInfo", "metaData", "add", "txn"}


def test_a_rule_that_comes_while_the_daemon_runs_stops_it(world: TableHarness) -> None:
    world.put("a.parquet", {"x": [1]})
    penguin = world.penguin()
    world.run(penguin)
    world.delta().alter.add_constraint({"positive": "x > 0"})
    world.put("b.parquet", {"x": [-1]})
    with pytest.raises(StateError, match="constraint 'positive'"):
        world.run(penguin)
    assert world.rows() == [{"x": 1}]
    world.delta().alter.drop_constraint("positive")
    world.run(penguin)
    assert world.rows() == [{"x": -1}, {"x": 1}]
