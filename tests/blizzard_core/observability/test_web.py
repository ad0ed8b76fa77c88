"""The web server over raw HTTP, and the status page in a real browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from prometheus_client.parser import text_string_to_metric_families

from blizzard_core.daemon import Loop, run_worker
from blizzard_core.errors import ConfigError, FencedError, Unavailable
from blizzard_core.limits import CONNECTIONS
from blizzard_core.observability import status_page
from blizzard_core.observability.address import WebAddress
from blizzard_core.observability.page_file import page as page_and_policy
from blizzard_core.observability.probe import probe
from blizzard_core.observability.status import Panel
from blizzard_core.observability.web import Server, served
from blizzard_core.text import printable
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import FinishedFile
from tests.support.browser import Visit, chromium, visited
from tests.support.hostile_texts import HOSTILE
from tests.support.http_answer import Answer
from tests.support.own_process import free_port
from tests.support.pipeline_harness import PipelineHarness
from tests.support.table_harness import TableHarness, footer_pool


@pytest.fixture
def world() -> PipelineHarness:
    return PipelineHarness()


@contextmanager
def serving(
    world: PipelineHarness, *workers: SourcePipeline
) -> Iterator[tuple[Server, SourcePipeline]]:
    chosen = workers or (world.pipeline(),)
    panel = Panel("blizzard", [w.activity for w in chosen], lambda: world.now)
    with Server("127.0.0.1:0", panel) as server:
        yield server, chosen[0]


def test_health_and_readiness_over_a_sources_life(world: PipelineHarness) -> None:
    with serving(world) as (server, worker):
        assert Answer(server.port, "/health").json == {"status": "ok", "reasons": []}
        before = Answer(server.port, "/ready")
        assert before.status == 503
        assert before.json["reasons"] == [
            {"target": "events/main", "reason": "the first poll is not done"}
        ]
        worker.cycle(threading.Event())
        assert Answer(server.port, "/ready").status == 200
        world.drain()  # another daemon takes the checkpoint over
        world.put("a.json", "1")
        with pytest.raises(FencedError) as fenced:
            worker.cycle(threading.Event())
        worker.activity.cycle_failed(fenced.value)
        worker.activity.ended(3)
        after = Answer(server.port, "/ready")
        assert after.status == 503
        assert "taken over" in after.json["reasons"][0]["reason"]
        # A restart would take the checkpoint from the other one.
        assert Answer(server.port, "/health").status == 200


def test_a_loop_that_hangs_is_not_alive(world: PipelineHarness) -> None:
    with serving(world) as (server, worker):
        worker.activity.waiting(60)
        world.now += 121
        dead = Answer(server.port, "/health")
        assert dead.status == 503
        assert "no sign of life for 121 s" in dead.json["reasons"][0]["reason"]


def test_ready_endpoint_reports_an_unreadable_state(world: PipelineHarness) -> None:
    world.sink.put_atomic("_blizzard/events_main_checkpoint.json", b"{ damaged")
    with serving(world) as (server, worker):
        code = run_worker(worker, Loop(once=False, jitter_secs=0, grace_secs=0), threading.Event())
        assert code == 1
        answer = Answer(server.port, "/ready")
        assert answer.status == 503
        assert "StateError" in answer.json["reasons"][0]["reason"]
        assert "events_main_checkpoint.json" in answer.json["reasons"][0]["reason"]


def test_only_reading_and_only_what_is_there(world: PipelineHarness) -> None:
    with serving(world) as (server, _):
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert Answer(server.port, "/", method).status == 405
        assert Answer(server.port, "/etc/passwd").status == 404
        assert Answer(server.port, "/../../etc/passwd").status == 404
        head = Answer(server.port, "/metrics", "HEAD")
        assert (head.status, head.body) == (200, "")


def test_every_answer_has_strict_headers(world: PipelineHarness) -> None:
    with serving(world) as (server, _):
        for path in ("/", "/status.json", "/metrics", "/health", "/ready", "/missing"):
            headers = Answer(server.port, path).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert "Set-Cookie" not in headers
            assert "aiohttp" not in headers["Server"]


def test_metrics_are_what_prometheus_reads(world: PipelineHarness) -> None:
    with serving(world) as (server, _):
        plain = Answer(server.port, "/metrics")
        assert plain.headers["Content-Type"].startswith("text/plain")
        families = {f.name for f in text_string_to_metric_families(plain.body)}
        assert {"blizzard_files_processed", "penguin_commits", "blizzard_build_info"} <= families
        assert 'blizzard_build_info{daemon="blizzard"' in plain.body
        assert "_created" not in plain.body
        modern = Answer(server.port, "/metrics", Accept="application/openmetrics-text")
        assert modern.headers["Content-Type"].startswith("application/openmetrics-text")
        assert modern.body.rstrip().endswith("# EOF")


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=x.y; escaping=allow-utf-8",
        "application/openmetrics-text; version=",
        "text/plain; version=;;=",
        ",;,;",
        "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.3",
    ],
)
def test_whatever_a_scraper_accepts_it_gets_metrics(world: PipelineHarness, accept: str) -> None:
    with serving(world) as (server, _):
        answer = Answer(server.port, "/metrics", Accept=accept)
    assert answer.status == 200
    openmetrics = "openmetrics" in accept
    assert ("openmetrics" in answer.headers["Content-Type"]) == openmetrics
    assert answer.body.endswith("# EOF\n") == openmetrics


def test_metrics_are_made_once_a_second_however_many_ask(
    world: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(
        status_page, "generate_latest", lambda _registry: str(made.append(1)).encode()
    )
    monkeypatch.setattr(status_page, "PREPARED_SECS", 1e9)
    with serving(world) as (server, _):
        for _ in range(5):
            assert Answer(server.port, "/metrics").status == 200
    assert made == [1]


def test_a_client_that_says_nothing_keeps_nobody_waiting(world: PipelineHarness) -> None:
    with serving(world) as (server, _):
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        try:
            for connection in silent[::2]:
                connection.sendall(b"GET / HTTP/1.1\r\nX-Slow:")
            assert Answer(server.port, "/health").status == 200
        finally:
            for connection in silent:
                connection.close()


def test_excess_connections_cut_off_the_longest_silent_one(
    world: PipelineHarness,
) -> None:
    with serving(world) as (server, _):
        first = open_unfinished_request(server.port)
        answered = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        others = []
        try:
            for number in range(CONNECTIONS * 3):
                others.append(open_unfinished_request(server.port))
                if number % 16 == 0:  # who goes on asking is kept
                    answered.request("GET", "/health")
                    assert answered.getresponse().read()
            first.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert first.recv(1) == b""

            def count() -> int:
                assert Answer(server.port, "/health").status == 200
                return open_connections(server.port)

            # The system may still count one that is being closed, not time and again.
            assert any(count() <= CONNECTIONS for _ in range(50))
        finally:
            for connection in (first, *others):
                connection.close()
            answered.close()


def open_unfinished_request(port: int) -> socket.socket:
    """A connection on which something was said, and no whole request."""
    wire = socket.create_connection(("127.0.0.1", port))
    wire.sendall(b"GET /")
    return wire


def open_request(port: int) -> socket.socket:
    """A connection on which a request was sent."""
    wire = socket.create_connection(("127.0.0.1", port), timeout=60)
    wire.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return wire


def answer_to(wire: socket.socket) -> bytes:
    """The first bytes of what is answered; none if it was cut off."""
    with contextlib.suppress(ConnectionError):
        return wire.recv(12)
    return b""


def test_a_request_during_a_connection_flood_is_answered(
    world: PipelineHarness,
) -> None:
    panel = Panel("blizzard", [], lambda: world.now)
    found = Server("127.0.0.1:0", panel)
    # All of them wait to be taken, which begins once the server is entered.
    wires = [open_request(found.port)]
    wires += [open_unfinished_request(found.port) for _ in range(CONNECTIONS + 40)]
    try:
        with found:
            assert answer_to(wires[0]) == b"HTTP/1.1 200"
    finally:
        for wire in wires:
            wire.close()


def test_probes_get_answers_during_a_connection_flood(world: PipelineHarness) -> None:
    with serving(world) as (server, _):
        others: list[socket.socket] = []
        try:
            for number in range(CONNECTIONS * 2):
                others.append(open_unfinished_request(server.port))
                if number % 16 == 0:
                    others.append(open_request(server.port))
                    assert answer_to(others[-1]) == b"HTTP/1.1 200"
        finally:
            for wire in others:
                wire.close()


def open_connections(port: int) -> int:
    """Return the number of connections that the server holds open, from the system's view."""
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    established = (line.split()[1] for line in lines if line.split()[3] == "01")
    return sum(int(place.rpartition(":")[2], 16) == port for place in established)


def test_invalid_requests_reveal_nothing_about_the_server(
    world: PipelineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    long = b"GET / HTTP/1.1\r\nX: " + b"A" * 9000 + b"\r\n\r\n"
    odd = b"GET / HTTP/1.1\r\na b: c\r\n\r\n"
    with serving(world) as (server, _):
        for text in (b"\x16\x03\x01\r\n\r\n", odd, b"X\r\n\r\n", long):
            with socket.create_connection(("127.0.0.1", server.port)) as wire:
                wire.settimeout(60)
                wire.sendall(text)
                answer = wire.makefile("rb").read().decode()
            assert answer.startswith("HTTP/1.")
            assert " 400 " in answer
            assert re.findall(r"(?m)^Server: (.*?)\r$", answer) == ["blizzard-penguin"]
            assert not re.search("aiohttp|python", answer, re.IGNORECASE)
    # Nor has the log a trace for each: whoever reaches the page would fill a disk.
    assert [record for record in caplog.records if record.name.startswith("aiohttp")] == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:9090", True),
        ("localhost:0", True),
        ("[::1]:9090", True),
        ("0.0.0.0:9090", False),
        ("10.1.2.3:9090", False),
        ("pages.example:9090", False),
    ],
)
def test_records_are_shown_on_loopback_only(address: str, *, expected: bool) -> None:
    assert WebAddress.parse(address).is_loopback == expected


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9090", 200),
        ("127.0.0.1", 200),
        ("[::1]:9090", 200),
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_on_this_machine_alone_other_names_are_refused(
    world: PipelineHarness, host: str, status: int
) -> None:
    with serving(world) as (server, _):
        assert Answer(server.port, "/status.json", Host=host).status == status
    panel = Panel("blizzard", [], lambda: world.now)
    with Server("0.0.0.0:0", panel) as server:  # who is reachable has names of all kinds
        assert Answer(server.port, "/status.json", Host=host).status == 200


@pytest.mark.parametrize(
    "address",
    ["9090", ":9090", "localhost", "localhost:http", "h:-1", "", "::1:9090", "[]:1"],
)
def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    """No host would mean every interface of the machine."""
    with pytest.raises(ConfigError, match="is no address; give host and port"):
        Server(address, Panel("blizzard", [], lambda: 0.0))


@pytest.mark.parametrize(
    ("address", "hosts"), [("[::]:0", ("::1", "127.0.0.1")), ("[::1]:0", ("::1",))]
)
def test_an_address_of_ipv6_is_served(
    world: PipelineHarness, tmp_path: Path, address: str, hosts: tuple[str, ...]
) -> None:
    with Server(address, Panel("blizzard", [], lambda: world.now)) as server:
        for host in hosts:
            client = http.client.HTTPConnection(host, server.port, timeout=10)
            with contextlib.closing(client):
                client.request("GET", "/health")
                assert client.getresponse().status == 200
        config = tmp_path / "blizzard.yaml"
        listening = address.replace(":0", f":{server.port}")
        tables = f'"tables": {{"t": {{"table_uri": "{tmp_path}"}}}}'
        config.write_text(f'{{"metrics": {{"address": "{listening}"}}, {tables}}}')
        assert probe(config)[0]


def test_an_address_in_use_is_reported_at_once(
    world: PipelineHarness,
) -> None:
    panel = Panel("blizzard", [], lambda: world.now)
    port = free_port()
    address = f"127.0.0.1:{port}"
    with (
        Server(address, panel),
        pytest.raises(ConfigError, match=rf"{address}: Address already in use; give another"),
        served(address, panel),
    ):
        pass
    with served(address, panel):
        assert Answer(port, "/health").status == 200
    with pytest.raises(ConnectionRefusedError):
        Answer(port, "/health")


def test_the_page_has_no_way_out_of_its_policy() -> None:
    body, policy = page_and_policy()
    text = body.decode()
    assert not re.search(r"""\son\w+\s*=|style\s*=\s*["']|javascript:|innerHTML|eval\(""", text)
    assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", text)
    assert "trusted-types 'none'" in policy
    assert len(body) < 72_000


def hostile_source(world: PipelineHarness, text: str) -> SourcePipeline:
    """A source with this text wherever text can be."""
    worker = world.pipeline()
    name = text.replace("/", "_")
    world.put(f"dir={name}/{name}.json", "bad")
    world.put(f"dir={name}/{name}2.json", "1")
    worker.cycle(threading.Event())
    worker.activity.gave_up([FinishedFile(text, "quarantined", error=text, stage="parse")])
    worker.activity.cycle_failed(Unavailable(f"first {text}: no answer"))
    return worker


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_escaped_in_the_status_document(world: PipelineHarness, text: str) -> None:
    worker = hostile_source(world, text)
    with serving(world, worker) as (server, _):
        answer = Answer(server.port, "/status.json")
        [target] = answer.json["targets"]
        assert all(s.isprintable() for s in strings(answer.json))
        assert target["letters"][0]["path"] == printable(text)
        assert any("no answer" in n["text"] for n in target["notices"])
        ready = Answer(server.port, "/ready")
        assert ready.status in {200, 503}


def strings(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from strings(value)
    elif isinstance(document, list):
        for value in document:
            yield from strings(value)


def test_no_credentials_in_the_status_document(world: PipelineHarness) -> None:
    with serving(world) as (server, worker):
        worker.activity.cycle_failed(Unavailable("GET https://x/?sig=geheimgeheim: 503"))
        worker.activity.gave_up(
            [FinishedFile("a", "quarantined", error="password=geheimgeheim", stage="read")]
        )
        assert "geheim" not in Answer(server.port, "/status.json").body
        assert "geheim" not in Answer(server.port, "/ready").body


# In the browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_the_page_shows_a_source_that_is_well(browser: Browser, world: PipelineHarness) -> None:
    world.put("date=2024-01-01/a.json", "1", "2")
    with serving(world, world.drain()) as (server, _), visited(browser, server.port) as visit:
        expect(visit.page).to_have_title("Blizzard")
        text = visit.text()
        assert "The one source is well" in text
        assert "date=2024-01-01/a.json" in text
        assert "waiting" in text or "looking" in text
        assert visit.page.locator(".chart svg rect").count() == 2  # one minute, files and rows
        assert visit.page.locator("#verdict.ok").count() == 1


def test_a_new_batch_appears_by_itself(browser: Browser, world: PipelineHarness) -> None:
    with serving(world) as (server, worker), visited(browser, server.port, soon=True) as visit:
        assert "Last batches" not in visit.text()
        world.put("a.json", "1", "2", "3")
        world.drain(worker)
        row = visit.page.locator("table tbody tr")
        expect(row).to_have_count(1, timeout=60_000)
        assert row.locator("td").nth(2).inner_text() == "3"


def test_page_shows_failing_sources_first_with_a_remedy(
    browser: Browser, world: PipelineHarness
) -> None:
    well, broken = world.pipeline(), world.pipeline()
    well.cycle(threading.Event())
    broken.activity.name = "zz/broken"
    broken.activity.cycle_failed(FencedError("taken over by writer x"))
    broken.activity.ended(3)
    with serving(world, well, broken) as (server, _), visited(browser, server.port) as visit:
        verdict = visit.page.locator("#verdict")
        assert verdict.get_attribute("class") == "bad"
        assert "1 of 2 sources failing" in verdict.inner_text()
        assert "taken over by writer x" in verdict.inner_text()
        assert "Stop one of the two" in verdict.inner_text()
        assert visit.page.locator(".card h2").all_inner_texts() == ["zz/broken", "events/main"]
        expect(visit.page).to_have_title("✖ Blizzard")


def test_hostile_text_is_shown_as_text(browser: Browser, world: PipelineHarness) -> None:
    worker = world.pipeline()
    for text in HOSTILE:
        worker.activity.gave_up([FinishedFile(text, "quarantined", error=text, stage=text)])
        worker.activity.cycle_failed(Unavailable(text))
    with serving(world, worker) as (server, _), visited(browser, server.port) as visit:
        before = visit.page.evaluate("document.querySelectorAll('script, img').length")
        for summary in visit.page.locator("summary").all():
            summary.click()
        shown = visit.page.inner_text("#targets")
        for text in HOSTILE:
            assert " ".join(printable(text).split()) in shown
        assert before == 1
        assert visit.page.locator("#targets script, #targets img").count() == 0


def test_page_reports_a_stopped_daemon_and_reconnects(
    browser: Browser, world: PipelineHarness
) -> None:
    worker = world.drain()
    panel = Panel("blizzard", [worker.activity], lambda: world.now)
    with browser.new_context() as context:
        with Server(f"127.0.0.1:{free_port()}", panel) as server:
            visit = Visit(context.new_page(), server.port, soon=True)
        verdict = visit.page.locator("#verdict")
        expect(verdict).to_contain_text("No answer from the daemon since", timeout=60_000)
        expect(verdict).to_have_class("bad")
        with Server(f"127.0.0.1:{server.port}", panel):
            expect(verdict).to_contain_text("is well", timeout=60_000)


def test_penguins_page_shows_commits_and_refusals(browser: Browser, tmp_path: Any) -> None:
    with footer_pool() as pool:
        lake = TableHarness(str(tmp_path), pool)
        penguin = lake.penguin("orders")
        lake.put("a.parquet", {"x": [1, 2, 3]})
        lake.put("b.parquet", b"no parquet")
        lake.run(penguin)
        panel = Panel("penguin", [penguin.activity], lambda: lake.now)
        with Server("127.0.0.1:0", panel) as server, visited(browser, server.port) as visit:
            expect(visit.page).to_have_title("! Penguin")
            text = visit.text()
            assert "Last commits" in text.replace("LAST COMMITS", "Last commits")
            assert "version 0" in text
            assert "quarantined lately" in text
            assert "The one table is to look at" in text


def test_status_document_has_limited_size_and_cost(world: PipelineHarness) -> None:
    worker = world.pipeline()
    for number in range(300):
        worker.activity.gave_up(
            [FinishedFile("p" * 9000, "quarantined", error="e" * 9000, stage="parse")]
        )
        worker.activity.cycle_failed(Unavailable(f"{number}" * 9000))
    panel = Panel("blizzard", [worker.activity], lambda: world.now)
    began = time.process_time()
    text = json.dumps(panel.to_json())
    assert len(text) < 200_000
    assert time.process_time() - began < 5
