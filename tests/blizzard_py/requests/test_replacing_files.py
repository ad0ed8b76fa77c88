"""Files that come again in the place of what they had: one reading each, whatever dies."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import FencedError
from blizzard_core.handover.groups import Group
from blizzard_py.sources.earlier_batches import EarlierBatch
from blizzard_py.sources.files.earlier import EarlierBatches
from tests.support.memory_store import each_death
from tests.support.pipeline_harness import overtaking
from tests.support.published_groups import groups_of
from tests.support.replace_harness import ReplaceHarness, is_rejected
from tests.support.request_harness import DAY

# Alike but for a byte that is no UTF-8.
BYTE, WORD = f"{DAY}/7\udcff.json", rf"{DAY}/7\udcff.json"


def test_a_corrected_file_replaces_its_own_rows_only() -> None:
    world = ReplaceHarness()
    world.mend("b", "1")
    [line] = world.preview("1")
    assert (line.state, line.found_by, line.before) == ("taken", "_source_file", 1)
    assert groups_of(world.sink) == []
    done = world.only("1")
    [line] = done.files
    assert (line.state, line.rows, line.before) == ("replaced", 2, 1)
    assert (done.request.state, done.request.counts["rows"]) == ("done", 2)
    assert world.table() == ["1:b", "1:b+", "5", "52"]
    [group] = groups_of(world.sink)
    assert group.source_files == (f"mem://raw/{DAY}/1.json",)
    assert len(group.outputs) == 1  # that has the row of 5.json as well, and is only waited for
    world.go_on()
    assert world.table() == ["1:b", "1:b+", "5", "52"]


@pytest.mark.parametrize("named", [True, False])
def test_each_replacement_takes_the_place_of_the_one_before(named: bool) -> None:
    world = ReplaceHarness(named=named)
    for version in ("b", "c", "d"):
        world.mend(version, "1", "5", "52")
        assert set(world.replace().states.values()) == {"replaced"}
        assert world.table() == sorted(
            f"{name}:{version}{more}" for name in ("1", "5", "52") for more in ("", "+")
        )
    first, second, third = [set(group.outputs) for group in groups_of(world.sink)][-3:]
    assert not first & second  # what was replaced is not waited for again
    assert not second & third


@pytest.mark.promise("G-038")
def test_without_names_all_files_of_an_output_come_along_or_none() -> None:
    world = ReplaceHarness(named=False)
    world.mend("b", "1")
    refused = world.only("1")
    assert is_rejected(refused, f"{DAY}/5.json")
    assert "--from and --to" in refused.request.reason
    assert "_source_file among sink.metadata_columns" in refused.request.reason
    assert groups_of(world.sink) == []
    assert {line.found_by for line in world.preview("1", "5")} == {"outputs"}
    assert set(world.only("1", "5").states.values()) == {"replaced"}
    assert world.table() == ["1:b", "1:b+", "5", "52"]
    [group] = groups_of(world.sink)
    assert (group.source_files, len(group.outputs)) == ((), 1)


def test_replacement_is_rejected_when_a_related_file_is_missing() -> None:
    world = ReplaceHarness(named=False)
    world.source.delete(f"{DAY}/5.json")
    assert is_rejected(world.only("1"), "Missing at the source")


def test_a_refused_request_passes_after_the_files_are_corrected() -> None:
    world = ReplaceHarness(named=False)
    kept = world.source.read(f"{DAY}/5.json")
    world.mend("b", "1")
    world.source.delete(f"{DAY}/5.json")
    daemon = world.pipeline()
    select = {"range": [DAY, DAY]}
    first = world.ask(select, mode="replace")
    world.drain(daemon)
    assert world.request(first).state == "rejected"
    world.source.put_atomic(f"{DAY}/5.json", kept)
    second = world.ask(select, mode="replace")
    world.drain(daemon)
    assert world.request(second).state == "done"
    assert world.table() == ["1:b", "1:b+", "5", "52"]


def test_replacement_lists_files_after_it_has_read_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing of a request that was cancelled while it was read for it."""
    monkeypatch.setattr("blizzard_py.app.request_selector._WAIT_SECS", 0.01)
    gate, look = threading.Event(), EarlierBatches.look

    def slow(self: EarlierBatches, *is_wanted: Callable[[], bool]) -> list[EarlierBatch]:
        if is_wanted:
            gate.wait()
        return look(self, *is_wanted)

    monkeypatch.setattr(EarlierBatches, "look", slow)
    world = ReplaceHarness()
    daemon = world.pipeline()
    kept = world.source.read(f"{DAY}/52.json")
    world.source.delete(f"{DAY}/52.json")
    select = {"range": [DAY, DAY]}
    first = world.ask(select, mode="replace")
    daemon.cycle(threading.Event())
    world.mailbox.cancel(first, "bob@ops-1", "2026-11-25T09:13:00+00:00", "52 is missing")
    daemon.cycle(threading.Event())
    world.source.put_atomic(f"{DAY}/52.json", kept)
    second = world.ask(select, mode="replace")
    daemon.cycle(threading.Event())
    assert world.mailbox.is_cancelled(first)
    assert world.request(second).state == "running"
    world.put(f"{DAY}/0.json", "0")  # late
    world.source.delete(f"{DAY}/5.json")
    world.mend("b", "1", "52")
    gate.set()
    world.drain(daemon)
    found = {line.path: line.state for line in world.report(second)}
    assert found == {f"{DAY}/1.json": "replaced", f"{DAY}/52.json": "replaced"}
    assert world.table() == ["1:b", "1:b+", "5", "52:b", "52:b+"]


@pytest.mark.promise("G-037")
def test_failed_file_keeps_its_rows_and_gets_a_dead_letter() -> None:
    world = ReplaceHarness()
    world.mend("b", "1")
    world.put(f"{DAY}/5.json", "bad")
    assert world.only("1", "5").states == {"1": "replaced", "5": "kept"}
    assert world.table() == ["1:b", "1:b+", "5", "52"]
    assert [letter["path"] for letter in world.letters()] == [f"mem://raw/{DAY}/5.json"]
    # Mended in the end, its letter says which file it is.
    world.mend("c", "5")
    assert world.replay_all_files().states == {"5": "replaced"}
    assert world.table() == ["1:b", "1:b+", "52", "5:c", "5:c+"]
    assert world.open_letters() == []


def test_file_deleted_during_a_replacement_keeps_its_rows() -> None:
    world = ReplaceHarness()
    with overtaking(world.engine, lambda: world.source.delete(f"{DAY}/1.json")):
        done = world.replace()
    assert done.states == {"1": "kept", "5": "replaced", "52": "replaced"}
    assert world.table() == ["1", "5", "52"]


@pytest.mark.promise("G-038")
def test_of_files_in_the_same_outputs_one_that_fails_keeps_all() -> None:
    world = ReplaceHarness(named=False)
    world.mend("b", "1", "52")
    world.put(f"{DAY}/5.json", "bad")
    done = world.replace()
    assert done.states == {"1": "kept", "5": "kept", "52": "replaced"}
    [kept] = [line for line in done.files if line.path == f"{DAY}/1.json"]
    assert "left as it was, since" in kept.reason
    assert world.table() == ["1", "5", "52:b", "52:b+"]
    assert [letter["path"] for letter in world.letters()] == [f"mem://raw/{DAY}/5.json"]
    world.mend("c", "5")
    world.replace()
    assert world.table() == ["1:b", "1:b+", "52:b", "52:b+", "5:c", "5:c+"]


@pytest.mark.parametrize("named", [True, False])
def test_replacement_retries_a_temporarily_unreadable_file(named: bool) -> None:
    world = ReplaceHarness(named=named)
    world.mend("b", "1", "5", "52")
    world.engine.flaky[f"{DAY}/1.json"] = 2
    assert set(world.replace().states.values()) == {"replaced"}
    assert world.table() == sorted(f"{n}:b{m}" for n in ("1", "5", "52") for m in ("", "+"))


def test_replacement_leaves_new_files_and_ingests_failed_files() -> None:
    world = ReplaceHarness()
    world.put(f"{DAY}/6.json", "bad")
    world.drain()
    world.put(f"{DAY}/6.json", "6:b")
    world.put(f"{DAY}/7.json", "7")  # the next poll's
    world.put(f"{DAY}/0.json", "0")  # late, and nobody has met it
    world.mend("b", "1")
    assert world.replace().states == {
        "0": "left",
        "1": "replaced",
        "5": "replaced",
        "52": "replaced",
        "6": "ingested",
        "7": "left",
    }
    assert world.table() == ["1:b", "1:b+", "5", "52", "6:b", "7"]


def test_files_without_a_journal_record_are_refused() -> None:
    world = ReplaceHarness()
    world.go_on()  # folds
    world.cut()
    world.mend("b", "1")
    refused = world.only("1")
    assert is_rejected(refused, "journal no longer holds")
    assert "--assume-named" in refused.request.reason
    assert groups_of(world.sink) == []
    assert world.only("1", assume_named=True).states == {"1": "replaced"}
    [group] = groups_of(world.sink)
    assert (group.source_files, group.outputs) == ((f"mem://raw/{DAY}/1.json",), ())
    world.mend("c", "1")
    assert world.only("1").states == {"1": "replaced"}  # the journal has that one


def test_rows_are_assumed_named_only_where_they_name_one_file() -> None:
    world = ReplaceHarness(named=False)
    assert is_rejected(world.only("1", assume_named=True), "--assume-named says that each row")


def test_rows_before_the_column_go_by_outputs_and_others_by_name() -> None:
    world = ReplaceHarness(named=False)
    world.named = True
    world.put(f"{DAY}/6.json", "6")
    world.put(f"{DAY}/7.json", "7")
    world.drain()
    world.mend("b", "6", "52")
    done = world.only("6", "52")
    found_by = {line.path[-6:]: line.found_by for line in done.files}
    assert found_by == {"2.json": "outputs", "6.json": "_source_file"}
    assert len(groups_of(world.sink)) == 2
    assert world.table() == ["1", "5", "52:b", "52:b+", "6:b", "6:b+", "7"]
    assert is_rejected(world.only("1"), "in the same outputs")


def test_a_source_that_named_its_files_has_to_go_on_with_it() -> None:
    world = ReplaceHarness()
    world.named = False
    world.mend("b", "1")
    assert is_rejected(world.only("1"), "_source_file among sink.metadata_columns again")
    assert groups_of(world.sink) == []
    world.named = True
    assert world.only("1").states == {"1": "replaced"}


@pytest.mark.parametrize("what", ["remove", "cleaned"])
def test_outputs_that_the_table_let_go_are_refused(what: str) -> None:
    world = ReplaceHarness(named=False)
    [path] = [p for p, rows in world.published().items() if "1" in rows]
    protocol, add = {"protocol": {"minReaderVersion": 1}}, {"add": {"path": path}}
    gone = {"remove": {"path": path, "dataChange": False}}
    log: list[tuple[int, dict[str, Any]]] = [(3, add)]
    if what == "remove":
        log = list(enumerate([protocol, add, gone]))
    for version, action in log:
        world.sink.put_atomic(f"_delta_log/{version:020d}.json", json.dumps(action).encode())
    if what == "cleaned":
        content = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([protocol]), content)
        world.sink.put_atomic(f"_delta_log/{3:020d}.checkpoint.parquet", content.getvalue())
    why = {"remove": "the table let ", "cleaned": "log was cleaned up"}[what]
    assert is_rejected(world.replace(), why)
    world.named = True  # of no help for what is in already
    assert is_rejected(world.replace(), why)


@pytest.mark.promise("G-037")
@pytest.mark.parametrize("named", [True, False])
def test_a_death_at_every_change_leaves_each_row_once(named: bool) -> None:
    """Live files arrive, a file is late, and the owner dies before or after each write."""

    def prepared() -> ReplaceHarness:
        world = ReplaceHarness(named=named)
        world.mend("b", "1", "5")
        world.put(f"{DAY}/52.json", "bad")
        world.ask({"range": [DAY, DAY]}, mode="replace")
        for number in range(60, 63):
            world.put(f"{DAY}/{number}.json", str(number))
        return world

    for at, world, _ in each_death(prepared, ReplaceHarness.drain):
        world.put(f"{DAY}/63.json", "63")
        world.drain()
        assert world.ended() == ["done"]
        rows = sorted(["1:b", "1:b+", "52", "5:b", "5:b+", "60", "61", "62", "63"])
        assert world.table() == rows, at
        work = world.work
        assert not [*work.replacing, *work.queue, *work.in_flight], at
        assert [letter["path"] for letter in world.letters()] == [f"mem://raw/{DAY}/52.json"], at
        world.go_on()
        assert world.table() == rows, at
    assert at > 40


def test_an_owner_that_was_replaced_replaces_nothing_twice() -> None:
    world = ReplaceHarness()
    world.mend("b", "1")
    request_id = world.ask({"files": [f"{DAY}/1.json"]}, mode="replace")
    first = world.pipeline()
    with overtaking(world.engine, world.drain), pytest.raises(FencedError):
        world.drain(first)
    assert world.request(request_id).state == "done"
    assert len(groups_of(world.sink)) == 1
    assert world.table() == ["1:b", "1:b+", "5", "52"]


def test_each_batch_of_many_files_replaces_its_own_rows() -> None:
    world = ReplaceHarness()
    names = [f"6{number}" for number in range(5)]
    for name in names:
        world.put(f"{DAY}/{name}.json", name)
    world.drain()
    world.mend("b", *names)
    world.only(*names)
    assert len(groups_of(world.sink)) == 3  # of two files each, as the source's batches are
    assert world.table() == sorted(
        ["1", "5", "52", *(f"{n}:b{m}" for n in names for m in ("", "+"))]
    )


def test_too_many_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.app.request_selector.REPLACED_AT_MOST", 2)
    assert is_rejected(ReplaceHarness().replace(), "more than 2 files are chosen")
    monkeypatch.setattr("blizzard_py.app.request_selector.REPLACED_AT_MOST", 3)
    monkeypatch.setattr("blizzard_py.selection.replacement_rows.TOGETHER_AT_MOST", 1)
    assert is_rejected(
        ReplaceHarness(named=False).replace(), "2 files have rows in the same outputs"
    )


def test_a_source_without_a_watermark_replaces_as_well() -> None:
    world = ReplaceHarness(use_watermark=False)
    world.mend("b", "5")
    assert set(world.replace().states.values()) == {"replaced"}
    world.drain()
    assert world.table() == ["1", "52", "5:b", "5:b+"]


def test_a_file_that_is_being_replaced_is_left_to_its_request() -> None:
    world = ReplaceHarness()
    world.mend("b", "1")
    seen: list[str] = []
    with overtaking(world.engine, lambda: seen.extend(line.state for line in world.preview("1"))):
        world.only("1")
    assert seen == ["left"]
    # Two requests of the same file are done one after the other.
    world.ask({"files": [f"{DAY}/1.json"]}, mode="replace")
    assert world.only("1", "5").states == {"1": "replaced", "5": "replaced"}
    assert len(groups_of(world.sink)) == 3
    assert world.table() == ["1:b", "1:b+", "5", "52"]


def last(world: ReplaceHarness) -> Group:
    return groups_of(world.sink)[-1]


@pytest.mark.promise("G-039")
@pytest.mark.parametrize(("path", "name"), [(BYTE, r"7\udcff.json"), (WORD, r"7\\udcff.json")])
def test_names_that_are_alike_are_replaced_one_by_one(path: str, name: str) -> None:
    world = ReplaceHarness()
    world.put(BYTE, "byte")
    world.put(WORD, "word")
    world.drain()
    world.put(path, "mended")
    [line] = world.done({"files": [path]}).files
    assert line.state == "replaced"
    assert last(world).source_files == (f"mem://raw/{DAY}/{name}",)
