"""The location of a shared working copy: its owner, and directories that are not created."""

from __future__ import annotations

from pathlib import Path

import pytest

from blizzard_core.errors import EngineError, StateError
from blizzard_py.app.wiring import context_of
from blizzard_py.job import IngestJob
from blizzard_py.state.source_state import KindState, SourceState
from blizzard_py.state.stream_state import Packed, StreamState
from blizzard_py.streaming import shared_directory
from blizzard_py.streaming.jobs import StreamJobs
from blizzard_py.streaming.shared_directory import SharedDirectory, check_not_removed, create_folder
from tests.support.direct_engine import DirectEngine
from tests.support.event_time_harness import EventTimeHarness
from tests.support.event_time_oracle import row


def test_new_query_removes_leftovers_of_its_predecessor(tmp_path: Path) -> None:
    killed = SharedDirectory(tmp_path, "s3://lake/table", "pages_web")
    (killed.path / "query-1").mkdir()
    neighbours = [
        SharedDirectory(tmp_path, "s3://lake/table", "pages_app"),
        SharedDirectory(tmp_path, "s3://lake/other", "pages_web"),
    ]
    here = SharedDirectory(tmp_path, "s3://lake/table", "pages_web")
    assert not killed.path.exists()
    assert here.path.exists()
    assert all(other.path.exists() for other in neighbours)
    here.close()
    assert not here.path.exists()


@pytest.mark.promise("G-065")
def test_a_working_query_notices_the_removal_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one that was replaced, say: before anything of it is gone, so no pack lacks a part."""
    folder = create_folder(
        SharedDirectory(tmp_path, "s3://lake/table", "pages_web").path / "query-1"
    )
    (folder / "state").mkdir()
    check_not_removed(folder)
    seen = []

    def removing(path: Path, **_: object) -> None:
        seen.append(path == folder.parent and (folder / "state").exists())
        with pytest.raises(EngineError, match=r"query-1 was removed while it was in use"):
            check_not_removed(folder)

    monkeypatch.setattr(shared_directory.shutil, "rmtree", removing)
    SharedDirectory(tmp_path, "s3://lake/table", "pages_web")
    assert seen == [True]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"file/query-1: Not a directory"):
        create_folder(tmp_path / "file" / "query-1")


def test_a_volume_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"state_path '.*/mnt' is not a directory here: mount"):
        SharedDirectory(tmp_path / "mnt", "s3://lake/table", "pages_web")
    assert not (tmp_path / "mnt").exists()


def test_a_volume_that_takes_nothing_is_named(tmp_path: Path) -> None:
    own = SharedDirectory(tmp_path, "s3://lake/table", "pages_web").path.parent
    own.rename(tmp_path / "away")
    own.symlink_to("/proc/nowhere")
    with pytest.raises(EngineError, match=r"event_time\.advanced\.state_path"):
        SharedDirectory(tmp_path, "s3://lake/table", "pages_web")


def test_starts_that_fail_leave_no_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "tmp"
    here.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(here))
    world = EventTimeHarness(tmp_path, DirectEngine())
    world.put([row(1)])
    parts = context_of(world.config(), ("pages", "web"), world.engine)
    assert parts.query_fingerprint is not None
    jobs = StreamJobs(parts, parts.event_time.settings)
    packs = {"metadata": Packed("_blizzard/gone.tar", 3, "d")}
    state = SourceState(
        kind=KindState(stream=StreamState(query=parts.query_fingerprint, batch=1, packs=packs))
    )
    job = IngestJob(parts.ingest, "staging", "id", (), 0.0)
    for _ in range(3):
        with pytest.raises(StateError, match=r"gone\.tar"):
            jobs.run(state, job, 1)
    assert len(list(here.glob("*/query-*"))) == 1
    jobs.close()
    assert list(here.iterdir()) == []
