"""Files that come again in the place of what they had: one reading each, whatever dies."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import Unavailable
from blizzard_core.handover.groups import Group
from blizzard_core.settings.sources import MetadataColumn
from blizzard_core.storage.protocol import Entry
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.replay import Replacement, ReplaceRefused, Replacing
from blizzard_py.replay.replacing import files_in, files_of_letters
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.ranges import Range
from blizzard_py.state.source_state import checkpoint_path
from tests.blizzard_py.ingest.test_group_publishing import groups_of
from tests.support.both_world import BothWorld
from tests.support.memory_store import Died, Dying
from tests.support.request_world import DAY

REMEDY = "choose partitions or files with --from and --to"


class ReplaceWorld(BothWorld):
    """Rows are told apart by reading: each is `file:text`, so a file's rows are known."""

    def __init__(self, *, named: bool = True, **source: Any) -> None:
        self.named = named
        self.committed: dict[str, list[str]] = {}
        self.was: set[str] = set()
        self.listed: set[str] = set()
        self.applied = 0
        super().__init__(**source)

    def parts(self) -> Parts:
        parts = super().parts()
        columns: tuple[MetadataColumn, ...] = ("_source_file",) if self.named else ()
        return replace(parts, ingest=replace(parts.ingest, metadata_columns=columns))

    def drained(self, worker: SourcePipeline) -> int:
        """As the loop of daemons does, which tries again what could not be read."""
        while True:
            try:
                return super().drained(worker)
            except Unavailable:
                self.now += 900

    def replacing(self, *, insist: bool = False) -> Replacing:
        replay = self.replay()
        return Replacing(replay.live, replay.files, replay.drain, REMEDY, insist)

    def files(self, first: str = "", last: str = "\U0010ffff") -> dict[str, Entry]:
        return files_in(self.live(), Range(first, last))

    def replace(
        self, first: str = "", last: str = "\U0010ffff", *, insist: bool = False
    ) -> Replacement:
        return self.replacing(insist=insist).run(self.files(first, last))

    def only(self, *paths: str, insist: bool = False) -> Replacement:
        files = self.files()
        return self.replacing(insist=insist).run({path: files[path] for path in paths})

    def table(self) -> list[str]:
        """Rows as Penguin has committed them by now: it lists outputs, then takes groups.

        Files of this world have their output id in the journal, and rows their file's name in
        their text: what it takes to do as a group says.
        """
        ids = self.output_ids()
        for path, found in self.published().items():
            if not path.rpartition("/")[2].startswith("unit-") and path not in self.listed:
                self.listed.add(path)
                self.committed[ids[path]] = found
                self.was.add(ids[path])
        groups = groups_of(self.sink)
        named = {file.path for group in groups for file in group.files}
        assert named == {path for path in self.published() if "unit-" in path}
        for group in groups[self.applied :]:
            assert set(group.outputs) <= self.was, "it waits for ever"
            for key, rows in self.committed.items():
                self.committed[key] = _left(group, key, rows)
            for file in group.files:
                self.committed[file.output_id] = self.sink.read(file.path).decode().splitlines()
                self.was.add(file.output_id)
        self.applied = len(groups)
        return sorted(row for found in self.committed.values() for row in found)

    def output_ids(self) -> dict[str, str]:
        return {
            path: output["output_id"]
            for name, (data, _) in self.sink.objects.items()
            if name.startswith("_blizzard/journal/")
            for output in json.loads(data)["outputs"]
            for path in (output["final"], *output["earlier"])
        }


def _left(group: Group, output_id: str, rows: list[str]) -> list[str]:
    if group.source_files:
        names = {name.rpartition("/")[2].removesuffix(".json") for name in group.source_files}
        return [row for row in rows if row.partition(":")[0] not in names]
    return [] if output_id in group.outputs else rows


def mended(world: ReplaceWorld, version: str, *names: str) -> None:
    for name in names:
        world.put(f"{DAY}/{name}.json", f"{name}:{version}", f"{name}:{version}+")


def test_a_mended_file_takes_the_place_of_its_own_rows_and_no_others() -> None:
    world = ReplaceWorld()
    live = world.checkpoint()
    mended(world, "b", "1")
    preview = world.replacing().preview({p: e for p, e in world.files().items() if "/1." in p})
    [file] = preview.files
    assert (file.state, file.by, file.rows) == ("would replace", "_source_file", 1)
    assert (preview.replaced, preview.outputs, preview.groups) == (1, 0, None)
    assert world.table() == ["1", "5", "52"]
    done = world.only(f"{DAY}/1.json")
    assert [(f.path, f.state) for f in done.files] == [(f"{DAY}/1.json", "replaced")]
    assert (done.rows, done.replaced, done.groups, done.exit_code) == (2, 1, 1, 0)
    assert world.table() == ["1:b", "1:b+", "5", "52"]
    [group] = groups_of(world.sink)
    assert group.source_files == (f"mem://raw/{DAY}/1.json",)
    assert len(group.outputs) == 1  # that has the row of 5.json as well, and is only waited for
    assert world.checkpoint() == live
    world.go_on()
    assert world.table() == ["1:b", "1:b+", "5", "52"]


@pytest.mark.parametrize("named", [True, False])
def test_a_second_and_a_third_replacement_take_the_place_of_the_one_before(named: bool) -> None:
    world = ReplaceWorld(named=named)
    for version in ("b", "c", "d"):
        mended(world, version, "1", "5", "52")
        done = world.replace(DAY, DAY)
        assert {file.state for file in done.files} == {"replaced"}
        assert world.table() == sorted(
            f"{name}:{version}{more}" for name in ("1", "5", "52") for more in ("", "+")
        )
    first, second, third = [set(group.outputs) for group in groups_of(world.sink)][-3:]
    assert not first & second  # what was replaced is not waited for again
    assert not second & third


def test_without_names_in_rows_all_files_of_an_output_come_along_or_it_is_refused() -> None:
    world = ReplaceWorld(named=False)
    before = dict(world.sink.objects)
    mended(world, "b", "1")
    with pytest.raises(ReplaceRefused) as refused:
        world.only(f"{DAY}/1.json")
    assert f"{DAY}/5.json" in str(refused.value)
    assert REMEDY in str(refused.value)
    assert "_source_file among sink.metadata_columns" in str(refused.value)
    assert world.sink.objects == before
    preview = world.replacing().preview({p: e for p, e in world.files().items() if "52" not in p})
    assert (preview.outputs, {file.by for file in preview.files}) == (1, {"outputs"})
    done = world.only(f"{DAY}/1.json", f"{DAY}/5.json")
    assert {file.state for file in done.files} == {"replaced"}
    assert world.table() == ["1:b", "1:b+", "5", "52"]
    [group] = groups_of(world.sink)
    assert (group.source_files, len(group.outputs)) == ((), 1)


def test_a_file_that_would_come_along_and_is_gone_is_named() -> None:
    world = ReplaceWorld(named=False)
    world.source.delete(f"{DAY}/5.json")
    with pytest.raises(ReplaceRefused, match=f"Gone from the source.*{DAY}/5.json"):
        world.only(f"{DAY}/1.json")


def test_what_cannot_be_ingested_keeps_its_rows_and_has_a_letter() -> None:
    world = ReplaceWorld()
    mended(world, "b", "1")
    world.put(f"{DAY}/5.json", "bad")
    done = world.only(f"{DAY}/1.json", f"{DAY}/5.json")
    assert [file.state for file in done.files] == ["replaced", "kept"]
    assert done.exit_code == 1
    assert world.table() == ["1:b", "1:b+", "5", "52"]
    assert [letter["path"] for letter in world.letters()] == [f"mem://raw/{DAY}/5.json"]
    # Mended in the end, its letter says which file it is.
    mended(world, "c", "5")
    entries, letters = files_of_letters(world.live(), world.open_letters())
    again = world.replacing().run(entries, letters)
    assert [file.state for file in again.files] == ["replaced"]
    assert world.table() == ["1:b", "1:b+", "52", "5:c", "5:c+"]
    assert world.open_letters() == []


def test_a_file_that_goes_while_it_is_taken_keeps_its_rows() -> None:
    world = ReplaceWorld()
    files = world.files()
    world.source.delete(f"{DAY}/1.json")
    done = world.replacing().run(files)
    assert [file.state for file in done.files] == ["kept", "replaced", "replaced"]
    assert world.table() == ["1", "5", "52"]


def test_of_files_in_the_same_outputs_one_that_fails_keeps_all_as_they_are() -> None:
    world = ReplaceWorld(named=False)
    mended(world, "b", "1", "52")
    world.put(f"{DAY}/5.json", "bad")
    done = world.replace(DAY, DAY)
    assert [file.state for file in done.files] == ["kept", "kept", "replaced"]
    assert "left as it was, since" in done.files[0].reason
    assert world.table() == ["1", "5", "52:b", "52:b+"]
    assert [letter["path"] for letter in world.letters()] == [f"mem://raw/{DAY}/5.json"]
    mended(world, "c", "5")
    world.replace(DAY, DAY)
    assert world.table() == ["1:b", "1:b+", "52:b", "52:b+", "5:c", "5:c+"]


@pytest.mark.parametrize("named", [True, False])
def test_what_cannot_be_read_for_now_is_tried_again(named: bool) -> None:
    world = ReplaceWorld(named=named)
    mended(world, "b", "1", "5", "52")
    world.replays.flaky[f"{DAY}/1.json"] = 2
    done = world.replace(DAY, DAY)
    assert {file.state for file in done.files} == {"replaced"}
    assert world.table() == sorted(f"{n}:b{m}" for n in ("1", "5", "52") for m in ("", "+"))


def test_files_that_were_never_ingested_are_told_and_those_with_letters_come() -> None:
    world = ReplaceWorld()
    world.put(f"{DAY}/6.json", "bad")
    world.drain()
    world.put(f"{DAY}/6.json", "6:b")
    world.put(f"{DAY}/7.json", "7")  # the next poll's
    world.put(f"{DAY}/0.json", "0")  # late, and nobody has met it
    mended(world, "b", "1")
    done = world.replace(DAY, DAY)
    assert {file.path[-6:]: file.state for file in done.files} == {
        "0.json": "left",
        "1.json": "replaced",
        "5.json": "replaced",
        "2.json": "replaced",
        "6.json": "ingested",
        "7.json": "left",
    }
    assert done.exit_code == 0
    world.drain()
    assert world.table() == ["1:b", "1:b+", "5", "52", "6:b", "7"]


def test_rows_of_single_records_that_a_replay_brought_go_with_their_file() -> None:
    for named in (True, False):
        world = ReplaceWorld(named=named)
        world.put(f"{DAY}/6.json", "6:a", "?6:bad")
        world.drain()
        batch = world.open_letters()[0].batch
        record = {"path": f"mem://raw/{DAY}/6.json", "line": 2, "raw": "6:bad"}
        world.put_records(record, batch=batch)
        world.run()
        assert world.table() == ["1", "5", "52", "6:a", "6:bad"]
        mended(world, "b", "6")
        done = world.only(f"{DAY}/6.json")
        assert (done.replaced, done.files[0].state) == (2, "replaced")
        [group] = groups_of(world.sink)
        if named:
            assert len(group.source_files) == 2  # the file, and that of its record
            continue
        assert len(group.outputs) == 2
        assert world.table() == ["1", "5", "52", "6:b", "6:b+"]


def test_open_letters_of_records_bring_nothing_once_their_file_was_replaced() -> None:
    world = ReplaceWorld()
    world.put(f"{DAY}/6.json", "6:a", "?6:bad")
    world.drain()
    batch = world.open_letters()[0].batch
    record = {"path": f"mem://raw/{DAY}/6.json", "line": 2, "raw": "6:bad"}
    world.put_records(record, batch=batch)
    mended(world, "b", "6")
    world.only(f"{DAY}/6.json")
    [told] = world.run().outcomes
    assert (told.state, told.files) == ("replayed", 0)
    assert "replaced" in told.left_to_others[0][1]
    assert world.table() == ["1", "5", "52", "6:b", "6:b+"]
    # What failed in the replacement itself is still to come.
    world.put(f"{DAY}/6.json", "6:c", "?6:bad")
    world.only(f"{DAY}/6.json")
    [left] = world.open_letters()
    world.put_records(record, batch=left.batch)
    assert world.table() == ["1", "5", "52", "6:c"]
    assert world.run().rows == 1
    assert world.table() == ["1", "5", "52", "6:bad", "6:c"]


def test_letters_of_single_records_bring_their_whole_file_again() -> None:
    world = ReplaceWorld()
    world.put(f"{DAY}/6.json", "6:a", "?6:bad")
    world.drain()
    batch = world.open_letters()[0].batch
    world.put_records({"path": f"mem://raw/{DAY}/6.json", "line": 2, "raw": "x"}, batch=batch)
    mended(world, "b", "6")
    entries, letters = files_of_letters(world.live(), world.open_letters())
    done = world.replacing().run(entries, letters)
    assert [(file.path, file.state) for file in done.files] == [(f"{DAY}/6.json", "replaced")]
    assert world.open_letters() == []
    assert world.table() == ["1", "5", "52", "6:b", "6:b+"]


def cut(world: ReplaceWorld) -> None:
    """The journal as it is when thirty days are over and it was folded."""
    world.now += 100
    for path in [p for p in world.sink.objects if p.startswith("_blizzard/journal/")]:
        del world.sink.objects[path]


def test_what_the_journal_no_longer_tells_is_refused_unless_somebody_insists() -> None:
    world = ReplaceWorld()
    world.go_on()  # folds
    cut(world)
    mended(world, "b", "1")
    with pytest.raises(ReplaceRefused, match=r"journal no longer holds .* --insist"):
        world.only(f"{DAY}/1.json")
    assert groups_of(world.sink) == []
    done = world.only(f"{DAY}/1.json", insist=True)
    assert done.files[0].state == "replaced"
    [group] = groups_of(world.sink)
    assert (group.source_files, group.outputs) == ((f"mem://raw/{DAY}/1.json",), ())
    mended(world, "c", "1")
    assert world.only(f"{DAY}/1.json").files[0].state == "replaced"  # the journal has that one


def test_who_insists_has_to_have_names_in_rows() -> None:
    world = ReplaceWorld(named=False)
    with pytest.raises(ReplaceRefused, match="--insist says that each row names"):
        world.only(f"{DAY}/1.json", insist=True)


def test_rows_from_before_the_column_go_by_outputs_and_those_after_by_name() -> None:
    world = ReplaceWorld(named=False)
    world.named = True
    world.put(f"{DAY}/6.json", "6")
    world.put(f"{DAY}/7.json", "7")
    world.drain()
    mended(world, "b", "6", "52")
    done = world.only(f"{DAY}/6.json", f"{DAY}/52.json")
    assert [(file.path[-6:], file.by) for file in done.files] == [
        ("2.json", "outputs"),
        ("6.json", "_source_file"),
    ]
    assert done.groups == 2
    assert world.table() == ["1", "5", "52:b", "52:b+", "6:b", "6:b+", "7"]
    with pytest.raises(ReplaceRefused, match="in the same outputs"):
        world.only(f"{DAY}/1.json")


@pytest.mark.parametrize("what", ["remove", "cleaned"])
def test_outputs_that_the_table_let_go_are_refused(what: str) -> None:
    world = ReplaceWorld(named=False)
    [path] = [p for p, rows in world.published().items() if "1" in rows]
    protocol, add = {"protocol": {"minReaderVersion": 1}}, {"add": {"path": path}}
    gone = {"remove": {"path": path, "dataChange": False}}
    for version, action in enumerate([protocol, add, gone]) if what == "remove" else [(3, add)]:
        world.sink.put_atomic(f"_delta_log/{version:020d}.json", json.dumps(action).encode())
    if what == "cleaned":
        content = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([protocol]), content)
        world.sink.put_atomic(f"_delta_log/{3:020d}.checkpoint.parquet", content.getvalue())
    with pytest.raises(ReplaceRefused, match=r"table let .* go|log was cleaned up"):
        world.replace(DAY, DAY)
    world.named = True  # of no help for what is in already
    with pytest.raises(ReplaceRefused):
        world.replace(DAY, DAY)


@pytest.mark.parametrize("named", [True, False])
def test_dying_before_and_after_every_write_leaves_each_row_once(named: bool) -> None:
    at, died = 0, True
    while died:
        world = ReplaceWorld(named=named)
        mended(world, "b", "1", "5")
        world.put(f"{DAY}/52.json", "bad")
        dying = Dying(world.sink, world.dlq)
        dying.arm(at)
        try:
            world.replace(DAY, DAY)
            died = False
        except Died:
            pass
        dying.arm(-1)
        done = world.replace(DAY, DAY)
        assert [file.state for file in done.files] == ["replaced", "replaced", "kept"], at
        assert world.table() == ["1:b", "1:b+", "52", "5:b", "5:b+"], at
        state = json.loads(world.sink.read(checkpoint_path("events_main~replay")))
        assert "replacing" not in state, at
        at += 1
    assert at > 40


def test_many_files_are_split_into_batches_each_of_which_replaces_its_own() -> None:
    world = ReplaceWorld()
    names = [f"6{number}" for number in range(5)]
    for name in names:
        world.put(f"{DAY}/{name}.json", name)
    world.drain()
    mended(world, "b", *names)
    done = world.only(*(f"{DAY}/{name}.json" for name in names))
    assert done.groups == 3  # of two files each, as the source's batches are
    assert world.table() == sorted(
        ["1", "5", "52", *(f"{n}:b{m}" for n in names for m in ("", "+"))]
    )


def test_too_many_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.replay.choosing.FILES_AT_MOST", 2)
    with pytest.raises(ReplaceRefused, match="3 files are chosen, and one command takes 2"):
        ReplaceWorld().replace(DAY, DAY)
    monkeypatch.setattr("blizzard_py.replay.choosing.FILES_AT_MOST", 3)
    monkeypatch.setattr("blizzard_py.replay.choosing.TOGETHER_AT_MOST", 1)
    with pytest.raises(ReplaceRefused, match="2 files have rows in the same outputs"):
        ReplaceWorld(named=False).replace(DAY, DAY)


def test_a_source_without_a_watermark_replaces_as_well() -> None:
    world = ReplaceWorld(use_watermark=False)
    mended(world, "b", "5")
    assert {f.state for f in world.replace(DAY, DAY).files} == {"replaced"}
    world.drain()
    assert world.table() == ["1", "52", "5:b", "5:b+"]


def test_the_ends_of_a_range_may_be_files() -> None:
    world = ReplaceWorld()
    found = world.files(f"{DAY}/5.json", f"{DAY}/52.json")
    assert sorted(found) == [f"{DAY}/5.json", f"{DAY}/52.json"]


def test_a_dead_replacement_is_finished_by_whatever_replay_comes_next() -> None:
    world = ReplaceWorld()
    mended(world, "b", "1")

    def dies(_worker: SourcePipeline) -> int:
        raise Died

    replay = world.replacing()
    with contextlib.suppress(Died):
        replace(replay, drain=dies).run(world.files(f"{DAY}/1.json", f"{DAY}/1.json"))
    # Who looks meanwhile is told that it waits.
    preview = world.replacing().preview(world.files())
    assert Counter(file.state for file in preview.files) == {"taken": 1, "would replace": 2}
    assert world.ingest(f"{DAY}/1.json") == ["left"]
    world.run()
    assert world.table() == ["1:b", "1:b+", "5", "52"]


def test_the_live_daemon_leaves_what_is_being_replaced_and_is_waited_for() -> None:
    world = ReplaceWorld()
    mended(world, "b", "1")
    # A checkpoint that was set back finds the file again, while it is being replaced.
    replay = world.replacing()

    def beside(worker: SourcePipeline) -> int:
        document = json.loads(world.sink.read(checkpoint_path("events_main")))
        document["partition_watermarks"] = {}
        world.sink.put_atomic(checkpoint_path("events_main"), json.dumps(document).encode())
        with contextlib.suppress(Exception):
            world.pipeline().cycle(threading.Event())
        world.drain(worker)
        return 0

    replace(replay, drain=beside).run(world.files(f"{DAY}/1.json", f"{DAY}/1.json"))
    assert Counter(world.table())["1:b"] == 1
