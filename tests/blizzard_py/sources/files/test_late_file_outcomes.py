"""Late files: told by what was settled, each dealt with once, in slices beside the polls."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from blizzard_core.errors import FencedError, Unavailable
from blizzard_core.log import configure
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.storage.protocol import Entry, ListingPage
from blizzard_core.watermark.progress import PartitionProgress, Progress, ScanTimes, mark_done
from blizzard_py.job import FinishedFile, Outcome
from blizzard_py.sources.files import late_file_sweep
from blizzard_py.sources.files.late_file_sweep import partitions_behind
from blizzard_py.state.batch import Batch, BatchResults
from blizzard_py.state.checkpoint_document import INLINE_NAMES
from blizzard_py.state.journal import KEPT_SECS, Journal
from blizzard_py.state.lateness import (
    AUTO_GRACE_SECS,
    EarlierScans,
    auto_grace,
    measure_lateness,
    with_worst,
)
from blizzard_py.state.ledger import Ledger, Settled
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.watermarks import nothing_waits

DAY = 86_400.0
INTERVAL = 1000.0
GRACE = 100.0
LATE = "d=1/1.ndjson"


def late_world(**source: object) -> PipelineHarness:
    """``d=1/2`` is passed for good, then ``d=1/1`` appears; the next cycle sweeps."""
    world = PipelineHarness(late_sweep_interval=f"{INTERVAL}s", grace_period=f"{GRACE}s", **source)
    world.put("d=1/2.ndjson", "r2")
    pipeline = world.drain()
    world.now += GRACE + 2
    world.put("d=1/3.ndjson", "r3")
    world.drain(pipeline)
    world.put(LATE, "late")
    world.drain(pipeline)
    assert world.rows() == ["r2", "r3"]
    world.now += INTERVAL
    return world


def again(world: PipelineHarness, times: int = 3) -> None:
    """Further sweeps, each of a process of its own."""
    for _ in range(times):
        world.now += INTERVAL
        world.drain()


def outcomes(world: PipelineHarness, path: str = LATE) -> list[str]:
    """Return the file's outcome in each batch of the journal."""
    return [
        file["outcome"]
        for name, (data, _) in world.sink.objects.items()
        if name.startswith("_blizzard/journal/events_main/") and "~" not in name
        for file in json.loads(data)["files"]
        if file["path"] == path
    ]


def ledger_of(world: PipelineHarness) -> Ledger:
    """Load the ledger as a reader does."""
    ledger = Ledger(world.sink, "events_main")
    ledger.load(world.pipeline().load().names.ledger)
    return ledger


def counted() -> float:
    """Return the value of the late files metric."""
    told = REGISTRY.get_sample_value("blizzard_late_files_total", {"target": "events/main"})
    return told or 0.0


# -- what becomes of them ------------------------------------------------------------


def test_late_file_gets_one_dead_letter_by_default() -> None:
    world = late_world()
    before = counted()
    world.drain()
    again(world)
    [letter] = world.letters()
    assert (letter["path"], letter["stage"]) == (f"mem://raw/{LATE}", "late")
    assert f"later than the grace period of {GRACE:g} s" in letter["error"]
    assert outcomes(world) == ["quarantined"]
    assert world.rows() == ["r2", "r3"]
    assert world.checkpoint()["totals"]["quarantined"] == 1
    assert counted() == before + 1
    assert world.checkpoint()["partition_watermarks"] == {"d=1": "3.ndjson"}


def test_late_file_is_reported_once_when_configured() -> None:
    world = late_world(late_files="report")
    before = counted()
    world.drain()
    again(world)
    assert outcomes(world) == ["reported"]
    assert world.letters() == []
    assert world.rows() == ["r2", "r3"]
    assert counted() == before + 1


def test_late_file_is_ingested_once_when_configured() -> None:
    world = late_world(late_files="ingest")
    world.drain()
    again(world)
    assert outcomes(world) == ["ingested"]
    assert world.rows() == ["late", "r2", "r3"]
    assert world.checkpoint()["partition_watermarks"] == {"d=1": "3.ndjson"}
    assert "queue" not in world.checkpoint()


def test_a_late_file_that_cannot_be_read_is_tried_again() -> None:
    world = late_world(late_files="ingest")
    world.engine.flaky[LATE] = 2
    for _ in range(2):
        with pytest.raises(Unavailable):
            world.drain()
        assert [entry["path"] for entry in world.checkpoint()["queue"]] == [LATE]
    world.drain()
    again(world)
    assert world.rows() == ["late", "r2", "r3"]


def test_a_late_file_that_waits_in_the_queue_is_not_queued_again() -> None:
    world = late_world(late_files="ingest")
    stopped = threading.Event()
    stopped.set()  # what the sweep found is saved, and no batch begins
    for _ in range(3):
        world.pipeline().cycle(stopped)
        assert [entry["path"] for entry in world.checkpoint()["queue"]] == [LATE]
        world.now += INTERVAL
    world.drain()
    assert world.rows() == ["late", "r2", "r3"]


def test_a_daemon_that_was_replaced_says_nothing_of_late_files() -> None:
    world = late_world()
    replaced = world.pipeline()
    world.now -= INTERVAL
    replaced.cycle(threading.Event())
    world.drain()
    world.now += INTERVAL
    with pytest.raises(FencedError):
        replaced.cycle(threading.Event())
    assert world.letters() == []
    assert outcomes(world) == []


def test_a_late_file_in_a_closed_partition_is_found() -> None:
    world = PipelineHarness(
        late_sweep_interval=f"{INTERVAL}s",
        grace_period=f"{GRACE}s",
        max_tracked_partitions=2,
        late_files="ingest",
    )
    for day in range(1, 6):
        world.put(f"y={1970 + day}/5.ndjson", f"r{day}")
        world.drain()
        world.now += GRACE + 2
    world.put("y=1976/5.ndjson", "r6")
    world.drain()
    assert world.checkpoint()["floor"] >= "y=1974"
    world.put("y=1971/9.ndjson", "late above what was done there")
    world.put("y=1970/1.ndjson", "late in a partition that never was")
    world.now += INTERVAL
    world.drain()
    assert len(world.rows()) == 8
    assert set(world.checkpoint()["partition_watermarks"]) <= {"y=1974", "y=1975", "y=1976"}


# -- what is not late ----------------------------------------------------------------


def test_a_file_that_was_rewritten_is_not_late() -> None:
    world = late_world()
    world.source.objects.pop(LATE)
    world.put("d=1/2.ndjson", "other")
    world.drain()
    again(world)
    assert world.letters() == []


def test_files_below_the_cold_start_origin_are_never_late() -> None:
    world = PipelineHarness(
        partition_filter={"prefix_template": "date=%Y-%m-%d", "lookback": 1},
        late_sweep_interval=f"{INTERVAL}s",
        grace_period=f"{GRACE}s",
    )
    for day in range(1, 9):
        world.put(f"date=2025-06-0{day}/1.ndjson", "history")
    world.put("date=2025-06-15/1.ndjson", "r")
    world.drain()
    # Its first sweep is due at once, to tell history from what comes there later.
    assert world.checkpoint()["sweep"]["noted"]
    again(world)
    assert world.letters() == []
    world.put("date=2025-06-03/2.ndjson", "came later")
    world.now += INTERVAL
    stream = io.StringIO()
    configure("info", stream)
    world.drain()
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(t["files"], t["first"]) for t in told if t["event"] == "files_below_origin"] == [
        (1, "date=2025-06-03/2.ndjson")
    ]
    again(world)
    assert world.letters() == []
    assert world.rows() == ["r"]


def test_first_sweep_of_a_reference_checkpoint_reports_nothing() -> None:
    world = PipelineHarness(late_sweep_interval=f"{INTERVAL}s", grace_period=f"{GRACE}s")
    world.put("d=1/1.ndjson", "done by the original")
    world.put("d=1/5.ndjson", "done by it as well")
    document = {
        "schema_version": 1,
        "watermark": {"state": "Active", "value": "d=1/5.ndjson"},
        "partition_watermarks": {"d=1": "5.ndjson"},
        "partition_depth": 1,
        "last_update_ts": 1,
    }
    world.sink.put_atomic("_blizzard/events_main_checkpoint.json", json.dumps(document).encode())
    # At once: until then what comes late cannot be told from what was done before.
    world.drain()
    assert world.checkpoint()["sweep"]["whole"]
    assert ledger_of(world).outcome_of("d=1/1.ndjson") == "noted"
    world.put("d=1/0.ndjson", "late")
    again(world)
    assert world.rows() == []
    assert [letter["path"] for letter in world.letters()] == ["mem://raw/d=1/0.ndjson"]


# -- slices ----------------------------------------------------------------------------


def sliced(monkeypatch: pytest.MonkeyPatch, late_files: str = "quarantine") -> PipelineHarness:
    """Return a harness whose sweep takes several slices, with late files in all of them."""
    monkeypatch.setattr(late_file_sweep, "SLICE_PAGES", 1)
    world = PipelineHarness(
        late_sweep_interval=f"{INTERVAL}s", grace_period=f"{GRACE}s", late_files=late_files
    )
    for day in range(1, 6):
        world.put(f"d={day}/5.ndjson", f"r{day}")
    world.drain()
    world.now += GRACE + 2
    world.put("d=5/6.ndjson", "r6")
    world.drain()
    for day in range(1, 6):
        world.put(f"d={day}/1.ndjson", f"late {day}")
    world.now += INTERVAL
    return world


def test_sweep_continues_by_slices_while_polls_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = sliced(monkeypatch)
    pipeline = world.pipeline()
    cursors = []
    for number in range(6):
        world.put(f"d=6/{number}.ndjson", f"new {number}")
        pipeline.cycle(threading.Event())
        assert f"new {number}" in world.rows()
        cursors.append(world.checkpoint()["sweep"]["cursor"])
        assert len(world.letters()) <= (number + 1) * world.source.page_keys
    assert cursors[0] == "d=2/1.ndjson"
    assert None in cursors
    assert len(world.letters()) == 5


def test_a_restart_goes_on_where_the_sweep_was(monkeypatch: pytest.MonkeyPatch) -> None:
    world = sliced(monkeypatch)
    world.pipeline().cycle(threading.Event())
    cursor = world.checkpoint()["sweep"]["cursor"]
    asked: list[str] = []
    listing = world.source.list_range

    def noted(after: str, until: str | None) -> Iterator[ListingPage]:
        asked.append(after)
        return listing(after, until)

    world.source.list_range = noted  # type: ignore[method-assign]  # to see it called
    world.pipeline().cycle(threading.Event())
    assert asked[-1] == cursor
    for _ in range(5):
        world.drain()
    assert len(world.letters()) == 5


# -- exactly what was not done ---------------------------------------------------------


names = st.sampled_from([f"y={1970 + day}/{n}.ndjson" for day in (1, 2) for n in range(8)])


@pytest.mark.promise("G-012")
@settings(max_examples=150, deadline=None)
@given(
    arrivals=st.lists(st.tuples(names, st.sampled_from([1.0, 60.0, 250.0])), max_size=20),
    late_files=st.sampled_from(["quarantine", "report", "ingest"]),
    tracked=st.sampled_from([1, 9]),
    restarts=st.booleans(),
)
def test_every_file_is_ingested_or_found_late_and_never_both(
    arrivals: list[tuple[str, float]], late_files: str, tracked: int, *, restarts: bool
) -> None:
    world = PipelineHarness(
        late_sweep_interval=f"{INTERVAL}s",
        grace_period=f"{GRACE}s",
        late_files=late_files,
        max_tracked_partitions=tracked,
    )
    pipeline = world.drain()
    for path, pause in arrivals:
        if path not in world.source.objects:
            world.put(path, path)
        pipeline = world.drain(None if restarts else pipeline)
        world.now += pause
    again(world)
    paths = sorted(world.source.objects)
    settled = [outcome for path in paths for outcome in outcomes(world, path)]
    assert len(settled) == len(paths)
    assert all(len(outcomes(world, path)) == 1 for path in paths)
    ingested = [path for path in paths if outcomes(world, path) == ["ingested"]]
    assert world.rows() == ingested
    if late_files == "ingest":
        assert ingested == paths


# -- the ledger ------------------------------------------------------------------------


def _journal(sink: MemoryStorage, source_id: str, files: dict[str, Outcome], n: int = 0) -> str:
    """Write a journal batch with these outcomes of files; return its name."""
    batch = f"0190{n:04}-0000-7000-8000-000000000000"
    finished_ = tuple(FinishedFile(path, outcome) for path, outcome in files.items())
    entries = tuple(Entry(path, 1, 0.0) for path in files)
    Journal(sink, source_id).write(
        Batch(
            batch,
            1,
            "publishing",
            1.0,
            entries,
            1.0,
            results=BatchResults(finished=finished_, committed_ts=2.0),
        )
    )
    return batch


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    ("said", "settled"),
    [
        ([], None),
        (["retry"], None),
        (["ingested"], "rows"),
        (["quarantined"], "none"),
        (["reported"], "none"),
        (["retry", "ingested"], "rows"),
        (["quarantined", "ingested"], "rows"),
        (["reported", "ingested"], "rows"),
        (["ingested", "quarantined"], "rows"),
        (["quarantined", "quarantined"], "none"),
    ],
)
def test_the_ledger_knows_what_came_of_a_file(
    said: list[Outcome], settled: Settled | None, *, folded: bool
) -> None:
    sink = MemoryStorage()
    ledger = Ledger(sink, "events_main")
    ledger.load(())
    segments: Any = ()
    for number, outcome in enumerate(said):
        _journal(sink, "events_main", {"a": outcome, "b": "ingested"}, number)
        if folded:
            segments = ledger.fold() or segments
            ledger.clean_up()
    if folded:
        for path in [p for p in sink.objects if "/journal/" in p]:
            sink.delete(path)
    reader = Ledger(sink, "events_main")
    reader.load(segments)
    reader.look()
    assert reader.outcome_of("a") == settled
    assert reader.unprocessed(["a", "b", "c"]) == [
        *(["a"] if settled is None else []),
        *([] if said else ["b"]),
        "c",
    ]


def test_ledger_separates_noted_names_from_history() -> None:
    sink = MemoryStorage()
    ledger = Ledger(sink, "events_main")
    ledger.load(())
    ledger.note(["a"])
    ledger.note_history(["b"])
    assert [ledger.outcome_of(path) for path in "abc"] == ["noted", None, None]
    assert ledger.unprocessed(["a", "b", "c"]) == ["b", "c"]
    assert ledger.not_history(["a", "b", "c"]) == ["a", "c"]


def test_journal_is_folded_before_pruning_and_keeps_late_files() -> None:
    world = late_world()
    world.drain()
    batches = len(list(Journal(world.sink, "events_main").batches()))
    world.now = 2 * KEPT_SECS + 4e9  # later than any batch was named
    world.put("d=1/9.ndjson", "r9")
    again(world, 2)
    left = list(Journal(world.sink, "events_main").batches())
    assert batches > 1
    assert len(left) < batches
    again(world)
    assert len(world.letters()) == 1
    assert world.rows() == ["r2", "r3", "r9"]
    assert ledger_of(world).outcome_of(LATE) == "none"
    assert ledger_of(world).outcome_of("d=1/2.ndjson") == "rows"


def test_journal_with_names_of_the_checkpoint_is_not_pruned() -> None:
    world = PipelineHarness(grace_period="36500d", late_sweep_interval=f"{INTERVAL}s")
    world.settings["checkpoint"] = world.settings["checkpoint"].model_copy(
        update={"interval_files": 10_000}
    )
    world.source.page_keys = world.sink.page_keys = 10_000
    for number in range(INLINE_NAMES + 1):
        world.put(f"d=1/{number:05}.ndjson", "r")
    world.drain()
    world.now = 2 * KEPT_SECS + 4e9
    again(world, 2)
    assert world.checkpoint()["schema_version"] == 2
    world.drain()
    assert len(world.engine.jobs) == 1
    assert world.letters() == []


# -- how late they come ------------------------------------------------------------------


def found_after(progress: Progress, path: str, modified: float) -> float:
    """Return the lateness of a file found by the scan from 1040 to 1050, after one at 1000.

    Return 0 if no lateness was measured.
    """
    before, scanned = EarlierScans(1000.0), ScanTimes(1040.0, 1050.0)
    [*days] = measure_lateness((), progress, [Entry(path, 1, modified)], before, scanned)
    return days[0][1] if days else 0.0


def test_lateness_is_measured_between_scans_around_the_file() -> None:
    progress = mark_done(Progress(depth=1), ["d=1/m"], 990.0, nothing_waits)
    assert found_after(progress, "d=1/c", 1020.0) == 30
    # What a modification time says beyond that is not believed.
    assert found_after(progress, "d=1/c", 0.0) == 10
    assert found_after(progress, "d=1/c", 1e12) == 60
    assert found_after(progress, "d=1/z", 1020.0) == 0
    assert found_after(progress, "d=2/c", 1020.0) == 0


def test_the_first_scan_of_a_process_measures_nothing() -> None:
    progress = mark_done(Progress(depth=1), ["d=1/m"], 0.0, nothing_waits)
    entry = Entry("d=1/c", 1, 500.0)
    assert measure_lateness((), progress, [entry], EarlierScans(), ScanTimes(1000.0, 1010.0)) == ()


def test_the_grace_period_sizes_itself_within_bounds() -> None:
    low, first, high = AUTO_GRACE_SECS
    now = 20_000 * DAY
    assert auto_grace((), now) == first

    def after(secs: float) -> float:
        return auto_grace(with_worst((), secs, now), now)

    assert after(1) == low
    assert after(400) == 800
    assert after(DAY) == high
    # A week later it is forgotten, and a day that has not come yet does not count.
    old = with_worst((), 400, now)
    assert auto_grace(with_worst(old, 100, now + 8 * DAY), now + 8 * DAY) == 200
    assert auto_grace(old, now + 8 * DAY) == first
    assert auto_grace(old, now - 2 * DAY) == first


def test_auto_grace_period_follows_measured_lateness() -> None:
    world = PipelineHarness(grace_period="auto")
    world.put("d=1/5.ndjson", "r5")
    pipeline = world.drain()
    world.now += 200
    world.put("d=1/1.ndjson", "within the first 300 s")
    world.drain(pipeline)
    assert world.rows() == ["r5", "within the first 300 s"]
    assert pipeline.source.status_fields(pipeline.load())["grace_period_secs"] == 400


def test_a_file_later_than_the_grace_period_makes_it_longer() -> None:
    world = PipelineHarness(grace_period="auto", late_sweep_interval=f"{INTERVAL}s")
    world.put("d=1/5.ndjson", "r5")
    pipeline = world.drain()
    world.now += 302
    world.put("d=1/6.ndjson", "r6")
    world.drain(pipeline)
    world.put("d=1/1.ndjson", "late")
    world.now += INTERVAL
    world.drain(pipeline)
    assert len(world.letters()) == 1
    assert pipeline.source.status_fields(pipeline.load())["grace_period_secs"] == 600


def test_how_far_behind_is_counted_in_partitions() -> None:
    progress = Progress(
        depth=1, partitions={f"d={n}": PartitionProgress("a", "a") for n in range(5)}
    )
    assert partitions_behind(progress, "d=1/a") == 3


@pytest.mark.promise("G-056")
def test_listed_name_stays_in_ledger_if_its_suffix_is_ignored() -> None:
    # So many names of the one ending that the ledger outgrows those of the other.
    world = PipelineHarness(
        compression="auto",
        late_files="ingest",
        grace_period="1s",
        checkpoint=CheckpointSettings(interval_files=5000),
    )
    world.source.page_keys = world.sink.page_keys = 1000
    for number in range(4500):
        world.put(f"d=1/{number:05}.ndjson", f"{number:05}")
    world.put("d=2/1.ndjson.gz", "z")
    pipeline = world.drain()
    expected = world.rows()

    def days(count: int) -> None:
        for _ in range(count):
            world.now += DAY + 100
            world.drain(pipeline)

    world.settings["compression"] = "gzip"
    pipeline = world.pipeline()
    days(12)
    world.settings["compression"] = "auto"
    pipeline = world.pipeline()
    days(3)
    assert world.rows() == expected
    assert ledger_of(world).outcome_of("d=1/00007.ndjson") == "rows"


@pytest.mark.promise("G-053")
def test_repeated_partial_listings_do_not_forget_names() -> None:
    # A disk is half there for some days, twice, a month apart; daemons start in between.
    world = PipelineHarness(
        late_files="ingest",
        grace_period="1s",
        checkpoint=CheckpointSettings(interval_files=5000),
    )
    world.source.page_keys = world.sink.page_keys = 1000
    for number in range(4200):
        world.put(f"d=1/{number:05}.ndjson", f"{number:05}")
    world.drain()
    expected = world.rows()

    def days(count: int) -> None:
        pipeline = world.pipeline()
        for _ in range(count):
            world.now += DAY + 100
            world.drain(pipeline)

    def half_there() -> None:
        held = dict(world.source.objects)
        for path in list(held)[:-5]:
            del world.source.objects[path]
        days(3)
        world.source.objects.update(held)

    half_there()
    assert any(segment["missing_since"] for segment in world.checkpoint()["ledger"])
    days(30)
    assert not any(segment["missing_since"] for segment in world.checkpoint()["ledger"])
    half_there()
    days(3)
    assert world.rows() == expected
