"""The validator of logs finds what it is there for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from blizzard_core.storage.opening import open_storage
from tests.support.delta_protocol import problems

pytestmark = pytest.mark.unreadable_tables("logs are broken on purpose")

Actions = list[dict[str, Any]]


def body(actions: Actions, kind: str) -> dict[str, Any]:
    return next(action[kind] for action in actions if kind in action)


def statistics(actions: Actions, **changed: Any) -> None:
    add = body(actions, "add")
    add["stats"] = json.dumps({**json.loads(add["stats"]), **changed})


BREAKS: dict[str, tuple[Callable[[Actions], Any], str]] = {
    "two files of one path": (lambda a: a.append(a[-1]), "names one file twice"),
    "a path with a space": (lambda a: body(a, "add").update(path="a b"), "is not a URI"),
    "a negative size": (lambda a: body(a, "add").update(size=-1), "size is -1"),
    "a partition value of another type": (
        lambda a: body(a, "add").update(partitionValues={"p": "x"}),
        "p='x' is not a long",
    ),
    "no partition values": (lambda a: body(a, "add").update(partitionValues={}), "for ['p']"),
    "an unknown action": (lambda a: a.append({"adds": {}}), "unknown action adds"),
    "two protocols": (lambda a: a.append({"protocol": body(a, "protocol")}), "more than one"),
    "features without their version": (
        lambda a: body(a, "protocol").update(writerFeatures=["x"]),
        "writerFeatures go with",
    ),
    "no id": (lambda a: body(a, "metaData").update(id=""), "without id"),
    "a count that is none": (lambda a: statistics(a, numRecords=-1), "numRecords is -1"),
    "a bound of another type": (lambda a: statistics(a, minValues={"x": "1"}), "is not a long"),
    "bounds in the wrong order": (lambda a: statistics(a, maxValues={"x": -5}), "wrong order"),
    "more nulls than rows": (lambda a: statistics(a, nullCount={"x": 9}), "is 9 of 1"),
    "bounds of no column": (lambda a: statistics(a, minValues={"y": 1}), "is not a None"),
    "a transaction without a version": (
        lambda a: a.append({"txn": {"appId": "x"}}),
        "lacks a part",
    ),
    "a column of no type": (
        lambda a: body(a, "metaData").update(
            schemaString=body(a, "metaData")["schemaString"].replace("long", "int64")
        ),
        "is of type 'int64'",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_protocol_check_reports_each_broken_rule(tmp_path: Path, name: str) -> None:
    write_deltalake(tmp_path, pa.table({"x": [1], "p": [1]}), partition_by=["p"])
    path = tmp_path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    storage = open_storage(str(tmp_path), {})
    assert problems(storage) == []
    change, told = BREAKS[name]
    change(actions)
    path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    assert told in " ".join(problems(storage))


def test_holes_checkpoints_and_transactions_are_compared(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(tmp_path, pa.table({"x": [number]}), mode="append")
    storage = open_storage(str(tmp_path), {})
    log = tmp_path / "_delta_log"
    for version, number in ((1, 5), (2, 4)):
        with (log / f"{version:020d}.json").open("a") as entry:
            entry.write("\n" + json.dumps({"txn": {"appId": "x", "version": number}}) + "\n")
    assert any("goes back from 5 to 4" in told for told in problems(storage))
    (log / f"{1:020d}.json").unlink()
    assert any("hole" in told for told in problems(storage))
