"""Commands for event time read the checkpoint alone, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from click.testing import CliRunner

from blizzard_core.errors import EngineError, StateError
from blizzard_core.storage.local import LocalStorage
from blizzard_py.__main__ import main
from blizzard_py.app.workers import build
from blizzard_py.sources.stale import World, require_current
from blizzard_py.state.checkpoint_document import state_to_json
from blizzard_py.state.event_times import EventTimes
from blizzard_py.state.source_state import (
    IssuedIds,
    KindState,
    SourceState,
    Summary,
    Totals,
    checkpoint_path,
)
from blizzard_py.state.stream_state import (
    OperatorState,
    Packed,
    QueryBatch,
    StreamState,
    add_query_batch,
)
from blizzard_py.streaming.state_reader import Side, sides_of
from tests.support.event_time_harness import EventTimeHarness

SOURCE = ("--pipeline", "pages", "--source", "web")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    world = EventTimeHarness(tmp_path, None)  # type: ignore[arg-type]  # nothing is ingested
    world.put([])
    document = world.config().model_dump(
        mode="json", by_alias=True, include={"pipelines", "spark"}, exclude_defaults=True
    )
    document["spark"] = {"master": "local[2]"}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, [*map(str, arguments)])


def shown(config: Path, command: str = "status") -> dict[str, Any]:
    done = run(command, str(config), "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["pipelines"]["pages"]


def test_before_the_first_batch_nothing_is_known(config: Path) -> None:
    told = shown(config)["event_time"]
    assert told["columns"] == ["ts"]
    assert (told["policy"], told["mode"], told["batch"]) == ("min", "append", 0)
    assert (told["watermark"], told["watermark_ms"], told["max_event_time_ms"]) == (None, 0, None)
    assert told["history"] == []


TIMES = EventTimes(
    5,
    1_706_446_800_000,
    1_706_451_000_000,
    1_706_450_400_500.0,
    (4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0),
)


def test_status_and_plan_tell_where_the_query_is(config: Path, tmp_path: Path) -> None:
    batch = QueryBatch(
        batch=1,
        files=1,
        rows=5,
        used_watermark_ms=0,
        watermark_ms=1_706_450_400_000,
        late_rows=2,
        state_rows=3,
        micro_batches=2,
        times=TIMES,
        operators=(OperatorState("stateStoreSave", 3, 99, 5, 2, 0),),
    )
    stream = add_query_batch(
        StreamState(query={"policy": "max"}),
        batch,
        {},
        judged_ms=1_706_450_400_000,
        max_event_time_ms=1_706_451_000_000,
    )
    state = SourceState(kind=KindState(stream=stream), summary=Summary(totals=Totals(batches=1)))
    storage = LocalStorage(str(tmp_path / "table"))
    document = json.dumps(state_to_json(state, 5.0))
    storage.put_atomic(checkpoint_path("pages_web"), document.encode())
    told = shown(config)["event_time"]
    assert told["watermark"] == "2024-01-28T14:00:00Z"
    assert told["policy"] == "max"  # the checkpoint's, which is in force
    assert (told["late_rows"], told["state_rows"], told["state_bytes"]) == (2, 3, 99)
    text = run("status", str(config)).stdout
    assert f"event time: watermark {told['watermark']}, newest row 2024-01-28T14:10:00Z" in text
    assert "3 rows of state, 2 late rows" in text
    assert (
        "  last batch: 5 rows from 2024-01-28T13:00:00Z to 2024-01-28T14:10:00Z, average"
        " 2024-01-28T14:00:00.500Z\n"
        "  99.0% of rows: at most 1:00:00 behind the newest of earlier batches\n"
        "  99.9% of rows: at most 1:00:00 behind the newest of earlier batches\n"
        "  stateStoreSave: 3 rows and 99 bytes of state; last batch: 5 updated, 2 removed,"
        " 0 dropped as late\n"
    ) in text
    operator = {
        "name": "stateStoreSave",
        "state_rows": 3,
        "state_bytes": 99,
        "updated_rows": 5,
        "removed_rows": 2,
        "dropped_rows": 0,
    }
    assert told["operators"] == [operator]
    assert [each for each in told["behind"] if each["rows"]] == [
        {"up_to_secs": 0, "rows": 4},
        {"up_to_secs": 3600, "rows": 1},
    ]
    web = {"max_event_time_ms": 1_706_451_000_000, "idle": False, "late_rows": 2}
    assert told["sources"] == {"web": {**web, "partly_late_rows": 0, "ahead_rows": 0}}
    [line] = told["history"]
    assert line == {
        "batch": 1,
        "files": 1,
        "rows": 5,
        "used_watermark_ms": 0,
        "watermark_ms": 1_706_450_400_000,
        "late_rows": 2,
        "partly_late_rows": 0,
        "ahead_rows": 0,
        "dropped_by_spark": 0,
        "state_rows": 3,
        "emitted_rows": 0,
        "micro_batches": 2,
        "max_event_time_ms": 1_706_451_000_000,
        "times": {
            "count": 5,
            "min_ms": 1_706_446_800_000,
            "max_ms": 1_706_451_000_000,
            "avg_ms": 1_706_450_400_500.0,
            "behind": [4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        },
        "operators": [operator],
    }


def put_state(tmp_path: Path, watermark_ms: int, rows: int = 0) -> Path:
    """A checkpoint whose query has settled a batch and remembers so many rows."""
    batch = QueryBatch(
        batch=1,
        files=1,
        rows=1,
        used_watermark_ms=0,
        watermark_ms=watermark_ms,
        state_rows=rows,
        operators=(OperatorState("stateStoreSave", rows),) if rows else (),
    )
    stream = add_query_batch(
        StreamState(query={}),
        batch,
        {"offsets/0": Packed("pack", 3, "d")} if rows else {},
        judged_ms=watermark_ms,
        max_event_time_ms=watermark_ms + 10_000,
    )
    storage = LocalStorage(str(tmp_path / "table"))
    document = json.dumps(
        state_to_json(
            SourceState(kind=KindState(stream=stream), summary=Summary(totals=Totals(batches=1))),
            5.0,
        )
    )
    storage.put_atomic(checkpoint_path("pages_web"), document.encode())
    return tmp_path / "table" / checkpoint_path("pages_web")


def test_the_watermark_is_advanced_by_the_next_batch(config: Path, tmp_path: Path) -> None:
    path = put_state(tmp_path, 1_706_450_400_000)
    before = path.read_bytes()
    asked = ("watermark", "advance", str(config), *SOURCE, "--to", "2024-01-29T00:00:00+01:00")
    done = run(*asked, "--dry-run")
    assert done.exit_code == 0, done.output
    told = "pages/web: watermark 2024-01-28T14:00:00Z -> 2024-01-28T23:00:00Z"
    assert done.stdout == f"{told}\n"
    assert path.read_bytes() == before
    assert run(*asked).exit_code == 2  # nobody can be asked
    assert path.read_bytes() == before
    done = run(*asked, "--yes")
    assert done.exit_code == 0, done.output
    first, asked_for, then = done.stdout.splitlines()
    assert (first, then) == (told, "The next batch does it.")
    assert asked_for.startswith("request ")
    shown_ = shown(config)["event_time"]
    assert (shown_["watermark"], shown_["advance_to"]) == (
        "2024-01-28T14:00:00Z",
        "2024-01-28T23:00:00Z",
    )
    # The daemon that ran is fenced, and what was before can be looked at and brought back.
    assert json.loads(path.read_text())["writer"]["epoch"] == 1
    log = run("checkpoint", "log", str(config), *SOURCE).stdout
    assert "watermark over event time: 2024-01-28T14:00:00Z -> 2024-01-28T23:00:00Z" in log


@pytest.mark.parametrize(
    ("change", "to", "code", "said"),
    [
        ({}, "2024-01-28T14:00:00", 1, "at 2024-01-28T14:00:00Z already, and never falls"),
        ({}, "1960-01-01", 1, "never falls"),
        ({}, "2999-01-01", 1, "which is max_ahead after now"),
        ({}, "tomorrow", 2, "is no time such as"),
        ({"mode": "complete"}, "2024-01-29", 1, "this pipeline's results never close"),
    ],
)
def test_impossible_watermark_advance_is_refused_with_a_reason(
    config: Path, tmp_path: Path, change: dict[str, Any], to: str, code: int, said: str
) -> None:
    document = yaml.safe_load(config.read_text())
    document["pipelines"]["pages"]["event_time"] |= change
    config.write_text(yaml.safe_dump(document))
    path = put_state(tmp_path, 1_706_450_400_000)
    before = path.read_bytes()
    done = run("watermark", "advance", config, *SOURCE, "--to", to, "--yes")
    assert done.exit_code == code, done.output
    assert said in done.stderr
    assert path.read_bytes() == before


def test_before_the_first_batch_there_is_no_watermark_to_advance(config: Path) -> None:
    done = run("watermark", "advance", config, *SOURCE, "--to", "2024-01-29", "--yes")
    assert done.exit_code == 1
    assert "run the source once first" in done.stderr


@pytest.mark.parametrize("known", [False, True])
def test_where_nothing_is_remembered_there_is_nothing_to_forget(
    config: Path, tmp_path: Path, known: bool
) -> None:
    if known:
        put_state(tmp_path, 1_706_450_400_000)
    done = run("checkpoint", "reset", config, *SOURCE, "--event-time", "--yes")
    assert done.exit_code == 1
    assert "there is nothing to forget" in done.stderr
    assert run("checkpoint", "reset", config, *SOURCE, "--event-time", "--units").exit_code == 2


def test_state_is_read_with_the_query_that_wrote_it(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration may have another one by now, for which this one is to be forgotten."""
    path = put_state(tmp_path, 1_706_450_400_000, rows=2)
    document = json.loads(path.read_text())
    join = {"left": "web", "right": "app", "on": ["id"], "lower_us": -3000, "upper_us": 5000}
    document["stream"]["query"] = {"join": join, "sources": {"web": "ts", "app": "seen"}}
    path.write_text(json.dumps(document))
    asked = []

    def remembered(*given: Any) -> tuple[()]:
        asked.append(sides_of(given[3]))
        return ()

    monkeypatch.setattr("blizzard_py.app.event_state.local_engine", lambda *_: Mock())
    monkeypatch.setattr("blizzard_py.streaming.state_archive.StateArchive.restore", lambda *_: None)
    monkeypatch.setattr("blizzard_py.streaming.state_reader.read_operator_rows", remembered)
    done = run("checkpoint", "reset", config, *SOURCE, "--event-time", "--dry-run")
    assert done.exit_code == 0, done.output
    left, right = (Side("left", "web", "ts", ("id",), 6), Side("right", "app", "seen", ("id",), 4))
    assert asked == [(left, right)]


def test_reset_discards_query_state_that_spark_cannot_read(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise EngineError("the state of the query cannot be read: a checksum")

    monkeypatch.setattr("blizzard_py.app.event_state.event_state", damaged)
    path = put_state(tmp_path, 1_706_450_400_000, rows=2)
    done = run("checkpoint", "reset", config, *SOURCE, "--event-time", "--yes")
    assert done.exit_code == 0, done.output
    assert "They cannot be shown: the state of the query cannot be read" in done.stderr
    assert "stateStoreSave: 2 rows of state" in done.stdout
    assert json.loads(path.read_text())["stream"]["packs"] == {}


def test_an_older_checkpoint_is_refused_with_a_valid_remedy(tmp_path: Path) -> None:
    """No rebuild makes what a query remembers."""
    world = EventTimeHarness(tmp_path, None)  # type: ignore[arg-type]  # nothing is ingested
    parts = build(world.config(), None)[0].parts  # type: ignore[arg-type]  # as above
    later = tmp_path / "table" / "_blizzard" / "journal" / "pages_web"
    later.mkdir(parents=True)
    (later / "01a2099c-4a5f-7008-bf86-4609600453b7.json").write_text("{}")
    state = SourceState(ids=IssuedIds(last_batch="01a2099c-11af-7131-a11b-c78d875f9b40"))
    with pytest.raises(StateError, match=r"is stale: the journal goes on.* a new pipeline"):
        require_current(state, parts, World())


def test_a_pipeline_without_event_time_has_no_query_to_change(config: Path) -> None:
    document = yaml.safe_load(config.read_text())
    del document["pipelines"]["pages"]["event_time"]
    document["pipelines"]["pages"]["sink"].pop("metadata_columns")
    config.write_text(yaml.safe_dump(document))
    for asked in (
        ("checkpoint", "reset", config, *SOURCE, "--event-time", "--yes"),
        ("watermark", "advance", config, *SOURCE, "--to", "2024-01-29", "--yes"),
    ):
        done = run(*asked)
        assert done.exit_code == 2, done.output
        assert "pipelines.pages" in done.stderr
        assert "has no query over event_time" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("backfill", *SOURCE, "--from", "0001", "--to", "0002"),
        ("replay", *SOURCE, "--all"),
        ("ingest", "{raw}/0001.ndjson"),
        ("checkpoint", "set", *SOURCE, "--watermark", "0001.ndjson", "--yes"),
        ("checkpoint", "reset", *SOURCE, "--yes"),
        ("rename", *SOURCE, "--from", "old"),
    ],
    ids=lambda given: " ".join(given[:2]),
)
def test_commands_that_bypass_the_query_are_refused(
    config: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    words = [one.format(raw=tmp_path / "raw") for one in arguments]
    command, rest = words[: 1 + (words[0] in {"dlq", "checkpoint"})], words[1:]
    if len(command) == 2:
        rest = words[2:]
    done = run(*command, str(config), *rest)
    assert done.exit_code == 2, done.output
    assert "pipelines.pages.event_time" in done.stderr
    assert not (tmp_path / "table").exists()
