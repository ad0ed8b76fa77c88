"""Metrics: the documented list, and what a pipeline really counts."""

from __future__ import annotations

import io
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from blizzard_core.errors import AccessDenied, Conflict, NotFound, StorageError, Unavailable
from blizzard_core.log import configure
from blizzard_core.observability import metrics
from blizzard_core.observability.metered_storage import metered, status_of
from blizzard_core.storage.protocol import Entry, ListingPage, Storage
from blizzard_py import metrics as blizzard_metrics
from blizzard_py.app.page_providers import source_commands
from blizzard_py.sources.activity import OUTCOMES, STEPS
from penguin_py import metrics as penguin_metrics
from penguin_py.delta.table import DeltaLog
from tests.support.faulty_log import around
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.request_harness import RequestHarness
from tests.support.table_harness import TableHarness, footer_pool

DOCS = Path(__file__).parents[3] / "docs/reference/metrics.md"
# The page says so of these, and that all others have the label `target`.
WITHOUT_TARGET = (
    *("blizzard_build_info", "blizzard_storage_"),
    *("blizzard_replicas_alive", "blizzard_handovers_total"),
)


def value(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(name, labels)
    assert found is not None, (name, labels)
    return found


class Counts:
    """The change of samples since its creation: other tests use the same registry."""

    def __init__(self, *samples: tuple[str, dict[str, str]]) -> None:
        self._before = [(n, ls, REGISTRY.get_sample_value(n, ls) or 0.0) for n, ls in samples]

    def moved(self) -> list[float]:
        return [value(name, **labels) - before for name, labels, before in self._before]


def declared() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name, as it is scraped, to type and labels."""
    found = {}
    modules = (metrics, blizzard_metrics, penguin_metrics)
    for metric in (value for module in modules for value in vars(module).values()):
        if isinstance(metric, MetricWrapperBase):
            [family] = metric.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            if family.type == "info":
                found[f"{name}_info"] = ("gauge", ("daemon", "version", "python"))
            else:
                found[name] = (family.type, tuple(metric._labelnames))  # noqa: SLF001  # no public name
    return found


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = re.findall(
        r"^\| `([a-z_]+)(?:\{([a-z_,]+)\})?` \| (\w+) \| .+ \|$",
        DOCS.read_text("utf-8"),
        re.MULTILINE,
    )
    names = [name for name, _, _ in rows]
    assert len(set(names)) == len(names)
    return {
        name: (
            kind,
            (
                *(() if name.startswith(WITHOUT_TARGET) else ("target",)),
                *filter(None, labels.split(",")),
            ),
        )
        for name, labels, kind in rows
    }


def test_the_documented_list_is_what_the_code_declares() -> None:
    assert documented() == declared()


def test_the_registry_holds_exactly_the_declared_metrics() -> None:
    scraped = {
        f"{f.name}_total" if f.type == "counter" else f.name
        for f in REGISTRY.collect()
        if f.name.startswith(("blizzard_", "penguin_"))
    }
    assert {name.removesuffix("_info") for name in declared()} == {
        name.removesuffix("_info") for name in scraped
    }


def test_metrics_have_the_names_and_labels_of_the_original() -> None:
    for name, labels in {
        "blizzard_files_discovered_total": ("target",),
        "blizzard_files_processed_total": ("target", "status"),
        "blizzard_files_failed_total": ("target", "stage"),
        "blizzard_records_processed_total": ("target",),
        "blizzard_bytes_read_total": ("target",),
        "blizzard_bytes_written_total": ("target",),
        "blizzard_pending_files": ("target",),
        "blizzard_checkpoints_saved_total": ("target",),
        "blizzard_checkpoint_age_seconds": ("target",),
        "blizzard_storage_requests_total": ("operation", "status"),
        "blizzard_storage_request_duration_seconds": ("operation",),
        "penguin_files_committed_total": ("target",),
        "penguin_records_committed_total": ("target",),
        "penguin_pending_files": ("target",),
        "penguin_delta_table_version": ("target",),
        "penguin_delta_commit_duration_seconds": ("target",),
        "penguin_schema_evolutions_total": ("target",),
    }.items():
        assert declared()[name][1] == labels


def test_a_request_is_counted_and_on_the_page_while_it_runs() -> None:
    world = RequestHarness()
    worker = world.drain()
    of = {"target": "events/main"}
    assert value("blizzard_requests", **of, state="running") == 0
    before = {each: value("blizzard_request_files_total", **of, outcome=each) for each in OUTCOMES}
    world.put("date=2024-01-01/3.json", "late")
    world.put("date=2024-01-01/4.json", "bad")
    request_id = world.submit("date=2024-01-01/3.json", "date=2024-01-01/4.json")
    other = world.ask({"files": ["date=2024-01-01/3.json"]}, config="another")
    worker.cycle(threading.Event())
    told = worker.activity.to_json()["requests"]
    running, waiting = sorted(told, key=lambda each: str(each["state"]))
    assert (running["id"], running["kind"], running["state"]) == (request_id, "reingest", "running")
    assert running["counts"]["ingested"] == 1
    assert (waiting["id"], waiting["state"]) == (other, "waiting")
    assert value("blizzard_requests", **of, state="waiting") == 1
    offered = source_commands("c.yaml", worker.activity.to_json())
    assert f"blizzard requests cancel c.yaml {request_id}" in [each.command for each in offered]
    world.drain(worker)
    assert [each["id"] for each in worker.activity.to_json()["requests"]] == [other]
    assert value("blizzard_requests", **of, state="running") == 0
    for each, files in {"ingested": 1, "quarantined": 1, "retry": 0}.items():
        assert value("blizzard_request_files_total", **of, outcome=each) == before[each] + files


def test_metrics_and_status_count_files_too_far_ahead() -> None:
    world = PipelineHarness()
    world.put("date=2025-06-15/a.json", "1")
    world.put("date=9999-12-31/a.json", "2")
    worker = world.drain()
    of = {"target": "events/main"}
    assert value("blizzard_files_apart", **of) == 1
    assert worker.activity.to_json()["apart"] == {"files": 1, "first": "date=9999-12-31/a.json"}
    world.source.delete("date=9999-12-31/a.json")
    world.drain(worker)
    assert value("blizzard_files_apart", **of) == 0
    assert worker.activity.to_json()["apart"] == {"files": 0, "first": None}


def test_a_drained_source_has_counted_everything() -> None:
    world = PipelineHarness()
    world.put("date=2024-01-01/a.json", "1", "2")
    world.put("date=2024-01-01/b.json", "bad")
    world.put("date=2024-01-01/c.json", "3")
    world.now += 100
    of = {"target": "events/main"}
    counts = Counts(
        ("blizzard_files_discovered_total", of),
        ("blizzard_files_processed_total", {**of, "status": "ingested"}),
        ("blizzard_files_processed_total", {**of, "status": "quarantined"}),
        ("blizzard_files_failed_total", {**of, "stage": "parse"}),
        ("blizzard_records_processed_total", of),
        ("blizzard_bytes_read_total", of),
        ("blizzard_bytes_decompressed_total", of),
        ("blizzard_files_written_total", of),
        ("blizzard_bytes_written_total", of),
        ("blizzard_batch_duration_seconds_count", of),
        ("blizzard_late_files_total", of),
        ("blizzard_checkpoint_failures_total", of),
    )
    saved = Counts(("blizzard_checkpoints_saved_total", of), ("blizzard_keys_listed_total", of))
    worker = world.drain()
    published = {path: world.sink.objects[path][0] for path in world.published()}
    size = sum(map(len, published.values()))
    assert counts.moved() == [3, 2, 1, 1, 3, 7, 2, len(published), size, 2, 0, 0]
    assert min(saved.moved()) >= 3
    assert value("blizzard_pending_files", **of) == 0
    assert value("blizzard_lag_seconds", **of) == 0
    assert value("blizzard_tracked_partitions", **of) == 1
    world.now += 30
    assert value("blizzard_checkpoint_age_seconds", **of) == 30
    assert value("blizzard_last_poll_age_seconds", **of) == 30
    assert worker.activity.pulse.polls == 2


def test_bad_records_of_ingested_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PipelineHarness()
    world.put("a.json", "1", "2")
    read = world.engine.read

    def with_bad_rows(path: str) -> Any:
        finished, lines = read(path)
        return replace(finished, bad_rows=2, error="line 3: bad"), lines

    monkeypatch.setattr(world.engine, "read", with_bad_rows)
    counts = Counts(("blizzard_bad_records_total", {"target": "events/main"}))
    world.drain()
    assert counts.moved() == [2]


def test_every_step_of_a_batch_is_timed() -> None:
    of = {"target": "events/main"}
    name = "blizzard_batch_step_duration_seconds_count"
    counts = Counts(*((name, {**of, "step": step}) for step in STEPS))
    world = PipelineHarness()
    world.put("a.json", "1")
    world.drain()
    assert counts.moved() == [1] * len(STEPS)


def test_a_source_has_few_enough_series_for_hundreds_of_them() -> None:
    # Other tests' sources of that name had notifications or replicas.
    for collector in list(REGISTRY._names_to_collectors.values()):  # noqa: SLF001  # no other list
        if "target" in getattr(collector, "_labelnames", ()):
            collector.remove_by_labels({"target": "events/main"})
    world = PipelineHarness()
    world.put("a.json", "1")
    world.drain()
    samples = (sample for family in REGISTRY.collect() for sample in family.samples)
    ours = [each for each in samples if each.labels.get("target") == "events/main"]
    assert len(ours) < 120, Counter(each.name for each in ours).most_common(5)


def test_lag_is_the_age_of_the_oldest_waiting_file() -> None:
    world = PipelineHarness()
    of = {"target": "events/main"}
    world.engine.flaky["a.json"] = 1
    world.put("a.json", "1")
    world.now += 50
    world.put("b.json", "2")
    world.now += 50
    worker = world.pipeline()
    # b is done, a waits for another try.
    assert worker.cycle(threading.Event())
    assert value("blizzard_pending_files", **of) == 1
    assert value("blizzard_lag_seconds", **of) == 100
    world.now += 3600
    assert value("blizzard_lag_seconds", **of) == 3700
    world.drain(worker)
    assert value("blizzard_lag_seconds", **of) == 0


def test_files_too_young_to_take_wait_as_well() -> None:
    world = PipelineHarness(min_age="1m")
    world.put("a.json", "1")
    world.now += 10
    world.pipeline().cycle(threading.Event())
    assert value("blizzard_pending_files", target="events/main") == 1
    assert value("blizzard_lag_seconds", target="events/main") == 10


def test_a_refused_save_is_counted() -> None:
    world = PipelineHarness()
    counts = Counts(("blizzard_checkpoint_failures_total", {"target": "events/main"}))
    first = world.pipeline()
    first.cycle(threading.Event())
    world.drain()  # takes the checkpoint over
    world.put("a.json", "1")
    with pytest.raises(Exception, match="taken over"):
        first.cycle(threading.Event())
    assert counts.moved() == [1]


def test_age_metrics_are_nan_before_the_first_poll() -> None:
    world = PipelineHarness()
    world.pipeline()
    assert math.isnan(value("blizzard_checkpoint_age_seconds", target="events/main"))
    assert math.isnan(value("blizzard_last_poll_age_seconds", target="events/main"))
    # Counters of a target are there before anything happened.
    assert value("blizzard_files_processed_total", target="events/main", status="retry") >= 0


def test_penguin_counts_commits_rows_refusals_and_evolution(tmp_path: Path) -> None:
    of = {"target": "counted"}
    with footer_pool() as pool:
        lake = TableHarness(str(tmp_path), pool)
        penguin = lake.penguin("counted")
        counts = Counts(
            ("penguin_files_discovered_total", of),
            ("penguin_commits_total", {**of, "status": "landed"}),
            ("penguin_files_committed_total", of),
            ("penguin_records_committed_total", of),
            ("penguin_files_quarantined_total", {**of, "stage": "read"}),
            ("penguin_schema_evolutions_total", of),
            ("penguin_delta_commit_duration_seconds_count", of),
            ("penguin_commits_total", {**of, "status": "failed"}),
        )
        assert math.isnan(value("penguin_delta_table_version", **of))
        lake.put("a.parquet", {"x": [1, 2]})
        lake.put("b.parquet", b"no parquet at all")
        lake.run(penguin)
        assert value("penguin_delta_table_version", **of) == 0
        lake.put("c.parquet", {"x": [3], "y": ["new"]})
        lake.run(penguin)
        assert counts.moved() == [3, 2, 2, 3, 1, 1, 2, 0]
        assert value("penguin_delta_table_version", **of) == 1
        assert value("penguin_pending_files", **of) == 0
        assert value("penguin_lag_seconds", **of) == 0
        lake.now += 7
        assert value("penguin_commit_age_seconds", **of) == 7
        sizes = sum(path.stat().st_size for path in tmp_path.glob("[ac].parquet"))
        assert value("penguin_bytes_committed_total", **of) == sizes


def test_a_lost_race_is_counted_as_a_conflict(tmp_path: Path) -> None:
    of = {"target": "raced"}
    with footer_pool() as pool:
        lake = TableHarness(str(tmp_path), pool)
        lake.put("a.parquet", {"x": [1]})
        lake.run(name="raced")
        table, storage = lake.table("raced"), lake.storage
        log = DeltaLog(table, storage, pool)
        slow, fast = lake.penguin_on(table, storage, log), lake.penguin("raced")
        lake.put("b.parquet", {"x": [2]})
        counts = Counts(
            ("penguin_commit_conflicts_total", of),
            ("penguin_commits_total", {**of, "status": "failed"}),
        )

        def after_the_rival(write: Callable[[], None]) -> None:
            lake.run(fast)
            write()

        around(log, after_the_rival)
        with pytest.raises(Exception, match="another Penguin"):
            slow.cycle(threading.Event())
        assert counts.moved() == [1, 1]


def test_requests_are_counted_by_operation_and_how_they_ended() -> None:
    answered: list[None] = []
    inside = MemoryStorage()
    storage = metered(inside, lambda: answered.append(None))
    name = "blizzard_storage_requests_total"
    counts = Counts(
        (name, {"operation": "put", "status": "ok"}),
        (name, {"operation": "stat", "status": "not_found"}),
        (name, {"operation": "read", "status": "not_found"}),
        (name, {"operation": "put_if", "status": "conflict"}),
        (name, {"operation": "list", "status": "ok"}),
        ("blizzard_storage_request_duration_seconds_count", {"operation": "list"}),
    )
    for index in range(7):
        storage.put_atomic(f"{index}", b"x")
    assert storage.stat("missing") is None
    with pytest.raises(NotFound):
        storage.read("missing")
    with pytest.raises(Conflict):
        storage.put_if("0", b"y", None)
    pages = list(storage.list_range("", None))
    assert [len(page.entries) for page in pages] == [3, 3, 1]
    assert counts.moved() == [7, 1, 1, 1, 3, 3]
    assert len(answered) == 13
    assert storage.uri == inside.uri


def test_every_request_of_a_store_is_metered() -> None:
    inside = MemoryStorage()
    storage = metered(inside, lambda: None)
    names = {name for name in dir(Storage) if not name.startswith("_")}
    alike = {name for name in names if getattr(storage, name) == getattr(inside, name)}
    assert alike == {"uri"}


def test_a_listing_that_breaks_is_counted_and_passed_on() -> None:
    class Broken(MemoryStorage):
        def list_range(self, after: str, until: str | None) -> Any:
            yield ListingPage((Entry(f"{after}a", 1, 0.0),), 1, 1)
            raise Unavailable(f"{until}")

    counts = Counts(
        ("blizzard_storage_requests_total", {"operation": "list", "status": "unavailable"})
    )
    listing = metered(Broken(), lambda: None).list_range("", None)
    assert next(listing).keys == 1
    with pytest.raises(Unavailable):
        next(listing)
    assert counts.moved() == [1]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("x"), "not_found"),
        (AccessDenied("x"), "access_denied"),
        (Conflict("x"), "conflict"),
        (Unavailable("x"), "unavailable"),
        (StorageError("x"), "error"),
        (RuntimeError("x"), "error"),
    ],
)
def test_how_a_request_ended_is_one_of_few_words(error: Exception, status: str) -> None:
    assert status_of(error) == status


@pytest.mark.parametrize("use_watermark", [True, False])
def test_status_and_log_count_files_ignored_by_name(*, use_watermark: bool) -> None:
    out = io.StringIO()
    configure("info", out)
    world = PipelineHarness(use_watermark=use_watermark)
    world.put("date=2025-06-15/a.json", "1")
    world.put("date=2025-06-15/b.log", "2")
    worker = world.drain()
    world.drain(worker)
    lines = map(json.loads, out.getvalue().splitlines())
    [told] = [line for line in lines if line["event"] == "files_ignored"]
    assert (told["files"], told["first"]) == (1, "date=2025-06-15/b.log")
    assert told["level"] == "warning"
    assert worker.activity.to_json()["ignored"]["first"] == "date=2025-06-15/b.log"
    texts = [each["text"] for each in worker.activity.to_json()["notices"]]
    assert "1 file ignored, such as date=2025-06-15/b.log" in texts
