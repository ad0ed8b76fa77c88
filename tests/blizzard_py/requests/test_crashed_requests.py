"""Errors that nobody expects of a request: they cost it alone, and the source goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from blizzard_core.errors import Cancelled, FencedError, SchemaConflict
from blizzard_py.app import request_selector
from tests.support.captured_logs import captured_logs
from tests.support.replace_harness import ReplaceHarness
from tests.support.request_harness import DAY, RequestHarness

BASE = ["1", "5", "52"]
LATE = [f"{DAY}/2{n}.json" for n in range(3)]


def raising(error: BaseException, after: int = 0) -> Callable[..., Any]:
    """A reader of request pages that fails after some of them."""
    read, calls = request_selector.read_page, 0

    def fail(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise error
        return read(*arguments)

    return fail


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("a.json"), "KeyError: 'a.json'"),
        (MemoryError(), "MemoryError"),
        (SchemaConflict("of two"), "SchemaConflict: of two"),
    ],
)
@pytest.mark.parametrize(("mode", "path"), [("add", LATE[0]), ("replace", f"{DAY}/5.json")])
def test_an_unexpected_error_ends_a_request_and_no_source(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, mode: str, path: str
) -> None:
    world = ReplaceHarness()
    world.put(path, "given")
    crashed = world.submit(path, mode=mode)
    world.put(f"{DAY}/6.json", "live")
    with monkeypatch.context() as patched, captured_logs("error") as lines:
        patched.setattr(request_selector, "read_page", raising(error))
        worker = world.drain()
    assert world.rows() == [*BASE, "live"]
    found = world.request(crashed)
    assert (found.state, reason in found.reason) == ("failed", True)
    traces = {line["event"]: "exception" in line for line in lines}
    assert traces == {"request_crashed": True, "request_failed": False}
    # It is over: the same command is another request, which the same daemon does.
    again = world.submit(path, mode=mode)
    world.drain(worker)
    assert world.outcomes(again) == {path: "ingested"}
    assert world.rows() == [*BASE, "given", "live"]


def test_rows_before_an_unexpected_error_of_a_request_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_selector, "PAGE_FILES", 1)
    world = RequestHarness()
    for path in LATE:
        world.put(path, path[-7:-5])
    request = world.submit(*LATE)
    with monkeypatch.context() as patched:
        patched.setattr(request_selector, "read_page", raising(KeyError("a"), after=2))
        world.drain()
    assert (world.request(request).state, world.request(request).pages) == ("failed", 2)
    assert world.rows() == sorted([*BASE, "20", "21"])
    assert list(world.outcomes(request).values()) == ["ingested", "ingested"]
    assert sorted(world.bring({"files": LATE}).values()) == ["ingested", "present", "present"]


@pytest.mark.parametrize(
    "error", [FencedError("by another"), Cancelled("it stops"), KeyboardInterrupt(), SystemExit(1)]
)
def test_request_stays_running_when_its_owner_stops(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    world = RequestHarness()
    world.put(LATE[0], "late")
    request = world.submit(LATE[0])
    with monkeypatch.context() as patched:
        patched.setattr(request_selector, "read_page", raising(error))
        with pytest.raises(type(error)):
            world.drain()
    assert world.request(request).state == "running"
    world.drain()
    assert world.outcomes(request) == {LATE[0]: "ingested"}
