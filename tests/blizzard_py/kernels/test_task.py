"""Files in, Parquet and a report out: one verdict per file, all of its rows or none."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import AccessDenied, EngineError, StorageError, Unavailable
from blizzard_core.handover.outputs import NULL_PARTITION
from blizzard_core.storage.local import LocalStorage
from blizzard_py.formats.ndjson import parse
from blizzard_py.job import FieldSpec, JobFile, PartitionRule
from blizzard_py.kernels import task
from blizzard_py.kernels.packing import tasks_of
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.write import rolling_outputs as write
from blizzard_py.lines import decompress, framing, member_codecs
from tests.support.corpus import CASES, FIELDS, name_of
from tests.support.ingest_job_harness import (
    PREFIX,
    STAGING,
    IngestJobHarness,
    by_path,
    lines,
    specs,
)

pytestmark = pytest.mark.usefixtures("both_paths")

WIKIPEDIA = (
    Path(__file__).parents[3] / "blizzard_py/demo/data/wikiticker-2015-09-12-sampled.json.gz"
)
GOOD = lines(1, 2, 3)

WIKIPEDIA_FIELDS = (
    FieldSpec("time", "timestamp", nullable=False),
    *specs(channel="string", cityName="string", comment="string", countryName="string"),
    *specs(isRobot="boolean", metroCode="int32", page="string", user="string"),
    *(FieldSpec(name, "int64", nullable=False) for name in ("delta", "added", "deleted")),
)


@pytest.fixture
def world(tmp_path: Path) -> IngestJobHarness:
    return IngestJobHarness(tmp_path)


def gzipped(data: bytes) -> bytes:
    """Without the time in it: cases are named by their bytes, alike in each process."""
    return gzip.compress(data, mtime=0)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize("on_bad_record", ["quarantine_record", "quarantine_file"])
def test_a_later_attempt_has_the_verdicts_of_the_first(
    tmp_path: Path, on_bad_record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse, "NAMED", 1000)  # the first attempt parses files together
    world = IngestJobHarness(tmp_path, fields=FIELDS)
    world.on_bad_record = on_bad_record
    for number, case in enumerate(CASES):
        world.put(name_of(number), case.file)
    first = world.run_task()
    letters, rows = world.letters(first), repr(world.rows(first))  # in which NaN is NaN
    later = world.run_task(attempt=2)
    assert later.files == first.files
    assert world.letters(later) == letters
    assert repr(world.rows(later)) == rows


def test_the_first_bytes_win_over_the_extension(world: IngestJobHarness) -> None:
    world.put("a.ndjson", gzipped(GOOD))
    world.put("b.zst", gzipped(GOOD))
    assert world.ids(world.ingest()) == [1, 1, 2, 2, 3, 3]


def test_statistics_count_rows_and_decompressed_bytes(world: IngestJobHarness) -> None:
    world.put("a.gz", gzipped(GOOD))
    world.put("b.ndjson", b'{"id":1}\n{"id":\n')
    world.on_bad_record = "quarantine_file"
    report = world.run_task()
    assert report.files == (
        by_path(report)["a.gz"],
        by_path(report)["b.ndjson"],
    )
    assert (report.files[0].rows, report.files[0].bytes_read) == (3, len(GOOD))
    assert (report.files[1].rows, report.files[1].bytes_read) == (0, 16)


# --- where a file is ----------------------------------------------------------------------


def test_a_deleted_file_is_quarantined_and_nothing_else_is_lost(world: IngestJobHarness) -> None:
    world.put("a.ndjson", GOOD)
    result = world.ingest("gone.ndjson")
    gone = by_path(result)["gone.ndjson"]
    assert (gone.outcome, gone.stage) == ("quarantined", "read")
    assert "deleted between listing and reading" in gone.error
    assert "gone.ndjson" in gone.error
    assert world.ids(result) == [1, 2, 3]


@pytest.mark.promise("G-008")
@pytest.mark.parametrize("mount_point", [True, False])
def test_files_of_a_source_that_vanished_are_retried(
    world: IngestJobHarness, mount_point: bool
) -> None:
    world.put("a.ndjson", GOOD)
    job = world.job()
    (world.source / "a.ndjson").unlink()
    if not mount_point:
        world.source.rmdir()
    report = task.run_task(
        tasks_of(job, [job.files])[0],
        LocalStorage(str(world.source)),
        LocalStorage(str(world.table)),
        attempt_id=0,
    )
    assert (report.files[0].outcome, report.files[0].stage) == ("retry", "read")


class FailingReads(LocalStorage):
    """Opening works; reading fails after some bytes."""

    def __init__(self, root: str, error: Exception) -> None:
        super().__init__(root)
        self._error = error

    def read(self, path: str) -> bytes:
        if path.startswith("bad"):
            raise self._error
        return super().read(path)

    def open_input(self, path: str) -> Any:
        stream = super().open_input(path)
        return BrokenStream(stream, self._error) if path.startswith("bad") else stream


class BrokenStream:
    def __init__(self, stream: Any, error: Exception) -> None:
        self._stream = stream
        self._error = error
        self._reads = 0

    def read(self, size: int = -1) -> bytes:
        self._reads += 1
        if self._reads > 2:
            raise self._error
        return bytes(self._stream.read(min(size, 100)))

    def close(self) -> None:
        self._stream.close()

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)


@pytest.mark.parametrize("suffix", ["ndjson", "gz", "zst"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "error", [Unavailable("bad: timed out"), AccessDenied("bad: denied"), OSError(5, "EIO")]
)
def test_a_store_that_fails_is_no_verdict_on_the_file(
    world: IngestJobHarness,
    suffix: str,
    whole: bool,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = lines(*range(5000))
    packed = {"ndjson": raw, "gz": gzipped(raw), "zst": zstd(raw)}
    world.put(f"bad.{suffix}", packed[suffix])
    world.put("good.ndjson", GOOD)
    if not whole:
        monkeypatch.setattr("blizzard_py.lines.source.WHOLE_BYTES", 0)
    job = world.job()
    report = task.run_task(
        tasks_of(job, [job.files])[0],
        FailingReads(str(world.source), error),
        LocalStorage(str(world.table)),
        attempt_id=0,
    )
    bad = by_path(report)[f"bad.{suffix}"]
    assert (bad.outcome, bad.stage) == ("retry", "read")
    assert "bad" in bad.error
    assert world.ids(report) == [1, 2, 3]


# --- the sink ------------------------------------------------------------------------------


def test_an_unwritable_sink_fails_the_job_and_names_itself(world: IngestJobHarness) -> None:
    world.put("a.ndjson", GOOD)
    world.table.write_text("a file where the directory should be")
    with pytest.raises(EngineError, match=str(world.table)):
        world.ingest()


class FullDisk(LocalStorage):
    """Outputs take some bytes and then no more."""

    def open_output(self, path: str) -> Any:
        stream = super().open_output(path)
        return FullStream(stream)


class FullStream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = 200

    def write(self, data: Any) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise OSError(28, "No space left on device")
        return int(self._stream.write(data))

    def close(self) -> None:
        self._stream.close()


def test_a_full_disk_fails_the_task_and_reports_nothing(world: IngestJobHarness) -> None:
    world.put("a.ndjson", lines(*range(1000)))
    job = world.job()
    with pytest.raises(StorageError, match=r"table/.*No space left"):
        task.run_task(
            tasks_of(job, [job.files])[0],
            LocalStorage(str(world.source)),
            FullDisk(str(world.table)),
            attempt_id=0,
        )
    assert world.staged() == set()


# --- files of all sizes ------------------------------------------------------------------


@pytest.fixture
def tiny_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which a few kilobytes take every path that gigabytes take."""
    monkeypatch.setattr(framing.framed, "__defaults__", (500, 2000))
    monkeypatch.setattr(decompress, "BLOCK_BYTES", 256)
    monkeypatch.setattr(member_codecs, "BLOCK_BYTES", 256)
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", 100)
    monkeypatch.setattr(task, "GROUP_BYTES", 300)
    monkeypatch.setattr(task, "FILE_BUFFER_BYTES", 1000)
    monkeypatch.setattr(write, "MAX_OPEN_FILES", 3)


@pytest.mark.usefixtures("tiny_limits")
@pytest.mark.parametrize("policy", ["quarantine_record", "quarantine_file"])
def test_threads_change_neither_rows_nor_verdicts_nor_letters(
    world: IngestJobHarness, policy: Any
) -> None:
    world.on_bad_record = policy
    world.metadata = ("_source_file", "_source_line")
    long = b'{"id":1,"s":"' + b"x" * 3000 + b'"}\n'
    world.put("a.ndjson", lines(*range(500)))
    world.put("b.ndjson", lines(*range(200)) + b"oops\n" + long + lines(*range(200)) + b"no\n")
    world.put("c.ndjson", lines(*range(300)) + b"early\n" + lines(*range(300)) + b"late\n")
    world.put("d.ndjson.gz", gzipped(lines(*range(4000)))[:-9])
    # Its first bad line comes before the damage, and both are known by the time it is reached.
    world.put("e.ndjson.gz", gzipped(b"oops\n" + lines(*range(200)))[:-9])
    alone = world.run_task()
    rows, letters = world.rows(alone), world.letters(alone) if alone.letters else []
    threaded = world.run_task(threads=4)
    # Of a file that fails more may have been read by then.
    assert [replace(file, bytes_read=0) for file in threaded.files] == [
        replace(file, bytes_read=0) for file in alone.files
    ]
    assert world.rows(threaded) == rows
    assert (world.letters(threaded) if threaded.letters else []) == letters
    assert len(letters) == (5 if policy == "quarantine_record" else 0)
    expected = "decompress" if policy == "quarantine_record" else "parse"
    assert by_path(threaded)["e.ndjson.gz"].stage == expected


def test_cores_without_a_task_help_the_others(tmp_path: Path) -> None:
    job = IngestJobHarness(tmp_path).job()
    packed = [(JobFile(name, 1, ""),) for name in "abc"]
    assert [t.threads for t in tasks_of(job, packed, 7)] == [2, 2, 2]
    assert [t.threads for t in tasks_of(job, packed, 2)] == [1, 1, 1]
    assert [t.threads for t in tasks_of(job, packed, 1000)] == [4, 4, 4]


@pytest.mark.usefixtures("tiny_limits")
def test_a_large_file_writes_outputs_of_its_own(world: IngestJobHarness) -> None:
    world.put("big.ndjson", lines(*range(1000)))
    world.put("small.ndjson", lines(5000))
    report = world.run_task()
    assert world.ids(report) == [*range(1000), 5000]
    assert len(report.outputs) == 2
    assert by_path(report)["big.ndjson"].rows == 1000


@pytest.mark.promise("G-112")
@pytest.mark.usefixtures("tiny_limits")
@pytest.mark.parametrize("bad", [b"oops\n", b'{"id":"x"}\n', b'{"id":1'])
def test_a_large_file_that_fails_near_its_end_leaves_nothing(
    world: IngestJobHarness, bad: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_output = LocalStorage.open_output

    def recorded(storage: LocalStorage, path: str) -> BinaryIO:
        opened.append(path)
        return open_output(storage, path)

    monkeypatch.setattr(LocalStorage, "open_output", recorded)
    world.row_group_bytes = 1500
    world.put("a.ndjson", lines(1))
    world.put("big.ndjson", lines(*range(1000)) + bad)
    world.put("z.ndjson", lines(2))
    world.on_bad_record = "quarantine_file"
    report = world.run_task()
    big = by_path(report)["big.ndjson"]
    assert (big.outcome, big.rows) == ("quarantined", 0)
    assert big.error.startswith("line 1001: ")
    assert world.ids(report) == [1, 2]
    reported = {output.staged for output in report.outputs}
    assert world.staged() == reported < set(opened)


@pytest.mark.promise("G-112")
@pytest.mark.usefixtures("tiny_limits")
def test_a_large_gzip_cut_short_leaves_nothing(world: IngestJobHarness) -> None:
    world.put("big.ndjson.gz", gzipped(lines(*range(1000)))[:-4])
    report = world.run_task()
    assert report.files[0].stage == "decompress"
    assert report.outputs == ()
    assert world.staged() == set()


@pytest.mark.usefixtures("tiny_limits")
@pytest.mark.parametrize("before", [0, 1, 1000])
def test_a_line_above_the_limit_is_quarantined_with_its_number(
    world: IngestJobHarness, before: int
) -> None:
    world.put("a.ndjson", lines(*range(before)) + b'{"id":1,"x":"' + b"x" * 2_000_000 + b'"}\n')
    world.put("b.ndjson", GOOD)
    world.on_bad_record = "quarantine_file"
    report = world.run_task()
    assert by_path(report)["a.ndjson"].error.startswith(f"line {before + 1}: longer than")
    assert world.ids(report) == [1, 2, 3]


@pytest.mark.usefixtures("tiny_limits")
def test_outputs_roll_at_the_file_size(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, file_bytes=2000)
    world.put("big.ndjson", lines(*range(3000)))
    report = world.run_task()
    assert len(report.outputs) > 3
    assert world.ids(report) == list(range(3000))


@pytest.mark.usefixtures("tiny_limits")
def test_more_directories_than_open_files(tmp_path: Path) -> None:
    world = IngestJobHarness(
        tmp_path, fields=specs(id="int64", t="timestamp"), rules=(PartitionRule("t", "date=%F"),)
    )
    rows = [{"id": i, "t": f"2024-01-{1 + i % 28:02d}T00:00:00Z"} for i in range(2000)]
    world.put("a.ndjson", b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    report = world.run_task()
    assert world.ids(report) == list(range(2000))
    for output in report.outputs:
        read = pq.read_table(world.table / output.staged)
        assert {f"date={t:%Y-%m-%d}" for t in read.column("t").to_pylist()} == {output.partition}


@given(
    st.lists(
        st.sampled_from(
            [
                b"",
                b"\n",
                lines(1),
                lines(1, 2)[:-1],
                b"\xef\xbb\xbf" + lines(3),
                lines(*range(40)),
                b"\n\n" + lines(7) + b"\r\n",
                b"oops\n",
                lines(1) + b'{"id":null}\n',
                b'{"id":1}{"id":2}',
                lines(*range(400)),
                lines(*range(400)) + b"oops",
            ]
        ),
        max_size=12,
    ),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_files_parsed_together_or_alone_have_equal_results(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], fraction: float
) -> None:
    world = IngestJobHarness(tmp_path_factory.mktemp("together"), max_bad_fraction=fraction)
    world.metadata = ("_source_file", "_source_line")
    for number, data in enumerate(contents):
        world.put(f"{number:02d}.ndjson", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse, "NAMED", 1000)  # of a group too, not of its first lines only
        together = world.run_task()
        rows, letters = world.rows(together), world.letters(together)
        patch.setattr(task, "GROUP_BYTES", 0)
        alone = world.run_task()
    assert together.files == alone.files
    assert rows == world.rows(alone)
    assert letters == world.letters(alone)
    assert sum(file.rows for file in together.files) == len(rows)
    assert sum(file.bad_rows for file in together.files) == len(letters)


def test_many_small_files_share_an_output(world: IngestJobHarness) -> None:
    for number in range(300):
        world.put(f"{number:03d}.gz", gzipped(lines(number)))
    report = world.run_task()
    assert len(report.outputs) == 1
    assert world.ids(report) == list(range(300))
    assert {file.rows for file in report.files} == {1}


# --- directories -----------------------------------------------------------------------------


def test_files_bring_their_directory_along(world: IngestJobHarness) -> None:
    for number, day in enumerate(["01", "02", "01", "02", "02"]):
        world.put(f"{number}.ndjson", lines(number))
        world.partitions = {**world.partitions, f"{number}.ndjson": f"date=2024-01-{day}"}
    report = world.run_task()
    assert {
        output.partition: pq.read_table(world.table / output.staged).column("id").to_pylist()
        for output in report.outputs
    } == {"date=2024-01-01": [0, 2], "date=2024-01-02": [1, 3, 4]}


def test_rows_go_to_the_directory_of_their_time_null_to_its_own(tmp_path: Path) -> None:
    world = IngestJobHarness(
        tmp_path, fields=specs(id="int64", t="timestamp"), rules=(PartitionRule("t", "d=%F/h=%H"),)
    )
    world.put("a.ndjson", b'{"id":1,"t":"2024-01-01T23:30:00-01:00"}\n{"id":2}\n')
    world.put("b.ndjson", b'{"id":3,"t":"1969-12-31T23:59:59.999999Z"}\n{"id":4,"t":null}\n')
    report = world.run_task()
    assert {
        output.partition: pq.read_table(world.table / output.staged).column("id").to_pylist()
        for output in report.outputs
    } == {
        "d=2024-01-02/h=00": [1],
        "d=1969-12-31/h=23": [3],
        f"d={NULL_PARTITION}/h={NULL_PARTITION}": [2, 4],
    }


NAMELESS = b'{"id":0,"t":"%s"}\n' % (b"x" * 300)
BY_NAME = (PartitionRule("t", key="name"),)


def timed(*ids: int) -> bytes:
    return b"".join(b'{"id":%d,"t":"2024-01-0%dT00:00:00Z"}\n' % (i, 1 + i % 3) for i in ids)


@pytest.mark.parametrize("group_bytes", [0, task.GROUP_BYTES])
def test_a_row_without_a_valid_directory_is_a_bad_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    monkeypatch.setattr(task, "GROUP_BYTES", group_bytes)
    world = IngestJobHarness(
        tmp_path,
        fields=specs(id="int64", t="string"),
        rules=BY_NAME,
        max_bad_fraction=0.5,
    )
    world.metadata = ("_source_line",)
    world.put("a.ndjson", b"\n" + NAMELESS + timed(1) + b"oops\n" + NAMELESS + timed(2, 3, 4))
    world.put("b.ndjson", timed(5))
    world.put("c.ndjson", NAMELESS)
    report = world.run_task()
    assert [(f.outcome, f.rows, f.bad_rows) for f in report.files] == [
        ("ingested", 4, 3),
        ("ingested", 1, 0),
        ("quarantined", 0, 0),
    ]
    assert report.files[2].stage == "parse"
    rows = {row["id"]: row["_source_line"] for row in world.rows(report)}
    assert rows == {1: 3, 2: 6, 3: 7, 4: 8, 5: 1}
    letters = world.letters(report)
    assert [(x["line"], x["offset"], x["stage"]) for x in letters] == [
        (2, 1, "partition"),
        (4, 1 + len(NAMELESS) + len(timed(1)), "parse"),
        (5, 1 + len(NAMELESS) + len(timed(1)) + 5, "partition"),
    ]
    assert "takes 305 bytes as a directory" in letters[0]["error"]
    assert letters[0]["raw"] == NAMELESS.decode().rstrip()


@pytest.mark.parametrize("policy", ["quarantine_file", "fail"])
def test_overlong_partition_value_quarantines_its_file(tmp_path: Path, policy: Any) -> None:
    world = IngestJobHarness(tmp_path, fields=specs(id="int64", t="string"), rules=BY_NAME)
    world.on_bad_record = policy
    world.put("a.ndjson", timed(1) + NAMELESS)
    world.put("b.ndjson", timed(2))
    report = world.run_task()
    assert (report.files[0].outcome, report.files[0].stage) == ("quarantined", "parse")
    assert report.files[0].error.startswith("line 2: a value of 'name' takes 305 bytes")
    assert world.ids(report) == [2]


# --- outputs ------------------------------------------------------------------------------------


def test_reported_outputs_tell_the_truth(tmp_path: Path) -> None:
    world = IngestJobHarness(
        tmp_path, fields=specs(id="int64", t="timestamp"), rules=(PartitionRule("t", "d=%F"),)
    )
    world.put("a.ndjson", b'{"id":1,"t":"2024-01-01"}\n{"id":2,"t":"2024-01-02"}\n{"id":3}\n')
    report = world.run_task()
    assert [output.staged for output in report.outputs] == [
        f"{STAGING}/00000-7-{index:04d}.parquet" for index in range(3)
    ]
    for index, output in enumerate(report.outputs):
        path = world.table / output.staged
        footer = pq.read_metadata(path)
        assert output.output_id == f"{PREFIX}/00000-7/{index}"
        assert footer.metadata[b"blizzard.output_id"].decode() == output.output_id
        assert (footer.num_rows, path.stat().st_size) == (output.rows, output.size)
        assert footer.row_group(0).column(0).is_stats_set


@pytest.mark.parametrize(
    ("setting", "codec"),
    [
        ("snappy", "SNAPPY"),
        ("zstd", "ZSTD"),
        ("gzip", "GZIP"),
        ("lz4", "LZ4"),
        ("uncompressed", "UNCOMPRESSED"),
    ],
)
def test_parquet_compression(tmp_path: Path, setting: Any, codec: str) -> None:
    world = IngestJobHarness(tmp_path, parquet=setting)
    world.put("a.ndjson", lines(*range(1000)))
    report = world.run_task()
    footer = pq.read_metadata(world.table / report.outputs[0].staged)
    assert footer.row_group(0).column(0).compression == codec


def test_only_columns_with_repeating_values_get_a_dictionary(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, fields=specs(id="int64", kind="string", ok="boolean"))
    world.put("a.ndjson", b"".join(b'{"id":%d,"kind":"k%d"}\n' % (i, i % 3) for i in range(500)))
    report = world.run_task()
    group = pq.read_metadata(world.table / report.outputs[0].staged).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(3)] == [False, True, False]


def test_the_written_schema_is_the_declared_one(tmp_path: Path) -> None:
    fields = (FieldSpec("t", "timestamp", nullable=False), *specs(d="date", s="string"))
    world = IngestJobHarness(tmp_path, fields=fields)
    world.put("a.ndjson", b'{"t":"2024-01-01T00:00:00.5Z","d":"2024-01-01"}\n')
    report = world.run_task()
    assert pq.read_schema(world.table / report.outputs[0].staged).equals(
        pa.schema(
            [
                pa.field("t", pa.timestamp("us", tz="UTC"), nullable=False),
                pa.field("d", pa.date32()),
                pa.field("s", pa.string()),
            ]
        )
    )


def test_a_report_survives_its_transport(world: IngestJobHarness) -> None:
    world.put("a.ndjson", GOOD)
    world.put("ž.ndjson", b"oops \xc5\xbe\n")
    report = world.run_task()
    text = report.to_json()
    assert text.isascii()
    assert TaskReport.from_json(text) == report


# --- real data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("column", [None, "time"])
def test_the_wikipedia_events(tmp_path: Path, column: str | None) -> None:
    world = IngestJobHarness(
        tmp_path,
        fields=WIKIPEDIA_FIELDS,
        rules=(PartitionRule(column, "date=%Y-%m-%d"),) if column else (),
    )
    world.put("events.json.gz", WIKIPEDIA.read_bytes())
    result = world.ingest()
    tables = [pq.read_table(world.table / output.staged) for output in result.outputs]
    events = pa.concat_tables(tables)
    assert len(result.outputs) == (46 if column else 1)
    assert events.num_rows == result.files[0].rows == 39_244
    assert pc.sum(events["added"]).as_py() == 9_385_573
    assert pc.sum(events["delta"]).as_py() == 8_991_275
    assert pc.count_distinct(events["user"]).as_py() == 10_531
    assert pc.sum(events["isRobot"]).as_py() == 15_420
