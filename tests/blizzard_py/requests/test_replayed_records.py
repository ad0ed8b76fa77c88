"""Single records of dead letters that come after a fix, from files of their own."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from blizzard_core.storage.local import LocalStorage
from blizzard_py.requests.report import ReportLine
from tests.support.letter_harness import (
    FIRST,
    INGESTED,
    NEXT_DAY,
    FailedFilesHarness,
    record_name,
    uri,
)
from tests.support.request_harness import BATCH, DAY, RECORDS

LETTER = f"{BATCH}.records"
OTHER_BATCH = BATCH.replace("1", "2")
BASE = ["1", "5", "52", "b"]
NAME = record_name(INGESTED)


def replayed(
    world: FailedFilesHarness, letter: str = LETTER, **options: object
) -> list[ReportLine]:
    """Replay one letter and have the daemon bring it; what became of each file."""
    request_id = world.ask({"letters": [letter]}, **options)
    world.drain()
    return world.report(request_id)


def states(lines: list[ReportLine]) -> dict[str, str]:
    return {line.path: line.state for line in lines}


def test_records_go_where_the_rest_of_their_file_went() -> None:
    world = FailedFilesHarness()
    coded = base64.b64encode(b"r7").decode()
    world.put_records(
        {"path": uri(INGESTED), "line": 3, "raw": "r3"},
        {"path": uri(INGESTED), "line": 7, "raw_base64": coded, "length": 2},
        {"path": uri(f"{DAY}/1.json"), "line": 1, "raw": "r1"},
    )
    assert states(replayed(world)) == {NAME: "ingested", record_name(f"{DAY}/1.json"): "ingested"}
    by_folder: dict[str, list[str]] = {}
    for path, rows in world.published().items():
        by_folder.setdefault(path.rpartition("/")[0], []).extend(rows)
    assert sorted(by_folder[DAY]) == ["1", "5", "52", "r1"]
    assert sorted(by_folder[NEXT_DAY]) == ["b", "r3", "r7"]
    assert LETTER not in world.open_ids()
    world.go_on()
    assert world.rows() == [*BASE, "r1", "r3", "r7"]


@pytest.mark.promise("G-060")
def test_records_of_a_restored_letter_do_not_come_again() -> None:
    world = FailedFilesHarness()
    records = [{"path": uri(INGESTED), "raw": "r2"}, {"path": uri(INGESTED), "raw": "r3"}]
    world.put_records(*records)
    assert states(replayed(world)) == {NAME: "ingested"}
    for _ in range(2):
        # One that was paused while it copied them goes on.
        world.put_records(*records)
        assert states(replayed(world)) == {NAME: "present"}
        assert LETTER not in world.open_ids()
    assert world.rows() == [*BASE, "r2", "r3"]


@pytest.mark.promise("G-114")
def test_records_failing_again_keep_their_partition() -> None:
    world = FailedFilesHarness()
    world.put_records({"path": uri(INGESTED), "raw": "bad"})
    assert states(replayed(world)) == {NAME: "quarantined"}
    record_file = f"{world.dlq.uri}/{RECORDS}/{INGESTED}.{BATCH}.0.ndjson"
    assert record_file in world.open_uris()
    # The operator mends the record file itself.
    world.dlq.put_atomic(record_file.removeprefix(f"{world.dlq.uri}/"), b"mended\n")
    assert world.replay()[NAME] == "ingested"
    assert world.rows() == [*BASE, "mended"]
    # A record letter of a record file does not make names grow.
    world.put_records({"path": record_file, "line": 1, "raw": "x"}, batch=OTHER_BATCH)
    assert states(replayed(world, f"{OTHER_BATCH}.records")) == {
        record_name(INGESTED, OTHER_BATCH): "ingested"
    }
    assert f"{INGESTED}.{OTHER_BATCH}.0.ndjson" in world.record_files()


def test_records_that_are_bad_again_are_counted() -> None:
    world = FailedFilesHarness()
    world.put_records({"path": uri(INGESTED), "raw": "?a"}, {"path": uri(INGESTED), "raw": "b2"})
    [line] = replayed(world)
    assert (line.state, line.rows, line.bad) == ("ingested", 1, 1)
    assert world.rows() == [*BASE, "b2"]


def test_records_failing_twice_come_once_with_a_restored_letter() -> None:
    world = FailedFilesHarness()
    world.put_records({"path": uri(INGESTED), "raw": "bad"})
    assert states(replayed(world)) == {NAME: "quarantined"}
    world.engine.is_lenient = True  # another schema
    world.put_records({"path": uri(INGESTED), "raw": "bad"})
    assert states(replayed(world)) == {NAME: "ingested"}
    world.put_records({"path": uri(INGESTED), "raw": "bad"})
    assert states(replayed(world)) == {NAME: "present"}
    assert world.rows() == [*BASE, "bad"]


@pytest.mark.parametrize("name", ["a" * 167, "a" * 168, "a" * 243, "\u00e4" * 120])
def test_records_of_a_file_with_a_long_name_fit_on_a_disk(name: str, tmp_path: Path) -> None:
    world = FailedFilesHarness()
    path = f"{NEXT_DAY}/{name}.json"
    other = f"{NEXT_DAY}/{name[:-1]}b.json"
    world.put(path, "x", "?")
    world.put(other, "y")
    world.drain()
    uris = [uri(path), uri(other)]
    world.put_records(*({"path": each, "raw": f"r{each[-6]}"} for each in uris))
    assert set(states(replayed(world)).values()) == {"ingested"}
    assert len(world.record_files()) == 2
    disk = LocalStorage(tmp_path)
    for record_file in world.record_files():
        assert record_file.startswith(f"{NEXT_DAY}/")
        disk.put_atomic(record_file, b"")
    found = world.explained(path)
    assert (found.verdict, found.records_replayed) == ("ingested", 1)
    assert "1 more row by replays of its dead records" in found.reason
    # Its records go by the same name when they fail again.
    written = world.record_files()[0]
    world.put_records(
        {"path": f"{world.dlq.uri}/{RECORDS}/{written}", "line": 1, "raw": "z"}, batch=OTHER_BATCH
    )
    assert set(states(replayed(world, f"{OTHER_BATCH}.records")).values()) == {"ingested"}
    assert written.replace(BATCH, OTHER_BATCH) in world.record_files()


def test_cut_records_are_read_again_from_their_file() -> None:
    world = FailedFilesHarness()
    world.put(INGESTED, "b", "long line", "z")
    world.put_records({"path": uri(INGESTED), "line": 2, "raw": "long l", "truncated": True})
    assert states(replayed(world)) == {NAME: "ingested"}
    assert world.rows() == [*BASE, "long line"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is gone and 1 of its lines"),
        (
            ["b", "other", "z"],
            "has changed since its letter was written; give --from-source",
        ),
        (["b"], "has no line 2 any more"),
    ],
)
def test_truncated_record_stays_open_when_its_line_is_unreadable(
    content: list[str] | None, message: str
) -> None:
    world = FailedFilesHarness()
    if content is None:
        world.source.delete(INGESTED)
    else:
        world.put(INGESTED, *content)
    world.put_records({"path": uri(INGESTED), "line": 2, "raw": "long line", "truncated": True})
    [refused] = replayed(world)
    assert (refused.path, refused.state) == (LETTER, "refused")
    assert message in refused.reason
    assert LETTER in world.open_ids()
    assert world.rows() == BASE


def test_replay_from_source_reads_records_from_a_mended_file() -> None:
    world = FailedFilesHarness()
    world.put_records({"path": uri(INGESTED), "line": 2, "raw": "broken"})
    world.put(INGESTED, "b", "mended", "z")
    assert states(replayed(world, from_source=True)) == {NAME: "ingested"}
    assert world.rows() == [*BASE, "mended"]


def test_lines_of_records_that_failed_twice_are_unknown() -> None:
    """Their letters name the file that the replay wrote."""
    world = FailedFilesHarness()
    again = f"{world.dlq.uri}/{RECORDS}/{INGESTED}.{OTHER_BATCH}.0.ndjson"
    world.put_records({"path": again, "line": 1, "raw": "r"})
    [refused] = replayed(world, from_source=True)
    assert (refused.path, refused.state) == (LETTER, "refused")
    assert "without --from-source, or with --replace" in refused.reason
    assert states(replayed(world)) == {NAME: "ingested"}
    assert world.rows() == [*BASE, "r"]


def test_records_of_a_missing_file_come_from_the_dead_letter() -> None:
    world = FailedFilesHarness()
    world.source.delete(FIRST)
    world.put_records({"path": uri(FIRST), "raw": "r"})
    assert states(replayed(world)) == {record_name(FIRST): "ingested"}
    assert world.rows() == [*BASE, "r"]
