"""Files that are offered again under their names: left alone for some days, then replaced."""

from __future__ import annotations

import json
import threading

import pytest
from pydantic import ValidationError

from blizzard_core.errors import ConfigError
from blizzard_core.settings.load import load_config
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.units import FileUnits
from blizzard_py.app.workers import source_pipeline
from blizzard_py.state.source_state import checkpoint_path
from tests.support.memory_store import each_death
from tests.support.offered_files import DAY_SECS, OfferedFilesHarness
from tests.support.pipeline_harness import overtaking
from tests.support.published_groups import groups_of
from tests.support.request_harness import DAY
from tests.support.scenario import Scenario


@pytest.mark.promise("G-040")
def test_offered_file_is_replaced_only_after_the_cooldown() -> None:
    world = OfferedFilesHarness()
    world.mend("b", "1")
    world.drain()
    world.now += 6.9 * DAY_SECS
    world.drain()
    assert world.table() == ["1", "5", "52"]
    found = world.explained(f"{DAY}/1.json")
    assert "ingested again from" in found.reason
    world.now += 0.2 * DAY_SECS
    world.drain()
    assert world.table() == ["1:b", "1:b+", "5", "52"]
    [group] = groups_of(world.sink)
    assert group.source_files == (f"mem://raw/{DAY}/1.json",)
    assert "replaces what it had before by group 1" in world.explained(f"{DAY}/1.json").reason


def test_each_file_of_a_rolling_seven_day_offer_is_read_once() -> None:
    world = OfferedFilesHarness(days=7)
    names = [f"7{number:02}" for number in range(14)]
    before = world.read()
    for day in range(len(names)):
        world.now += DAY_SECS
        for offered in names[max(0, day - 6) : day + 1]:
            world.put(f"{DAY}/{offered}.json", offered)
        if day > 6:
            world.source.delete(f"{DAY}/{names[day - 7]}.json")
        world.drain()
    assert world.read() - before == len(names)
    assert world.table() == sorted(["1", "5", "52", *names])


def test_next_poll_reads_only_changed_files_without_cooldown() -> None:
    world = OfferedFilesHarness(days=0)
    for version in ("b", "c"):
        world.now += 60
        world.mend(version, "1", "5")
        world.put(f"{DAY}/9{version}.json", version)
        world.now += 60
        before = world.read()
        world.drain()
        world.drain()
        assert world.read() - before == 3
    assert world.table() == ["1:c", "1:c+", "52", "5:c", "5:c+", "b", "c"]


@pytest.mark.promise("G-040")
@pytest.mark.parametrize("ahead", [30, 600, 365 * DAY_SECS])
def test_a_file_dated_ahead_is_not_replaced_at_each_poll(ahead: float) -> None:
    world = OfferedFilesHarness(days=0)
    path = f"{DAY}/9.json"
    dated = world.now + ahead
    world.source.objects[path] = (b"9", dated)
    before = world.read()
    for _ in range(20):
        world.now += 60
        world.drain()
    assert world.read() - before <= 2
    assert world.table() == ["1", "5", "52", "9"]
    # The same time again, and one that is not ahead: another file is seen by its size as well.
    world.source.objects[path] = (b"9:mended", dated)
    world.drain()
    assert world.table() == ["1", "5", "52", "9:mended"]
    world.source.objects[path] = (b"9:anew!!", world.now + 60)
    world.drain()
    assert world.table() == ["1", "5", "52", "9:anew!!"]


def test_a_bad_reading_keeps_the_rows_and_waits_as_long() -> None:
    world = OfferedFilesHarness()
    world.now += 8 * DAY_SECS
    world.put(f"{DAY}/1.json", "bad")
    world.now += 1
    for _ in range(3):
        world.drain()
    assert len(world.letters()) == 1
    assert world.table() == ["1", "5", "52"]
    world.mend("c", "1")
    world.now += 6 * DAY_SECS
    world.drain()
    assert world.table() == ["1", "5", "52"]
    world.now += 2 * DAY_SECS
    world.drain()
    assert world.table() == ["1:c", "1:c+", "5", "52"]


def test_a_file_without_rows_before_comes_with_its_mended_ones() -> None:
    world = OfferedFilesHarness(days=1)
    world.put(f"{DAY}/6.json", "bad")
    world.drain()
    world.now += 2 * DAY_SECS
    world.mend("b", "6")
    world.now += 1
    world.drain()
    assert world.table() == ["1", "5", "52", "6:b", "6:b+"]


def test_changed_file_is_not_read_after_its_journal_is_deleted() -> None:
    world = OfferedFilesHarness()
    world.now += 2 * DAY_SECS
    world.drain()  # folds
    for path in [p for p in world.sink.objects if p.startswith("_blizzard/journal/")]:
        del world.sink.objects[path]
    world.now += 40 * DAY_SECS
    before = world.read()
    world.drain()
    world.mend("b", "1")
    world.now += 1
    world.drain()
    world.drain()
    assert world.read() == before
    assert groups_of(world.sink)[-1].files == ()
    assert world.only("1", assume_named=True).states == {"1": "replaced"}
    assert world.sink.read(groups_of(world.sink)[-1].files[0].path) == b"1:b\n1:b+"


def test_rows_from_before_they_named_their_file_are_left_alone() -> None:
    world = OfferedFilesHarness(named=False)
    world.named = True
    world.now += 8 * DAY_SECS
    world.mend("b", "1")
    world.now += 1
    world.drain()
    assert world.table() == ["1", "5", "52"]


def test_replaced_file_is_not_read_again_by_the_daemon() -> None:
    world = OfferedFilesHarness()
    world.now += 8 * DAY_SECS
    world.mend("b", "1")
    world.now += 1
    before = world.read()
    assert world.only("1").states["1"] in {"left", "replaced"}
    assert world.read() == before + 1
    before = world.read()
    world.drain()
    assert world.read() == before
    assert world.table() == ["1:b", "1:b+", "5", "52"]


@pytest.mark.promise("G-040")
def test_death_around_any_write_leaves_one_version_of_each_file() -> None:
    def prepared() -> OfferedFilesHarness:
        world = OfferedFilesHarness()
        world.now += 8 * DAY_SECS
        world.mend("b", "1", "52")
        world.put(f"{DAY}/8.json", "8")
        world.now += 1
        return world

    for at, world, _ in each_death(prepared, OfferedFilesHarness.drain):
        world.drain()
        assert world.table() == ["1:b", "1:b+", "5", "52:b", "52:b+", "8"], at
    assert at > 20
    assert "replacing" not in json.loads(world.sink.read("_blizzard/events_main_checkpoint.json"))


def with_a_bad_record() -> OfferedFilesHarness:
    """Return a harness with a file ingested without one bad record and corrected since."""
    world = OfferedFilesHarness(days=1)
    world.put(f"{DAY}/6.json", "6:a", "?6:bad")
    world.drain()
    record = {"path": f"mem://raw/{DAY}/6.json", "line": 2, "raw": "6:letter"}
    world.put_records(record, batch=world.open_letters()[0].batch)
    world.now += 2 * DAY_SECS
    world.put(f"{DAY}/6.json", "6:a", "6:mended")
    world.now += 1
    return world


def is_once(world: OfferedFilesHarness) -> bool:
    """Check whether the record came from its letter and was replaced with its file."""
    brought = any("6:letter" in rows for rows in world.published().values())
    gone = [name for group in groups_of(world.sink) for name in group.source_files]
    assert brought == any("~records" in name for name in gone)
    assert {"6:a", "6:mended"} < set(world.table())
    return brought


def test_record_letters_bring_nothing_after_a_replacement() -> None:
    world = with_a_bad_record()
    world.drain()
    assert world.table() == ["1", "5", "52", "6:a", "6:mended"]
    assert set(world.replay().values()) == {"present"}
    assert world.open_letters() == []
    assert world.table() == ["1", "5", "52", "6:a", "6:mended"]


def test_requested_records_are_ingested_before_changed_file() -> None:
    """The request is accepted by the poll that finds the file."""
    world = with_a_bad_record()
    assert set(world.replay().values()) == {"ingested"}
    assert world.open_letters() == []
    assert is_once(world)


def test_requested_records_are_ingested_if_file_replaces_nothing() -> None:
    """No journal records the file's earlier outputs any more, so its rows stay."""
    world = OfferedFilesHarness(days=1)
    world.put(f"{DAY}/6.json", "6:a", "?6:bad")
    world.drain()
    record = {"path": f"mem://raw/{DAY}/6.json", "line": 2, "raw": "6:letter"}
    world.put_records(record, batch=world.open_letters()[0].batch)
    world.now += 2 * DAY_SECS
    world.drain()  # folds
    world.cut()
    world.now += 40 * DAY_SECS
    world.put(f"{DAY}/6.json", "6:a", "6:other")
    world.now += 1
    assert set(world.replay().values()) == {"ingested"}
    assert any("6:letter" in rows for rows in world.published().values())
    assert not any("6:other" in rows for rows in world.published().values())


def test_records_that_came_before_their_file_go_with_it() -> None:
    world = with_a_bad_record()
    letters = [each.id for each in world.open_letters()]
    request_id = world.ask({"letters": letters})
    requests = source_pipeline(world.parts(), requests_only=True)
    while requests.cycle(threading.Event()):
        pass
    assert list(world.outcomes(request_id).values()) == ["ingested"]
    world.drain()
    assert is_once(world)


@pytest.mark.promise("G-042")
def test_records_requested_while_their_file_is_read_are_skipped() -> None:
    world = with_a_bad_record()
    letters = [each.id for each in world.open_letters()]
    with overtaking(world.engine, lambda: world.ask({"letters": letters})):
        world.drain()
    assert world.open_letters() == []
    assert not is_once(world)


@pytest.mark.promise("G-042")
@pytest.mark.parametrize("what", ["records", "file"])
def test_request_for_a_changed_file_survives_death_at_any_change(what: str) -> None:
    def prepared() -> OfferedFilesHarness:
        world = with_a_bad_record()
        letters = {"letters": [each.id for each in world.open_letters()]}
        select = letters if what == "records" else {"files": [f"{DAY}/6.json"]}
        options = {} if what == "records" else {"mode": "replace"}
        world.ask(select, **options)
        return world

    for at, world, _ in each_death(prepared, OfferedFilesHarness.drain):
        world.drain()
        assert world.ended() == ["done"]
        if world.open_letters():
            world.replay()
        world.now += 2 * DAY_SECS
        world.drain()
        is_once(world)
        assert world.table() == ["1", "5", "52", "6:a", "6:mended"], at
    assert at > 20


@pytest.mark.promise("G-041")
def test_file_that_returns_after_weeks_replaces_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.state.processed_set.TAIL", 1)
    world = OfferedFilesHarness(days=0)
    names = [f"{DAY}/1{number}.json" for number in range(20)]
    for name in names:
        world.put(name, f"{name[-7:-5]}:a")
    world.drain()
    for name in names:
        world.source.delete(name)
    for day in range(18):
        world.now += DAY_SECS
        world.put(f"{DAY}/9{day:02}.json", "9")
        world.drain()
    world.put(names[3], "13:b")
    world.now += 5
    world.drain()
    assert [row for row in world.table() if row.startswith("13")] == ["13:b"]


@pytest.mark.promise("G-041")
def test_changed_file_without_journal_and_ledger_is_not_read() -> None:
    world = OfferedFilesHarness()
    world.now += 2 * DAY_SECS
    world.drain()  # folds
    lost = ("_blizzard/journal/", "_blizzard/events_main_ledger")
    for path in [p for p in world.sink.objects if p.startswith(lost)]:
        del world.sink.objects[path]
    state = world.checkpoint()
    state.pop("ledger", None)
    world.sink.put_atomic(checkpoint_path("events_main"), json.dumps(state).encode())
    world.now += 40 * DAY_SECS
    before = world.read()
    world.mend("b", "1")
    world.now += 1
    world.drain()
    assert world.read() == before


@pytest.mark.parametrize("older", [60.0, 10 * DAY_SECS])
def test_mended_file_with_an_older_time_replaces_its_rows(older: float) -> None:
    world = OfferedFilesHarness(days=1)
    world.now += 2 * DAY_SECS
    world.drain()
    now, world.now = world.now, world.now - 2 * DAY_SECS - older
    world.mend("b", "1")
    world.now = now
    before = world.read()
    world.drain()
    assert world.table() == ["1:b", "1:b+", "5", "52"]
    world.now += 3 * DAY_SECS
    world.drain()
    assert world.read() == before + 1


def test_file_units_need_processed_names_and_source_file_column(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with pytest.raises(ValidationError, match="units needs use_watermark: false"):
        SourceSettings(source_uri="mem://raw", units=FileUnits())
    folder = tmp_path_factory.mktemp("units")
    scenario = Scenario(folder, str(folder))
    scenario.main_source.update(use_watermark=False, units={"cooldown": "7d"})
    scenario.write_config()
    with pytest.raises(ConfigError, match="units of files needs _source_file"):
        load_config(scenario.config)
    pipeline = scenario.document["pipelines"]["events"]
    pipeline["sink"]["metadata_columns"] = ["_source_file"]
    scenario.write_config()
    load_config(scenario.config)
    pipeline["deduplicate_by"] = ["id"]
    scenario.write_config()
    with pytest.raises(ConfigError, match="neither transform nor deduplicate_by"):
        load_config(scenario.config)
