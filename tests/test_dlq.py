"""Bad records from the tasks' staged objects to one object of the dead-letter queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blizzard_py.core.errors import BlizzardError, NotFound
from blizzard_py.core.model import StagedLetters
from blizzard_py.core.storage import Storage
from blizzard_py.core.stores import open_storage
from blizzard_py.dlq import DeadLetters
from tests.s3_server import S3Server

OBJECT = "events_main/b1.records.ndjson"


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(str(tmp_path), {})
    s3: S3Server = request.getfixturevalue("s3")
    return open_storage(f"s3://{s3.new_bucket()}/base", s3.options)


def stage(store: Storage, name: str, **files: int) -> StagedLetters:
    """A task's records: so many lines of each file, in the files' order."""
    lines = [
        json.dumps({"path": path, "line": n, "raw": "x" * 5000}).encode() + b"\n"
        for path, count in files.items()
        for n in range(count)
    ]
    store.put_atomic(name, b"".join(lines))
    return StagedLetters(name, tuple(files.items()))


def kept(store: Storage) -> list[tuple[str, int]]:
    found = [json.loads(line) for line in store.read(OBJECT).splitlines()]
    return [(letter["path"], letter["line"]) for letter in found]


def test_records_of_all_tasks_come_in_the_order_of_files_and_lines(store: Storage) -> None:
    letters = DeadLetters(store, "events_main", "s3://raw")
    first = stage(store, "staging/0", a=200, d=1)
    second = stage(store, "staging/1", b=2, c=300)
    uri = letters.keep_records("b1", store, [first, second])
    assert uri == f"{store.uri}/{OBJECT}"
    assert kept(store) == [
        (path, n)
        for path, count in {"a": 200, "b": 2, "c": 300, "d": 1}.items()
        for n in range(count)
    ]
    # The batch runs again: with fewer, then with none.
    letters.keep_records("b1", store, [stage(store, "staging/2", a=1)])
    assert kept(store) == [("a", 0)]
    assert letters.keep_records("b1", store, []) is None
    with pytest.raises(NotFound):
        store.read(OBJECT)
    assert [e.path for p in store.list_range("events_main/", None) for e in p.entries] == [
        "staging/0",
        "staging/1",
        "staging/2",
    ]


def test_fewer_records_than_were_reported_are_no_letters(store: Storage) -> None:
    letters = DeadLetters(store, "events_main", "s3://raw")
    staged = StagedLetters(stage(store, "staging/0", a=2).staged, (("a", 3),))
    with pytest.raises(BlizzardError, match="a: its task reported 3 bad records and staged 2"):
        letters.keep_records("b1", store, [staged])
    with pytest.raises(NotFound):
        store.read(OBJECT)
