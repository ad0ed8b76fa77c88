"""A source with a range beside another one over the same files: each row comes once.

What the two would share is refused in both directions, whichever of them is there first.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_py.app.workers import build, source_pipeline
from blizzard_py.edits.checkpoint_edit import reset
from blizzard_py.edits.checkpoint_store import CheckpointStore, Note
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.edits.rename import Rename
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.cold_start import check_cold_start
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_file import load_state
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from penguin_py.settings import tables_of
from tests.support.direct_engine import DirectEngine
from tests.support.flat_settings import nested
from tests.support.memory_store import Dying
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import poll, polls, sweeps
from tests.support.request_harness import ingest_files, preview_files, submit
from tests.support.table_harness import footer_pool

# Days of June 2025; the live source begins with the 14th, two days before its start.
OLD, NEW = ("08", "09", "10", "13"), ("14", "15")
LOOKBACK = {"prefix_template": "date=%Y-%m-%d", "lookback": 1}
PAST = {"to": "date=2025-06-13"}


class NeighbourSource(PipelineHarness):
    """Another source over the files of a world, into the same table."""

    def __init__(self, world: PipelineHarness, name: str = "history", **source: Any) -> None:
        super().__init__(id=f"events_{name}", grace_period="1s", **source)
        self.source, self.sink, self.dlq = world.source, world.sink, world.dlq
        self.engine, self.name, self.of = world.engine, name, world

    def parts(self) -> SourceContext:
        now = lambda: self.of.now  # noqa: E731  # one clock for both
        return replace(super().parts(), source_name=self.name, clock=now, monotonic=now)

    @property
    def state(self) -> str:
        return f"_blizzard/events_{self.name}_checkpoint.json"


def june(**live: Any) -> PipelineHarness:
    """Return a live source with files of the days before and after its start."""
    world = PipelineHarness(**{"partition_filter": LOOKBACK, "grace_period": "1s", **live})
    for day in (*OLD, *NEW):
        world.put(f"date=2025-06-{day}/1.json", day)
    return world


def refusal_of(parts: Callable[[], SourceContext]) -> str:
    """Return the refusal of a start, before anything is written and as `plan` gives it."""
    with pytest.raises(ConfigError) as refused:
        source_pipeline(parts()).cycle(threading.Event())
    with pytest.raises(ConfigError) as planned:
        check_cold_start(parts())
    assert refused.value.problems == planned.value.problems
    return str(refused.value)


@pytest.mark.promise("G-033")
@pytest.mark.parametrize("use_watermark", [True, False])
@pytest.mark.parametrize("is_live_first", [True, False])
def test_history_and_live_source_bring_rows_once(use_watermark: bool, is_live_first: bool) -> None:
    world = june()
    history = NeighbourSource(world, range=PAST, use_watermark=use_watermark)
    for each in (world, history) if is_live_first else (history, world):
        each.drain()
    assert world.rows() == [*OLD, *NEW]
    world.put("date=2025-06-11/1.json", "11")
    world.put("date=2025-06-15/2.json", "15b")
    for _ in range(3):
        sweeps(world)
        poll(history)
    assert world.rows() == sorted([*OLD, "11", *NEW, "15b"])
    assert world.letters() == []


def test_two_ranges_without_a_common_name_go_together() -> None:
    world = june(partition_filter=None, range={"from": "date=2025-06-14"})
    history = NeighbourSource(world, range={"from": "date=2025-06-09", "to": "date=2025-06-13"})
    older = NeighbourSource(world, "older", range={"to": "date=2025-06-08"})
    for each in (older, world, history, older, world, history):
        each.drain()
    assert world.rows() == [*OLD, *NEW]


@pytest.mark.promise("G-033")
@pytest.mark.parametrize(
    "ends", [{"to": "date=2025-06-14"}, {"to": "date=2025-06-1"}, {"from": "a"}]
)
def test_range_above_the_begin_of_a_live_source_is_refused(ends: dict[str, str]) -> None:
    world = june()
    world.drain()
    history = NeighbourSource(world, range=ends)
    said = refusal_of(history.parts)
    assert "pipelines.events.sources.history" in said
    assert "events/main (mem://lake/_blizzard/events_main_checkpoint.json)" in said
    assert "reads names from date=2025-06-14 of the same files, so rows would come twice" in said
    assert history.state not in world.sink.objects
    assert world.rows() == [*NEW]


def test_range_is_refused_with_a_source_of_all_names() -> None:
    world = june(partition_filter=None)
    world.drain()
    assert "reads all names of the same files" in refusal_of(
        NeighbourSource(world, range=PAST).parts
    )


@pytest.mark.promise("G-033")
@pytest.mark.parametrize(
    "live",
    [
        {"partition_filter": None},
        {"range": {"from": "date=2025-06-13/1"}, "partition_filter": None},
    ],
)
def test_live_source_is_refused_if_it_would_read_a_range(live: dict[str, Any]) -> None:
    world = june(**live)
    NeighbourSource(world, range=PAST).drain()
    said = refusal_of(world.parts)
    assert "pipelines.events.sources.main" in said
    assert "events/history (mem://lake/_blizzard/events_history_checkpoint.json)" in said
    assert "reads names to date=2025-06-13 of the same files" in said
    assert world.rows() == [*OLD]


def test_lookback_into_a_range_is_refused() -> None:
    world = june(partition_filter={**LOOKBACK, "lookback": 3})
    NeighbourSource(world, range=PAST).drain()
    assert "events/history" in refusal_of(world.parts)


def test_fresh_start_does_not_insist_on_a_range() -> None:
    world = june()
    world.drain()
    history = NeighbourSource(world, range={"from": "a"})
    with pytest.raises(ConfigError, match="rows would come twice"):
        source_pipeline(history.parts(), fresh=True).cycle(threading.Event())
    assert world.rows() == [*NEW]


def test_range_change_before_first_file_is_visible() -> None:
    world = june()
    world.source.objects.clear()
    history = NeighbourSource(world, range={"to": "date=2025-06-09"})
    history.drain()
    history.settings["range"] = PAST
    history.drain()
    for day in (*OLD, *NEW):
        world.put(f"date=2025-06-{day}/1.json", day)
    reads_ten = NeighbourSource(
        world, "ten", range={"from": "date=2025-06-10", "to": "date=2025-06-13"}
    )
    assert "events/history" in refusal_of(reads_ten.parts)
    history.drain()
    world.drain()
    assert world.rows() == [*OLD, *NEW]


def test_set_of_names_reads_all_whatever_its_lookback() -> None:
    world = june(use_watermark=False)
    NeighbourSource(world, range=PAST).drain()
    assert "events/history" in refusal_of(world.parts)
    assert world.rows() == [*OLD]


@pytest.mark.promise("G-033")
@pytest.mark.parametrize("step", range(16))
def test_unfinished_rename_hides_no_range(step: int) -> None:
    world = june()
    history = NeighbourSource(world, range=PAST)
    history.drain()
    renamed = replace(history.parts(), pipeline="clicks")
    renamed = replace(renamed, source=renamed.source.model_copy(update={"id": "clicks_history"}))
    Dying(world.sink, world.dlq).dies(step, Rename(renamed, "events_history").run)
    other = NeighbourSource(world, "other", range={"to": "date=2025-06-10"})
    assert "history" in refusal_of(other.parts)


@pytest.mark.promise("G-033")
def test_neighbour_whose_checkpoint_is_lost_holds_its_range() -> None:
    world = june()
    history = NeighbourSource(world, range=PAST)
    history.drain()
    world.sink.delete(history.state)
    other = NeighbourSource(world, "other", range={"to": "date=2025-06-10"})
    assert "events_history" in refusal_of(other.parts)
    world.drain()
    assert preview_files(world.parts(), "date=2025-06-10/1.json") == ["left"]
    assert world.rows() == [*OLD, *NEW]


def test_range_is_refused_with_a_lost_checkpoint_of_all_names() -> None:
    world = june()
    world.drain()
    world.sink.delete("_blizzard/events_main_checkpoint.json")
    history = NeighbourSource(world, range=PAST)
    assert "nobody knows which names events_main has read" in refusal_of(history.parts)


def test_range_refuses_a_checkpoint_without_file_names() -> None:
    world = june()
    world.drain()
    path = "_blizzard/events_main_checkpoint.json"
    document = json.loads(world.sink.read(path))
    del document["source"]
    world.sink.put_atomic(path, json.dumps(document).encode())
    assert "does not say of which files it is" in refusal_of(
        NeighbourSource(world, range=PAST).parts
    )


def test_fast_machine_clock_moves_no_begin() -> None:
    world = june()
    history = NeighbourSource(world, range={"to": "date=2025-06-14"})
    history.drain()
    ahead = replace(world.parts(), clock=lambda: world.now + 86_400)
    with pytest.raises(ConfigError, match="events/history"):
        source_pipeline(ahead).cycle(threading.Event())


@pytest.mark.promise("G-033")
def test_request_and_a_start_at_one_moment_bring_a_row_once() -> None:
    for begins in range(1, 40):
        world = june()
        world.drain()
        path = "date=2025-06-10/1.json"
        submit(world.parts(), {"files": [path]})
        history, calls = NeighbourSource(world, range=PAST), 0

        def start(
            _op: str, _path: str, history: NeighbourSource = history, begins: int = begins
        ) -> None:
            nonlocal calls
            calls += 1
            if calls == begins:
                with contextlib.suppress(ConfigError):
                    history.drain()

        world.sink.before_mutation = start
        polls(world)
        world.sink.before_mutation = lambda _op, _path: None
        with contextlib.suppress(ConfigError):
            history.drain()
        assert len(world.rows()) == len(set(world.rows())), begins
        if calls < begins:
            break
    assert calls < begins


@pytest.mark.promise("G-033")
def test_requested_files_are_not_read_again() -> None:
    world = june()
    world.drain()
    assert ingest_files(world.parts(), "date=2025-06-10/1.json") == ["ingested"]
    polls(world)
    assert "events/main" in refusal_of(NeighbourSource(world, range=PAST).parts)
    NeighbourSource(world, range={"to": "date=2025-06-09"}).drain()
    assert world.rows() == ["08", "09", "10", *NEW]


def test_requested_files_outlive_a_rebuild() -> None:
    world = june()
    world.drain()
    assert ingest_files(world.parts(), "date=2025-06-10/1.json") == ["ingested"]
    world.sink.delete("_blizzard/events_main_checkpoint.json")
    rebuild = Rebuild(world.parts())
    rebuild.write(rebuild.plan(None))
    assert "events/main" in refusal_of(NeighbourSource(world, range=PAST).parts)


@pytest.mark.parametrize("mode", ["add", "again"])
def test_requests_skip_files_of_another_range(mode: str) -> None:
    world = june()
    history = NeighbourSource(world, range={"to": "date=2025-06-09"})
    for each in (world, history):
        each.drain()
    path = "date=2025-06-08/1.json"
    assert preview_files(world.parts(), path, "date=2025-06-10/1.json", mode=mode) == [
        "left",
        "taken",
    ]
    assert ingest_files(world.parts(), path, mode=mode) == ["left"]
    assert world.rows() == ["08", "09", *NEW]


@pytest.mark.promise("G-033")
def test_reset_source_does_not_read_a_range() -> None:
    world = june()
    history = NeighbourSource(world, range=PAST)
    for each in (world, history):
        each.drain()
    store = CheckpointStore(world.sink, "events_main")
    stored = store.load()
    store.swap(stored, reset(stored.state), 9, Note("ann", world.now, "reset"))
    world.settings["partition_filter"] = None
    with pytest.raises(ConfigError, match="events/history"):
        world.drain()
    assert world.rows() == [*OLD, *NEW]


@pytest.mark.parametrize("knows_its_begin", [True, False])
def test_rebuild_of_a_live_source_stays_out_of_a_range(knows_its_begin: bool) -> None:
    world = june()
    history = NeighbourSource(world, range=PAST)
    for each in (world, history):
        each.drain()
    world.sink.delete("_blizzard/events_main_checkpoint.json")
    rebuild = Rebuild(world.parts())
    if knows_its_begin:
        rebuild.write(rebuild.plan(None))
    else:
        world.settings["partition_filter"] = {**LOOKBACK, "lookback": 5}
        with pytest.raises(ConfigError, match="events/history"):
            Rebuild(world.parts()).plan(None)
        return
    sweeps(world)
    history.drain()
    assert world.rows() == [*OLD, *NEW]


@pytest.mark.promise("G-033")
def test_two_sources_started_at_once_read_once() -> None:
    world = june(partition_filter=None)
    history = NeighbourSource(world, range=PAST)
    others = [history.pipeline()]

    def meanwhile(op: str, path: str) -> None:
        if op == "put_if" and path.endswith("main_checkpoint.json") and others:
            others.pop().cycle(threading.Event())

    world.sink.before_mutation = meanwhile
    with pytest.raises(ConfigError, match="events/history"):
        world.drain()
    with pytest.raises(ConfigError, match="has not begun: if it never shall, delete its checkpo"):
        history.drain()
    world.settings["partition_filter"] = LOOKBACK
    for each in (world, history):
        each.drain()
    assert world.rows() == [*OLD, *NEW]


def test_ranges_of_one_name_are_refused() -> None:
    world = june()
    world.drain()
    history = NeighbourSource(world, "main", range=PAST)
    history.settings["id"] = "events_history"
    assert "is of a source events/main, too" in refusal_of(history.parts)


def test_start_with_a_range_costs_a_request_for_each_other() -> None:
    world = june()
    for number in range(5):
        name = f"part{number}"
        NeighbourSource(world, name, range={"from": f"e{number}", "to": f"e{number}"}).drain()
    history = NeighbourSource(world, range=PAST)
    history.drain()
    reads: list[str] = []
    read = world.sink.read_versioned
    world.sink.read_versioned = lambda path: (reads.append(path), read(path))[1]  # type: ignore[method-assign]
    history.drain()
    assert sum("part" in path for path in reads) <= 5


def config(folder: Path, name: str, **source: Any) -> Config:
    return Config.model_validate(
        nested(
            Config,
            {
                "pipelines": {
                    "events": {
                        "sources": {name: {"source_uri": str(folder / "raw"), **source}},
                        "sink": {"table_uri": str(folder / "lake")},
                        "schema": {"fields": [{"name": "a", "type": "string"}]},
                    }
                }
            },
        )
    )


def committed(settings: Config, worker: SourcePipeline) -> None:
    [table] = tables_of(settings)
    with footer_pool() as pool:
        log = DeltaLog(table, worker.sink, pool)
        TablePipeline(table, worker.sink, log, pool, lambda: 1_900_000_000.0).cycle(
            threading.Event()
        )


@pytest.mark.promise("G-033")
def test_table_has_each_row_of_both_sources_once(tmp_path: Path) -> None:
    for day in (*OLD, *NEW):
        (tmp_path / f"raw/date=2025-06-{day}").mkdir(parents=True)
        (tmp_path / f"raw/date=2025-06-{day}/1.ndjson").write_text(f'{{"a": "{day}"}}\n')
    live = config(tmp_path, "main", range={"from": "date=2025-06-14"})
    past = config(tmp_path, "history", id="events_history", range=PAST)
    workers = [build(each, DirectEngine())[0] for each in (live, past)]
    for _ in range(2):
        for worker in workers:
            worker.cycle(threading.Event())
            committed(live, worker)
    [third] = build(past, DirectEngine())
    third.cycle(threading.Event())
    committed(live, third)
    table = DeltaTable(tmp_path / "lake")
    rows = table.to_pyarrow_table().column("a").to_pylist()
    assert sorted(rows) == [*OLD, *NEW]
    state = load_state(third.sink, "events_history")
    assert state.position.progress.state == "Idle"
    for name in ("main", "history"):
        assert table.transaction_version(f"blizzard:events/{name}") is not None
