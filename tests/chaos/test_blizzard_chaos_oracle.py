"""Tests of the chaos run's own parts: a judge that cannot fail would prove nothing."""

from __future__ import annotations

import gzip
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, RemoteDisconnected
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from blizzard_core.errors import Cancelled
from blizzard_core.storage.opening import open_storage
from tests.chaos.blizzard import daemon
from tests.chaos.blizzard.fleet import Fleet, Trouble
from tests.chaos.blizzard.oracle import Found, Kind, Written, judge, lateness
from tests.chaos.blizzard.pace import Pace
from tests.chaos.blizzard.place import Place, local_place, s3_place
from tests.chaos.blizzard.writer import Writer, made
from tests.support.fault_proxy import fault_proxy
from tests.support.ingest_job_harness import IngestJobHarness, lines
from tests.support.s3_server import S3Server

LIMIT = 16.0
PACE = Pace()


def written(
    number: int, at: float = 0, *, rows: int = 3, name: str = "", bad: int = 0, old: float = 0
) -> Written:
    path = f"d=1/{name or number}"
    return Written(number, path, rows, at, at + 0.1, bad, unreadable=rows == 0, old=old)


def once(*files: Written) -> Found:
    """Return the correct final state of files that are all in time."""
    return Found(
        Counter(i for f in files for i in f.ids),
        Counter(f.path for f in files if f.unreadable),
        Counter({f.path: f.bad_lines for f in files if f.bad_lines}),
    )


def kinds(files: list[Written], found: Found) -> list[Kind]:
    return [fault.kind for fault in judge(files, found, LIMIT, 64)]


def test_lateness_counts_from_first_higher_name_of_partition() -> None:
    files = [
        Written(1, "d=1/a", 1, 10.0, 10.5),
        Written(2, "d=1/b", 1, 4.0, 4.5),
        Written(3, "d=1/c", 1, 2.0, 2.5),
        Written(4, "d=2/z", 1, 0.0, 0.5),
    ]
    # At most: from the moment it may have been visible to that at which it was.
    assert lateness(files, 2) == {"d=1/a": 8.5, "d=1/b": 2.5, "d=1/c": 0.0, "d=2/z": 0.0}


def test_lateness_counts_from_any_higher_name_in_old_partitions() -> None:
    files = [
        Written(1, "d=1/a", 1, 1.0, 1.5),
        Written(2, "d=1/b", 1, 9.0, 9.5),
        Written(3, "d=2/a", 1, 2.0, 2.5),
        Written(4, "d=3/a", 1, 5.0, 5.5),
    ]
    # When d=1/a came, no other partition was there; d=1/b came when two were.
    assert lateness(files, 2) == {"d=1/a": 0.0, "d=1/b": 7.5, "d=2/a": 0.0, "d=3/a": 0.0}
    assert lateness(files, 1) == {"d=1/a": 0.0, "d=1/b": 7.5, "d=2/a": 0.0, "d=3/a": 0.0}
    assert lateness(files, 3) == {"d=1/a": 0.0, "d=1/b": 0.0, "d=2/a": 0.0, "d=3/a": 0.0}


def test_correct_state_has_no_fault() -> None:
    files = [written(1), written(2, bad=1), written(3, rows=0)]
    assert kinds(files, once(*files)) == []


def test_file_in_time_needs_rows_and_not_a_letter() -> None:
    early, high = written(1, at=LIMIT - 1), written(2)
    assert kinds([early, high], once(high)) == ["missing"]
    letter = Found(once(high).rows, {early.path: 1}, {})
    assert kinds([early, high], letter) == ["letters"]


def test_late_file_has_rows_or_a_letter_and_not_both() -> None:
    late, high = written(1, at=LIMIT + 1), written(2)
    files = [late, high]
    assert kinds(files, once(*files)) == []
    letter = Found(once(high).rows, {late.path: 1}, {})
    assert kinds(files, letter) == []
    assert kinds(files, once(high)) == ["missing"]
    assert kinds(files, Found(once(*files).rows, {late.path: 1}, {})) == ["letters"]
    assert kinds(files, Found(once(high).rows, {late.path: 2}, {})) == ["letters"]


def test_doubled_and_missing_rows_are_distinct_faults() -> None:
    file = written(1)
    assert kinds([file], Found({1000: 1, 1001: 2, 1002: 1}, {}, {})) == ["doubled"]
    assert kinds([file], Found({1000: 1, 1001: 1}, {}, {})) == ["torn"]


def test_bad_files_and_bad_lines_have_a_letter_each() -> None:
    unreadable, line = written(1, rows=0), written(2, bad=1)
    assert kinds([unreadable], Found({}, {}, {})) == ["missing"]
    assert kinds([unreadable], Found({}, {unreadable.path: 2}, {})) == ["letters"]
    assert kinds([line], Found(once(line).rows, {}, {})) == ["letters"]
    assert kinds([line], Found(once(line).rows, {}, {line.path: 2})) == ["letters"]


def test_rows_and_letters_of_no_file_are_found() -> None:
    assert kinds([], Found({7: 1}, {"d=1/x": 1}, {"d=1/y": 1})) == ["unknown"] * 3


def test_the_writer_makes_files_of_every_kind_with_rising_names() -> None:
    chance = random.Random(1)
    plans = [made(n, n / PACE.files_per_sec, PACE, chance) for n in range(2000)]
    names = [plan.path.partition("/")[2] for plan in plans]
    assert names == sorted(names)
    assert len({plan.path.partition("/")[0] for plan in plans}) > 10
    assert 0.28 < sum(plan.old > 0 for plan in plans) / len(plans) < 0.39
    for plan in plans:
        if not plan.unreadable:
            lines = gzip.decompress(plan.data).splitlines()
            assert len(lines) == plan.rows + plan.bad_lines
            assert plan.bad_lines / len(lines) <= 0.1  # else the whole file is given up
    held = [PACE.held_back(chance) for _ in plans]
    in_time = [secs for secs in held if secs <= PACE.covered]
    assert max(in_time) <= 0.7 * PACE.grace
    assert 0.4 < sum(secs > 0 for secs in in_time) / len(held) < 0.55
    assert 0.01 < 1 - len(in_time) / len(held) < 0.06
    assert min(secs for secs in held if secs > PACE.covered) > PACE.grace


def ages(place: Place) -> dict[str, float]:
    """Seconds since the modification times that a listing says."""
    return {
        entry.path: time.time() - entry.modified
        for page in place.scenario.source.list_range("", None)
        for entry in page.entries
    }


def test_file_on_disk_appears_complete_with_its_time(tmp_path: Path) -> None:
    place = local_place(tmp_path, PACE)
    place.put("d=1/new", b"x", 0)
    place.put("d=1/old", b"x", 86_400)
    assert ages(place)["d=1/new"] < 60
    assert 86_400 <= ages(place)["d=1/old"] < 86_460


def test_object_behind_the_proxy_has_its_set_time(s3: S3Server, tmp_path: Path) -> None:
    with s3_place(tmp_path, PACE, s3, seed=1) as place:
        place.calm()
        place.put("d=1/new", b"x", 0)
        place.put("d=1/old", b"x", 86_400)
        assert ages(place)["d=1/new"] < 60
        assert 86_400 <= ages(place)["d=1/old"] < 86_460
        found = place.scenario.source.stat("d=1/old")
        assert (found.size, time.time() - found.modified > 86_400) == (1, True)


def test_delayed_request_is_applied_without_its_client(s3: S3Server) -> None:
    bucket = s3.new_bucket()
    with fault_proxy(s3.endpoint) as proxy:
        proxy.lose = lambda _method: 0.1
        connection = HTTPConnection(urlsplit(proxy.endpoint).netloc)
        connection.request("PUT", f"/{bucket}/x/a", b"1")
        with pytest.raises(RemoteDisconnected):
            connection.getresponse()
        connection.close()
        proxy.land()
        assert open_storage(f"s3://{bucket}/x", s3.options).read("a") == b"1"
        assert (proxy.lost, len(proxy.delayed)) == (1, 1)


def test_one_job_is_slowed_down_and_the_next_is_not(tmp_path: Path) -> None:
    daemon.slow_down(tmp_path, 60, after=True)
    assert daemon.claimed(tmp_path) == -60
    assert daemon.claimed(tmp_path) == 0
    daemon.slow_down(tmp_path, 60, after=False)
    assert daemon.claimed(tmp_path) == 60


@pytest.mark.parametrize("after", [False, True])
def test_slow_job_can_be_cancelled(tmp_path: Path, after: bool) -> None:
    world = IngestJobHarness(tmp_path / "world")
    world.put("d=1/1.ndjson", lines(1))
    job = world.job("d=1/1.ndjson")
    engine = daemon.SlowEngine(tmp_path)
    daemon.slow_down(tmp_path, 300, after=after)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.ingest, job)
        engine.cancel(job.output_prefix)
        with pytest.raises(Cancelled):
            running.result(60)


def test_writer_reports_its_files_and_times() -> None:
    put: dict[str, float] = {}
    began = time.monotonic()
    writer = Writer(
        lambda path, _data, _old: put.__setitem__(path, time.monotonic()),
        Pace(grace=0.1, files_per_sec=1000),
        seed=1,
    )
    writer.start()
    while len(put) < 50:
        time.sleep(0.01)
    files = writer.finish()
    assert [file.path for file in files] == list(put)
    assert len({file.number for file in files}) == len(files)
    assert all(began <= f.begun <= put[f.path] <= f.ended for f in files)
    assert sum(secs > 0 for secs in lateness(files, 64).values()) > 5


def test_failed_writer_is_noticed() -> None:
    def fail(_path: str, _data: bytes, _old: float) -> None:
        raise OSError("no space left")

    writer = Writer(fail, PACE, seed=1)
    writer.start()
    with pytest.raises(OSError, match="no space left"):
        writer.finish()


def test_unexpected_end_of_a_process_is_noticed(tmp_path: Path) -> None:
    place = local_place(tmp_path, PACE)
    place.scenario.config.write_text("neither: pipelines\n")
    fleet = Fleet(place.scenario, tmp_path)
    try:
        with pytest.raises(Trouble, match="ended by itself with 2"):
            fleet.watch(60, fleet.start("blizzard"))
        with pytest.raises(Trouble, match="ended with 2, not 0"):
            fleet.drain("penguin", 60)
    finally:
        fleet.end()
