"""A watermark that is only told: rows come as they are, and what is told is what brute force says.

Without Spark: no row goes through a query.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client import REGISTRY

from blizzard_core.errors import ColdStartRefused, ConfigError, EngineError, StateError
from blizzard_core.settings.base import to_micros
from blizzard_core.settings.document import Config
from blizzard_core.settings.event_time import Branch, EventTimeSettings, WatchedColumn
from blizzard_core.storage.local import LocalStorage
from blizzard_py.app.engine import NoEngine
from blizzard_py.app.inspection import status
from blizzard_py.app.wiring import context_of, query_columns
from blizzard_py.app.workers import build
from blizzard_py.edits.checkpoint_edit import change, read_checkpoint
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.event_time import advance_watermark
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.job import IngestJob, IngestResult, JobFile, StagedOutput
from blizzard_py.kernels.lateness import Limits, Rule
from blizzard_py.state.event_times import BEHIND_SECS, EventTimes
from blizzard_py.state.source_state import PendingWork, SourceState, ToReplace
from blizzard_py.state.stream_state import StreamState, placeholder_query
from blizzard_py.streaming.observed_watermark import ObservedWatermarkJobs, after
from blizzard_py.streaming.staged_times import TimeTally, tally
from tests.support.direct_engine import DirectEngine
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import BASE, row
from tests.support.flat_settings import settings_of
from tests.support.request_harness import submit

WATCHED = {"column": "ts", "delay": "10 seconds"}


def world_of(folder: Path, **given: Any) -> EventTimeHarness:
    world = EventTimeHarness(folder, DirectEngine(), event_time={**WATCHED, **given})
    world.pipeline_settings["sink"] = {"table_uri": str(folder / "table")}
    return world


def ms(second: float) -> int:
    return round((BASE.timestamp() + second) * 1000)


def history_of(world: EventTimeHarness, key: str) -> list[Any]:
    return [getattr(line, key) for line in world.stream().history]


@pytest.mark.promise("G-074", "G-079")
@pytest.mark.parametrize("seed", range(12))
def test_random_feeds_match_a_brute_force_model(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = world_of(tmp_path)
    world.files_per_batch = chance.choice([1, 2])
    batches: list[list[float]] = []
    for _ in range(chance.randint(2, 5)):
        files = [
            [
                chance.randint(0, 60) + chance.choice([0, 0.000001, 0.5])
                for _ in range(chance.randint(0, 6))
            ]
            for _ in range(world.files_per_batch * chance.randint(1, 2))
        ]
        for seconds in files:
            world.put([row(second, id_=world.files) for second in seconds])
        world.drain()  # each a process of its own
        step = world.files_per_batch
        groups = [files[at : at + step] for at in range(0, len(files), step)]
        batches += [[*chain.from_iterable(group)] for group in groups]

    watermark, watermarks, late = 0, [], []
    for seconds in batches:
        times = [round((BASE.timestamp() + second) * 1_000_000) for second in seconds]
        late.append(sum(time <= watermark * 1000 for time in times))
        watermark = max([watermark, *(time // 1000 - 10_000 for time in times)])
        watermarks.append(watermark)
    assert history_of(world, "watermark_ms") == watermarks
    assert history_of(world, "late_rows") == late
    assert history_of(world, "used_watermark_ms") == [0, *watermarks[:-1]]
    assert history_of(world, "rows") == [len(seconds) for seconds in batches]
    assert world.stream().late_rows == sum(late)
    assert history_of(world, "times") == list(times_by_hand(batches))
    given = [BASE + dt.timedelta(seconds=second) for seconds in batches for second in seconds]
    assert Counter(one["ts"] for one in world.table()) == Counter(given)
    assert world.letters() == []


def times_by_hand(batches: list[list[float]]) -> Iterator[EventTimes | None]:
    """Of each batch, one row after the other."""
    known: Fraction | None = None
    for seconds in batches:
        times = [Fraction(round((BASE.timestamp() + one) * 1_000_000), 1000) for one in seconds]
        behind = [0] * (len(BEHIND_SECS) + 1)
        for time in times:
            lag = Fraction(0) if known is None else (known - time) / 1000
            behind[sum(secs < lag for secs in BEHIND_SECS)] += 1
        if not times:
            yield None
            continue
        average = round(float(sum(times) / len(times)), 3)
        yield EventTimes(
            len(times), int(min(times)), int(max(times)), pytest.approx(average), tuple(behind)
        )
        newest = Fraction(int(max(times)))
        known = newest if known is None else max(known, newest)


@pytest.mark.promise("G-079")
def test_rows_ahead_move_nothing_and_are_published(tmp_path: Path) -> None:
    world = world_of(tmp_path, max_ahead="1 hour")
    world.put([row(100), row(40 * 365 * 86_400)])
    world.drain()
    stream = world.stream()
    assert (stream.ahead_rows, stream.late_rows, stream.watermark_ms) == (1, 0, ms(90))
    assert stream.max_event_time_ms == ms(100)
    assert len(world.table()) == 2


@pytest.mark.promise("G-079")
def test_a_failed_attempt_tells_nothing_twice(tmp_path: Path) -> None:
    class Flaky(DirectEngine):
        left = 2

        def ingest(self, job: IngestJob) -> IngestResult:
            found = super().ingest(job)
            if self.left:
                self.left -= 1
                raise EngineError("its answer was lost")
            return found

    world = world_of(tmp_path)
    world.engine = Flaky()
    world.put([row(100), row(1)])
    for _ in range(2):
        with pytest.raises(EngineError):
            world.drain()
    world.drain()
    world.put([row(2), row(101)])
    world.drain()
    assert history_of(world, "late_rows") == [0, 1]
    assert len(world.table()) == 4


def test_each_source_has_its_own(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sources = {"web": {}, "app": {"event_time": {"column": "seen", "delay": "1 minute"}}}
    world.put([row(100)], "web")
    world.put([row(500)], "app")  # seen at the same second
    for worker in build(world.config(), world.engine):
        world.drain(worker)
        worker.close()
    found, errors = status(world.config())
    assert errors == []
    block = found["pipelines"]["pages"]
    assert "event_time" not in block
    shown = {name: source["event_time"] for name, source in block["sources"].items()}
    assert (shown["web"]["column"], shown["web"]["watermark_ms"]) == ("ts", ms(90))
    assert (shown["app"]["column"], shown["app"]["watermark_ms"]) == ("seen", ms(440))
    assert [line["rows"] for line in shown["app"]["history"]] == [1]


def test_delay_change_continues_and_column_change_restarts(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.put([row(100)])
    world.drain()
    world.event_time["delay"] = "1 hour"
    world.put([row(200), row(1)])
    world.drain()
    assert history_of(world, "watermark_ms") == [ms(90), ms(90)]  # it never falls
    world.event_time |= {"column": "seen", "delay": "0 seconds"}
    assert status(world.config())[0]["pipelines"]["pages"]["sources"]["web"]["event_time"] == {
        "column": "seen",
        "batch": 0,
        "watermark": None,
        "watermark_ms": 0,
        "max_event_time_ms": None,
        "late_rows": 0,
        "ahead_rows": 0,
        "behind": [{"up_to_secs": secs, "rows": 0} for secs in (*BEHIND_SECS, None)],
        "history": [],
    }
    counted = REGISTRY.get_sample_value("blizzard_late_rows_total", {"target": "pages/web"})
    assert counted is not None
    for second in (50, 1):
        world.put([row(second)])
        world.drain()
    assert history_of(world, "watermark_ms") == [ms(50), ms(50)]
    after = REGISTRY.get_sample_value("blizzard_late_rows_total", {"target": "pages/web"})
    assert after == counted + 1


def test_a_removed_watermark_leaves_no_state_for_a_query(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.put([row(100)])
    world.drain()
    world.event_time = TUMBLING
    with pytest.raises(StateError, match="published rows as they came"):
        world.drain()
    block = status(world.config())[0]["pipelines"]["pages"]["event_time"]
    assert (block["batch"], block["watermark"], block["late_rows"]) == (0, None, 0)
    given = settings_of(EventTimeSettings, **TUMBLING)
    with pytest.raises(EditRefused, match="no batch has ended yet"):
        advance_watermark(world.pipeline().load(), given, [Branch("web", "ts", 0)], ms(200), 1e10)
    world.pipeline_settings["event_time"] = None
    world.put([row(200)])
    world.drain()
    assert world.pipeline().load().kind.stream is None
    assert len(world.table()) == 2


@pytest.mark.promise("G-080")
def test_a_query_is_not_replaced_by_an_observed_watermark(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.put([row(100)])
    world.drain()
    pipeline = world.pipeline()
    query = StreamState(query={"column": "ts"}, batch=1)  # with open windows
    change(pipeline, read_checkpoint(pipeline), lambda state: state.with_kind(stream=query), 0.0)
    parts = context_of(world.config(), ("pages", "web"), world.engine)
    with pytest.raises(StateError, match="holds the state of an event_time query"):
        Rebuild(parts).plan(None)


def test_shorter_delay_uses_the_newest_time_of_all_batches() -> None:
    known = StreamState(query=placeholder_query("ts"), watermark_ms=40, max_event_time_ms=100)
    times = EventTimes(1, 50, 50, 50.0, (1, *[0] * 12))
    found = after(
        known, WatchedColumn("ts", 10_000, 0), TimeTally(newest_us=50_000, times=times), 1, 1
    )
    assert (found.watermark_ms, found.max_event_time_ms) == (90, 100)


def test_replaced_rows_move_and_count_nothing(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    parts = context_of(world.config(), ("pages", "web"), world.engine)
    assert parts.watch is not None
    name = world.put([row(100)])
    files = (JobFile(name, (world.raw("web") / name).stat().st_size, ""),)
    job = IngestJob(parts.ingest, "staging", "id", files, BASE.timestamp() + 200)
    jobs = ObservedWatermarkJobs(parts, parts.watch)
    fresh = jobs.run(SourceState(), job, 1)
    assert fresh.stream.watermark_ms == ms(90)
    again = jobs.run(SourceState(work=PendingWork(replacing={name: ToReplace()})), job, 1)
    assert (len(again.result.outputs), again.stream) == (1, None)


@pytest.mark.promise("G-080")
def test_sources_that_were_watched_do_not_come_to_share_a_query(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sources = {"web": {}, "app": {}}
    world.put([row(100)])
    for worker in build(world.config(), world.engine):
        world.drain(worker)
        worker.close()
    world.event_time = TUMBLING
    with pytest.raises(ColdStartRefused, match=r"is of the source alone.*give the source an `id:`"):
        world.drain()


def test_reingest_request_leaves_the_watermark_unchanged(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    name = world.put([row(100)])
    world.drain()
    before = world.stream()
    parts = context_of(world.config(), ("pages", "web"), world.engine)
    assert parts.watch == WatchedColumn("ts", 10_000_000, to_micros("1 day"))
    submit(parts, {"files": [name]}, mode="again")
    world.drain()
    assert len(world.table()) == 2
    assert world.stream() == before


def written(folder: Path, times: Sequence[int | None], *, group: int = 2) -> StagedOutput:
    table = pa.table({"id": range(len(times)), "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    place = folder / "part.parquet"
    pq.write_table(table, place, row_group_size=group)
    return StagedOutput(place.name, "", len(times), place.stat().st_size, "id")


def tally_of(folder: Path, outputs: list[StagedOutput], column: str, *limits: int) -> TimeTally:
    rule, sink = Rule(column), LocalStorage(str(folder))
    return tally(sink, outputs, rule, Limits(*limits), None, 2)


def test_the_times_of_all_row_groups_are_counted(tmp_path: Path) -> None:
    hour = 3_600_000_000
    output = written(tmp_path, [hour, hour - 1, hour - 5_000_000, 7, 9 * hour, hour + 1])
    limits, sink = Limits(3_500_000, 8 * hour), LocalStorage(str(tmp_path))
    found = tally(sink, [output, output], Rule("ts"), limits, 3_600_000, 2)
    assert (found.late, found.ahead, found.newest_us) == (2, 2, hour + 1)
    assert found.times == EventTimes(
        10,
        0,
        3_600_000,
        round((4 * hour - 4_999_993) / 5 / 1000, 3),
        (4, 2, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0),
    )
    counted = tally(sink, [output], Rule("ts", "window", 10, 1), Limits(0, 9 * hour), None, 2)
    assert (counted.late, counted.partly) == (0, 0)
    partly = tally(
        sink, [output], Rule("ts", "window", 10_000, 1_000), Limits(1, 9 * hour), None, 2
    )
    assert (partly.late, partly.partly) == (0, 1)


def test_rows_without_a_time_are_neither_late_nor_ahead(tmp_path: Path) -> None:
    output = written(tmp_path, [None, None, 7_000, None, 1_000])
    found = tally_of(tmp_path, [output], "ts", 1, 10**9)
    times = EventTimes(2, 1, 7, 4.0, (2, *[0] * 12))
    assert found == TimeTally(1, 0, 0, 7_000, times)
    nothing = written(tmp_path, [None, None])
    assert tally_of(tmp_path, [nothing], "ts", 1, 10**9) == TimeTally()
    assert tally_of(tmp_path, [], "ts", 1, 10**9) == TimeTally()


def test_a_file_without_the_column_is_named_not_passed_over(tmp_path: Path) -> None:
    output = written(tmp_path, [1])
    with pytest.raises(LookupError, match="other"):
        tally_of(tmp_path, [output], "other", 1, 1)


def test_a_field_of_a_struct_is_not_a_column_with_a_dot(tmp_path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    inside = pa.array([{"at": 900_000}, {"at": 901_000}], pa.struct([("at", kind)]))
    table = pa.table({"seen": inside, "seen.at": pa.array([1_000, 7_000], kind)})
    place = tmp_path / "part.parquet"
    pq.write_table(table, place)
    output = StagedOutput(place.name, "", 2, place.stat().st_size, "id")
    found = tally_of(tmp_path, [output], "seen.at", 1, 10**9)
    assert (found.late, found.newest_us) == (1, 7_000)


def test_a_batch_of_which_nothing_is_known_leaves_the_watermark() -> None:
    watch = WatchedColumn("ts", 1_000_000, 0)
    known = StreamState(query=placeholder_query("ts"), watermark_ms=77, max_event_time_ms=1077)
    found = after(known, watch, TimeTally(), 1, 0)
    assert (found.watermark_ms, found.max_event_time_ms, found.batch) == (77, 1077, 1)
    assert found.is_watched
    assert not found.is_to_advance


@pytest.mark.parametrize("kind", [pa.string(), None])
def test_a_transform_has_to_give_the_times(tmp_path: Path, kind: pa.DataType | None) -> None:
    class Engine(NoEngine):
        def columns(self, _pipeline: str, _settings: Any) -> pa.Schema:
            return pa.schema([] if kind is None else [("ts", kind)])

    world = world_of(tmp_path)
    world.pipeline_settings["transform"] = "SELECT page FROM source"
    found: Config = world.config()
    ask = query_columns(Engine(), found.pipelines["pages"])  # type: ignore[arg-type]  # it is asked for columns only
    with pytest.raises(ConfigError) as caught:
        ask("pages", context_of(found, ("pages", "web"), NoEngine()).ingest)
    assert caught.value.source == "pipelines.pages.event_time"
    assert caught.value.problems == ("column: 'ts' is no timestamp that the transform gives",)
