"""The checkpoint format: round trips, the original's files, and refusal of anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.checkpoint.document import progress_to_json
from blizzard_core.errors import StateError
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.name_range import NameRange
from blizzard_core.watermark.progress import (
    PartitionProgress,
    Progress,
    ScanTimes,
    expire_grace,
    gaps,
    is_new,
    mark_done,
)
from blizzard_py.job import FinishedFile, StagedBadRecords
from blizzard_py.sources.files.advance import with_waiting
from blizzard_py.state.batch import Batch, BatchResults, PlannedOutput
from blizzard_py.state.checkpoint_document import INLINE_NAMES, state_from_json, state_to_json
from blizzard_py.state.processed_set import Segment
from blizzard_py.state.source_state import (
    Identity,
    LateFileState,
    PendingWork,
    Position,
    ProcessedNames,
    QueuedFile,
    Retry,
    SourceState,
    Summary,
    Sweep,
    Totals,
)
from tests.support.pipeline_harness import PipelineHarness
from tests.support.stored_progress import progress_from_json
from tests.support.watermarks import nothing_waits, passed

REFERENCE = {
    "schema_version": 1,
    "watermark": {"state": "Active", "value": "date=2024-01-28/1706450400-uuid.ndjson.gz"},
    "partition_watermarks": {
        "date=2024-01-28": "1706450400-uuid.ndjson.gz",
        "date=2024-01-29": "1706536800-uuid.ndjson.gz",
    },
    "last_update_ts": 1706450500,
}


# A batch as a newer release may write it, which knows more of a file.
FLYING = {
    "batch": "b",
    "attempt": 1,
    "phase": "running",
    "started_ts": 1.0,
    "seen_ts": 1.0,
    "files": [{"path": "a", "size": 1, "modified": 1.0, "etag": "x"}],
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
    progress = passed(Progress(depth=0), ["a.json"])
    document = progress_to_json(progress, 0)
    assert document["watermark"] == {"state": "Active", "value": "a.json"}
    assert document["partition_watermarks"] == {}
    assert progress_from_json(document, "x") == progress


def test_checkpoint_without_partitions_uses_the_global_watermark() -> None:
    document = {**REFERENCE, "partition_watermarks": {}}
    progress = progress_from_json(document, "x")
    assert not is_new(progress, "date=2024-01-27/9.gz")
    assert not is_new(progress, "date=2024-01-28/1706450400-uuid.ndjson.gz")
    assert is_new(progress, "date=2024-01-28/1706450401.gz")
    assert is_new(progress, "date=2024-01-29/0.gz")
    assert [gap.after for gap in gaps(progress)][-1] == REFERENCE["watermark"]["value"]  # type: ignore[index]  # a literal above


@pytest.mark.promise("G-117")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 4}, "schema_version 4 is not known here"),
        ({"schema_version": None}, "schema_version: Expected `int`, got `null`"),
        ({"schema_version": True}, "schema_version: Expected `int`, got `bool`"),
        ({"watermark": "x"}, "watermark: Expected `object`, got `str`"),
        ({"watermark": {"state": "Busy", "value": "x"}}, "watermark.state: .* value 'Busy'"),
        ({"watermark": {"state": "Active"}}, "watermark: Active does not go with value None"),
        ({"watermark": {"state": "Initial", "value": "x"}}, "Initial does not go with value 'x'"),
        ({"watermark": {"state": "Initial", "by": 1}}, "watermark: has by, which this release"),
        ({"partition_watermarks": {"a": "b", "c": 1}}, r"partition_watermarks\['c'\]: Expected"),
        ({"partition_watermarks": []}, "partition_watermarks: Expected `object`, got `array`"),
        ({"recent": {"a": {"done": {"x": "y"}}}}, r"recent\['a'\]\.done\['x'\]: Expected `float`"),
        ({"recent": {"a": {}}}, r"recent\['a'\]: Object missing required field `done`"),
        ({"partition_depth": "1"}, "partition_depth: Expected `int . null`, got `str`"),
        ({"last_update_ts": None}, "last_update_ts: Expected `int`, got `null`"),
        ({"in_flight": [{"phase": "x"}]}, r"in_flight\[0\]\.phase: Invalid enum value 'x'"),
        ({"in_flight": [{"phase": "running"}]}, r"in_flight\[0\]: Object missing .* `batch`"),
        ({"in_flight": {}}, "in_flight: Expected `array`, got `object`"),
        ({"totals": {"surprise": 1}}, "totals: has surprise, which this release does not know"),
        ({"retries": {"a": {"count": 1}, "b": "c"}}, r"retries\['b'\]: Expected .*, got `str`"),
        ({"retries": {"a": {"count": 1, "by": 2}}}, r"retries\['a'\]: has by, which"),
        ({"in_flight": [FLYING]}, r"in_flight\[0\]\.files\[0\]: has etag, which this release"),
        ({"queue": [{"path": 7, "size": 1, "modified": 1.0}]}, r"queue\[0\]\.path: Expected `str`"),
        ({"ahead": ["a", 7]}, r"ahead\[1\]: Expected `str`, got `int`"),
        ({"window": [["b", 1.0], [7, 1.0]]}, r"window\[1\]\[0\]: Expected `str`, got `int`"),
        ({"lateness": [[1, "2"]]}, r"lateness\[0\]\[1\]: Expected `float`, got `str`"),
        ({"ledger": [{"segment": "../x", "count": 1}]}, r"ledger\[0\]\.segment: Expected"),
        ({"group_seq": -1}, "group_seq: Expected `int` >= 0"),
        ({"writer": {"id": "x", "epoch": "1"}}, r"writer\.epoch: Expected `int`, got `str`"),
    ],
)
def test_invalid_checkpoint_error_names_place_and_remedy(
    change: dict[str, Any], message: str
) -> None:
    remedy = "(restore it|run that one|run the release)"
    with pytest.raises(
        StateError, match=f"^s3://b/state.json: (watermark: )?{message}.*; .*{remedy}"
    ):
        state_from_json({**REFERENCE, **change}, "s3://b/state.json")


def test_invalid_checkpoint_error_names_one_entry_among_many() -> None:
    done: dict[str, Any] = {f"{n:05}": 1.0 for n in range(2000)} | {"ä'b": None}
    recent = {f"d={n}": {"done": done if n == 7 else {}} for n in range(9)}
    with pytest.raises(StateError, match=r"""^x: recent\['d=7'\]\.done\["ä'b"\]: .*, got `null`"""):
        state_from_json({**REFERENCE, "recent": recent}, "x")


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
    paths = [(f"{p}/{name}", old) for p, found in partitions.items() for name, old in found]
    held = {path for path, _ in paths[pending:][:1]}
    waits = with_waiting(held, 1, nothing_waits)
    progress = Progress(depth=1, floor=floor)
    for seen in (0.0, 1e6):
        done = [path for path, old in paths if old == (seen == 0.0) and path not in held]
        progress = mark_done(progress, done, seen, waits)
    progress = expire_grace(progress, ScanTimes(1e6, 1e6), 300, waits)
    text = json.dumps(progress_to_json(progress, 1e6))
    assert progress_from_json(json.loads(text), "x") == progress


def test_a_batch_in_flight_survives_the_round_trip() -> None:
    batch = Batch("b", 2, "running", 1.5, (Entry("d=1/f", 3, 4.5),), 1.25)
    ready = Batch(
        "c",
        1,
        "publishing",
        2.0,
        (Entry("d=1/g", 3, 4.0),),
        1.75,
        results=BatchResults(
            outputs=(PlannedOutput("_blizzard/staging/x", "d=1/y.parquet", 1, 2, "id"),),
            finished=(FinishedFile("d=1/g", "quarantined", error="line 1: ü", stage="parse"),),
            letters=(StagedBadRecords("_blizzard/staging/l", (("d=1/g", 2),)),),
            committed_ts=2.5,
        ),
    )
    state = SourceState(
        position=Position(Progress()),
        work=PendingWork(in_flight=(batch, ready), retries={"d=1/f": Retry(2, 60.5)}),
        summary=Summary(totals=Totals(1, 2, 3, 4, 5, 6), last_update_ts=7),
    )
    text = json.dumps(state_to_json(state, 7.0))
    assert state_from_json(json.loads(text), "x") == state


def test_everything_of_a_state_survives_the_round_trip() -> None:
    state = SourceState(
        source=Identity("events", "main", "s3://raw", range=NameRange("d=0", "d=9")),
        position=Position(
            passed(Progress(), ["d=1/a"]),
            window=(("b", 1.5),),
            origin="d=0",
            ahead=("d=9/x.ndjson",),
            reached="d=/x.ndjson",
        ),
        work=PendingWork(
            queue=(QueuedFile("d=0/late", 3, 4.5), QueuedFile("d=0/asked", 3, 4.5, "0000000a.1"))
        ),
        names=ProcessedNames(
            ledger=(Segment("00000001~x", 3),), processed=(Segment("00000002~y", 4, 17.0),)
        ),
        late_files=LateFileState(
            sweep=Sweep(12.5, "d=1/a", whole=True, noted=True), lateness=((20_000, 12.5),)
        ),
        summary=Summary(last_update_ts=7),
    )
    text = json.dumps(state_to_json(state, 7.0))
    assert state_from_json(json.loads(text), "x") == state


def test_keys_of_another_release_are_refused_and_not_dropped() -> None:
    document = {**REFERENCE, "surprise": 1, "another": None}
    with pytest.raises(
        StateError, match=r"^x: has another, surprise, .* run the release that wrote it"
    ):
        state_from_json(document, "x")


def test_older_checkpoint_with_readings_is_refused() -> None:
    reading = {"key": "2020-02-01T00:00:00.000Z/a", "slices": [], "to": "", "at": "", "part_to": ""}
    with pytest.raises(StateError, match=r"^x: has readings, .* run the release that wrote it"):
        state_from_json({**REFERENCE, "readings": [reading]}, "x")


# -- many names in grace -----------------------------------------------------------


def spilling(count: int) -> PipelineHarness:
    """Return a source with ``count`` names within the grace period."""
    world = PipelineHarness(checkpoint=CheckpointSettings(interval_files=10_000))
    world.source.page_keys = world.sink.page_keys = 10_000
    for number in range(count):
        world.put(f"d=1/{number:05}.ndjson", str(number))
    world.drain()
    return world


def test_few_names_in_grace_stand_in_the_checkpoint() -> None:
    world = spilling(INLINE_NAMES)
    document = world.checkpoint()
    assert document["schema_version"] == 1
    assert len(document["recent"]["d=1"]["done"]) == INLINE_NAMES
    assert len(document["window"]) == 1


def test_many_names_in_grace_are_left_to_the_journal() -> None:
    world = spilling(INLINE_NAMES + 1)
    document = world.checkpoint()
    assert document["schema_version"] == 2
    assert document["recent"]["d=1"]["done"] == {}
    [[batch, seen]] = document["window"]
    assert f"_blizzard/journal/events_main/{batch}.json" in world.sink.objects
    done = world.pipeline().load().position.progress.partitions["d=1"].done
    assert len(done) == INLINE_NAMES + 1
    assert set(done.values()) == {seen}
    # A restart knows them all, and finds what appears between them.
    world.put("d=1/00000a.ndjson", "between")
    world.drain()
    assert len(world.rows()) == INLINE_NAMES + 2
    assert len(world.engine.jobs) == 2
    # After the grace period they are forgotten, and so is the window.
    world.now += 302
    world.put("d=1/z.ndjson", "z")
    world.drain()
    document = world.checkpoint()
    assert document["schema_version"] == 1
    assert [len(block["done"]) for block in document["recent"].values()] == [1]
    assert len(document["window"]) == 1


def test_missing_journal_batch_is_an_error_not_a_fresh_start() -> None:
    world = spilling(INLINE_NAMES + 1)
    [[batch, _]] = world.checkpoint()["window"]
    world.sink.delete(f"_blizzard/journal/events_main/{batch}.json")
    before = world.checkpoint()
    for look in (world.drain, lambda: world.pipeline().load()):
        with pytest.raises(StateError, match=rf"batch {batch} of the journal is missing"):
            look()
    assert world.checkpoint() | {"writer": None} == before | {"writer": None}
    assert len(world.engine.jobs) == 1


def test_save_overwrites_and_leaves_no_temporary_file(tmp_path: Path) -> None:
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
