"""Dead letters that operators have brought after a fix: once, over any deaths, then put away."""

from __future__ import annotations

import json
from typing import Any

from blizzard_py.job import IngestJob, IngestResult
from tests.support.blizzard_world import LineEngine
from tests.support.memory_store import MemoryStorage
from tests.support.request_world import DAY, SOURCE_ID, RequestWorld

BATCH = "019aa000-0000-7000-8000-000000000001"
BASE = ["1", "5", "52"]


class Engine(LineEngine):
    """Reads from the place that the job names: the source, or the records in the dead letters."""

    def __init__(self, source: MemoryStorage, sink: MemoryStorage, dlq: MemoryStorage) -> None:
        super().__init__(source, sink)
        self.raw, self.dlq = source, dlq

    def ingest(self, job: IngestJob) -> IngestResult:
        of_records = job.settings.source.uri == f"{self.dlq.uri}/{SOURCE_ID}~records"
        self.source = _Below(self.dlq, f"{SOURCE_ID}~records") if of_records else self.raw  # type: ignore[assignment]  # only read from
        return super().ingest(job)


class _Below:
    def __init__(self, store: MemoryStorage, folder: str) -> None:
        self.store, self.folder = store, folder

    def read(self, path: str) -> bytes:
        return self.store.read(f"{self.folder}/{path}")


class LetterWorld(RequestWorld):
    """The source with two files that were given up, in two batches."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**source)
        self.engine: Engine = Engine(self.source, self.sink, self.dlq)
        for name in ("60", "61"):
            self.now += 10
            self.put(f"{DAY}/{name}.json", "bad")
            self.drain()
        assert len(self.open_letters()) == 2

    def mend(self) -> None:
        for name in ("60", "61"):
            self.put(f"{DAY}/{name}.json", f"m{name}")

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
        self.dlq.put_atomic(f"{SOURCE_ID}/{batch}.records.ndjson", data)


def test_mended_files_come_once_and_their_letters_are_put_away() -> None:
    world = LetterWorld()
    world.mend()
    assert set(world.replay().values()) == {"ingested"}
    assert world.rows() == [*BASE, "m60", "m61"]
    assert world.open_letters() == []
    assert world.replay("gone") == {}
    world.go_on()
    assert world.rows() == [*BASE, "m60", "m61"]


def test_what_fails_again_has_a_new_letter() -> None:
    world = LetterWorld()
    before = {each.id for each in world.open_letters()}
    assert set(world.replay().values()) == {"quarantined"}
    after = {each.id for each in world.open_letters()}
    assert (len(after), before & after) == (1, set())


def test_records_come_once_from_files_of_their_own() -> None:
    world = LetterWorld()
    uri = f"{world.source.uri}/{DAY}/1.json"
    world.put_records({"path": uri, "line": 2, "raw": "r2"}, {"path": uri, "line": 3, "raw": "r3"})
    found = world.replay(f"{BATCH}.records")
    assert list(found.values()) == ["ingested"]
    assert world.rows() == [*BASE, "r2", "r3"]
    assert f"{BATCH}.records" not in {each.id for each in world.open_letters()}
    world.go_on()
    assert world.rows() == [*BASE, "r2", "r3"]
    # Brought back by who slept: nothing of it comes again.
    world.put_records({"path": uri, "line": 2, "raw": "r2"}, {"path": uri, "line": 3, "raw": "r3"})
    assert list(world.replay(f"{BATCH}.records").values()) == ["present"]
    assert world.rows() == [*BASE, "r2", "r3"]


def test_a_file_that_is_replaced_takes_its_records_out() -> None:
    world = LetterWorld()
    paths = [f"{DAY}/1.json", f"{DAY}/5.json"]
    world.put(paths[0], "new1", "new2")
    # Their rows lie in one output, and do not name their files.
    assert world.bring({"range": [paths[0], paths[0]]}, mode="replace") == {}
    found = world.bring({"files": paths}, mode="replace")
    assert found == dict.fromkeys(paths, "replaced")


def test_a_range_comes_again_beside_its_rows() -> None:
    world = LetterWorld()
    found = world.bring({"range": [DAY, DAY]}, mode="again")
    assert found[f"{DAY}/1.json"] == "ingested"
    assert world.rows() == sorted([*BASE, *BASE])


def test_closed_letters_are_put_away_and_replayed_by_nobody() -> None:
    world = LetterWorld()
    ids = [each.id for each in world.open_letters()]
    request_id = world.ask({"letters": ids[:1]}, "close_letters")
    world.drain()
    assert world.request(request_id).state == "done"
    assert [each.id for each in world.open_letters()] == ids[1:]
    world.mend()
    assert list(world.replay(*ids).values()) == ["ingested"]
    assert world.rows() == [*BASE, "m61"]
