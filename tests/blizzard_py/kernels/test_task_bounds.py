"""The largest cost of one file; its neighbours in a task are ingested."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from blizzard_core.errors import Unavailable
from blizzard_core.limits import EXPANSION_FREE_BYTES, REASON_CHARACTERS
from blizzard_core.storage.local import LocalStorage
from blizzard_py.dead_letters.reader import DeadLetterObject, read
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.job import FileLimits, PartitionRule
from blizzard_py.kernels import bad_records, task
from blizzard_py.kernels.packing import tasks_of
from blizzard_py.kernels.report import TaskReport
from blizzard_py.lines import expansion, portions
from blizzard_py.lines.failure import FileFailed, bounded
from tests.support.ingest_job_harness import IngestJobHarness, by_path, lines, specs
from tests.support.small_gzips import BAD, CHANGING, CODECS, KINDS

MOST_MB = 300
MOST_SECS = 30


@pytest.fixture
def world(tmp_path: Path) -> IngestJobHarness:
    world = IngestJobHarness(tmp_path)
    world.put("a.ndjson", lines(1))
    world.put("z.ndjson", lines(2))
    return world


def neighbours_are_ingested(world: IngestJobHarness, report: TaskReport) -> bool:
    found = by_path(report)
    return {found[name].outcome for name in ("a.ndjson", "z.ndjson")} == {"ingested"} and {
        1,
        2,
    } <= set(world.ids(report))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("attempt", [0, 2])
@pytest.mark.parametrize("codec", CODECS)
def test_excessive_expansion_quarantines_only_that_file(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch, codec: str, attempt: int, threads: int
) -> None:
    monkeypatch.setattr(expansion, "EXPANSION_FREE_BYTES", 100_000)
    data = CODECS[codec](lines(7) * 300_000)
    world.put(f"b.ndjson.{codec}", data)
    world.limits = FileLimits(expansion=100)
    report = world.run_task(attempt=attempt, threads=threads)
    bad = by_path(report)[f"b.ndjson.{codec}"]
    assert (bad.outcome, bad.stage) == ("quarantined", "decompress")
    assert f"more than 100 times its {len(data):,} stored bytes" in bad.error
    assert "error_handling.advanced.max_expansion" in bad.error
    assert bad.bytes_read < 3 << 20
    assert neighbours_are_ingested(world, report)
    assert world.ids(report) == [1, 2]
    world.limits = FileLimits(expansion=10**6)
    assert by_path(world.run_task())[f"b.ndjson.{codec}"].rows == 300_000


def test_small_files_may_expand_as_far_as_they_like(world: IngestJobHarness) -> None:
    data = b'{"id":1,"x":"%s"}\n' % (b"x" * 10_000)
    times = EXPANSION_FREE_BYTES // len(data) - 1
    world.put("b.ndjson.zst", zstandard.compress(data * times))
    assert by_path(world.run_task())["b.ndjson.zst"].rows == times


def test_empty_values_count_to_what_a_file_becomes(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expansion, "EXPANSION_FREE_BYTES", 100_000)
    world.fields = specs(id="int64", **{f"c{n}": "int64" for n in range(400)})
    world.put("b.ndjson.gz", gzip.compress(b"{}\n" * 3000))
    assert by_path(world.run_task())["b.ndjson.gz"].stage == "decompress"
    world.put("b.ndjson.gz", gzip.compress(b"{}\n" * 300))
    assert by_path(world.run_task())["b.ndjson.gz"].rows == 300


@pytest.mark.parametrize("group_bytes", [task.GROUP_BYTES, 0])
def test_file_of_several_portions_is_ingested_completely(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch, group_bytes: int
) -> None:
    monkeypatch.setattr(portions.portions, "__defaults__", (16 * 100, 16 * 1000))
    monkeypatch.setattr(task, "GROUP_BYTES", group_bytes)
    for count in (99, 100, 101, 250):
        world.put(f"b-{count}.ndjson", b"oops\n" + lines(*range(10, 9 + count)))
    report = world.run_task()
    assert {f.path: (f.rows, f.bad_rows) for f in report.files if f.path > "b"} == {
        **{f"b-{count}.ndjson": (count - 1, 1) for count in (99, 100, 101, 250)},
        "z.ndjson": (1, 0),
    }
    assert len(world.ids(report)) == 2 + 98 + 99 + 100 + 249
    assert [letter["line"] for letter in world.letters(report)] == [1] * 4


# --- letters --------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [True, False])
def test_letters_of_a_file_are_bounded_and_the_rest_is_counted(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch, grouped: bool
) -> None:
    if not grouped:
        monkeypatch.setattr(task, "SMALL_FILE_BYTES", 0)
    world.limits = FileLimits(letters=3)
    world.put("b.ndjson", lines(3) + b"oops\n" * 10 + lines(4))
    world.put("c.ndjson", b"oops\n" * 3)
    report = world.run_task()
    assert world.ids(report) == [1, 2, 3, 4]
    found = [(Path(str(one["path"])).name, one["line"]) for one in world.letters(report)]
    assert found == [("b.ndjson", 2), ("b.ndjson", 3), ("b.ndjson", 4)] + [
        ("c.ndjson", line) for line in (1, 2, 3)
    ]
    assert [one.get("more") for one in world.letters(report)] == [None, None, 7, None, None, None]
    assert report.letters.files == (("b.ndjson", 3), ("c.ndjson", 3))
    bad = by_path(report)["b.ndjson"]
    assert (bad.rows, bad.bad_rows) == (2, 10)
    assert bad.error.endswith("; 7 more have no letter")
    staged = DeadLetterObject(report.letters.staged, "x.records", "records", 0, 0, False)
    assert len(list(read(LocalStorage(str(world.table)), staged))) == 6


def test_letters_of_long_lines_are_bounded_by_their_bytes(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_records, "LETTERS_BYTES", 10_000)
    world.put("b.ndjson", (b"\x01" * 1000 + b"\n") * 50)
    report = world.run_task()
    letters = world.letters(report)
    # The last one is held back until it is known what follows.
    assert 2 <= len(letters) <= 3
    assert letters[-1]["more"] == 50 - len(letters)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_hopeless_file_is_not_read_to_its_end(world: IngestJobHarness, threads: int) -> None:
    world.max_bad_fraction = 0.5
    world.limits = FileLimits(letters=1000)
    world.put("b.ndjson", b"oops\n" * (4 << 20))
    report = world.run_task(threads=threads)
    bad = by_path(report)["b.ndjson"]
    assert (bad.outcome, bad.stage) == ("quarantined", "parse")
    assert "lines are bad, which is more than max_bad_fraction = 0.5" in bad.error
    assert "of the first" in bad.error
    assert bad.bytes_read <= 12 << 20
    assert neighbours_are_ingested(world, report)
    assert report.letters is None
    # As long as there are letters the fraction is that of the whole file.
    world.put("b.ndjson", b"oops\n" * 1000 + lines(5) * 400_000)
    assert by_path(world.run_task())["b.ndjson"].bad_rows == 1000


def test_lines_that_are_the_same_are_judged_once(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    parse = LineParser._parse  # noqa: SLF001  # what costs

    def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return parse(*args)

    monkeypatch.setattr(LineParser, "_parse", counted)
    odd = b'{"id":"x"}\n' + b'{"id":1,"id":2}\n' + lines(3)
    world.put("b.ndjson", odd * 5000)
    found = by_path(world.run_task())["b.ndjson"]
    assert (found.rows, found.bad_rows) == (5000, 10_000)
    assert calls < 200


def test_reasons_are_cut() -> None:
    failed = FileFailed("parse", "x\n" * 10_000)
    assert len(failed.reason) == REASON_CHARACTERS == len(bounded("y" * 501))
    assert failed.reason.endswith("…")


# --- directories ----------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("attempt", [0, 1])
def test_only_a_file_with_too_many_directories_is_quarantined(
    world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch, grouped: bool, attempt: int
) -> None:
    if not grouped:
        monkeypatch.setattr(task, "SMALL_FILE_BYTES", 0)
    world.rules = (PartitionRule("id", key="of"),)
    world.limits = FileLimits(directories=20)
    world.put("b.ndjson", lines(*range(100, 121)))
    world.put("c.ndjson", lines(*range(100, 120)) * 3)
    report = world.run_task(attempt=attempt)
    bad = by_path(report)["b.ndjson"]
    assert (bad.outcome, bad.stage) == ("quarantined", "partition")
    assert "more than 20 directories" in bad.error
    assert "error_handling.advanced.max_directories_per_file" in bad.error
    assert neighbours_are_ingested(world, report)
    assert len(report.outputs) == 22
    assert by_path(report)["c.ndjson"].rows == 60
    world.limits = FileLimits(directories=21)
    assert by_path(world.run_task())["b.ndjson"].rows == 21


# --- a full disk ----------------------------------------------------------------------------


def test_a_full_disk_is_no_files_fault(world: IngestJobHarness) -> None:
    """Files cannot grow past a bound of the process, as on a disk that is full."""
    world.put("b.ndjson", b"oops\n" * 30_000 + lines(3))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
        with pytest.raises(Unavailable, match="dead letters that wait"):
            world.run_task()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert {f.outcome for f in world.run_task().files} == {"ingested"}


# --- all of it ------------------------------------------------------------------------------


@pytest.mark.timeout(900)  # a loaded machine takes ten times as long
@pytest.mark.parametrize(
    ("codec", "fraction", "names"), [("gz", "1", {*KINDS, *CHANGING}), ("zst", "0.1", set(BAD))]
)
def test_eight_kilobytes_of_any_content_cost_limited_resources(
    tmp_path: Path, codec: str, fraction: str, names: set[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.small_gzips", codec, fraction, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    costs = {cost["name"]: cost for cost in map(json.loads, done.stdout.splitlines())}
    assert costs.keys() == names
    for cost in costs.values():
        assert cost["packed"] <= 8 << 10, cost
        assert cost["neighbours"] == ["ingested", "ingested"], cost
        assert cost["mb"] <= MOST_MB, cost
        assert cost["secs"] <= MOST_SECS, cost
        assert cost["staged"] <= 100 << 20, cost


def test_a_pipe_in_place_of_a_file_is_quarantined_at_once(
    world: IngestJobHarness,
) -> None:
    os.mkfifo(world.source / "b.ndjson")
    job = world.job("b.ndjson")
    [only] = tasks_of(job, [job.files])
    source, sink = LocalStorage(str(world.source)), LocalStorage(str(world.table))
    report = task.run_task(only, source, sink, attempt_id=7)
    bad = by_path(report)["b.ndjson"]
    assert (bad.outcome, bad.stage) == ("quarantined", "read")
    assert "is no regular file" in bad.error
    assert neighbours_are_ingested(world, report)
