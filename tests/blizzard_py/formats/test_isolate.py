"""Input that kills whoever parses it: found to the line, and its neighbours are ingested."""

from __future__ import annotations

import gzip
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pytest

from blizzard_py.formats import isolate
from blizzard_py.formats.child_process import ChildProcess, Died
from blizzard_py.formats.isolate import IsolatedDecoder, check_readable
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.lines import NdjsonDecoder, NdjsonFormat
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.formats.protocol import BadLine, Parsed
from blizzard_py.job import FileLimits, JobFile, Place, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece
from tests.support.ingest_job_harness import IngestJobHarness, by_path, lines, specs
from tests.support.pipe import descriptors

FIELDS = specs(id="int64", s="string")
POISON = b'{"id":0,"s":"POISON"}\n'


class DeadlySchema(RecordSchema):
    """A conversion that some values kill the process in."""

    def finish(self, table: pa.Table, chunk: bytes) -> pa.Table:
        if pc.any(pc.match_substring(table["s"], "POISON")).as_py():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().finish(table, chunk)


class DeadlyFormat(NdjsonFormat):
    """Lines of a schema that some values kill the process in."""

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> NdjsonDecoder:
        return NdjsonDecoder(LineParser(DeadlySchema(schema.fields), tolerant=tolerant, fast=fast))


def segfault() -> int:
    """Return pyarrow's result for a bare null without the checks before it."""
    found: pa.Table = pj.read_json(pa.BufferReader(b'null\n{"id":1}\n'))
    return int(found.num_rows)


def twice(number: int) -> int:
    if number < 0:
        raise FileFailed("parse", "negative")
    return 2 * number


def out(code: int) -> None:
    os._exit(code)


def answer_of_an_orphan() -> bytes:
    os.kill(os.getppid(), signal.SIGKILL)
    return bytes(1 << 24)


@pytest.fixture(scope="module")
def nursery() -> Iterator[ChildProcess]:
    with ChildProcess() as found:
        yield found


def test_a_call_is_made_elsewhere_and_comes_back(nursery: ChildProcess) -> None:
    assert nursery.call(twice, 21) == 42
    assert nursery.call(os.getpid) not in {os.getpid(), nursery.call(os.getpid)}
    with pytest.raises(FileFailed) as caught:
        nursery.call(twice, -1)
    assert caught.value.reason == "negative"


def test_a_child_that_dies_says_of_what_and_the_next_call_works(nursery: ChildProcess) -> None:
    with pytest.raises(Died, match=r"signal 11 \(SIGSEGV\)"):
        nursery.call(segfault)
    with pytest.raises(Died, match="exit code 3"):
        nursery.call(out, 3)
    assert nursery.call(twice, 1) == 2


@pytest.mark.parametrize("gone", [False, True], ids=["dying", "dead"])
def test_child_process_restarts_after_it_is_killed(gone: bool) -> None:
    with ChildProcess() as nursery:
        parent = nursery.call(os.getppid)
        os.kill(parent, signal.SIGKILL)
        if gone:
            os.waitid(os.P_PID, parent, os.WEXITED | os.WNOWAIT)
        with pytest.raises(Died, match="SIGKILL"):
            nursery.call(twice, 1)
        assert nursery.call(twice, 1) == 2


def test_a_child_outlives_no_interpreter_with_a_large_answer() -> None:
    with ChildProcess() as nursery:
        with pytest.raises(Died, match="SIGKILL"):
            nursery.call(answer_of_an_orphan)
        assert nursery.call(twice, 1) == 2


@pytest.mark.parametrize("count", [1, 2, 7, 700])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_the_lines_that_kill_are_found(nursery: ChildProcess, count: int, place: float) -> None:
    at = round(place * (count - 1))
    rows = [lines(number) for number in range(count)]
    rows[at] = POISON
    parser = IsolatedDecoder(nursery, DeadlyFormat(), RowSchema(FIELDS), tolerant=True)
    parsed: Parsed = parser.decode(Piece(b"".join(rows), 0))
    assert parsed.table.column("id").to_pylist() == [n for n in range(count) if n != at]
    assert parsed.rows_at.tolist() == [n for n in range(count) if n != at]
    assert parsed.lines == count
    [bad] = parsed.bad
    assert (bad.index, bad.offset) == (at, sum(map(len, rows[:at])))
    assert bad.head + b"\n" == POISON
    assert bad.reason == "the parser died of this record: signal 9 (SIGKILL)"


def test_without_tolerance_the_first_bad_line_of_any_kind_counts(
    nursery: ChildProcess,
) -> None:
    for chunk, index, reason in (
        (lines(1, 2) + POISON + b"oops\n", 2, "died"),
        (lines(1) + b"oops\n" + POISON, 1, "does not start"),
        (lines(1, 2, 3) + POISON + lines(4), 3, "died"),
    ):
        parser = IsolatedDecoder(nursery, DeadlyFormat(), RowSchema(FIELDS), tolerant=False)
        with pytest.raises(BadLine) as caught:
            parser.decode(Piece(chunk, 0))
        assert caught.value.index == index
        assert reason in caught.value.reason


def test_file_fails_after_too_many_parser_deaths(
    nursery: ChildProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate, "PARSER_DEATHS", 10)
    parser = IsolatedDecoder(nursery, DeadlyFormat(), RowSchema(FIELDS), tolerant=True)
    with pytest.raises(FileFailed, match="died 11 times of its records, last: signal 9"):
        parser.decode(Piece(POISON * 20, 0))


def test_a_task_tried_again_gives_up_the_record_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.kernels.task.format_of", lambda _: DeadlyFormat())
    world = IngestJobHarness(tmp_path, fields=FIELDS)
    world.put("a.ndjson", lines(1, 2))
    world.put("b.ndjson.gz", gzip.compress(b"\n" + lines(3) + POISON + b"oops\n" + lines(4)))
    world.put("c.ndjson", lines(5))
    report = world.run_task(attempt=1)
    assert world.ids(report) == [1, 2, 3, 4, 5]
    assert {file.outcome for file in report.files} == {"ingested"}
    assert by_path(report)["b.ndjson.gz"].bad_rows == 2
    first, second = world.letters(report)
    assert (first["line"], first["offset"], first["raw"]) == (3, 10, POISON.decode().rstrip())
    assert "died" in first["error"]
    assert (second["line"], second["raw"]) == (4, "oops")


def test_a_file_that_kills_its_reader_twice_is_quarantined(tmp_path: Path) -> None:
    endless = tmp_path / "endless.ndjson"
    with endless.open("wb") as file:
        file.truncate(1 << 42)  # holes, which take minutes to be read
    killed: list[int] = []

    def kill_readers() -> None:
        while len(killed) < 2:
            for link in descriptors():
                pid = int(link.parts[2])
                if pid not in {os.getpid(), *killed} and _leads_to(link, endless):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    killer = threading.Thread(target=kill_readers)
    killer.start()
    with ChildProcess() as own, pytest.raises(FileFailed) as caught:
        check_readable(own, Place(str(tmp_path)), JobFile("endless.ndjson", 1 << 42), FileLimits())
    killer.join()
    assert (caught.value.stage, caught.value.outcome) == ("decompress", "quarantined")
    assert caught.value.reason == "a process that reads it dies: signal 9 (SIGKILL)"


def _leads_to(link: Path, target: Path) -> bool:
    try:
        return link.readlink() == target
    except OSError:
        return False  # the process or the descriptor is gone by now
