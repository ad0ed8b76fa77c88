"""Rows of a table that did not fit: their letters are replayed once the schema is mended."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from blizzard_py.app.workers import source_pipeline
from blizzard_py.dead_letters import reader
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import FieldSpec, IngestJob, IngestResult
from blizzard_py.kernels.packing import pack, tasks_of
from blizzard_py.kernels.report import merged
from blizzard_py.kernels.task import run_task
from blizzard_py.requests.progress import RequestState
from blizzard_py.state.checkpoint_file import read_state
from tests.support.memory_store import MemoryStorage, each_death
from tests.support.query_harness import FIELDS, KernelEngine, QueryHarness
from tests.support.record_engine import Below
from tests.support.request_harness import RECORDS, SOURCE_ID, outcomes_of, submit
from tests.support.toy_connection import ToyTable

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def amount(precision: int) -> FieldSpec:
    return FieldSpec("text", "decimal", nullable=True, precision=precision, scale=2)


class Engine(KernelEngine):
    """Reads the table, or files of records in the dead letters."""

    def __init__(self, sink: MemoryStorage, dlq: MemoryStorage) -> None:
        super().__init__(sink)
        self.records: Any = Below(dlq, RECORDS)

    def ingest(self, job: IngestJob) -> IngestResult:
        if job.reading is not None:
            return super().ingest(job)
        assert job.settings.source.uri == self.records.uri
        return merged(
            [
                run_task(task, self.records, self.sink, next(self._attempts))
                for task in tasks_of(job, pack(job.files, 1))
            ]
        )


class QueryLetterHarness(QueryHarness):
    """A table of which one row of three does not fit the schema."""

    def __init__(self) -> None:
        super().__init__(ToyTable("mixed", schema=SCHEMA), (FIELDS[0], amount(precision=5)))
        self.engine = Engine(self.sink, self.dlq)  # type: ignore[assignment]
        rows = ((1, "1.5"), (2, "1234.5"), (3, "2"))
        self.table.rows += [{"n": n, "text": text} for n, text in rows]
        self.drain()
        assert self.numbers() == [1, 3]
        # The schema is mended.
        self.fields = (FIELDS[0], amount(precision=9))

    def pipeline(self) -> SourcePipeline:
        return source_pipeline(self.parts())

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.table_rows())

    def open_ids(self) -> list[str]:
        return [each.id for each in reader.objects(self.dlq, SOURCE_ID)]

    def request(self, request_id: str) -> RequestState:
        state = read_state(self.sink, SOURCE_ID)
        return state.work.requests[request_id]

    def replay(self) -> dict[str, str]:
        request_id = submit(self.parts(), {"letters": self.open_ids()})
        self.drain()
        return outcomes_of(self.parts(), request_id)


def test_rows_of_a_table_are_replayed_once_from_their_letters() -> None:
    world = QueryLetterHarness()
    before = world.known()
    written = {
        each.path: world.dlq.read(each.path) for each in reader.objects(world.dlq, SOURCE_ID)
    }
    assert list(world.replay().values()) == ["ingested"]
    assert (world.numbers(), world.open_ids()) == ([1, 2, 3], [])
    assert world.known()["watermark"] == before["watermark"]
    for path, data in written.items():
        world.dlq.put_atomic(path, data)  # its writer slept, and goes on
    assert list(world.replay().values()) == ["present"]
    world.table.rows.append({"n": 4, "text": "4"})
    world.drain_with_errors()
    assert world.numbers() == [1, 2, 3, 4]


def test_a_death_at_every_change_brings_a_row_of_a_letter_once() -> None:
    for at, world, _ in each_death(QueryLetterHarness, QueryLetterHarness.replay):
        if world.open_ids():
            world.replay()
        world.drain_with_errors()
        assert (world.numbers(), world.open_ids()) == ([1, 2, 3], []), at
    assert at > 10


@pytest.mark.parametrize("select", [{"files": ["1.json"]}, {"range": ["a", "b"]}])
def test_files_of_a_table_are_refused(select: dict[str, Any]) -> None:
    world = QueryLetterHarness()
    request_id = submit(world.parts(), select)
    world.drain()
    found = world.request(request_id)
    assert (found.state, "only its dead letters" in found.reason) == ("rejected", True)
    assert world.numbers() == [1, 3]


@pytest.mark.parametrize("mode", ["add", "again"])
@pytest.mark.parametrize("of", ["what is in", "nothing that is known"])
def test_a_letter_of_a_part_of_a_table_is_refused_and_stays(of: str, mode: str) -> None:
    world = QueryLetterHarness()
    [records] = world.open_ids()
    known = [name for name in world.sink.objects if "journal" in name]
    item = json.loads(world.sink.read(known[0]))["files"][0]["path"] if of == "what is in" else of
    letter = {
        "path": f"{world.parts().stores.source.uri}/{item}",
        "error": "bad",
        "stage": "parse",
        "timestamp": "1970-01-12T13:46:40+00:00",
    }
    world.dlq.put_atomic(f"{SOURCE_ID}/x.ndjson", f"{json.dumps(letter)}\n".encode())
    request_id = submit(world.parts(), {"letters": ["x"]}, mode=mode)
    world.drain()
    assert outcomes_of(world.parts(), request_id) == {item: "refused"}
    assert world.request(request_id).state == "done"
    assert world.open_ids() == [records, "x"]
    world.table.rows.append({"n": 4, "text": "4"})
    world.drain_with_errors()
    assert world.numbers() == [1, 3, 4]


def test_rows_of_a_table_replace_no_file() -> None:
    world = QueryLetterHarness()
    request_id = submit(world.parts(), {"letters": world.open_ids()}, mode="replace")
    world.drain()
    found = world.request(request_id)
    assert (found.state, "no files that could replace" in found.reason) == ("rejected", True)


def test_letters_of_a_table_are_closed_by_its_owner() -> None:
    world = QueryLetterHarness()
    ids = world.open_ids()
    submit(world.parts(), {"letters": ids}, "close_letters")
    world.drain()
    assert world.open_ids() == []
    request_id = submit(world.parts(), {"letters": ids})
    world.drain()
    assert outcomes_of(world.parts(), request_id) == {}
    assert world.numbers() == [1, 3]
