"""Groups where others work on the table: two Penguins, other engines, older versions of it."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from blizzard_core.errors import BlizzardError
from penguin_py.delta import output_ids
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from tests.support.foreign_tables import commit, field, make, with_features
from tests.support.group_publisher import (
    Publisher,
    S,
    group_states,
    ids,
    once_between,
    reading,
    rows,
    unit,
)
from tests.support.table_harness import TableHarness, parquet

FILES = ["s3://raw/a", "s3://raw/b"]


def of_files(*values: tuple[int, int]) -> dict[str, list[Any]]:
    """Rows, each of one of the two files."""
    return {"id": [v for v, _ in values], "_source_file": [FILES[at] for _, at in values]}


def mixed(world: TableHarness) -> Publisher:
    """Rows of two files in one, and a group that replaces those of the first."""
    world.put("0.parquet", of_files((1, 0), (2, 1)), output_id="p/s/0/1/0")
    world.put("1.parquet", of_files((3, 1)), output_id="p/s/0/1/1")
    world.run()
    source = Publisher(world)
    source.group([of_files((10, 0))], source_files=FILES[:1], outputs=["p/s/0/1/0"])
    return source


@pytest.mark.promise("G-098")
@pytest.mark.parametrize("what", ["zorder", "compact", "vacuum", "full vacuum", "checkpoint"])
def test_upkeep_by_others_between_look_and_commit(world: TableHarness, what: str) -> None:
    mixed(world)
    penguin = world.penguin()

    def does() -> None:
        table = world.delta()
        if what == "zorder":
            table.optimize.z_order(["id"])
        elif what == "compact":
            table.optimize.compact()
        elif what == "checkpoint":
            table.create_checkpoint()
        else:
            table.optimize.compact()
            table = world.delta()
            full = what.startswith("full")
            table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)

    group_file = next(path for path in Path(world.uri).iterdir() if path.name.startswith("unit-"))
    held = group_file.read_bytes()

    def and_restored() -> None:
        does()
        group_file.write_bytes(held)  # what waits for its commit is taken by a full vacuum

    once_between(penguin, and_restored)
    world.run(penguin)
    assert ids(world) == [2, 3, 10]
    there = {path.name for path in Path(world.uri).iterdir()}
    assert world.paths() <= there


def test_replacement_in_a_restored_table_uses_row_values(world: TableHarness) -> None:
    source = mixed(world)
    world.run()
    assert ids(world) == [2, 3, 10]
    world.delta().restore(0)
    live = world.penguin()
    world.run(live)
    assert ids(world) == [1, 2, 3]  # what it took away stays away
    source.group([of_files((20, 0))], source_files=FILES[:1], outputs=["p/s/1/1/0"])
    world.run(live)
    assert ids(world) == [2, 3, 20]
    assert group_states(world)[S] == {"last": 2, "blocked": None}


def test_outputs_of_a_table_that_is_restored_are_not_doubled(world: TableHarness) -> None:
    world.put("0.parquet", {"id": [1]}, output_id="p/s/0/1/0")
    world.run()
    source = Publisher(world)
    source.group([{"id": [10]}], outputs=["p/s/0/1/0"])
    world.run()
    world.delta().restore(0)
    source.group([{"id": [20]}], outputs=["p/s/1/1/0"])
    world.run()
    assert ids(world) == [1]
    assert "RESTORE" in group_states(world)[S]["blocked"]
    world.delta().delete("id = 1")
    world.penguin().discard(["p/s/1/1/0"], None, dry_run=False)
    world.run()
    assert ids(world) == [20]


def knowing(world: TableHarness, name: str) -> TablePipeline:
    """A Penguin of whose configuration the sources are."""
    table = replace(world.table(name), source_ids=(S, "q"))
    storage = world.storage
    return world.penguin_on(table, storage, DeltaLog(table, storage, world.pool))


@pytest.mark.promise("G-098")
@pytest.mark.parametrize("name", ["events", "another"])
def test_two_live_penguins_apply_each_group_once(world: TableHarness, name: str) -> None:
    rng = random.Random(7)
    source, other = Publisher(world), Publisher(world, "q")
    expected: dict[str, list[int]] = {}
    world.put("0.parquet", {"id": [-1], "_unit": ["x"]}, output_id="p/s/x/1/0")
    world.run()
    ended = threading.Event()

    def work(penguin: TablePipeline) -> None:
        stop = threading.Event()
        idle = 0
        while idle < 3:
            try:
                idle = 0 if penguin.cycle(stop) or not ended.is_set() else idle + 1
            except BlizzardError:
                idle = 0  # as a daemon does, it looks again

    with ThreadPoolExecutor(max_workers=2) as threads:
        names = ["events", name]
        done = [threads.submit(work, knowing(world, each)) for each in names]
        for number in range(12):
            publisher = rng.choice([source, other])
            key = rng.choice("abc")
            values = [number * 10, number * 10 + 1]
            own = publisher.source
            table = {"id": values, "_unit": [unit(own, key, 0)] * 2}
            publisher.group(
                [table],
                ids=[f"{own}/x/{number}"],
                replace=[reading(own, key, 0)],
            )
            expected[own + key] = values
            if number % 4 == 3:
                with contextlib.suppress(DeltaError):  # a commit of theirs came first
                    world.delta().optimize.compact()
        ended.set()
        for one in done:
            one.result()
    assert ids(world) == sorted([-1, *(v for found in expected.values() for v in found)])


@pytest.mark.parametrize(
    ("feature", "told"),
    [("deletionVectors", "deletion vectors"), ("columnMapping", None)],
)
def test_penguin_refuses_unsupported_table_features_by_name(
    world: TableHarness, feature: str, told: str | None
) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [feature],
        "writerFeatures": [feature],
    }
    columns = [("id", "long"), ("_unit", "string")]
    mapped = [
        {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
        for number, (name, _) in enumerate(columns, 1)
    ]
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {} if told else m}
        for (n, t), m in zip(columns, mapped, strict=True)
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": {}
        if told
        else {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
    }
    data = parquet(rows("a", 0, [1, 2]))
    world.put("spark.parquet", data)
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 1,
    }
    add = {
        "path": "spark.parquet",
        "partitionValues": {},
        "size": len(data),
        "modificationTime": 1,
        "dataChange": True,
        **({"deletionVector": vector} if told else {}),
    }
    actions = [{"protocol": protocol}, {"metaData": metadata}, {"add": add}]
    world.put("_delta_log/00000000000000000000.json", _lines(actions))
    world.tampered = True
    Publisher(world).group([rows("a", 0, [3])], replace=[reading(S, "a", 0)])
    if told is None:
        with pytest.raises(BlizzardError, match=r"delta\.columnMapping\.mode"):
            world.run()
    else:
        world.run()
        assert told in group_states(world)[S]["blocked"]
    assert not world.storage.stat("_delta_log/00000000000000000001.json")


def test_deletion_vectors_that_were_purged_hinder_no_group(world: TableHarness) -> None:
    """As ``REORG TABLE … APPLY (PURGE)`` leaves a table: the feature stays, no file has one."""
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
    vector |= {"sizeInBytes": 40, "cardinality": 1}
    told = {"partitionValues": {}, "modificationTime": 1, "size": 1000, "deletionVector": vector}
    make(world, with_features("deletionVectors"), fields=[field("id"), field("_unit", "string")])
    commit(world, 1, {"add": {"path": "spark.parquet", "dataChange": True, **told}})
    data = parquet(rows("a", 0, [1]))
    world.put("purged.parquet", data)
    gone = {"path": "spark.parquet", "deletionTimestamp": 1, "dataChange": False}
    purged = {**told, "path": "purged.parquet", "size": len(data), "deletionVector": None}
    add = {"add": {**purged, "dataChange": False}}
    commit(world, 2, {"remove": {**gone, "deletionVector": vector}}, add)
    world.tampered = True
    Publisher(world).group([rows("a", 0, [3])], replace=[reading(S, "a", 0)])
    world.run()
    removes = [action["remove"] for action in world.actions(3) if "remove" in action]
    assert [remove["path"] for remove in removes] == ["purged.parquet"]
    assert len(world.delta_paths()) == 1


def _lines(actions: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(action) for action in actions).encode()


@pytest.mark.parametrize("how", ["bytes", "a name like ours"])
def test_a_rewrite_by_an_odd_writer_is_looked_into(world: TableHarness, how: str) -> None:
    source = Publisher(world)
    source.group([rows("a", 0, [1]), rows("b", 0, [2])], replace=[reading(S, "a", 0)])
    world.run()
    table = world.delta()
    old = world.delta_paths()
    values = [unit(S, "a", 0), unit(S, "b", 0)]
    kind = pa.binary() if how == "bytes" else pa.string()
    data = [value.encode() if how == "bytes" else value for value in values]
    made = parquet(pa.table({"id": [1, 2], "_unit": pa.array(data, kind)}))
    name = "r.parquet" if how == "bytes" else "01a20461-b9b3-73b9-8c47-5fadc604b754.parquet"
    world.put(name, made)
    table.create_write_transaction(
        [
            *(RemoveAction(path, True, 1, 100, {}) for path in old),
            AddAction(name, len(made), {}, 1, True, "{}"),
        ],
        mode="append",
        schema=table.schema(),
        partition_by=[],
    )
    world.tampered = True
    source.group([rows("a", 0, [5])], replace=[reading(S, "a", 0)])
    world.run()
    assert ids(world) == [2, 5]


def test_a_unit_that_is_not_text_is_reported(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 0, [1])], replace=[reading(S, "a", 0)])
    world.run()
    table = world.delta()
    made = parquet({"id": [1], "_unit": [7]})
    world.put("r.parquet", made)
    table.create_write_transaction(
        [AddAction("r.parquet", len(made), {}, 1, True, "{}")],
        mode="append",
        schema=table.schema(),
        partition_by=[],
    )
    world.tampered = True
    source.group([rows("a", 0, [5])], replace=[reading(S, "a", 0)])
    penguin = world.penguin()
    world.run(penguin)
    assert "has _unit as int64" in world.mirror()["blocked"][S]


def test_outputs_are_known_where_the_log_was_cleaned_up(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 10)
    mixed(world)  # its group waits for an output
    for number in range(10):  # ids go into a segment
        world.put(f"{number:03d}.parquet", of_files((1000 + number, 1)), output_id=f"p/n/{number}")
        world.run()
    source = Publisher(world, seq=1)
    delta = world.delta()
    delta.create_checkpoint()
    for version in range(delta.version()):
        Path(world.uri, f"_delta_log/{version:020d}.json").unlink()
    world.storage.delete("_penguin/events_checkpoint.json")
    world.tampered = True
    wanted = ["p/s/0/1/0", "p/s/1/1/0", "p/n/5"]
    source.group([of_files((20, 0))], source_files=FILES[:1], outputs=wanted)
    world.run()
    assert [number for number in ids(world) if number < 1000] == [2, 3, 20]


def test_a_concurrent_append_with_the_same_columns_is_not_lost(world: TableHarness) -> None:
    mixed(world)
    penguin = world.penguin()

    def does() -> None:
        more = pa.table(of_files((7, 1), (8, 0)))
        write_deltalake(DeltaTable(world.uri), more, mode="append")

    once_between(penguin, does)
    world.run(penguin)
    assert ids(world) == [2, 3, 7, 10]  # also a row of the replaced file goes
