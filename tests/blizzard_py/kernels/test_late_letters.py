"""Letters of late rows: the right line of the right file, as it stands there."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import Unavailable
from blizzard_py.job import (
    ErrorTolerance,
    FileLimits,
    IngestJob,
    IngestSettings,
    JobFile,
    OutputLayout,
    Place,
    RowSchema,
    StagedBadRecords,
    StagedOutput,
)
from blizzard_py.kernels.late_letters import LatenessTask, run_lateness_task
from blizzard_py.kernels.lateness import Limits, Rule
from blizzard_py.streaming.staged_times import TimeTally, tally
from tests.support.memory_store import MemoryStorage

SECOND = 1_000_000
RULE = Rule("ts", "window", 5 * SECOND, 5 * SECOND)


class LateLetterHarness:
    def __init__(self) -> None:
        self.source = MemoryStorage("mem://raw", lambda: 1.0)
        self.sink = MemoryStorage("mem://lake", lambda: 1.0)
        self.staged: list[JobFile] = []
        self.files: list[JobFile] = []

    def put(self, path: str, data: bytes) -> None:
        self.source.put_atomic(path, data)
        self.files.append(JobFile(path, len(data)))

    def stage(self, *rows: tuple[int, str, int]) -> None:
        """Rows of a staged file: second, source file, line."""
        table = pa.table(
            {
                "ts": pa.array([s * SECOND for s, _, _ in rows], pa.timestamp("us", tz="UTC")),
                "_source_file": [f"mem://raw/{file}" for _, file, _ in rows],
                "_source_line": [line for _, _, line in rows],
            }
        )
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        name = f"staging/{len(self.staged)}.parquet"
        self.sink.put_atomic(name, buffer.getvalue())
        self.staged.append(JobFile(name, len(buffer.getvalue())))

    def judge(
        self,
        watermark_ms: int,
        ahead: int = 1000,
        *,
        keep: bool = True,
        most: int = 100,
        uri: str = "mem://raw",
    ) -> StagedBadRecords | None:
        settings = IngestSettings(
            source=Place(uri),
            sink=Place("mem://lake"),
            schema=RowSchema(()),
            layout=OutputLayout("snappy", file_bytes=1),
            tolerance=ErrorTolerance(limits=FileLimits(letters=most)),
        )
        job = IngestJob(settings, "staging", "", tuple(self.files), 1_700_000_000.0)
        limits = Limits(watermark_ms, ahead * SECOND)
        task = LatenessTask(0, job, tuple(self.staged), RULE, limits, keep=keep)
        return run_lateness_task(task, self.source, self.sink, 7)

    def tally(self, watermark_ms: int) -> TimeTally:
        """The counts of the same rows, in the driver."""
        outputs = [StagedOutput(one.path, "", 1, one.size, "") for one in self.staged]
        return tally(self.sink, outputs, RULE, Limits(watermark_ms, 1000 * SECOND), None, 1)

    def letters(self, found: StagedBadRecords | None) -> list[dict[str, Any]]:
        if found is None:
            return []
        return [json.loads(line) for line in self.sink.read(found.staged).splitlines()]


def test_late_lines_are_dead_lettered_in_file_order() -> None:
    world = LateLetterHarness()
    world.put("b.json", b'{"n": 1}\n\n{"n": 3}\n')
    world.put("a.json.gz", gzip.compress(b'\xef\xbb\xbf{"n": 1}\r\n{"n": 2}'))
    world.stage((101, "b.json", 3), (140, "b.json", 1), (104, "a.json.gz", 2))
    world.stage((103, "a.json.gz", 1))
    counted = world.tally(105_000)
    assert (counted.late, counted.ahead, counted.newest_us) == (3, 0, 140 * SECOND)
    found = world.judge(105_000)
    letters = world.letters(found)
    assert [(one["path"], one["line"], one["offset"], one["raw"]) for one in letters] == [
        ("mem://raw/a.json.gz", 1, 3, '{"n": 1}\r'),
        ("mem://raw/a.json.gz", 2, 13, '{"n": 2}'),
        ("mem://raw/b.json", 3, 10, '{"n": 3}'),
    ]
    assert {one["stage"] for one in letters} == {"late"}
    assert found.files == (("a.json.gz", 2), ("b.json", 1))
    assert letters[2]["error"] == (
        "ts 1970-01-01T00:01:41Z, waited for until 1970-01-01T00:01:45Z: late, the watermark was"
        " 1970-01-01T00:01:45Z"
    )


def test_lines_behind_the_end_of_a_chunk_are_found() -> None:
    world = LateLetterHarness()
    lines = [b'{"n": %d, "pad": "%s"}' % (n, b"x" * 1000) for n in range(9000)]
    world.put("a.json", b"\n".join(lines) + b"\n")
    world.stage((101, "a.json", 1), (101, "a.json", 5000), (101, "a.json", 9000))
    letters = world.letters(world.judge(200_000))
    assert [json.loads(one["raw"])["n"] for one in letters] == [0, 4999, 8999]
    data = world.source.read("a.json")
    for one in letters:
        assert data[one["offset"] : one["offset"] + one["length"]].decode() == one["raw"]


def test_without_letters_of_late_rows_those_ahead_have_some() -> None:
    world = LateLetterHarness()
    world.put("a.json", b'{"n": 1}\n{"n": 2}\n')
    world.stage((101, "a.json", 1), (2000, "a.json", 2))
    counted = world.tally(105_000)
    assert (counted.late, counted.ahead, counted.newest_us) == (1, 1, None)
    [letter] = world.letters(world.judge(105_000, keep=False))
    assert (letter["stage"], letter["line"]) == ("ahead", 2)


def test_letters_of_a_file_are_limited_but_all_late_rows_count() -> None:
    world = LateLetterHarness()
    world.put("a.json", b"".join(b'{"n": %d}\n' % n for n in range(1, 10)))
    world.put("b.json", b'{"n": 1}\n')
    world.stage(*((101, "a.json", line) for line in range(1, 8)), (102, "b.json", 1))
    world.stage((2000, "a.json", 8), (101, "a.json", 9))
    counted = world.tally(105_000)
    assert (counted.late, counted.ahead) == (9, 1)
    found = world.judge(105_000, most=3)
    letters = world.letters(found)
    assert [(one["path"], one["line"], one.get("more")) for one in letters] == [
        ("mem://raw/a.json", 1, None),
        ("mem://raw/a.json", 2, None),
        ("mem://raw/a.json", 3, 6),
        ("mem://raw/b.json", 1, None),
    ]
    # Who merges the letters of all tasks goes by these numbers.
    assert found.files == (("a.json", 3), ("b.json", 1))


def test_nothing_late_stages_nothing() -> None:
    world = LateLetterHarness()
    world.put("a.json", b"{}\n")
    world.stage((101, "a.json", 1))
    before = set(world.sink.objects)
    assert world.judge(105_000 - 1) is None
    assert set(world.sink.objects) == before


def test_attempt_ends_when_a_file_shrinks_or_disappears() -> None:
    world = LateLetterHarness()
    world.put("a.json", b"{}\n{}\n")
    world.stage((101, "a.json", 2))
    world.source.put_atomic("a.json", b"{}\n")
    with pytest.raises(Unavailable, match="line 2 was read before and is now missing"):
        world.judge(105_000)
    world.source.delete("a.json")
    with pytest.raises(Unavailable, match=r"mem://raw/a\.json"):
        world.judge(105_000)


@pytest.mark.promise("G-078")
@pytest.mark.parametrize("uri", ["mem://raw", "mem://raw/", "raw", "mems://raw"])
def test_late_lines_are_found_however_the_source_is_spelt(uri: str) -> None:
    world = LateLetterHarness()
    world.put("a.json", b'{"n": 1}\n{"n": 2}\n')
    world.stage((101, "a.json", 2))
    [letter] = world.letters(world.judge(105_000, uri=uri))
    assert (letter["path"], letter["raw"]) == ("mem://raw/a.json", '{"n": 2}')


@pytest.mark.promise("G-078")
def test_a_row_of_an_unknown_file_gets_a_letter_without_its_line() -> None:
    world = LateLetterHarness()
    world.put("a.json", b'{"n": 1}\n')
    world.stage((101, "a.json", 1), (102, "B.JSON", 7), (103, "B.JSON", 3), (2000, "B.JSON", 9))
    counted = world.tally(105_000)
    assert (counted.late, counted.ahead) == (3, 1)
    found = world.judge(105_000, most=2)
    unknown, more, known = world.letters(found)
    assert (unknown["path"], unknown["line"], unknown["raw"]) == ("mem://raw/B.JSON", 7, "")
    assert "the batch has no file 'mem://raw/B.JSON'" in unknown["error"]
    assert (more["line"], more["stage"], more["more"]) == (9, "ahead", 1)
    assert known["raw"] == '{"n": 1}'
    assert found.files == (("B.JSON", 2), ("a.json", 1))
