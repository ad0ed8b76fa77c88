"""Calls of Penguin: from a published batch to a poll that does not wait."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import ConfigError
from blizzard_core.observability import commit_calls
from blizzard_core.observability.commit_calls import CommitCalls, post_call
from blizzard_core.observability.posts import Posts
from blizzard_core.observability.run_sinks import run_sinks
from blizzard_core.observability.runs import Job, RunEvent
from blizzard_core.observability.status import Panel
from blizzard_core.observability.web import Server
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_core.settings.tables import CallSettings
from penguin_py.app import build
from penguin_py.intake.calls import LEAST_SECS, TableCalls
from tests.support.api_server import Reply, api_server
from tests.support.scripted_worker import InstantStop

TOKEN = "sesame-sesame-sesame"
OTHER = "another-token-of-others"
URI = "s3://lake/events"


class Clock:
    """A clock that stands still until a test moves it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> TableCalls:
    return TableCalls(f"{URI}/", TOKEN, clock)


@pytest.fixture
def address(table: TableCalls, clock: Clock) -> Iterator[str]:
    tables = [table, TableCalls("s3://lake/other", OTHER, clock)]
    with Server("127.0.0.1:0", Panel("penguin", [], lambda: 0.0, recipients=tables)) as server:
        yield f"http://127.0.0.1:{server.port}/notify"


def is_called(table: TableCalls, clock: Clock) -> bool:
    clock.now += LEAST_SECS
    return table.wait(0.0, threading.Event())


def call(address: str, *events: RunEvent, token: str = TOKEN) -> None:
    sink = CommitCalls({URI: CallSettings(uri=address, token=token)}, post_call)
    for event in events:
        sink.take(event)
    sink.close()


def event(table: str = URI, kind: str = "complete") -> RunEvent:
    job = Job("blizzard", "a/b", "s3://raw", table)
    return RunEvent(kind, job, "a/b/1/1", 7.0, 6.0)  # type: ignore[arg-type]  # one of its words


def test_published_batch_ends_one_pause(address: str, table: TableCalls, clock: Clock) -> None:
    call(address, event(f"{URI}/"), event())
    assert is_called(table, clock)
    assert not is_called(table, clock)


def test_other_events_end_no_pause(address: str, table: TableCalls, clock: Clock) -> None:
    call(address, event(kind="start"), event(kind="fail"), event("s3://lake/other"))
    assert not is_called(table, clock)


@pytest.mark.parametrize("token", [OTHER, f"{TOKEN}x"])
def test_token_of_another_table_ends_no_pause(
    address: str, table: TableCalls, clock: Clock, token: str
) -> None:
    call(address, event(), token=token)
    assert not is_called(table, clock)


@pytest.mark.parametrize("body", [b"", b"{}", b"[", b"\xff", b'{"table": 7}', b"[" * 100_000])
def test_call_without_a_table_is_for_each_of_the_token(
    table: TableCalls, clock: Clock, body: bytes
) -> None:
    assert Posts([table]).post(f"Bearer {TOKEN}", body)
    assert is_called(table, clock)


def test_calls_begin_polls_after_a_least_pause(table: TableCalls, clock: Clock) -> None:
    stop = InstantStop()
    table.call(URI)
    assert table.wait(60.0, stop)
    assert stop.waits == []
    clock.now += 1.0
    table.call(None)
    assert table.wait(60.0, stop)
    assert stop.waits == [LEAST_SECS - 1.0]


def test_stopping_daemon_ends_the_pause(table: TableCalls) -> None:
    stop = threading.Event()
    stop.set()
    assert table.wait(60.0, stop)


def test_failure_is_logged_once_until_a_call_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    problems = iter([OSError("down"), OSError("down"), None, OSError("down")])
    sent = threading.Semaphore(0)

    class Log:
        def warning(self, name: str, **facts: str) -> None:
            lines.append(f"{name} {facts['table']} {facts['error']}")

    def send(_call: CallSettings, _table: str) -> None:
        sent.release()
        if (problem := next(problems)) is not None:
            raise problem

    monkeypatch.setattr(commit_calls, "get_logger", Log)
    sink = CommitCalls({URI: CallSettings(uri="http://x/notify", token=TOKEN)}, send)
    for _ in range(4):
        sink.take(event())
        assert sent.acquire(timeout=30)
    sink.close()
    assert lines == [f"penguin_not_called {URI} down"] * 2


def test_redirect_is_not_followed() -> None:
    with api_server() as server:
        server.answer = lambda _request: Reply(
            status=302, headers={"Location": f"{server.url}/elsewhere"}
        )
        with pytest.raises(OSError, match="302"):
            post_call(CallSettings(uri=f"{server.url}/notify", token=TOKEN), URI)
        assert len(server.asked) == 1


def configured(tmp_path: Path, uri: str = "http://127.0.0.1:9/notify", **more: Any) -> Config:
    table = {"table_uri": "./lake", "notify": {"uri": uri, "token": TOKEN}}
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"tables": {"events": table}, **more}))
    return load_config(path)


METRICS = {"address": "127.0.0.1:0"}


def test_both_daemons_read_the_same_setting(tmp_path: Path) -> None:
    with build(configured(tmp_path, metrics=METRICS)) as [pipeline]:
        assert pipeline.calls is not None
        panel = Panel("penguin", [], time.time, recipients=[pipeline.calls])
        with Server("127.0.0.1:0", panel) as server:
            uri = f"http://127.0.0.1:{server.port}/notify"
            config = configured(tmp_path, uri, metrics=METRICS)
            with run_sinks(config, "blizzard") as sinks, run_sinks(config, "penguin") as none:
                assert len(sinks) == 1
                assert none == []
                sinks[0].take(event(str(tmp_path / "lake")))
        assert pipeline.rest(60.0, threading.Event())
        assert not pipeline.rest(0.0, threading.Event())


def test_calls_need_an_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.events\.notify.*metrics\.address"):
        configured(tmp_path)


def test_setting_holds_no_credentials() -> None:
    for uri in ("ftp://x/notify", "http:///notify", "http://user:secret@x/notify", "penguin:9090"):
        with pytest.raises(ValueError, match="HOST:PORT") as caught:
            CallSettings(uri=uri, token=TOKEN)
        assert "secret@" not in str(caught.value.errors()[0]["msg"])  # type: ignore[attr-defined]  # of pydantic
