"""The checkpoint format: round trips, the original's files, and refusal of anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.core import checkpoint
from blizzard_py.core.checkpoint import progress_from_json, progress_to_json
from blizzard_py.core.errors import StateError
from blizzard_py.core.model import Entry, FinishedFile
from blizzard_py.core.store_local import LocalStorage
from blizzard_py.core.watermark import PartitionProgress, Progress, advance, gaps, is_new
from blizzard_py.state import (
    Batch,
    PlannedOutput,
    SourceState,
    Totals,
    state_from_json,
    state_to_json,
)

REFERENCE = {
    "schema_version": 1,
    "watermark": {"state": "Active", "value": "date=2024-01-28/1706450400-uuid.ndjson.gz"},
    "partition_watermarks": {
        "date=2024-01-28": "1706450400-uuid.ndjson.gz",
        "date=2024-01-29": "1706536800-uuid.ndjson.gz",
    },
    "last_update_ts": 1706450500,
}


def test_the_documented_example_loads() -> None:
    progress = progress_from_json(REFERENCE, "x")
    assert progress.state == "Active"
    assert progress.depth == 1
    assert progress.partitions["date=2024-01-29"].before == "1706536800-uuid.ndjson.gz"


def test_a_cold_start_is_initial_without_a_value() -> None:
    document = progress_to_json(Progress(), 5.9)
    assert document == {
        "schema_version": 1,
        "watermark": {"state": "Initial"},
        "partition_watermarks": {},
        "last_update_ts": 5,
    }
    assert progress_from_json(document, "x") == Progress()
    document["watermark"]["value"] = None  # how other serialisers write it
    assert progress_from_json(document, "x") == Progress()


def test_a_flat_source_has_only_the_global_watermark() -> None:
    progress = advance(Progress(depth=0), [Entry("a.json", 1, 0)], (), 1e6, 0)
    document = progress_to_json(progress, 0)
    assert document["watermark"] == {"state": "Active", "value": "a.json"}
    assert document["partition_watermarks"] == {}
    assert progress_from_json(document, "x") == progress


def test_an_older_checkpoint_without_partitions_filters_by_the_global_watermark_alone() -> None:
    document = {**REFERENCE, "partition_watermarks": {}}
    progress = progress_from_json(document, "x")
    assert not is_new(progress, "date=2024-01-27/9.gz")
    assert not is_new(progress, "date=2024-01-28/1706450400-uuid.ndjson.gz")
    assert is_new(progress, "date=2024-01-28/1706450401.gz")
    assert is_new(progress, "date=2024-01-29/0.gz")
    assert [gap.after for gap in gaps(progress)][-1] == REFERENCE["watermark"]["value"]  # type: ignore[index]  # a literal above


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema_version 2 is not known here"),
        ({"schema_version": None}, "schema_version is missing"),
        ({"schema_version": True}, "schema_version is not of type int"),
        ({"watermark": "x"}, "watermark is not of type dict"),
        ({"watermark": {"state": "Busy", "value": "x"}}, "'Busy' is not Initial, Active or Idle"),
        ({"watermark": {"state": "Active"}}, "Active does not go with value None"),
        ({"watermark": {"state": "Initial", "value": "x"}}, "Initial does not go with value 'x'"),
        ({"partition_watermarks": {"a": 1}}, "is not a string"),
        ({"partition_watermarks": []}, "partition_watermarks is not of type dict"),
        ({"recent": {"a": {"done": {"x": "y"}}}}, "holds something that is not a time"),
        ({"recent": {"a": {}}}, "done is missing"),
        ({"partition_depth": "1"}, "partition_depth is not of type int"),
        ({"last_update_ts": None}, "last_update_ts is missing"),
        ({"in_flight": [{"phase": "x"}]}, "phase 'x' is not running or publishing"),
        ({"in_flight": [{"phase": "running"}]}, r"in_flight\[0\]: batch is missing"),
        ({"in_flight": {}}, "in_flight is not of type list"),
        ({"totals": {"surprise": 1}}, "totals has keys that are not known"),
        ({"retries": {"a": "b"}}, "retries holds something that is not a count"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(StateError, match=f"^s3://b/state.json: .*{message}|{message}"):
        state_from_json({**REFERENCE, **change}, "s3://b/state.json")


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1)


@given(
    partitions=st.dictionaries(
        names, st.lists(st.tuples(names, st.booleans()), min_size=1, max_size=5), max_size=4
    ),
    pending=st.integers(0, 9),
    floor=st.none() | names,
)
def test_any_progress_survives_the_round_trip(
    partitions: dict[str, list[tuple[str, bool]]], pending: int, floor: str | None
) -> None:
    done = [
        Entry(f"{p}/{name}", 1, 0 if old else 1e6)
        for p, found in partitions.items()
        for name, old in found
    ]
    held = [entry.path for entry in done[pending:][:1]]
    progress = advance(
        Progress(depth=1, floor=floor), [e for e in done if e.path not in held], held, 1e6, 300
    )
    text = json.dumps(progress_to_json(progress, 1e6))
    assert progress_from_json(json.loads(text), "x") == progress


def test_a_batch_in_flight_survives_the_round_trip() -> None:
    batch = Batch("b", 2, "running", 1.5, (Entry("d=1/f", 3, 4.5),))
    ready = Batch(
        "c",
        1,
        "publishing",
        2.0,
        (Entry("d=1/g", 3, 4.0),),
        (PlannedOutput("_blizzard/staging/x", "d=1/y.parquet", 1, 2, "id"),),
        (FinishedFile("d=1/g", "quarantined", error="line 1: ü", stage="parse"),),
    )
    state = SourceState(Progress(), (batch, ready), {"d=1/f": 2}, Totals(1, 2, 3, 4, 5, 6), 7)
    text = json.dumps(state_to_json(state, 7.0))
    assert state_from_json(json.loads(text), "x") == state


def test_saving_is_whole_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    checkpoint.save(storage, "_blizzard/x.json", {"a": "ü"})
    checkpoint.save(storage, "_blizzard/x.json", {"a": 2})
    assert [p.name for p in (tmp_path / "_blizzard").iterdir()] == ["x.json"]
    assert checkpoint.load(storage, "_blizzard/x.json", lambda doc, _where: doc) == {"a": 2}
    assert checkpoint.load(storage, "_blizzard/y.json", lambda doc, _where: doc) is None


def test_temporary_files_of_killed_processes_are_swept(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    checkpoint.save(storage, "_blizzard/x.json", {})
    (tmp_path / "_blizzard" / "x.json.1234.tmp").write_bytes(b"half")
    checkpoint.sweep_temporaries(storage, "_blizzard/x.json")
    assert [p.name for p in (tmp_path / "_blizzard").iterdir()] == ["x.json"]


def test_an_empty_partition_progress_is_the_default() -> None:
    assert PartitionProgress() == PartitionProgress(None, None, {})
