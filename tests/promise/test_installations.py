"""Mixed releases and several installations, as in docs/guides/many-sources.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.table_drill import ALL, CHECKPOINT, Drill

MIRROR = "_penguin/events_checkpoint.json"


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    made = Drill(tmp_path, str(tmp_path / "place"))
    made.arrive(0)
    assert made.start_once() == 0
    return made


@pytest.mark.promise("G-213")
def test_older_blizzard_refuses_checkpoint_of_a_newer_one(
    drill: Drill,
) -> None:
    path = drill.lake / CHECKPOINT
    known = path.read_text()
    newer = json.dumps({**json.loads(known), "of_a_newer_release": 1})
    path.write_text(newer)
    drill.arrive(1)
    assert drill.start_once() == 1
    assert "of_a_newer_release" in drill.told
    assert path.read_text() == newer
    assert drill.ids() == ALL[:3]
    # The newer release comes back.
    path.write_text(known)
    assert drill.start_once() == 0
    assert drill.ids() == ALL[:6]


def test_an_older_penguin_does_not_lean_on_a_newer_ones_mirror(drill: Drill) -> None:
    path = drill.lake / MIRROR
    path.write_text(json.dumps({**json.loads(path.read_text()), "of_a_newer_release": 1}))
    drill.arrive(1)
    assert drill.start_once() == 0
    assert drill.ids() == ALL[:6]


@pytest.mark.parametrize("first", ["blizzard", "penguin"])
def test_either_daemon_may_be_down_while_the_other_is_replaced(drill: Drill, first: str) -> None:
    drill.arrive(1)
    if first == "blizzard":
        drill.ingest()
        drill.arrive(2)
    assert drill.start_once() == 0
    assert drill.ids() == ALL[: 9 if first == "blizzard" else 6]


@pytest.mark.promise("G-213")
def test_pipelines_of_two_daemons_feed_one_table(tmp_path: Path) -> None:
    # Two files, a pipeline each, for two processes; one table, and one Penguin for it.
    place = str(tmp_path / "place")
    folders = [tmp_path / name for name in ("asia", "europe")]
    drills = []
    for number, folder in enumerate(folders):
        folder.mkdir()
        drill = Drill(folder, place)
        pipeline = drill.document["pipelines"].pop("events")
        pipeline["sources"]["main"]["source_uri"] = f"{place}/raw/{folder.name}"
        drill.document["pipelines"][folder.name] = pipeline
        drill.document["tables"] = {"events": {"table_uri": f"{place}/lake/events"}}
        drill.write_config()
        drill.put_rows(f"{folder.name}/date=2024-01-2{number}/1-a.ndjson.gz", number)
        drills.append(drill)
    for _ in range(2):
        for drill in drills:
            assert drill.start_once() == 0
    assert drills[0].ids() == [0, 1]
    states = sorted(path.name for path in (drills[0].lake / "_blizzard").glob("*.json"))
    assert states == ["asia_main_checkpoint.json", "europe_main_checkpoint.json"]


def test_a_source_in_two_files_is_one_daemons_at_a_time(drill: Drill, tmp_path: Path) -> None:
    # Sharding by mistake: the same source in two installations. The last start has it.
    other = tmp_path / "other.yaml"
    other.write_text(drill.config.read_text())
    before = json.loads((drill.lake / CHECKPOINT).read_text())["writer"]["epoch"]
    drill.arrive(1)
    assert drill.start_once() == 0
    drill.config = other
    assert drill.start_once() == 0
    assert drill.ids() == ALL[:6]
    assert json.loads((drill.lake / CHECKPOINT).read_text())["writer"]["epoch"] > before
    assert DeltaTable(drill.lake).version() == 1
