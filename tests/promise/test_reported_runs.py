"""Traces and lineage of real batches and commits, as receivers get them over HTTP."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from blizzard_core.daemon import Loop, run
from blizzard_core.errors import ConfigError, EngineError
from blizzard_core.observability import lineage, traces
from blizzard_core.observability.activity import Activity
from blizzard_core.observability.run_sinks import run_sinks
from blizzard_core.observability.runs import Job, RunEvent, RunLog, RunResult, RunStep
from blizzard_core.settings.load import load_config
from blizzard_py.app.daemon import report_runs as report_batches
from blizzard_py.app.workers import build
from blizzard_py.job import IngestJob, IngestResult
from penguin_py.app import build as build_penguin
from penguin_py.app import report_runs as report_commits
from tests.support.api_server import ApiServer, ReceivedRequest, Reply, api_server
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import Died
from tests.support.scenario import Scenario, ndjson

STEPS = {"scan", "wait", "plan", "ingest", "prepare", "publish", "advance"}


class FailingEngine(DirectEngine):
    """An engine whose first job fails."""

    failed = False

    def ingest(self, job: IngestJob) -> IngestResult:
        if not self.failed:
            self.failed = True
            raise EngineError("https://user:hunter2@spark is gone")
        return super().ingest(job)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=s3cret")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "k3y")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "prod")
    with api_server() as server:
        server.answer = lambda _asked: Reply()
        yield server


@contextmanager
def reported(tmp_path: Path, url: str) -> Iterator[Scenario]:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.document |= {"traces": url, "lineage": url}
    scenario.write_config()
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1, 2, 3)
    yield scenario


def ingest(scenario: Scenario, engine: DirectEngine) -> int:
    config = load_config(scenario.config)
    workers = build(config, engine)
    with run_sinks(config, "blizzard") as sinks:
        report_batches(workers, sinks)
        return run(workers, Loop(once=True, jitter_secs=0, grace_secs=0), threading.Event())


def commit(scenario: Scenario) -> None:
    config = load_config(scenario.config)
    with build_penguin(config) as workers, run_sinks(config, "penguin") as sinks:
        report_commits(workers, sinks)
        loop = Loop(once=True, jitter_secs=0, grace_secs=0)
        assert run(workers, loop, threading.Event()) == 0


def received(server: ApiServer, path: str) -> list[ReceivedRequest]:
    return [asked for asked in server.asked if asked.path == path]


def spans(server: ApiServer) -> list[Any]:
    found = []
    for asked in received(server, "/v1/traces"):
        is_packed = asked.headers.get("content-encoding") == "gzip"
        body = gzip.decompress(asked.body) if is_packed else asked.body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            found += [span for scope in resource.scope_spans for span in scope.spans]
    return found


def events(server: ApiServer) -> list[dict[str, Any]]:
    found = []
    for asked in received(server, "/api/v1/lineage"):
        is_packed = asked.headers.get("content-encoding") == "gzip"
        found.append(json.loads(gzip.decompress(asked.body) if is_packed else asked.body))
    return found


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.int_value or each.value.string_value for each in span.attributes}


def test_a_trace_goes_from_the_scan_to_the_commit(tmp_path: Path, receiver: ApiServer) -> None:
    with reported(tmp_path, receiver.url) as scenario:
        assert ingest(scenario, DirectEngine()) == 0
        commit(scenario)
    found = spans(receiver)
    assert {span.name for span in found} == STEPS | {"batch", "commit"}
    assert len({span.trace_id for span in found}) == 1
    [root] = [span for span in found if span.name == "batch"]
    assert not root.parent_span_id
    assert {s.parent_span_id for s in found if s is not root} == {root.span_id}
    assert len({span.span_id for span in found}) == len(found)
    starts = {span.name: span.start_time_unix_nano for span in found}
    assert max(STEPS | {"commit"}, key=starts.__getitem__) == "commit"
    assert root.start_time_unix_nano == starts["scan"]
    assert attributes(root)["blizzard.read.rows"] == 3
    [committed] = [attributes(span) for span in found if span.name == "commit"]
    assert committed["penguin.written.rows"] == 3
    journal = tmp_path / "lake/events/_blizzard/journal/events_main"
    [batch] = [path.stem for path in journal.iterdir()]
    assert uuid.UUID(bytes=found[0].trace_id) == uuid.UUID(batch)
    assert received(receiver, "/v1/traces")[0].headers["x-token"] == "s3cret"


def test_lineage_has_datasets_columns_and_counts(tmp_path: Path, receiver: ApiServer) -> None:
    with reported(tmp_path, receiver.url) as scenario:
        assert ingest(scenario, DirectEngine()) == 0
        commit(scenario)
    found = events(receiver)
    assert [(e["job"]["name"], e["eventType"]) for e in found] == [
        ("blizzard.events/main", "START"),
        ("blizzard.events/main", "COMPLETE"),
        ("penguin.events", "START"),
        ("penguin.events", "COMPLETE"),
    ]
    assert {each["job"]["namespace"] for each in found} == {"prod"}
    assert found[0]["run"]["runId"] == found[1]["run"]["runId"] != found[3]["run"]["runId"]
    [read] = found[1]["inputs"]
    assert (read["namespace"], read["name"]) == ("file", f"{tmp_path}/raw")
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 3
    columns = [(field["name"], field["type"]) for field in read["facets"]["schema"]["fields"]]
    assert columns == [("id", "int64"), ("text", "string")]
    [written], [table] = found[1]["outputs"], found[3]["outputs"]
    assert written["name"] == table["name"] == f"{tmp_path}/lake/events"
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert table["outputFacets"]["outputStatistics"]["fileCount"] == 1
    assert table["facets"]["version"]["datasetVersion"] == "0"
    names = [field["name"] for field in table["facets"]["schema"]["fields"]]
    assert names == ["id", "text", "date"]
    assert received(receiver, "/api/v1/lineage")[0].headers["authorization"] == "Bearer k3y"


def test_columns_of_a_source_have_the_names_of_its_records(
    tmp_path: Path, receiver: ApiServer
) -> None:
    with reported(tmp_path, receiver.url) as scenario:
        fields = [{"name": "number", "from": "id", "type": "int64"}]
        scenario.document["pipelines"]["events"]["schema"] = {"fields": fields}
        scenario.write_config()
        assert ingest(scenario, DirectEngine()) == 0
        commit(scenario)
    found = [each for each in events(receiver) if each["eventType"] == "COMPLETE"]
    named = [
        [field["name"] for field in each["facets"]["schema"]["fields"]]
        for each in (found[0]["inputs"][0], found[1]["outputs"][0])
    ]
    assert named == [["id"], ["number", "date"]]


def test_a_failed_batch_is_reported_without_secrets(tmp_path: Path, receiver: ApiServer) -> None:
    engine = FailingEngine()
    with reported(tmp_path, receiver.url) as scenario:
        assert ingest(scenario, engine) == 0  # the next cycle tries again
    found = events(receiver)
    assert [each["eventType"] for each in found] == ["START", "FAIL", "START", "COMPLETE"]
    message = found[1]["run"]["facets"]["errorMessage"]["message"]
    assert "spark is gone" in message
    assert "hunter2" not in message
    roots = [span for span in spans(receiver) if span.name == "batch"]
    assert [span.status.code for span in roots] == [2, 0]  # an error, then none
    assert roots[0].trace_id == roots[1].trace_id
    assert roots[0].span_id != roots[1].span_id


def test_a_receiver_that_is_down_costs_a_log_line(
    tmp_path: Path, receiver: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = lambda _asked: Reply(status=400)
    with reported(tmp_path, receiver.url) as scenario:
        assert ingest(scenario, DirectEngine()) == 0
        commit(scenario)
        assert scenario.ids() == [1, 2, 3]
    assert len(events(receiver)) == 4
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("block", "module", "extra"),
    [
        ({"traces": "http://x:4318"}, "opentelemetry.sdk", "traces"),
        ({"lineage": "http://x"}, "openlineage.client", "lineage"),
    ],
)
def test_a_missing_library_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: Any, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.document |= block
    scenario.write_config()
    with (
        pytest.raises(ConfigError, match=rf"pip install 'blizzard-penguin\[{extra}\]'"),
        run_sinks(load_config(scenario.config), "blizzard"),
    ):
        pass


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("s3://raw/events/clicks/", ("s3://raw", "events/clicks")),
        ("gs://raw", ("gs://raw", "/")),
        ("/data/raw", ("file", "/data/raw")),
        ("postgresql://db:5432/shop/public.orders", ("postgresql://db:5432", "shop/public.orders")),
    ],
)
def test_datasets_are_named_by_their_address(uri: str, named: tuple[str, str]) -> None:
    assert lineage.dataset_name(uri) == named


class Collected:
    """A sink that keeps what it gets, and fails if told to."""

    def __init__(self, fails: Callable[[], bool] = lambda: False) -> None:
        self.events: list[RunEvent] = []
        self._fails = fails

    def take(self, event: RunEvent) -> None:
        if self._fails():
            raise RuntimeError("full")
        self.events.append(event)

    def close(self) -> None:
        pass


def test_a_run_of_an_earlier_process_has_no_steps() -> None:
    sink = Collected()
    log = RunLog(Job("blizzard", "a/b", "/raw", "/lake"), [sink])
    log.enters("x", "publish", 5.0)
    log.completed("x", 9.0, 3.0, RunResult())
    [event] = sink.events
    assert (event.start, event.at, event.steps) == (3.0, 9.0, ())


def test_steps_follow_each_other_without_gaps() -> None:
    sink = Collected()
    log = RunLog(Job("blizzard", "a/b", "/raw", "/lake"), [Collected(lambda: True), sink])
    log.started("x", 2.0, "ingest", [RunStep("scan", 1.0, 2.0)])
    log.enters("x", "prepare", 3.0)
    log.failed("boom", 4.0)
    log.failed("boom", 5.0)
    started, failed = sink.events
    assert (started.kind, failed.kind, failed.start, failed.error) == ("start", "fail", 1.0, "boom")
    assert failed.steps == (
        RunStep("scan", 1.0, 2.0),
        RunStep("ingest", 2.0, 3.0),
        RunStep("prepare", 3.0, 4.0),
    )


def test_a_batch_past_its_commit_point_does_not_fail() -> None:
    sink = Collected()
    log = RunLog(Job("blizzard", "a/b", "/raw", "/lake"), [sink])
    log.started("x", 1.0, "ingest")
    log.enters("x", "publish", 2.0)
    log.failed("the store is away", 3.0)
    log.completed("x", 4.0, 1.0, RunResult())
    log.aborted(5.0)
    assert [event.kind for event in sink.events] == ["start", "complete"]


def test_an_attempt_that_runs_again_is_aborted(tmp_path: Path, receiver: ApiServer) -> None:
    with reported(tmp_path, receiver.url) as scenario:
        scenario.document["pipelines"]["events"]["schema"]["evolve"] = "add"
        scenario.write_config()
        scenario.put("date=2024-01-01/2.ndjson.gz", ndjson({"id": 4, "more": 1}))
        assert ingest(scenario, DirectEngine()) == 0
    found = events(receiver)
    assert [each["eventType"] for each in found] == ["START", "ABORT", "START", "COMPLETE"]
    assert found[0]["run"]["runId"] == found[1]["run"]["runId"] != found[3]["run"]["runId"]
    roots = [span for span in spans(receiver) if span.name == "batch"]
    assert [span.status.code for span in roots] == [0, 0]


class DyingEngine(DirectEngine):
    """An engine whose process dies in its first job."""

    def ingest(self, job: IngestJob) -> IngestResult:
        raise Died(repr(job))


@pytest.mark.parametrize("is_released", [False, True])
def test_an_attempt_whose_daemon_was_killed_is_aborted(
    tmp_path: Path, receiver: ApiServer, *, is_released: bool
) -> None:
    with reported(tmp_path, receiver.url) as scenario:
        [worker] = build(load_config(scenario.config), DyingEngine())
        with pytest.raises(Died):
            worker.cycle(threading.Event())
        if is_released:  # and so it has reported the end of its runs
            worker.release()
        assert ingest(scenario, FailingEngine()) == 0
    kinds = [each["eventType"] for each in events(receiver)]
    again = ["START", "FAIL", "START", "COMPLETE"]
    assert kinds == again if is_released else ["ABORT", *again]
    attempts = [
        {tag["key"]: tag["value"] for tag in each["run"]["facets"]["tags"]["tags"]}["attempt"]
        for each in events(receiver)
    ]
    assert attempts[-4:] == ["2", "2", "3", "3"]
    assert attempts[:-4] in ([], ["1"])


def test_runs_that_are_open_at_the_end_are_aborted() -> None:
    sink = Collected()
    activity = Activity("a/b", "/raw", lambda: 7.0)
    activity.runs = RunLog(Job("blizzard", "a/b", "/raw", "/lake"), [sink])
    activity.runs.started("x", 2.0, "ingest")
    activity.ended(0)
    activity.ended(0)
    assert [(each.kind, each.at) for each in sink.events] == [("start", 2.0), ("abort", 7.0)]


def test_a_receiver_that_is_down_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    replies = iter([RuntimeError("down"), RuntimeError("down"), None, RuntimeError("down")])

    class Client:
        def emit(self, _event: Any) -> None:
            if (error := next(replies)) is not None:
                raise error

    class Log:
        def warning(self, event: str, **_facts: Any) -> None:
            lines.append(event)

    monkeypatch.setattr(lineage, "get_logger", Log)
    sink = lineage.Lineage(Client(), "n")  # type: ignore[arg-type]  # all that is used of it
    log = RunLog(Job("blizzard", "a/b", "/raw", "/lake"), [sink])
    for number in range(4):
        log.started(f"x{number}", 1.0, "ingest")
    sink.close()
    assert lines == ["lineage_failed", "lineage_failed"]


def test_events_wait_for_a_slow_receiver_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "WAITING_AT_MOST", 2)
    holds, sent = threading.Event(), []

    class Client:
        def emit(self, event: Any) -> None:
            holds.wait(30)
            sent.append(event)

    sink = lineage.Lineage(Client(), "n")  # type: ignore[arg-type]  # all that is used of it
    log = RunLog(Job("blizzard", "a/b", "/raw", "/lake"), [sink])
    for number in range(20):
        log.started(f"x{number}", 1.0, "ingest")
    holds.set()
    sink.close()
    assert 2 <= len(sent) <= 3


class Unreachable(SpanExporter):
    """An exporter that repeats a request until it is shut down, as that of OTLP does."""

    def __init__(self) -> None:
        self.given_up = False
        self.ends = threading.Event()

    def export(self, spans: Any) -> SpanExportResult:  # noqa: ARG002  # as its base
        self.given_up = not self.ends.wait(10)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.ends.set()


def test_closing_does_not_wait_for_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "CLOSE_SECS", 0.05)
    exporter = Unreachable()
    sink = traces.Traces("blizzard", exporter)
    sink.take(RunEvent("complete", Job("blizzard", "a/b", "/raw", "/lake"), "x", 9.0, 3.0))
    sink.close()
    assert exporter.ends.is_set()
    assert not exporter.given_up
