"""The batch protocol: what each step leaves behind, and death at every one of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import (
    BlizzardError,
    Cancelled,
    NotFound,
    PipelineStopped,
    StateError,
    StorageError,
    Unavailable,
    Unfinished,
)
from blizzard_core.handover.published import first_name
from blizzard_core.log import configure
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.settings.time_formats import PartitionFilter
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import ListingPage
from blizzard_py.ingest.publish import OutputIdGenerator
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.state.journal import Journal
from tests.support.hourly_files import HOURS, ROWS, source_with_hours
from tests.support.memory_store import Died, Dying
from tests.support.pipeline_harness import PipelineHarness

RECORDS = [
    ("date=1/hour=00/1.ndjson", "?1"),
    ("date=1/hour=00/1.ndjson", "?2"),
    ("date=1/hour=00/2.ndjson", "?3"),
]


def test_a_drained_source_is_idle_with_all_published_once() -> None:
    world = source_with_hours()
    world.drain()
    assert world.rows() == ROWS
    document = world.checkpoint()
    assert document["schema_version"] == 1
    assert document["watermark"] == {"state": "Idle", "value": "date=2/hour=00/2.ndjson"}
    assert document["partition_watermarks"] == {
        "date=1/hour=00": "2.ndjson",
        "date=1/hour=01": "1.ndjson",
        "date=2/hour=00": "2.ndjson",
    }
    assert document["last_update_ts"] == 1_750_000_000
    assert "in_flight" not in document
    assert document["totals"] == {
        "batches": 3,
        "files": 4,
        "quarantined": 1,
        "rows": 7,
        "bytes": sum(len("\n".join(rows)) for rows in HOURS.values()),
        "outputs": 2,
        "bad_rows": 3,
    }
    assert not [path for path in world.sink.objects if "staging" in path]


def test_a_second_drain_reads_only_new_files() -> None:
    world = source_with_hours()
    world.drain()
    before = {**world.sink.objects, **world.checkpoint()}
    jobs = len(world.engine.jobs)
    world.drain()
    after = {**world.sink.objects, **world.checkpoint()}
    # A start takes the checkpoint over; nothing else changes.
    changed = {key for key in after if after[key] != before.get(key)}
    fence = "_blizzard_fence/events_main.json"
    assert changed == {"_blizzard/events_main_checkpoint.json", fence, "writer"}
    assert len(world.engine.jobs) == jobs
    world.put("date=1/hour=00/3.ndjson", "late")
    world.put("date=2/hour=01/1.ndjson", "new")
    world.drain()
    assert [f.path for job in world.engine.jobs[jobs:] for f in job.files] == [
        "date=1/hour=00/3.ndjson",
        "date=2/hour=01/1.ndjson",
    ]
    assert world.rows() == sorted([*ROWS, "late", "new"])


def test_an_empty_source_stays_initial() -> None:
    world = PipelineHarness()
    world.drain()
    world.drain()
    assert world.checkpoint()["watermark"] == {"state": "Initial"}
    assert list(world.sink.objects) == [
        "_blizzard/events_main_checkpoint.json",
        "_blizzard_fence/events_main.json",
    ]


def test_a_bad_file_is_a_dead_letter_with_the_documented_fields() -> None:
    world = source_with_hours()
    world.drain()
    [letter] = world.letters()
    assert letter == {
        "path": "mem://raw/date=2/hour=00/2.ndjson",
        "error": "line 1: bad",
        "stage": "parse",
        "timestamp": "2025-06-15T15:06:40+00:00",
        "retry_count": 0,
    }


def test_bad_records_are_letters_in_the_order_of_files_and_lines() -> None:
    world = source_with_hours()
    stream = io.StringIO()
    configure("info", stream)
    world.drain()
    logs = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert world.records() == [RECORDS]
    [told] = [entry for entry in logs if entry["event"] == "records_quarantined"]
    assert (told["records"], told["files"]) == (3, 2)
    assert told["dead_letters"].endswith(".records.ndjson")
    assert told["examples"][0] == "date=1/hour=00/1.ndjson: line 1: ?"


def test_a_batch_that_runs_again_has_no_letters_of_its_first_run() -> None:
    world = source_with_hours()
    # Just before the save that is the commit point.
    Dying(world.sink, world.dlq).arm(steps_before_commit())
    with pytest.raises(Died):
        world.drain()
    assert world.dlq.objects == {}
    assert world.checkpoint()["in_flight"][0]["phase"] == "running"
    world.put("date=1/hour=00/1.ndjson", "a1", "a2")
    world.put("date=1/hour=00/2.ndjson", "a3")
    world.drain()
    assert world.rows() == ROWS
    assert world.records() == []
    assert not [path for path in world.dlq.objects if ".records." in path]


def steps_before_commit() -> int:
    """Count a run's steps before the save with the first batch as ``publishing``."""
    world = source_with_hours()
    dying = Dying(world.sink, world.dlq)
    saves = []
    after = world.sink.after_mutation

    def noted(operation: str, path: str) -> None:
        after(operation, path)
        if operation == "put_if" and world.checkpoint().get("in_flight"):
            saves.append((dying.count - 2, world.checkpoint()["in_flight"][0]["phase"]))

    world.sink.after_mutation = noted
    world.drain()
    return next(before for before, phase in saves if phase == "publishing")


def test_letters_that_are_missing_stop_the_batch() -> None:
    world = source_with_hours()
    ingest = world.engine.ingest

    def cut(job: IngestJob) -> IngestResult:
        result = ingest(job)
        world.sink.put_atomic(result.letters[0].staged, b"")
        return result

    world.engine.ingest = cut  # type: ignore[method-assign]  # the fault
    with pytest.raises(BlizzardError, match=r"reported 1 bad records and staged 0"):
        world.drain()
    assert world.published() == {}
    assert world.records() == []


def test_a_bad_record_stops_the_pipeline_if_it_is_to_fail() -> None:
    world = source_with_hours()
    world.errors["on_bad_record"] = "fail"
    with pytest.raises(PipelineStopped, match=r"date=2/hour=00/2.ndjson: line 1: bad") as caught:
        world.drain()
    assert caught.value.exit_code == 1
    assert "set on_bad_record to quarantine_record" in str(caught.value)
    assert world.checkpoint()["watermark"]["value"] == "date=2/hour=00/1.ndjson"
    assert world.letters() == []
    world.put("date=2/hour=00/2.ndjson", "mended")
    world.drain()
    assert world.rows() == sorted([*ROWS, "mended"])


def test_totals_of_a_checkpoint_from_before_there_were_bad_rows() -> None:
    world = source_with_hours()
    world.drain()
    document = world.checkpoint()
    del document["totals"]["bad_rows"]
    path = "_blizzard/events_main_checkpoint.json"
    world.sink.put_atomic(path, json.dumps(document).encode())
    world.put("date=3/hour=00/1.ndjson", "?9", "d1")
    world.drain()
    assert world.checkpoint()["totals"]["bad_rows"] == 1


def test_file_names_in_a_table_partition_increase() -> None:
    world = source_with_hours()
    world.template = "date=%d"
    world.source.objects.clear()
    for number in range(6):
        world.put(f"date=0{number % 2 + 1}/{number}.ndjson", f"r{number}")
    world.drain()
    assert {path.split("/")[0] for path in world.published()} == {"date=01", "date=02"}
    for date in ("date=01", "date=02"):
        published = [p for p in world.sink.objects if p.startswith(date)]
        assert published == sorted(published)


def test_a_path_without_a_partition_is_dead_lettered() -> None:
    world = PipelineHarness()
    world.template = "date=%d"
    world.put("date=01/1.ndjson", "good")
    world.put("date=junk/1.ndjson", "lost")
    world.drain()
    assert world.rows() == ["good"]
    [letter] = world.letters()
    assert letter["stage"] == "partition"
    assert "date='junk'" in letter["error"]


# -- files that cannot be read -------------------------------------------------


@pytest.mark.promise("G-007")
def test_a_temporary_failure_holds_the_watermark() -> None:
    world = PipelineHarness()
    for number in (1, 2, 3):
        world.put(f"d=1/{number}.ndjson", f"r{number}")
    world.engine.flaky["d=1/1.ndjson"] = 2
    pipeline = world.pipeline()
    assert pipeline.cycle(threading.Event())
    assert world.rows() == ["r2", "r3"]
    document = world.checkpoint()
    assert document["partition_watermarks"] == {}
    assert document["retries"] == {"d=1/1.ndjson": {"count": 1, "after": world.now + 15}}
    with pytest.raises(Unfinished, match=r"wait for a retry, among them d=1/1\.ndjson"):
        pipeline.cycle(threading.Event())
    assert len(world.engine.jobs) == 2
    world.now += 15
    with pytest.raises(Unavailable, match=r"d=1/1\.ndjson: timed out"):
        pipeline.cycle(threading.Event())
    assert world.checkpoint()["retries"]["d=1/1.ndjson"]["after"] == world.now + 60
    world.drain(pipeline)
    assert world.rows() == ["r1", "r2", "r3"]
    assert world.checkpoint()["partition_watermarks"] == {"d=1": "3.ndjson"}
    assert world.letters() == []


def test_a_due_retry_that_cannot_run_keeps_its_backoff() -> None:
    world = PipelineHarness(min_age="10m")
    world.source.objects["d=1/1.ndjson"] = (b"r1", world.now + 864_000)  # dated ahead of now
    pipeline = world.pipeline()
    pipeline.cycle(threading.Event())
    world.now += 700
    world.engine.flaky.update({"d=1/1.ndjson": 1, "d=1/2.ndjson": 1})
    with pytest.raises(Unavailable, match="timed out"):
        pipeline.cycle(threading.Event())
    world.now += 700
    world.source.objects["d=1/2.ndjson"] = (b"r2", world.now - 700)
    after_restart = world.pipeline()  # to which the first file is young again
    with pytest.raises(Unavailable, match="timed out"):
        after_restart.cycle(threading.Event())
    with pytest.raises(Unfinished, match=r"1 file.*d=1/2\.ndjson") as waits:
        after_restart.cycle(threading.Event())
    assert waits.value.wait_secs == 15


def test_a_failing_file_is_dead_lettered_after_its_last_try() -> None:
    world = PipelineHarness()
    world.errors = {"max_retries": 2}
    world.put("d=1/1.ndjson", "r1")
    world.engine.flaky["d=1/1.ndjson"] = 99
    pipeline = world.pipeline()
    for wait in (15, 60):
        with pytest.raises(Unavailable):
            pipeline.cycle(threading.Event())
        world.now += wait
    world.drain(pipeline)
    [letter] = world.letters()
    assert (letter["stage"], letter["retry_count"]) == ("read", 2)
    assert world.checkpoint()["partition_watermarks"] == {"d=1": "1.ndjson"}


def test_a_deleted_waiting_file_releases_the_watermark() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    world.put("d=1/2.ndjson", "r2")
    world.engine.flaky["d=1/1.ndjson"] = 99
    pipeline = world.pipeline()
    pipeline.cycle(threading.Event())
    del world.source.objects["d=1/1.ndjson"]
    world.put("d=1/3.ndjson", "r3")
    world.drain(pipeline)
    assert "retries" not in world.checkpoint()
    assert world.checkpoint()["partition_watermarks"] == {"d=1": "3.ndjson"}


@pytest.mark.promise("G-115")
def test_max_failures_stops_before_the_file_is_passed() -> None:
    world = source_with_hours()
    world.errors = {"max_failures": 1}
    with pytest.raises(PipelineStopped, match=r"max_failures = 1.*date=2/hour=00/2\.ndjson"):
        world.drain()
    assert world.letters() == []
    del world.source.objects["date=2/hour=00/2.ndjson"]
    world.put("date=2/hour=00/2.ndjson", "mended")
    world.drain()
    assert world.rows() == sorted([*ROWS, "mended"])


@pytest.mark.promise("G-116")
@pytest.mark.parametrize("template", ["", "date=%Y"])
def test_a_removed_file_resumes_a_source_after_max_failures(
    template: str,
) -> None:
    world = PipelineHarness()
    world.errors = {"max_failures": 2}
    world.template = template
    names = ("date=2024/1", "date=2024/2", "never/3", "never/4") if template else "1234"
    for name in names:
        world.put(f"{name}.ndjson", "r" if name[-1] in "12" else "bad")
    with pytest.raises(PipelineStopped, match=r"3\.ndjson.*4\.ndjson"):
        world.drain()
    with pytest.raises(PipelineStopped, match=r"3\.ndjson.*4\.ndjson"):
        world.drain()
    del world.source.objects[f"{names[2]}.ndjson"]
    pipeline = world.drain()
    assert world.rows() == ["r", "r"]
    assert len(world.letters()) == 2  # one that is bad, one that is gone
    world.put(f"{names[3]}5.ndjson", "bad")
    with pytest.raises(PipelineStopped, match=r"max_failures = 2.*45\.ndjson"):
        world.drain(pipeline)


def test_a_source_whose_root_is_missing_has_removed_no_file() -> None:
    world = PipelineHarness()
    world.errors = {"max_failures": 1, "max_retries": 0}
    world.put("1.ndjson", "r")
    world.engine.flaky["1.ndjson"] = 99
    pipeline = world.pipeline()
    ingest = world.engine.ingest

    def unmounted(_path: str) -> None:
        return None

    def refused(_after: str, _until: str | None) -> Iterator[ListingPage]:
        raise NotFound("no such directory")

    def away(job: IngestJob) -> IngestResult:
        world.source.stat = unmounted  # type: ignore[method-assign]  # the disk goes
        world.source.list_range = refused  # type: ignore[method-assign]  # the disk goes
        return ingest(job)

    world.engine.ingest = away  # type: ignore[method-assign]  # when the job has begun
    with pytest.raises(PipelineStopped, match=r"1\.ndjson: timed out"):
        pipeline.cycle(threading.Event())
    assert world.letters() == []


@pytest.mark.promise("G-008")
def test_missing_files_wait_while_the_listing_is_empty(
    tmp_path: Path,
) -> None:
    """A mount point without its disk, which comes back, or has lost its files for good."""
    for comes_back in (True, False):
        root = tmp_path / str(comes_back)
        world = PipelineHarness()
        world.source = LocalStorage(str(root))
        world.engine.source = world.source
        for name in "123":
            world.put(f"d=1/{name}.ndjson", name)
        world.engine.flaky["d=1/2.ndjson"] = 1
        pipeline = world.pipeline()
        with contextlib.suppress(Unfinished):
            pipeline.cycle(threading.Event())
            pipeline.cycle(threading.Event())
        (root / "d=1").rename(tmp_path / "disk")
        for _ in range(5):
            world.now += 1000
            with pytest.raises(Unavailable, match=r"shows nothing at all, and 1 file.*2\.ndjson"):
                pipeline.cycle(threading.Event())
        assert list(world.checkpoint()["retries"]) == ["d=1/2.ndjson"]
        if comes_back:
            (tmp_path / "disk").rename(root / "d=1")
        else:
            (root / ".keep").touch()
        world.put("d=1/4.ndjson", "4")
        world.drain(pipeline)
        assert world.rows() == (["1", "2", "3", "4"] if comes_back else ["1", "3", "4"])
        assert world.letters() == []
        assert "retries" not in world.checkpoint()


def test_a_job_that_forgets_a_file_is_not_committed() -> None:
    world = source_with_hours()
    ingest = world.engine.ingest

    def forgetful(job: object) -> IngestResult:
        result = ingest(job)  # type: ignore[arg-type]  # passed through as it is
        return IngestResult(result.outputs, result.files[1:], 1)

    world.engine.ingest = forgetful  # type: ignore[method-assign]  # the fault under test
    with pytest.raises(BlizzardError, match="was not committed"):
        world.drain()
    assert world.published() == {}


# -- state ---------------------------------------------------------------------


@pytest.mark.promise("G-117")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not valid JSON"),
        (b"[]", "is no JSON object"),
        (b"null", "is no JSON object"),
        (b'{"schema_version": 4}', "schema_version 4 is not known"),
        (b'{"schema_version": 2}', "missing required field `watermark`; restore it"),
        (b'{"schema_version": "1"}', "schema_version: Expected `int`, got `str`"),
    ],
)
def test_an_unreadable_checkpoint_stops_the_pipeline(content: bytes, message: str) -> None:
    world = source_with_hours()
    world.sink.put_atomic("_blizzard/events_main_checkpoint.json", content)
    with pytest.raises(StateError, match=message) as caught:
        world.drain()
    assert "mem://lake/_blizzard/events_main_checkpoint.json" in str(caught.value)
    assert world.engine.jobs == []
    assert world.sink.objects["_blizzard/events_main_checkpoint.json"][0] == content


def test_a_changed_partition_depth_stops_the_pipeline() -> None:
    world = source_with_hours()
    world.drain()
    world.settings["partition_depth"] = 1
    with pytest.raises(StateError, match=r"set advanced\.partition_depth: 2"):
        world.drain()


def test_a_checkpoint_of_the_original_is_continued() -> None:
    world = source_with_hours()
    world.sink.put_atomic(
        "_blizzard/events_main_checkpoint.json",
        json.dumps(
            {
                "schema_version": 1,
                "watermark": {"state": "Active", "value": "date=1/hour=01/1.ndjson"},
                "partition_watermarks": {
                    "date=1/hour=00": "1.ndjson",
                    "date=1/hour=01": "1.ndjson",
                },
                "last_update_ts": 1,
            }
        ).encode(),
    )
    world.drain()
    assert world.rows() == ["a3", "c1", "c2", "c3"]


@pytest.mark.promise("G-009")
def test_a_listing_that_fails_fails_the_poll_and_moves_nothing() -> None:
    world = source_with_hours()
    pipeline = world.drain()
    before = dict(world.sink.objects)
    world.put("date=3/hour=00/1.ndjson", "new")
    listing = world.source.list_range

    def broken(after: str, until: str | None) -> object:
        yield from listing(after, until)
        raise Unavailable("mem://raw: 503")

    world.source.list_range = broken  # type: ignore[method-assign, assignment]  # the fault
    with pytest.raises(StorageError):
        pipeline.cycle(threading.Event())
    after = dict(world.sink.objects)
    assert b"mem://raw: 503" in after.pop("_blizzard/errors/events_main.json")[0]
    assert after == before
    world.source.list_range = listing  # type: ignore[method-assign]  # mended
    world.drain(pipeline)
    assert world.rows() == sorted([*ROWS, "new"])


# -- bounds --------------------------------------------------------------------


@pytest.mark.promise("G-122")
def test_only_the_newest_partitions_stay_tracked() -> None:
    world = PipelineHarness(max_tracked_partitions=3)
    for day in range(10, 30):
        world.put(f"y={1970 + day}/1.ndjson", f"r{day}")
    pipeline = world.drain()
    assert len(world.checkpoint()["partition_watermarks"]) == 20  # all within the grace period
    world.now += 301
    world.put("y=2000/1.ndjson", "r30")
    world.drain(pipeline)
    world.now += 301
    world.drain(pipeline)
    world.put("y=2000/2.ndjson", "more")
    world.drain(pipeline)
    document = world.checkpoint()
    assert document["floor"] == "y=1998"
    assert set(document["partition_watermarks"]) == {"y=1998", "y=1999", "y=2000"}
    world.drain()
    assert world.rows() == sorted([*(f"r{day}" for day in range(10, 31)), "more"])


@pytest.mark.promise("G-011")
def test_a_file_that_waits_keeps_its_partition_open() -> None:
    world = PipelineHarness(max_tracked_partitions=1)
    for day in range(10, 20):
        world.put(f"y={1970 + day}/1.ndjson", f"r{day}")
    world.engine.flaky["y=1982/1.ndjson"] = 3
    pipeline = world.pipeline()
    pipeline.cycle(threading.Event())
    world.now += 1000
    with pytest.raises(Unavailable):
        pipeline.cycle(threading.Event())
    assert world.checkpoint().get("floor", "") <= "y=1982"
    for _ in range(2):
        with contextlib.suppress(Unavailable):
            world.drain(pipeline)
    assert "r12" in world.rows()


@pytest.mark.promise("G-011")
def test_the_lookback_never_passes_files_that_arrived_in_time() -> None:
    chosen = PartitionFilter(prefix_template="date=%Y-%m-%d", lookback=1)
    world = PipelineHarness(partition_filter=chosen)
    world.now = dt.datetime(2024, 1, 10, 12, tzinfo=dt.UTC).timestamp()
    world.put("date=2024-01-08/1.ndjson", "before the lookback")
    world.put("date=2024-01-10/1.ndjson", "a")
    world.drain()
    assert world.rows() == ["a"]
    # The daemon was down for a week; what arrived since is older than the lookback.
    world.put("date=2024-01-11/1.ndjson", "b")
    world.now += 7 * 86400
    world.drain()
    assert world.rows() == ["a", "b"]
    world.put("date=2024-01-17/1.ndjson", "c")
    world.drain()
    # While what sorts below "b" may still come, its partition stays open.
    assert world.checkpoint()["floor"] == "date=2024-01-10"
    world.now += 302
    world.put("date=2024-01-17/2.ndjson", "d")
    world.drain()
    assert world.checkpoint()["floor"] == "date=2024-01-16"
    assert world.rows() == ["a", "b", "c", "d"]


def test_a_young_file_is_left_alone_and_holds_the_watermark() -> None:
    world = PipelineHarness(min_age="1m")
    world.put("d=1/1.ndjson", "r1")
    world.now += 60
    world.put("d=1/0.ndjson", "r0")
    pipeline = world.drain()
    assert world.rows() == ["r1"]
    assert world.checkpoint()["partition_watermarks"] == {}
    world.now += 60
    world.drain(pipeline)
    assert world.rows() == ["r0", "r1"]
    assert world.checkpoint()["partition_watermarks"] == {"d=1": "1.ndjson"}


# -- stopping ------------------------------------------------------------------


def test_a_stop_between_batches_leaves_the_rest() -> None:
    world = source_with_hours()
    stop = threading.Event()
    ingest = world.engine.ingest

    def stopping(job: object) -> IngestResult:
        stop.set()
        return ingest(job)  # type: ignore[arg-type]  # passed through as it is

    world.engine.ingest = stopping  # type: ignore[method-assign]  # a signal that comes now
    world.pipeline().cycle(stop)
    assert world.checkpoint()["totals"]["batches"] == 1
    assert "in_flight" not in world.checkpoint()
    world.drain()
    assert world.rows() == ROWS


def test_cancel_reaches_the_running_job() -> None:
    world = source_with_hours()
    pipeline = world.pipeline()
    ingest = world.engine.ingest

    def cancelled(job: object) -> IngestResult:
        pipeline.cancel()
        return ingest(job)  # type: ignore[arg-type]  # passed through as it is

    world.engine.ingest = cancelled  # type: ignore[method-assign]  # a shutdown that comes now
    pipeline.cycle(threading.Event())
    assert world.engine.cancelled == [job.output_prefix for job in world.engine.jobs]


# -- two batches at once ---------------------------------------------------------


def test_a_batch_is_published_while_the_next_is_being_ingested() -> None:
    world = source_with_hours()
    running, published = threading.Event(), threading.Event()
    phases: list[list[str]] = []
    ingest = world.engine.ingest

    def second_waits(job: IngestJob) -> IngestResult:
        if world.engine.jobs:
            phases.append([batch["phase"] for batch in world.checkpoint()["in_flight"]])
            running.set()
            assert published.wait(30), "the batch before is not published beside this job"
        return ingest(job)

    def is_copy(change: str, path: str) -> bool:
        return change == "copy" and path.startswith("_blizzard/staging/")

    def waits(change: str, path: str) -> None:
        if is_copy(change, path):
            assert running.wait(30), "the next job does not begin beside this publication"

    def seen(change: str, path: str) -> None:
        if is_copy(change, path):
            published.set()

    world.engine.ingest = second_waits  # type: ignore[method-assign]  # a job that takes long
    world.sink.before_mutation = waits
    world.sink.after_mutation = seen
    world.drain()
    assert phases[0] == ["publishing", "running"]
    assert world.rows() == ROWS


def test_a_failed_publication_ends_the_parallel_job() -> None:
    world = source_with_hours()
    cancelled = threading.Event()
    ingest, cancel = world.engine.ingest, world.engine.cancel
    running = threading.Event()

    def second_waits(job: IngestJob) -> IngestResult:
        if len(world.engine.jobs) == 1:
            running.set()
            assert cancelled.wait(30), "nobody ends a job whose cycle has failed"
            raise Cancelled("cancelled")
        return ingest(job)

    def cancelling(prefix: str) -> None:
        cancel(prefix)
        cancelled.set()

    def refuse(change: str, path: str) -> None:
        if change == "copy" and not cancelled.is_set():
            assert running.wait(30)
            raise Unavailable(f"mem://lake/{path}: 503")

    world.engine.ingest = second_waits  # type: ignore[method-assign]  # a job that takes long
    world.engine.cancel = cancelling  # type: ignore[method-assign]  # to see it called
    world.sink.before_mutation = refuse
    pipeline = world.pipeline()
    with pytest.raises(Unavailable):
        pipeline.cycle(threading.Event())
    assert [b["phase"] for b in world.checkpoint()["in_flight"]] == ["publishing", "running"]
    world.engine.ingest = ingest  # type: ignore[method-assign]  # the store is back
    world.drain(pipeline)
    assert world.rows() == ROWS
    assert world.checkpoint()["totals"]["batches"] == 3


# -- death ---------------------------------------------------------------------


def in_flight(world: PipelineHarness) -> list[dict[str, Any]]:
    stored = "_blizzard/events_main_checkpoint.json" in world.sink.objects
    return world.checkpoint().get("in_flight", []) if stored else []


# -- the journal ---------------------------------------------------------------


def test_every_batch_has_a_journal_record_for_a_month() -> None:
    world = source_with_hours()
    world.now = 1_700_000_000.0
    world.drain()
    journal = Journal(world.sink, "events_main")
    folder = "_blizzard/journal/events_main/"
    names = sorted(path for path in world.sink.objects if path.startswith(folder))
    found = [json.loads(world.sink.read(name)) for name in names]
    assert [f["path"] for batch in found for f in batch["files"]] == sorted(HOURS)
    assert {f["outcome"] for batch in found for f in batch["files"]} == {"ingested", "quarantined"}
    assert sorted(o["final"] for batch in found for o in batch["outputs"]) == sorted(
        world.published()
    )
    made = time.time()  # batches are named by the real clock
    assert first_name(made - 600) < names[0].removeprefix(folder) < first_name(made + 600)
    folded = [batch["batch"] for batch in found]
    assert journal.prune(made + 29 * 86_400, folded) == 0
    assert journal.prune(made + 31 * 86_400, folded[:1]) == 1
    assert list(journal.batches()) == folded[1:]
    # What one wrote who took a batch over is one batch with it, and goes with it.
    path = f"{folder}{folded[1]}"
    world.sink.put_atomic(f"{path}~0001.json", world.sink.read(f"{path}.json"))
    assert list(journal.batches()) == folded[1:]
    assert journal.prune(made + 31 * 86_400, folded[1:]) == len(found) - 1
    assert not any(path.startswith(folder) for path in world.sink.objects)


def test_batches_named_by_a_clock_years_ahead_go_after_a_month(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = source_with_hours()
    world.now = time.time()
    with monkeypatch.context() as machine:
        ahead = OutputIdGenerator().fresh(1, world.now + 10 * 365 * 86_400.0)[0]
        machine.setattr("blizzard_py.ingest.batch_loop.uuid7", lambda: ahead)
        world.drain()
    world.put("date=2024-01-09/hour=00/1.ndjson", "later")
    world.drain()  # its id goes on from there
    journal = Journal(world.sink, "events_main")
    folded = list(journal.batches())
    assert min(folded) == ahead
    assert journal.prune(world.now + 29 * 86_400, folded) == 0
    assert journal.prune(world.now + 31 * 86_400, folded) == len(folded)


def test_journal_retains_a_batch_of_a_slow_clock_for_a_month() -> None:
    """A replayed range takes its files, so a scan of later files would miss them."""
    world = source_with_hours()
    world.now = time.time() + 31 * 86_400.0  # the store's; batches are named by the real clock
    world.drain()
    journal = Journal(world.sink, "events_main")
    folded = list(journal.batches())
    assert journal.prune(world.now + 29 * 86_400, folded) == 0
    assert list(journal.batches()) == folded
    assert journal.prune(world.now + 31 * 86_400, folded) == len(folded)
    assert not list(journal.batches())


def test_the_start_of_spark_makes_no_batch_small() -> None:
    world = PipelineHarness(checkpoint=CheckpointSettings(interval_files=4, interval="10s"))
    for number in range(16):
        world.put(f"{number:02}.ndjson", "a")
    secs, sizes = iter([60.0, 20.0, 1.0, 1.0, 1.0]), []
    ingest = world.engine.ingest

    def slow(job: IngestJob) -> IngestResult:
        world.now += next(secs)
        sizes.append(len(job.files))
        return ingest(job)

    world.engine.ingest = slow  # type: ignore[method-assign]  # nothing else takes time
    world.drain()
    # The first took a minute, which says nothing of files; four took 20 s, so two take 10.
    assert sizes == [4, 4, 2, 4, 2]
