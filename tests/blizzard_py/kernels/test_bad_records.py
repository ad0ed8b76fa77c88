"""Bad records as they are staged, and the columns that say where a row comes from."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import Unavailable
from blizzard_core.limits import LETTER_BYTES, RAW_BYTES, ROW_BYTES
from blizzard_core.storage.local import LocalStorage
from blizzard_py.dead_letters import reader
from blizzard_py.formats.letters.header import text_header
from blizzard_py.formats.ndjson.lines import NdjsonFormat
from blizzard_py.formats.protocol import BadRecord
from blizzard_py.job import PartitionRule
from blizzard_py.kernels import task
from blizzard_py.kernels.bad_records import BadRecordWriter
from blizzard_py.lines import framing
from tests.support.ingest_job_harness import STARTED_TS, IngestJobHarness, by_path, lines, specs

pytestmark = pytest.mark.usefixtures("both_paths")

BOM = b"\xef\xbb\xbf"


@pytest.fixture
def world(tmp_path: Path) -> IngestJobHarness:
    return IngestJobHarness(tmp_path)


def test_a_letter_has_the_documented_fields(world: IngestJobHarness) -> None:
    world.put("d/a.ndjson.gz", gzip.compress(BOM + b"\n" + lines(1) + b'{"id":"\xc3\xa9"}\n'))
    report = world.run_task()
    assert world.letters(report) == [
        {
            "path": f"{world.source}/d/a.ndjson.gz",
            "line": 3,
            "offset": 13,
            "length": 11,
            "error": "JSON parse error: Column(/id) changed from number to string"
            " (declared: int64)",
            "stage": "parse",
            "timestamp": "2024-05-06T12:00:00.250000+00:00",
            "raw": '{"id":"é"}',
            "truncated": False,
        }
    ]
    assert report.letters.files == (("d/a.ndjson.gz", 1),)
    assert report.files[0].error.startswith("line 3: JSON parse error")


@pytest.mark.parametrize("line", [BOM + b'{"id":2}', b"\x28\xb5\x2f\xfd", b"PK\3\4"])
def test_a_replayed_first_line_stays_bad(
    world: IngestJobHarness, tmp_path: Path, line: bytes
) -> None:
    world.put("a.ndjson", lines(1) + line + b"\n")
    [letter] = world.dead_letters(world.run_task())
    again = IngestJobHarness(tmp_path / "again")
    [content] = NdjsonFormat().replay_contents([letter])
    again.put("a.ndjson", content)
    report = again.run_task()
    assert by_path(report)["a.ndjson"].outcome == "ingested"
    [found] = again.dead_letters(report)
    assert (found.raw, found.error) == (line, letter.error)


@pytest.mark.parametrize(
    ("line", "raw", "truncated"),
    [
        (b"oops\r", "oops\r", False),
        (b"\x00\x1b[31m", "\x00\x1b[31m", False),
        (b"a" * RAW_BYTES, "a" * RAW_BYTES, False),
        (b"a" * (RAW_BYTES + 1), "a" * RAW_BYTES, True),
        ("é".encode() * RAW_BYTES, "é" * (RAW_BYTES // 2), True),
        (b"a" + "é".encode() * RAW_BYTES, "a" + "é" * (RAW_BYTES // 2 - 1), True),
        (b"ab" + "🐎".encode() * RAW_BYTES, "ab" + "🐎" * (RAW_BYTES // 4 - 1), True),
    ],
)
def test_raw_text_is_stored_as_text(tmp_path: Path, line: bytes, raw: str, truncated: bool) -> None:
    letter = staged(tmp_path, line)
    assert (letter["raw"], letter["truncated"], letter["length"]) == (raw, truncated, len(line))
    assert "raw_base64" not in letter


@pytest.mark.parametrize(
    "line", [b"\xff", b"a\xe9b", b"\xc3", b"x" * RAW_BYTES + b"\xff", b"\xff" * RAW_BYTES * 2]
)
def test_raw_bytes_are_stored_as_base64(tmp_path: Path, line: bytes) -> None:
    letter = staged(tmp_path, line)
    kept = line[:RAW_BYTES]
    if kept.isascii():  # what is not text was cut off
        assert letter["raw"] == kept.decode()
    else:
        assert base64.b64decode(letter["raw_base64"]) == kept
    assert letter["truncated"] is (len(line) > RAW_BYTES)


def test_a_long_row_in_another_script_stays_text(tmp_path: Path) -> None:
    raw = "я".encode() * RAW_BYTES
    letters = BadRecordWriter("s3://raw", 0.0)
    letters.add("a.avro", BadRecord(0, 0, len(raw), raw, "bad"), keep=ROW_BYTES)
    path = letters.stage(LocalStorage(str(tmp_path)), "staged.ndjson")
    letters.close()
    assert json.loads((tmp_path / path).read_bytes())["raw"] == raw.decode()


def staged(folder: Path, line: bytes) -> dict[str, object]:
    letters = BadRecordWriter("s3://raw", 0.0)
    letters.add("a.ndjson", BadRecord(0, 0, len(line), line, "why"))
    path = letters.stage(LocalStorage(str(folder)), "staged.ndjson")
    letters.close()
    return json.loads((folder / path).read_bytes())


def test_a_record_whose_header_is_too_long_is_read_again(tmp_path: Path) -> None:
    """Without its header it would be another record."""
    letters = BadRecordWriter("s3://raw", 0.0)
    for size in RAW_BYTES, RAW_BYTES + 1:
        letters.add("a.csv", BadRecord(0, 0, 1, b"1", "bad", header=b"x" * size))
    sink = LocalStorage(str(tmp_path))
    found = [json.loads(line) for line in sink.read(letters.stage(sink, "l")).splitlines()]
    letters.close()
    assert [("header" in each, each["truncated"]) for each in found] == [
        (True, False),
        (False, True),
    ]


def test_the_longest_letter_of_a_row_can_be_read(tmp_path: Path) -> None:
    """JSON takes six characters for each of some."""
    letters = BadRecordWriter("s3://raw", 0.0)
    raw, header = b"\0" * ROW_BYTES, text_header(b"\0" * (ROW_BYTES // 7))
    letters.add("a", BadRecord(0, 0, len(raw), raw, "bad", header=header), keep=ROW_BYTES)
    sink = LocalStorage(str(tmp_path))
    sink.put_atomic("s/b.records.ndjson", sink.read(letters.stage(sink, "l")))
    letters.close()
    [found] = reader.objects(sink, "s")
    [letter] = reader.read(sink, found)
    assert (letter.raw, letter.header, letter.truncated) == (raw, header, False)
    assert found.size < LETTER_BYTES


def test_rewind_removes_the_records_of_a_failed_file(tmp_path: Path) -> None:
    letters = BadRecordWriter("s3://raw", 0.0)
    letters.add("a", BadRecord(0, 0, 1, b"a", "why"))
    mark = letters.mark()
    for number in range(2000):  # more than is kept in memory
        letters.add("b", BadRecord(number, 0, 1000, b"b" * 1000, "why"))
    letters.rewind(mark)
    letters.add("c", BadRecord(0, 0, 1, b"c", "why"))
    path = letters.stage(LocalStorage(str(tmp_path)), "staged.ndjson")
    letters.close()
    found = [json.loads(line)["path"] for line in (tmp_path / path).read_bytes().splitlines()]
    assert found == ["s3://raw/a", "s3://raw/c"]


def test_without_bad_records_nothing_is_staged(world: IngestJobHarness) -> None:
    world.put("a.ndjson", lines(1))
    report = world.run_task()
    assert report.letters is None
    assert world.staged() == {output.staged for output in report.outputs}


class FullDisk(LocalStorage):
    def open_output(self, path: str) -> object:  # type: ignore[override]  # fails before it is used
        raise Unavailable(f"{self.uri}/{path}: full")


def test_a_sink_that_takes_no_letters_fails_the_task(tmp_path: Path) -> None:
    letters = BadRecordWriter("s3://raw", 0.0)
    letters.add("a", BadRecord(0, 0, 1, b"a", "why"))
    with pytest.raises(Unavailable, match="full"):
        letters.stage(FullDisk(str(tmp_path)), "staged.ndjson")
    letters.close()


def test_a_line_above_the_limit_is_only_a_bad_record(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framing.framed, "__defaults__", (1 << 20, 3 << 20))
    long = b'{"id":9,"x":"' + b"x" * (6 << 20) + b'"}'
    world.put("a.ndjson.gz", gzip.compress(lines(1) + long + b"\n" + lines(2) + b"oops\n", 1))
    report = world.run_task()
    assert world.ids(report) == [1, 2]
    first, second = world.letters(report)
    assert (first["line"], first["offset"], first["length"]) == (2, 9, len(long))
    assert (first["raw"], first["truncated"]) == (long[:RAW_BYTES].decode(), True)
    assert first["error"] == f"longer than {3 << 20} bytes"
    assert (second["line"], second["offset"]) == (4, 9 + len(long) + 1 + 9)


def test_a_large_file_over_the_limit_leaves_no_rows_and_records(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framing.framed, "__defaults__", (500, 2000))
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", 100)
    monkeypatch.setattr(task, "FILE_BUFFER_BYTES", 1000)
    monkeypatch.setattr("blizzard_py.lines.decompress.BLOCK_BYTES", 256)
    world.max_bad_fraction = 0.1
    world.put("a.ndjson", lines(1) * 40 + b"oops\n")
    world.put("big.ndjson", lines(*range(1000)) + b"oops\n" * 200)
    world.put("c.ndjson", b"oops\n" + lines(2) * 40)
    report = world.run_task()
    assert set(world.ids(report)) == {1, 2}
    assert by_path(report)["big.ndjson"].error.startswith("200 of 1200 lines are bad")
    assert [Path(str(letter["path"])).name for letter in world.letters(report)] == [
        "a.ndjson",
        "c.ndjson",
    ]
    names = {output.staged for output in report.outputs}
    assert world.staged() == {*names, report.letters.staged}


# --- metadata columns -----------------------------------------------------------------------


@pytest.mark.parametrize("group_bytes", [task.GROUP_BYTES, 0])
@pytest.mark.parametrize("column", [None, "t"])
def test_every_row_knows_its_file_line_and_batch(
    tmp_path: Path, group_bytes: int, column: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "GROUP_BYTES", group_bytes)
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", 1000)
    monkeypatch.setattr(framing.framed, "__defaults__", (20_000, 100_000))
    monkeypatch.setattr("blizzard_py.lines.decompress.BLOCK_BYTES", 4096)
    world = IngestJobHarness(
        tmp_path,
        fields=specs(id="int64", t="timestamp"),
        metadata=("_source_line", "_source_file", "_ingested_at"),
        rules=(PartitionRule(column, "d=%F"),) if column else (),
        max_bad_fraction=0.5,
    )
    contents = {
        "a.ndjson": b"\n" + lines(2, 3) + b"oops\n\r\n" + lines(6),
        "b.ndjson": b"",
        "c.ndjson.gz": gzip.compress(BOM + b"oops\n" + lines(2, 3)),
        "d.ndjson": b"oops\noops\n" + lines(3),  # given up
        "e.ndjson": b'{"id":1,"t":"2024-01-01"}\n \n{"id":3,"t":"2024-01-02"}',
        "ž.ndjson": lines(1),
        "zz-large.ndjson": b"".join(b'{"id":%d}\n' % n for n in range(1, 10_001)),
    }
    for name, data in contents.items():
        world.put(name, data)
    report = world.run_task()
    rows = world.rows(report)
    assert by_path(report)["d.ndjson"].outcome == "quarantined"
    assert {row["_ingested_at"] for row in rows} == {dt.datetime.fromtimestamp(STARTED_TS, dt.UTC)}
    # Each row's id is the number of its line.
    assert all(row["_source_line"] == row["id"] for row in rows)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["_source_file"]] = counts.get(row["_source_file"], 0) + 1
    assert counts == {
        f"{world.source}/{name}": count
        for name, count in {
            "a.ndjson": 3,
            "c.ndjson.gz": 2,
            "e.ndjson": 2,
            "ž.ndjson": 1,
            "zz-large.ndjson": 10_000,
        }.items()
    }
    schema = pq.read_schema(world.table / report.outputs[0].staged)
    assert schema.names == ["id", "t", "_source_line", "_source_file", "_ingested_at"]
    assert schema.field("_source_line") == pa.field("_source_line", pa.int64(), nullable=False)
    assert schema.field("_source_file") == pa.field("_source_file", pa.string(), nullable=False)
    assert schema.field("_ingested_at").type == pa.timestamp("us", tz="UTC")
