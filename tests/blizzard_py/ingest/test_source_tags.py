"""Tags on source files, and nothing else, through the real batch protocol."""

from __future__ import annotations

import pytest

from blizzard_core.errors import ConfigError
from blizzard_core.storage.opening import open_source
from blizzard_core.storage.s3 import S3Storage
from blizzard_py.app.cleaning import preview, restore
from blizzard_py.ingest.source_cleaning import PAUSE_SECS
from tests.support.cleaning_harness import DAY_SECS, FIRST, SECOND, CleaningHarness
from tests.support.memory_store import Died, Dying
from tests.support.request_harness import explained
from tests.support.s3_server import S3Server


def tagging() -> CleaningHarness:
    """Return a source with two files whose rows were seen in the table at the same time."""
    found = CleaningHarness(mode="tag", archive_uri=None)
    found.put(FIRST, "row")
    found.ingest(SECOND)
    found.see()
    return found


@pytest.fixture
def world() -> CleaningHarness:
    return tagging()


def test_file_is_tagged_once_and_stays(world: CleaningHarness) -> None:
    asked: list[str] = []
    world.source.before_mutation = lambda operation, path: asked.append(f"{operation} {path}")
    world.wait(6 * DAY_SECS)
    assert (asked, len(preview(world.parts()))) == ([], 0)
    world.wait(20 * DAY_SECS)
    assert asked == [f"tag_if {FIRST}", f"tag_if {SECOND}"]
    assert world.source.tags[FIRST][1] == "blizzard=ingested"
    assert (world.left(), world.cleaning.cleaned) == ([FIRST, SECOND], 2)
    assert (world.rows(), world.letters()) == (["row", "row"], [])
    shown = world.drain().activity.to_json()
    assert shown["cleaning"] == ["cleaning: 2 files cleaned so far"]
    with pytest.raises(ConfigError, match="has no archive"):
        list(restore(world.parts(), "", ""))


def test_explain_tells_of_the_tag(world: CleaningHarness) -> None:
    assert "tagged" not in explained(world, FIRST).reason
    world.wait(8 * DAY_SECS)
    assert "its file was tagged at 20" in explained(world, FIRST).reason
    del world.source.objects[FIRST]  # as a rule of the bucket does
    found = explained(world, FIRST)
    assert (found.verdict, "its file was tagged at 20" in found.reason) == ("ingested", True)
    world.wait(2 * DAY_SECS)
    assert world.letters() == []


def test_changed_file_gets_no_tag(world: CleaningHarness) -> None:
    world.put(FIRST, "another")
    world.wait(8 * DAY_SECS)
    assert world.source.tagged() == [SECOND]


@pytest.mark.promise("G-226")
def test_death_at_any_change_tags_the_same_files() -> None:
    ended: list[bool] = []
    for at in range(40):
        world = tagging()
        world.wait_idle(8 * DAY_SECS)
        begun = world.cleaning.done
        if not Dying(world.source, world.sink).dies(at, world.drain):
            break
        ended.append(world.cleaning.done != begun)
        world.source.objects[SECOND] = (b"another", world.now)
        world.source.tags[SECOND] = (world.source.objects[SECOND], "blizzard=ingested")
        world.wait(2 * PAUSE_SECS)
        assert world.cleaning.cleaned == (2 if ended[-1] else 1), at
        assert world.source.tagged() == ([FIRST, SECOND] if ended[-1] else [FIRST]), at
    assert {*ended} == {False, True}


@pytest.mark.parametrize("changed", [{"mode": "delete"}, {"after": "90d"}, {"dry_run": True}, None])
def test_cut_off_list_obeys_the_settings_of_now(
    world: CleaningHarness, changed: dict[str, object] | None
) -> None:
    world.wait_idle(8 * DAY_SECS)

    def dies(operation: str, _path: str) -> None:
        if operation == "tag_if":
            raise Died

    world.source.after_mutation = dies
    with pytest.raises(Died):
        world.drain()
    assert world.source.tagged() == [FIRST]
    world.source.after_mutation = lambda _operation, _path: None
    if changed is None:
        del world.settings["clean"]
    else:
        world.settings["clean"] = world.settings["clean"] | changed
    world.drain()
    assert world.source.tagged() == []


def test_files_of_a_bucket_are_tagged(s3: S3Server) -> None:
    world = CleaningHarness(mode="tag", archive_uri=None)
    raw = open_source(f"s3://{s3.new_bucket()}/raw", s3.options, versions=True)
    assert isinstance(raw, S3Storage)
    world.source = world.engine.source = raw  # type: ignore[assignment]  # another Storage
    world.ingest(FIRST)
    world.ingest(SECOND)
    world.see()
    raw.put_atomic(SECOND, b"another")
    world.wait(8 * DAY_SECS)
    tags = [raw.read_tags(path, raw.object_version(path)) for path in (FIRST, SECOND)]
    assert tags == [{"blizzard": "ingested"}, {}]
