"""Replaying dead letters: exactly once, whatever dies, beside a live daemon that is not touched."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import ColdStartRefused, FencedError, StateError
from blizzard_core.settings.document import ErrorSettings
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_py.dead_letters import reader as letters
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.edits import checkpoint_edit
from blizzard_py.explain import Explanation, explain
from blizzard_py.explain.evidence import records_replayed
from blizzard_py.explain.location import Located
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import FinishedFile, IngestJob, IngestResult
from blizzard_py.replay import (
    Outcome,
    Replay,
    Report,
    Taken,
    file_parts,
    record_parts,
    records_uri,
    run,
)
from blizzard_py.sources.parts import Parts, Stores
from blizzard_py.state.state_paths import StatePaths
from tests.support.blizzard_world import LineEngine, World, overtaking
from tests.support.memory_store import Died, Dying, MemoryStorage
from tests.support.request_world import ingest_files

CHECKPOINT = "_blizzard/events_main_checkpoint.json"
BATCH = "019aa000-0000-7000-8000-000000000001"


class Engine(LineEngine):
    """Reads from the storage that the job names: the source's or the records'."""

    def __init__(self, sink: MemoryStorage, *stores: MemoryStorage) -> None:
        super().__init__(stores[0], sink)
        self.stores = {storage.uri: storage for storage in stores}

    def ingest(self, job: IngestJob) -> IngestResult:
        self.source = self.stores[job.settings.source.uri]
        return super().ingest(job)


class ReplayWorld(World):
    """A live source that has run, and the replays beside it."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**source)
        self.template = "date=%Y-%m-%d"
        self.records = MemoryStorage("mem://dlq/events_main~records", lambda: self.now)
        self.replays = Engine(self.sink, self.source, self.records)

    def live(self) -> Parts:
        return self.parts()

    def replay(self, *, from_source: bool = False) -> Replay:
        live = self.live()
        assert records_uri(live) == self.records.uri
        return Replay(
            live,
            file_parts(live, self.replays),
            record_parts(live, self.replays, self.records),
            self.drained,
            from_source=from_source,
        )

    def drained(self, worker: SourcePipeline) -> int:
        self.drain(worker)
        return 0

    def open_letters(self) -> list[DeadLetterObject]:
        return list(letters.objects(self.dlq, "events_main"))

    def run(self, *, from_source: bool = False) -> Report:
        return self.replay(from_source=from_source).run(self.open_letters())

    def put_records(self, *found: dict[str, Any], batch: str = BATCH) -> None:
        lines = (
            json.dumps(
                {
                    "error": "bad",
                    "stage": "parse",
                    "timestamp": "1970-01-12T13:46:40+00:00",
                    "offset": 0,
                    "length": len(str(record.get("raw", ""))),
                    **record,
                }
            )
            for record in found
        )
        data = "".join(f"{line}\n" for line in lines).encode()
        self.dlq.put_atomic(f"events_main/{batch}.records.ndjson", data)


def quarantined(**source: Any) -> ReplayWorld:
    """Two files are ingested, two were given up in two batches."""
    world = ReplayWorld(**source)
    for day, name, row in [
        ("01", "1.json", "a"),
        ("01", "2.json", "bad"),
        ("02", "1.json", "b"),
        ("02", "2.json", "bad"),
    ]:
        world.put(f"date=2024-01-{day}/{name}", row)
    world.drain()
    assert world.rows() == ["a", "b"]
    assert len(world.open_letters()) == 2
    return world


def mend(world: World) -> None:
    world.put("date=2024-01-01/2.json", "c")
    world.put("date=2024-01-02/2.json", "d")


@pytest.mark.parametrize("kind", ["file", "record"])
def test_a_letter_that_leads_elsewhere_by_its_dots_is_refused(kind: str) -> None:
    world = ReplayWorld()
    world.put("date=2024-01-01/1.json", "a")
    world.drain()
    uri = f"{world.source.uri}/../other/salaries.json"
    if kind == "record":
        world.put_records({"path": uri, "line": 1, "raw": "b"})
    else:
        told = {"path": uri, "error": "bad", "stage": "parse", "retry_count": 0}
        letter = {**told, "timestamp": "1970-01-12T13:46:40+00:00"}
        world.dlq.put_atomic(f"events_main/{BATCH}.ndjson", json.dumps(letter).encode() + b"\n")
    report = world.run()
    assert [outcome.state for outcome in report.outcomes] == ["refused"]
    assert "leads elsewhere by its dots" in report.outcomes[0].error
    assert world.rows() == ["a"]
    assert not [path for path in world.records.objects if "salaries" in path]


def test_mended_files_are_ingested_once_into_their_own_partitions() -> None:
    world = quarantined()
    live = world.checkpoint()
    mend(world)
    preview = list(world.replay().preview(world.open_letters()))
    assert [(o.state, o.files) for o in preview] == [("would replay", 1), ("would replay", 1)]
    assert world.rows() == ["a", "b"]

    report = world.run()
    assert [o.state for o in report.outcomes] == ["replayed", "replayed"]
    assert (report.ingested, report.failed_again, report.rows, report.exit_code) == (2, 0, 2, 0)
    assert world.rows() == ["a", "b", "c", "d"]
    placed = {path.rpartition("/")[0]: rows for path, rows in world.published().items()}
    assert set(placed) == {"date=2024-01-01", "date=2024-01-02"}
    assert world.checkpoint() == live
    assert world.open_letters() == []
    away = list(letters.objects(world.dlq, "events_main", replayed=True))
    assert [found.replayed for found in away] == [True, True]

    again = world.run()
    assert (again.outcomes, again.rows) == ((), 0)
    world.drain()
    assert world.rows() == ["a", "b", "c", "d"]


def test_a_letter_stays_open_until_what_it_is_left_to_has_done_it() -> None:
    world = quarantined(grace_period="1s")
    world.now += 100
    world.drain()
    source = world.pipeline()
    seen = checkpoint_edit.stored(source)
    again = partial(checkpoint_edit.moved, partition="date=2024-01-02", name="1.json")
    checkpoint_edit.change(source, seen, again, world.now)
    mend(world)
    assert [o.state for o in world.replay().preview(world.open_letters())] == [
        "would replay",
        "would leave",
    ]
    assert [o.state for o in world.run().outcomes] == ["replayed", "left"]
    assert world.rows() == ["a", "b", "c"]
    world.drain()
    assert world.rows() == ["a", "b", "c", "d"]
    assert [o.state for o in world.run().outcomes] == ["replayed"]
    assert (world.rows(), world.open_letters()) == (["a", "b", "c", "d"], [])


def test_a_replay_goes_by_no_checkpoint_that_the_daemon_would_refuse() -> None:
    world = ReplayWorld()
    world.put("date=2024-01-01/1.json", "a")
    world.drain()
    copy = world.sink.objects[CHECKPOINT]
    world.put("date=2024-01-01/2.json", "bad")
    world.drain()
    world.sink.objects[CHECKPOINT] = copy
    for replays in (world.run, lambda: list(world.replay().preview(world.open_letters()))):
        with pytest.raises(StateError, match="is stale"):
            replays()
    assert len(world.open_letters()) == 1
    with pytest.raises(StateError, match="is stale"):
        ingest_files(world.live(), "date=2024-01-01/2.json")


def test_a_replay_beside_a_daemon_that_goes_on_meanwhile_is_not_refused() -> None:
    world = quarantined()
    mend(world)
    world.put("date=2024-01-03/1.json", "e")
    read = world.sink.read
    left = [1]

    def goes_on(path: str) -> bytes:
        found = read(path)
        if path == CHECKPOINT and left:
            left.clear()
            world.drain()  # between the read of its checkpoint and the look at its journal
        return found

    world.sink.read = goes_on  # type: ignore[method-assign]  # the race
    assert [o.state for o in world.run().outcomes] == ["replayed", "replayed"]
    assert world.rows() == ["a", "b", "c", "d", "e"]


def ask(world: World, path: str) -> Explanation:
    place = Located(f"mem://raw/{path}", "events/main", path, "", ())
    pipeline = world.pipeline()
    return explain(pipeline.parts, pipeline.source, place, {})


def test_explain_tells_of_replays() -> None:
    world = quarantined()
    path = "date=2024-01-01/2.json"
    assert ask(world, path).verdict == "quarantined"
    world.run()
    again = ask(world, path)
    assert (again.verdict, "of `blizzard dlq replay`" in again.reason) == (
        "quarantined",
        True,
    )
    assert again.dead_letter is not None
    assert again.dead_letter.error == "line 1: bad"
    mend(world)
    world.put_records({"path": "mem://raw/date=2024-01-02/1.json", "line": 3, "raw": "r3"})
    world.run()
    found = ask(world, path)
    assert (found.verdict, found.batch and found.batch.replay) == ("ingested", True)
    assert "1 row in batch" in found.reason
    assert "of `blizzard dlq replay`" in found.reason
    whole = ask(world, "date=2024-01-02/1.json")
    assert (whole.verdict, whole.records_replayed) == ("ingested", 1)
    assert "1 more row by replays of its dead records" in whole.reason
    # An old letter is found where the replay put it.
    del world.sink.objects["_blizzard/events_main~replay_checkpoint.json"]
    for name in [n for n in world.sink.objects if "journal/events_main~replay" in n]:
        del world.sink.objects[name]
    put_away = ask(world, path)
    assert put_away.dead_letter is not None
    assert put_away.dead_letter.error == "line 1: bad"


def test_what_fails_again_has_a_new_letter_that_can_be_replayed() -> None:
    world = quarantined()
    world.put("date=2024-01-01/2.json", "c")
    report = world.run()
    assert (report.ingested, report.failed_again, report.rows) == (1, 1, 1)
    assert (report.bad_rows, report.exit_code) == (0, 1)
    [left] = world.open_letters()
    [letter] = letters.read(world.dlq, left)
    assert letter.uri == "mem://raw/date=2024-01-02/2.json"
    world.put("date=2024-01-02/2.json", "d")
    assert world.run().rows == 1
    assert world.rows() == ["a", "b", "c", "d"]
    assert world.open_letters() == []


def test_records_that_are_bad_again_failed_and_bad_lines_of_a_file_that_is_in_did_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(_engine: Engine, path: str) -> tuple[FinishedFile, list[str]]:
        kept = [] if path.endswith(".ndjson") else ["mended"]
        return FinishedFile(path, "ingested", len(kept), 1, bad_rows=3), kept

    world = quarantined()
    monkeypatch.setattr(Engine, "read", read)
    report = world.run()
    assert (report.rows, report.failed_again, report.bad_rows, report.exit_code) == (2, 0, 6, 0)
    world.put_records({"path": "mem://raw/date=2024-01-02/1.json", "line": 3, "raw": "bad"})
    report = world.run()
    assert (report.rows, report.failed_again, report.bad_rows, report.exit_code) == (0, 3, 0, 1)


def test_a_file_that_is_gone_ends_as_a_letter_and_not_in_a_loop() -> None:
    world = quarantined()
    world.source.delete("date=2024-01-01/2.json")
    report = world.run()
    assert report.failed_again == 2
    assert len(world.open_letters()) == 1  # both of one batch now
    assert world.rows() == ["a", "b"]


def test_flaky_files_stay_in_the_queue_until_they_are_read() -> None:
    world = quarantined()
    mend(world)
    world.replays.flaky["date=2024-01-01/2.json"] = 1

    def stopped(worker: SourcePipeline) -> int:
        worker.cycle(threading.Event())
        return 0

    replay = world.replay()
    replay.drain = stopped
    stopped_at = replay.run(world.open_letters())
    assert [o.state for o in stopped_at.outcomes] == ["taken", "taken"]
    assert stopped_at.exit_code == 1
    assert world.run().rows == 1
    assert world.rows() == ["a", "b", "c", "d"]
    assert world.open_letters() == []


def with_records() -> ReplayWorld:
    world = quarantined()
    path = "mem://raw/date=2024-01-02/1.json"
    world.put_records(
        {"path": path, "line": 3, "raw": "r3"},
        {"path": path, "line": 7, "raw_base64": base64.b64encode(b"r7").decode(), "length": 2},
        {"path": "mem://raw/date=2024-01-01/1.json", "line": 1, "raw": "r1"},
    )
    return world


def test_records_go_where_the_rest_of_their_file_went() -> None:
    world = with_records()
    mend(world)
    report = world.run()
    assert report.rows == 5
    assert [o.records for o in report.outcomes if o.kind == "records"] == [3]
    by_folder: dict[str, list[str]] = {}
    for path, rows in world.published().items():
        by_folder.setdefault(path.rpartition("/")[0], []).extend(rows)
    assert sorted(by_folder["date=2024-01-01"]) == ["a", "c", "r1"]
    assert sorted(by_folder["date=2024-01-02"]) == ["b", "d", "r3", "r7"]
    assert world.run().rows == 0


def test_records_that_fail_again_have_a_letter_whose_replay_keeps_their_partition() -> None:
    world = quarantined()
    world.put_records({"path": "mem://raw/date=2024-01-02/1.json", "line": 3, "raw": "bad"})
    mend(world)
    assert world.run().failed_again == 1
    [left] = world.open_letters()
    [letter] = letters.read(world.dlq, left)
    assert letter.uri == f"{world.records.uri}/date=2024-01-02/1.json.{BATCH}.0.ndjson"
    # The operator mends the record file itself.
    world.records.put_atomic(letter.uri.removeprefix(f"{world.records.uri}/"), b"mended\n")
    assert world.run().rows == 1
    assert sorted(world.rows()) == ["a", "b", "c", "d", "mended"]
    # A record letter of a record file does not make names grow.
    other = BATCH.replace("1", "2")
    world.put_records({"path": letter.uri, "line": 1, "raw": "x"}, batch=other)
    assert world.run().rows == 1
    assert f"date=2024-01-02/1.json.{other}.0.ndjson" in world.records.objects


@pytest.mark.parametrize("name", ["a" * 172, "a" * 173, "a" * 248, "\u00e4" * 124])
def test_records_of_a_file_with_a_long_name_fit_on_a_disk(name: str, tmp_path: Path) -> None:
    world = quarantined()
    path = f"date=2024-01-02/{name}"
    other = f"{path[:-1]}b"
    world.put(path, "x")
    world.put(other, "y")
    uris = [f"mem://raw/{path}", f"mem://raw/{other}"]
    world.put_records(*({"path": uri, "line": 3, "raw": f"r{uri[-1]}"} for uri in uris))
    assert world.run().rows == 2
    written = [p for p in world.records.objects if BATCH in p]
    assert len(written) == 2
    disk = LocalStorage(tmp_path)
    for record_file in written:
        assert record_file.startswith("date=2024-01-02/")
        disk.put_atomic(record_file, b"")
    assert records_replayed(world.sink, "events_main~records", path, 1) == 1
    # Its records go by the same name when they fail again.
    again = BATCH.replace("1", "2")
    world.put_records(
        {"path": f"{world.records.uri}/{written[0]}", "line": 1, "raw": "x"}, batch=again
    )
    assert world.run().rows == 1
    assert written[0].replace(BATCH, again) in world.records.objects


def test_cut_records_are_read_again_from_their_file() -> None:
    world = quarantined()
    path = "date=2024-01-02/1.json"
    world.put(path, "b", "long line", "z")
    letter = {"path": f"mem://raw/{path}", "line": 2, "raw": "long l", "truncated": True}
    world.put_records(letter)
    mend(world)
    assert "long line" in (world.run(), world.rows())[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is gone and 1 of its lines"),
        (
            ["b", "other", "z"],
            "is another one than when its letter was written; give --from-source",
        ),
        (["b"], "has no line 2 any more"),
    ],
)
def test_a_cut_record_that_cannot_be_read_again_is_refused_and_kept(
    content: list[str] | None, message: str
) -> None:
    world = quarantined()
    path = "date=2024-01-02/1.json"
    if content is None:
        world.source.delete(path)
    else:
        world.put(path, *content)
    letter = {"path": f"mem://raw/{path}", "line": 2, "raw": "long line", "truncated": True}
    world.put_records(letter)
    report = world.run()
    [refused] = [o for o in report.outcomes if o.state == "refused"]
    assert message in refused.error
    assert report.exit_code == 1
    assert f"{BATCH}.records" in [found.id for found in world.open_letters()]


def test_records_of_a_mended_file_are_taken_from_it_if_told_so() -> None:
    world = quarantined()
    path = "date=2024-01-02/1.json"
    world.put_records({"path": f"mem://raw/{path}", "line": 2, "raw": "broken"})
    world.put(path, "b", "mended", "z")
    mend(world)
    world.run(from_source=True)
    assert world.rows() == ["a", "b", "c", "d", "mended"]


def test_letters_of_a_batch_in_flight_wait_for_it() -> None:
    # Die after the letter was written and before the batch was saved as done.
    for at in range(40):
        world = ReplayWorld()
        world.put("date=2024-01-01/1.json", "bad")
        Dying(world.sink, world.dlq).arm(at)
        with contextlib.suppress(Died):
            world.drain()
        flying = world.sink.objects and world.checkpoint().get("in_flight")
        if flying and flying[0]["phase"] == "publishing" and world.dlq.objects:
            break
    else:
        pytest.fail("no death fell between the letter and the save")
    world.put("date=2024-01-01/1.json", "mended")
    [refused] = world.run().outcomes
    assert refused.state == "refused"
    assert "not finished yet" in refused.error
    world.drain()
    # What was committed of it stays so: bad, whatever it is now.
    assert world.rows() == []
    assert world.run().rows == 1
    assert world.rows() == ["mended"]


def test_a_mended_file_is_settled_for_the_late_sweep_and_left_to_the_replay() -> None:
    world = quarantined(late_files="ingest", late_sweep_interval="1000s", grace_period="1s")
    world.now += 100
    world.put("date=2024-01-01/3.json", "x")
    world.put("date=2024-01-02/3.json", "y")
    world.drain()
    world.now += 100
    world.drain()
    world.now += 100
    mend(world)
    for _ in range(2):
        world.now += 2000
        world.drain()
    assert world.rows() == ["a", "b", "x", "y"]
    report = world.run()
    assert (report.rows, [o.left_to_others for o in report.outcomes]) == (2, [()] * 2)
    for _ in range(2):
        world.now += 2000
        world.drain()
    assert world.rows() == ["a", "b", "c", "d", "x", "y"]


def test_a_late_file_with_two_letters_is_ingested_once() -> None:
    world = quarantined()
    mend(world)
    first = world.open_letters()[0]
    [letter] = letters.read(world.dlq, first)
    double = {"path": letter.uri, "error": "late", "stage": "late", "timestamp": letter.timestamp}
    line = json.dumps(double).encode() + b"\n"
    world.dlq.put_atomic("events_main/late-1.ndjson", line)
    assert world.run().rows == 2
    world.dlq.put_atomic("events_main/late-2.ndjson", line)
    report = world.run()
    assert report.rows == 0
    assert "a replay has ingested it" in report.outcomes[0].left_to_others[0][1]
    assert world.rows() == ["a", "b", "c", "d"]


def test_a_letter_that_its_writer_brings_back_when_it_wakes_up_is_put_away_again() -> None:
    world = quarantined()
    mend(world)
    written = {o.path: world.dlq.read(o.path) for o in world.open_letters()}
    assert world.run().rows == 2
    for path, data in written.items():
        world.dlq.put_atomic(path, data)
    report = world.run()
    assert report.rows == 0
    assert {o.state for o in report.outcomes} == {"replayed"}
    assert world.open_letters() == []
    assert world.rows() == ["a", "b", "c", "d"]


def test_records_whose_letter_comes_back_bring_nothing_again() -> None:
    world = with_records()
    mend(world)
    [written] = [o.path for o in world.open_letters() if o.kind == "records"]
    data = world.dlq.read(written)
    assert world.run().rows == 5
    for _ in range(2):
        # One that was paused while it copied them goes on.
        world.dlq.put_atomic(written, data)
        report = world.run()
        assert (report.rows, [o.state for o in report.outcomes]) == (0, ["replayed"])
        assert all(
            "a replay has ingested it" in why for _, why in report.outcomes[0].left_to_others
        )
        assert world.open_letters() == []
    assert world.rows() == ["a", "b", "c", "d", "r1", "r3", "r7"]


def test_records_that_failed_again_come_once_although_their_letter_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = quarantined()
    world.put_records({"path": "mem://raw/date=2024-01-02/1.json", "line": 3, "raw": "bad"})
    mend(world)
    [written] = [o.path for o in world.open_letters() if o.kind == "records"]
    data = world.dlq.read(written)
    assert world.run().failed_again == 1
    world.dlq.put_atomic(written, data)
    good = (FinishedFile("", "ingested", 1, 1), ["mended"])  # by another schema
    monkeypatch.setattr(Engine, "read", lambda _, path: (replace(good[0], path=path), good[1]))
    report = world.run()
    assert (report.rows, [o.kind for o in report.outcomes]) == (1, ["records", "files"])
    world.dlq.put_atomic(written, data)
    assert world.run().rows == 0
    assert world.rows() == ["a", "b", "c", "d", "mended"]


def test_a_letter_that_is_none_is_refused_and_named() -> None:
    world = quarantined()
    world.dlq.put_atomic("events_main/x.ndjson", b'{"path": "p"}\n')
    world.dlq.put_atomic("events_main/y.ndjson", b"\n" + b"x" * (5 << 20))
    outside = {"path": "s3://other/1", "error": "", "stage": "", "timestamp": ""}
    world.dlq.put_atomic("events_main/z.ndjson", json.dumps(outside).encode())
    found = {o.id: o for o in world.run().outcomes}
    assert "line 1 is not a dead letter" in found["x"].error
    assert "line 2 is too long" in found["y"].error
    assert "is not below mem://raw/" in found["z"].error
    assert {o.state for o in found.values()} == {"replayed", "refused"}


def test_two_replays_at_once_fence_each_other() -> None:
    world = quarantined()
    mend(world)

    def overtaken(worker: SourcePipeline) -> int:
        reports = []
        with (
            overtaking(worker.parts.engine, lambda: reports.append(world.run())),
            pytest.raises(FencedError),
        ):
            worker.cycle(threading.Event())
        assert [report.rows for report in reports] == [2]
        return 3

    replay = world.replay()
    replay.drain = overtaken
    assert replay.run(world.open_letters()).exit_code == 3
    assert world.rows() == ["a", "b", "c", "d"]
    assert world.run().rows == 0


def test_letters_of_a_run_that_died_are_replayed_and_not_refused() -> None:
    world = quarantined()
    mend(world)
    replay = world.replay()
    replay.drain = lambda _worker: 1  # it takes the letters and gets no further
    taken = replay.run(world.open_letters())
    assert (taken.exit_code, {o.state for o in taken.outcomes}) == (1, {"taken"})
    report = world.run()
    assert (report.exit_code, report.rows) == (0, 2)
    assert {o.state for o in report.outcomes} == {"replayed"}


REPLAY = "events_main~replay"
RECORDS = "events_main~records"
# What docs/mending.md says to put in the place of one that cannot be brought back.
ANEW = (
    b'{"schema_version": 1, "watermark": {"state": "Initial"}, "partition_watermarks": {},'
    b' "last_update_ts": 0}'
)


def lose(world: ReplayWorld, source_id: str) -> None:
    """A replay commits a batch and dies before it publishes it; its checkpoint goes."""

    def dies(_operation: str, path: str) -> None:
        if f"/journal/{source_id}/" in path:
            raise Died

    world.sink.after_mutation = dies
    with pytest.raises(Died):
        world.run()
    world.sink.after_mutation = lambda *_: None
    del world.sink.objects[f"_blizzard/{source_id}_checkpoint.json"]


@pytest.mark.parametrize("source_id", [REPLAY, RECORDS])
def test_a_replay_whose_checkpoint_is_gone_is_refused_until_it_is_made_again(
    source_id: str,
) -> None:
    world = with_records()
    mend(world)
    lose(world, source_id)
    before = len(world.open_letters())
    assert before
    for tried in (world.run, lambda: list(world.replay().preview(world.open_letters()))):
        with pytest.raises(ColdStartRefused, match="Bring its last version back"):
            tried()
    assert len(world.open_letters()) == before
    # By hand, as docs/mending.md says.
    for path in [p for p in world.sink.objects if f"/journal/{source_id}/" in p]:
        for output in json.loads(world.sink.read(path))["outputs"]:
            finals = [output["final"], *output["earlier"]]
            if world.sink.stat(output["staged"]) and not any(map(world.sink.stat, finals)):
                world.sink.rename(output["staged"], output["final"])
    world.sink.put_atomic(f"_blizzard/{source_id}_checkpoint.json", ANEW)
    assert {o.state for o in world.run().outcomes} == {"replayed"}
    assert world.rows() == ["a", "b", "c", "d", "r1", "r3", "r7"]
    assert world.open_letters() == []


def survive(world: ReplayWorld) -> list[Outcome]:
    """Run until it ends without dying, as an operator would."""
    while True:
        try:
            return list(world.run().outcomes)
        except Died:
            continue


def prepared() -> ReplayWorld:
    world = with_records()
    world.put("date=2024-01-02/2.json", "d")  # the other one fails again
    return world


def test_dying_before_and_after_every_write_neither_doubles_nor_loses_a_row() -> None:
    world = prepared()
    dying = Dying(world.sink, world.dlq, world.records)
    dying.count = 0
    survive(world)
    steps = dying.count
    expected = ["a", "b", "d", "r1", "r3", "r7"]
    assert world.rows() == expected
    assert steps > 40
    for at in range(steps):
        world = prepared()
        live = world.checkpoint()
        dying = Dying(world.sink, world.dlq, world.records)
        dying.arm(at)
        survive(world)
        world.run()
        assert world.rows() == expected, at
        [left] = world.open_letters()
        assert [letter.uri for letter in letters.read(world.dlq, left)] == [
            "mem://raw/date=2024-01-01/2.json"
        ], at
        assert world.checkpoint() == live, at
        # What was missing is mended at last, and comes once.
        world.put("date=2024-01-01/2.json", "c")
        survive(world)
        assert world.rows() == sorted([*expected, "c"]), at


def many(count: int, *, records: bool) -> ReplayWorld:
    """One object with letters of many files, or of one record of each."""
    world = ReplayWorld()
    world.put("date=2024-01-01/0.json", "live")
    paths = [f"date=2024-01-01/{number}.json" for number in range(1, count + 1)]
    for path in paths if records else ():
        world.put(path, path)
    world.drain()
    lines = [{"path": f"mem://raw/{path}", "line": 3, "raw": f"{path}#3"} for path in paths]
    if records:
        world.put_records(*lines)
        return world
    for path in paths:
        world.put(path, "bad")
    world.drain()
    # As one batch would have written them.
    first, *others = (found.path for found in world.open_letters())
    for path in others:
        world.dlq.put_atomic(first, world.dlq.read(first) + world.dlq.read(path))
        world.dlq.delete(path)
    for path in paths:
        world.put(path, "bad" if path.endswith("/2.json") else path)
    return world


@pytest.mark.parametrize("records", [False, True])
def test_a_large_object_is_taken_in_parts_and_the_queue_stays_small(
    records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FILES_AT_ONCE", 2)
    world = many(7, records=records)
    queued: list[int] = []

    def after(_op: str, path: str) -> None:
        if StatePaths.of_checkpoint(path) is not None:
            queued.append(len(json.loads(world.sink.objects[path][0]).get("queue", [])))

    world.sink.after_mutation = after
    report = world.run()
    assert max(queued) == 2
    assert [(o.state, o.files) for o in report.outcomes] == [("replayed", 7)]
    assert report.rows == (7 if records else 6)
    assert report.failed_again == (0 if records else 1)
    assert len(list(letters.objects(world.dlq, "events_main"))) == (0 if records else 1)


@pytest.mark.parametrize("records", [False, True])
def test_dying_within_a_large_object_neither_doubles_nor_loses_a_row(
    records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FILES_AT_ONCE", 2)
    at, steps = -1, 0
    while at <= steps:
        world = many(3, records=records)
        dying = Dying(world.sink, world.dlq, world.records)
        dying.count = 0
        dying.arm(at)
        survive(world)
        steps = max(steps, dying.count) if at < 0 else steps
        world.dlq.before_mutation = world.dlq.after_mutation = lambda _op, _path: None
        if not records:
            world.put("date=2024-01-01/2.json", "date=2024-01-01/2.json")
            survive(world)
        paths = [f"date=2024-01-01/{number}.json" for number in (1, 2, 3)]
        came = [f"{path}#3" for path in paths] if records else []
        assert world.rows() == sorted(["live", *paths, *came]), at
        assert world.open_letters() == [], at
        at += 1
    assert steps > 20


def test_replays_without_a_watermark_know_what_the_live_daemon_has_still_to_do() -> None:
    world = quarantined(use_watermark=False)
    mend(world)
    assert world.run().rows == 2
    world.drain()
    assert world.rows() == ["a", "b", "c", "d"]
    assert Taken(world.replay().files).peek().letters == ()


def test_settings_of_a_replay_bound_nothing_but_the_letters() -> None:
    world = quarantined(min_age=0, late_files="ingest")
    world.errors = {"max_failures": 99}
    replay = world.replay()
    assert isinstance(replay.files.source, SourceSettings)
    assert replay.files.errors == ErrorSettings(max_failures=0)
    assert replay.records.ingest.max_bad_fraction == 1
    world.errors = {"on_bad_record": "fail"}
    stopped = world.replay()
    assert stopped.files.errors.on_bad_record == "quarantine_file"
    assert stopped.files.ingest.on_bad_record == "quarantine_file"
    assert stopped.records.errors.on_bad_record == "quarantine_record"
    assert replay.records.files.advanced.compression == "none"
    assert isinstance(replay.records.stores, Stores)
    assert replay.records.stores.source is world.records
