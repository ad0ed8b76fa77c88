"""Bad records from the tasks' staged objects to one object of the dead-letter queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blizzard_core.errors import BlizzardError, NotFound, StateError
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.dead_letters.writer import DeadLetterWriter
from blizzard_py.job import StagedBadRecords
from blizzard_py.state.batch import Batch, BatchResults
from tests.support.s3_server import S3Server

OBJECT = "events_main/b1.records.ndjson"


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(str(tmp_path), {})
    s3: S3Server = request.getfixturevalue("s3")
    return open_storage(f"s3://{s3.new_bucket()}/base", s3.options)


def stage(store: Storage, name: str, **files: int) -> StagedBadRecords:
    """A task's records: so many lines of each file, in the files' order."""
    lines = [
        json.dumps({"path": path, "line": n, "raw": "x" * 5000}).encode() + b"\n"
        for path, count in files.items()
        for n in range(count)
    ]
    store.put_atomic(name, b"".join(lines))
    return StagedBadRecords(name, tuple(files.items()))


def batch(*letters: StagedBadRecords) -> Batch:
    return Batch("b1", 1, "publishing", 1.0, (), 1.0, results=BatchResults(letters=letters))


def names(store: Storage) -> list[str]:
    """Everything in the queue."""
    return [e.path for p in store.list_range("events_main/", "events_main0") for e in p.entries]


def stored_letters(store: Storage) -> list[tuple[str, int]]:
    found = [json.loads(line) for line in store.read(OBJECT).splitlines()]
    return [(letter["path"], letter["line"]) for letter in found]


def test_records_of_all_tasks_are_ordered_by_file_and_line(store: Storage) -> None:
    letters = DeadLetterWriter(store, "events_main", "s3://raw")
    first = stage(store, "staging/0", a=200, d=1)
    second = stage(store, "staging/1", b=2, c=300)
    uri = letters.keep_records(batch(first, second), store)
    assert uri == f"{store.uri}/{OBJECT}"
    assert stored_letters(store) == [
        (path, n)
        for path, count in {"a": 200, "b": 2, "c": 300, "d": 1}.items()
        for n in range(count)
    ]
    # Whoever finishes the batch writes the same again.
    before = store.read(OBJECT)
    letters.keep_records(batch(first, second), store)
    assert store.read(OBJECT) == before
    assert names(store) == [OBJECT]
    assert letters.keep_records(batch(), store) is None


@pytest.mark.parametrize("place", [OBJECT, "events_main/replayed/b1.records.ndjson"])
def test_records_no_longer_staged_are_copied_or_missing(store: Storage, place: str) -> None:
    letters = DeadLetterWriter(store, "events_main", "s3://raw")
    staged = stage(store, "staging/0", a=1)
    store.delete("staging/0")
    with pytest.raises(StateError, match="neither staged nor here"):
        letters.keep_records(batch(staged), store)
    store.put_atomic(place, b"kept before, or by a replay put away")
    assert letters.keep_records(batch(staged), store) == f"{store.uri}/{OBJECT}"
    assert names(store) == [place]


def test_partial_copies_of_a_crash_are_removed(store: Storage) -> None:
    letters = DeadLetterWriter(store, "events_main", "s3://raw")
    letters.tidy(batch())  # a queue that nothing was written to yet
    left = "events_main/b1.records.0f.tmp"
    others = ["events_main/b1.ndjson", OBJECT, "events_main/b2.records.0f.tmp"]
    for path in (left, *others):
        store.put_atomic(path, b"x")
    letters.tidy(batch())
    assert names(store) == sorted(others)


def test_fewer_records_than_were_reported_are_no_letters(store: Storage) -> None:
    letters = DeadLetterWriter(store, "events_main", "s3://raw")
    staged = StagedBadRecords(stage(store, "staging/0", a=2).staged, (("a", 3),))
    with pytest.raises(BlizzardError, match="a: its task reported 3 bad records and staged 2"):
        letters.keep_records(batch(staged), store)
    with pytest.raises(NotFound):
        store.read(OBJECT)
