"""Penguin's probe of an object store before it acts there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from types import SimpleNamespace
from typing import Any

import pytest

from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.errors import Conflict, StorageError
from blizzard_core.storage.clock import StoreClock
from blizzard_core.storage.opening import open_storage
from penguin_py import app
from penguin_py.app import probe_path, probe_store
from penguin_py.intake.reconcile import BEYOND
from penguin_py.pipeline import TablePipeline
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.s3_server import S3Server
from tests.support.table_harness import TableHarness

DAY = 86_400.0
CONDITIONS = frozenset({"if-match", "if-none-match"})


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(s3.endpoint) as found:
        yield found


@pytest.fixture
def wire(s3: S3Server, proxy: FaultProxy, pool: Executor) -> TableHarness:
    options = {**s3.options, "AWS_ENDPOINT_URL": proxy.endpoint}
    return TableHarness(f"s3://{s3.new_bucket()}/lake/events", pool, options)


def started(world: TableHarness, **settings: Any) -> TablePipeline:
    """As the product puts it together."""
    return app.table_pipeline(world.table(**settings), world.pool)


# A store that ignores the conditions of writes.


@pytest.mark.promise("G-028")
def test_a_store_that_ignores_conditions_is_refused_at_once(
    wire: TableHarness, proxy: FaultProxy
) -> None:
    proxy.dropped = CONDITIONS
    wire.put("a.parquet", {"id": [1]})
    for _ in range(2):  # the object that is left of the first time proves nothing
        with pytest.raises(StorageError, match="ignores If-None-Match") as refused:
            started(wire).cycle(threading.Event())
        assert not refused.value.retryable
        assert "update the server" in str(refused.value)
    assert not [line for line in proxy.seen if line.startswith("PUT") and "_delta_log" in line]
    # Nothing is left that would keep a mended store from being used.
    proxy.dropped = frozenset()
    assert started(wire).cycle(threading.Event())
    assert wire.paths() == {"a.parquet"}


@pytest.mark.promise("G-028")
def test_no_take_over_where_conditions_are_ignored(wire: TableHarness, proxy: FaultProxy) -> None:
    path = "_blizzard/x_checkpoint.json"
    for dropped in ("If-None-Match", "If-Match"):  # the second finds a file, and replaces it
        proxy.dropped = frozenset({dropped.lower()})
        file = FencedFile(wire.storage, path)
        with pytest.raises(StorageError, match=f"ignores {dropped}"):
            file.take(lambda document, _where: document, lambda: {"a": 0})


def test_a_store_is_put_to_the_test_once(wire: TableHarness, proxy: FaultProxy) -> None:
    storage = wire.storage
    proxy.seen.clear()
    version = storage.put_if("state", b"1", None)
    assert len(proxy.seen) == 3
    assert storage.put_if("state", b"2", version) != version
    with pytest.raises(Conflict):
        storage.put_if("state", b"3", version)
    assert len(proxy.seen) == 5
    # A write that leaves the object as it is may be made again, which proves nothing.
    other = open_storage(wire.uri, wire.options)
    version = other.read_versioned("state")[1]
    assert other.put_if("state", b"2", version) == version


def test_store_probe_sends_three_requests_after_the_first_start(
    wire: TableHarness, proxy: FaultProxy
) -> None:
    for requests in (4, 3, 3):  # the first write is followed by both conditions that fail
        proxy.seen.clear()
        probe_store(wire.storage, "events", StoreClock(time.time, time.monotonic))
        assert len(proxy.seen) == requests, proxy.seen
    assert wire.storage.read(probe_path("events")) == b""


# The machine's clock is wrong.


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how many seconds the machine's clock is ahead."""
    ahead = [0.0]
    monkeypatch.setattr(app, "time", SimpleNamespace(time=lambda: time.time() + ahead[0]))
    return ahead


@pytest.mark.promise("G-029")
def test_a_clock_that_is_ahead_makes_no_file_of_others_old(
    wire: TableHarness, wrong: list[float]
) -> None:
    wire.put("ours.parquet", {"id": [1]}, output_id="one")
    wire.put("theirs.parquet", {"id": [2]})
    wrong[0] = 30 * DAY
    wire.run(started(wire, own_prefixes=[]))
    assert wire.paths() == {"ours.parquet"}


@pytest.mark.promise("G-029")
def test_a_clock_that_is_behind_makes_no_file_young(
    wire: TableHarness, proxy: FaultProxy, wrong: list[float]
) -> None:
    """One that the log may have had and forgotten."""
    wire.put("z.parquet", {"id": [1]})
    wire.run(started(wire))
    wire.put("a.parquet", {"id": [2]})
    proxy.dated["lake/events/a.parquet"] = time.time() - 20 * DAY
    wrong[0] = -30 * DAY
    wire.run(started(wire, app_id="another"))
    assert wire.paths() == {"z.parquet"}
    assert wire.quarantined("another") == {"a.parquet": BEYOND}


@pytest.mark.promise("G-030")
def test_a_sweep_uses_the_stores_corrected_clock(
    wire: TableHarness, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0
    monkeypatch.setattr(app, "elapsed", lambda: time.monotonic() + passed)
    probe = f"lake/events/{probe_path('events')}"
    proxy.dated[probe] = time.time() + 30 * DAY
    wire.put("z.parquet", {"id": [1]})
    pipeline = started(wire, grace_period=0)
    wire.run(pipeline)
    passed = 60.0
    wire.run(pipeline)  # nothing is awaited below the name any more
    del proxy.dated[probe]
    wire.put("a.parquet", {"id": [2]})
    found = pipeline.reconcile(dry_run=False)
    assert [entry.path for entry in found.stragglers] == ["a.parquet"]
    wire.run(pipeline)
    assert wire.paths() == {"a.parquet", "z.parquet"}
