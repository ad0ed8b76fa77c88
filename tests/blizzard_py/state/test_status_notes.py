"""`status` tells of an error after the process that met it has gone."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.errors import (
    NOT_INGESTING,
    Cancelled,
    EngineError,
    FencedError,
    Unavailable,
    Unfinished,
)
from blizzard_core.storage.local import LocalStorage
from blizzard_py.__main__ import main
from blizzard_py.app.inspection import status
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.state.status_notes import ErrorNote, last_error
from tests.support.direct_engine import DirectEngine
from tests.support.event_time_harness import EventTimeHarness
from tests.support.event_time_oracle import row


class Failing(DirectEngine):
    """Fails with each of its errors in turn, then works."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    def ingest(self, job: IngestJob) -> IngestResult:
        if self.errors:
            raise self.errors.pop(0)
        return super().ingest(job)


def world_of(folder: Path, *errors: Exception) -> EventTimeHarness:
    watched = {"column": "ts", "delay": "10 seconds"}
    world = EventTimeHarness(folder, Failing(*errors), watched)
    world.pipeline_settings = {"sink": {"table_uri": str(folder / "table")}}
    return world


def shown(world: EventTimeHarness) -> Any:
    return status(world.config())[0]["pipelines"]["pages"]["sources"]["web"]["last_error"]


@pytest.mark.promise("G-077")
def test_status_tells_the_last_error_until_a_cycle_goes_well(tmp_path: Path) -> None:
    reason = EngineError("no rows came: password=hunter2")
    world = world_of(tmp_path, reason, reason, ValueError("a bug"))
    assert shown(world) is None
    world.put([row(100)])
    running = world.pipeline()
    for times in (1, 2):
        with pytest.raises(EngineError):
            world.drain(running)
        found = shown(world)
        assert (found["kind"], found["times"]) == ("EngineError", times)
        assert found["error"].startswith("no rows came: password=")
        assert "hunter2" not in found["error"]
        assert found["at"] > 1e9
    config = tmp_path / "config.yaml"
    config.write_text(world.config().model_dump_json(exclude_defaults=True, by_alias=True))
    done = CliRunner().invoke(main, ["status", str(config)])
    assert "pages/web: failed at 20" in done.stderr
    assert "UTC (2 in a row): EngineError: no rows came" in done.stderr
    assert "pages/web: Blizzard failed 2 times in a row, " in done.stderr
    assert done.exit_code == NOT_INGESTING
    with pytest.raises(ValueError, match="a bug"):
        world.drain(running)
    assert (shown(world)["kind"], shown(world)["error"]) == ("crash", "a bug")
    world.drain()  # another process
    assert shown(world) is None
    assert "failed at" not in CliRunner().invoke(main, ["status", str(config)]).stderr


@pytest.mark.parametrize("error", [Cancelled("x"), FencedError("x"), Unfinished("x", 1.0)], ids=str)
def test_interruption_is_not_recorded_as_an_error(tmp_path: Path, error: Exception) -> None:
    world = world_of(tmp_path, error)
    world.put([row(100)])
    with pytest.raises(type(error)):
        world.pipeline().cycle(threading.Event())
    assert shown(world) is None


def test_a_store_that_refuses_changes_nothing_of_an_error(tmp_path: Path) -> None:
    class Refusing(LocalStorage):
        def put_atomic(self, path: str, data: bytes) -> None:
            raise Unavailable(f"{path}: {len(data)} bytes refused")

        def delete(self, path: str) -> None:
            raise Unavailable(path)

    note = ErrorNote(Refusing(str(tmp_path)), "pages_web", lambda: 5.0)
    note.write(EngineError("x"))
    note.clear()
    assert last_error(LocalStorage(str(tmp_path)), "pages_web") is None


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"at": NaN, "kind": "x", "error": "y"}'])
def test_a_damaged_note_says_so(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "_blizzard" / "errors"
    folder.mkdir(parents=True)
    (folder / "pages_web.json").write_text(text)
    found = last_error(LocalStorage(str(tmp_path)), "pages_web")
    assert "errors/pages_web.json cannot be read" in found["error"]


def test_a_note_of_a_foreign_hand_is_cleaned(tmp_path: Path) -> None:
    folder = tmp_path / "_blizzard" / "errors"
    folder.mkdir(parents=True)
    note = {"at": 1e300, "kind": "x", "error": "password=hunter2\n" + "y" * 100_000}
    (folder / "pages_web.json").write_text(json.dumps(note))
    found = last_error(LocalStorage(str(tmp_path)), "pages_web")
    assert (found["at"], found["error"][:14], "\n" in found["error"]) == (
        0.0,
        "password=*** y",
        False,
    )
    assert len(found["error"]) < 5_000
