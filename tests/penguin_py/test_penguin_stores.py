"""The requests of a poll and a commit, on the wire; and the same cycle on Azure."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace

import pytest

from blizzard_core.errors import CommitError, StateError
from penguin_py.delta.table import DeltaLog
from tests.support.azurite_server import AzuriteServer
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.s3_server import S3Server
from tests.support.table_harness import TableHarness

QUIET = {"grace_period": 0, "reconcile_interval": 0, "max_tracked_partitions": 2}


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(s3.endpoint) as found:
        yield found


@pytest.fixture
def wire(s3: S3Server, proxy: FaultProxy, pool: Executor) -> TableHarness:
    """A table that is reached, by our storage and by delta-rs, through the proxy."""
    options = {**s3.options, "AWS_ENDPOINT_URL": proxy.endpoint}
    return TableHarness(f"s3://{s3.new_bucket()}/lake/events", pool, options)


def of_kind(proxy: FaultProxy, pattern: str) -> list[str]:
    return [line for line in proxy.seen if re.search(pattern, line)]


def test_an_idle_poll_is_two_requests_and_none_of_them_delta_rss(
    wire: TableHarness, proxy: FaultProxy
) -> None:
    for day in (1, 2):
        wire.put(f"date=2024-01-0{day}/a.parquet", {"id": [day]})
    penguin = wire.penguin(**QUIET)
    wire.run(penguin)
    wire.run(penguin)
    for _ in range(3):
        proxy.seen.clear()
        wire.run(penguin)
        # The next commit, and one listing: names in grace are no reason to list in pieces.
        assert len(proxy.seen) == 2, proxy.seen
        assert len(of_kind(proxy, "list-type=2")) == 1


def test_an_idle_poll_asks_for_one_manifest_of_each_source_more(
    wire: TableHarness, proxy: FaultProxy
) -> None:
    wire.put("date=2024-01-01/a.parquet", {"id": [1]})
    table = replace(wire.table(**QUIET), source_ids=("p_one", "p_two"))
    penguin = wire.penguin_on(table, wire.storage, DeltaLog(table, wire.storage, wire.pool))
    wire.run(penguin)
    wire.run(penguin)
    proxy.seen.clear()
    wire.run(penguin)
    assert len(proxy.seen) == 4, proxy.seen
    assert len(of_kind(proxy, r"_blizzard/groups/p_(one|two)/0{19}1\.json")) == 2


def test_each_footer_costs_one_request(wire: TableHarness, proxy: FaultProxy) -> None:
    wire.put("date=2024-01-01/0.parquet", {"id": [0]})
    penguin = wire.penguin(**QUIET)
    others = []
    for number, count in enumerate((1, 20)):
        wire.run(penguin)
        for index in range(count):
            wire.put(f"date=2024-01-01/{number + 1}-{index:02d}.parquet", {"id": [index]})
        proxy.seen.clear()
        assert penguin.cycle(threading.Event())
        assert len(of_kind(proxy, r"^GET [^?]*\.parquet$")) == count
        others.append(len(proxy.seen) - count)
    assert others[0] == others[1] <= 14, others


def test_a_lost_commit_answer_over_http_is_harmless(wire: TableHarness, proxy: FaultProxy) -> None:
    wire.put("a.parquet", {"id": [1]})
    penguin = wire.penguin()
    wire.run(penguin)
    for number, how in enumerate(("silence", "error", "refused")):
        wire.put(f"b{number}.parquet", {"id": [number + 2]})
        left = [how]
        proxy.lose = lambda method, left=left: left.pop() if method == "PUT" and left else None  # type: ignore[assignment,misc]  # one loss
        try:
            penguin.cycle(threading.Event())
        except CommitError:
            wire.run(penguin)
        assert not left
    assert [row["id"] for row in wire.rows()] == [1, 2, 3, 4]
    assert len(wire.delta_paths()) == 4


def test_a_table_created_concurrently_gets_its_files_once(
    wire: TableHarness, proxy: FaultProxy, s3: S3Server
) -> None:
    wire.put("a.parquet", {"id": [1]})
    rival = replace(wire, options=s3.options).penguin()
    first = f"{0:020d}.json"
    ahead = [rival]

    def lose(method: str) -> None:
        """The rival's version 0 lands while ours is on its way."""
        if ahead and method == "PUT" and first in proxy.seen[-1]:
            assert ahead.pop().cycle(threading.Event())

    proxy.lose = lose
    penguin = wire.penguin()
    with pytest.raises(CommitError):
        penguin.cycle(threading.Event())
    assert not ahead
    wire.run(penguin)
    assert [row["id"] for row in wire.rows()] == [1]
    assert wire.delta().version() == 0


def test_azure_serves_a_table_from_commit_to_recovery(
    azurite: AzuriteServer, pool: Executor
) -> None:
    world = TableHarness(f"az://{azurite.new_container()}/lake/events", pool, azurite.options)
    world.put("date=2024-01-01/a.parquet", {"id": [1]}, output_id="one")
    world.put("date=2024-01-01/b.parquet", b"junk that is long enough")
    assert world.run() == 1
    world.put("date=2024-01-02/c.parquet", {"id": [2], "new": ["x"]})
    world.storage.delete("_penguin/events_checkpoint.json")
    restarted = world.penguin()
    assert [e.path for e in restarted.outlook()[1]] == ["date=2024-01-02/c.parquet"]
    assert world.run(restarted) == 1
    world.put("date=2024-01-02/d.parquet", {"id": [1]}, output_id="one")
    twin = world.penguin()
    world.run(twin)
    world.run(restarted)
    assert [row["id"] for row in world.rows()] == [1, 2]
    assert set(world.quarantined()) == {"date=2024-01-01/b.parquet", "date=2024-01-02/d.parquet"}


@pytest.mark.promise("G-182")
@pytest.mark.parametrize("interval", [None, 4])
def test_azure_takes_commit_after_commit(
    azurite: AzuriteServer, pool: Executor, monkeypatch: pytest.MonkeyPatch, interval: int | None
) -> None:
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", azurite.address)
    world = TableHarness(f"az://{azurite.new_container()}/lake/events", pool, azurite.options)
    settings = {} if interval is None else {"delta_checkpoint_interval": interval}
    penguin = world.penguin(**settings)
    for number in range(12):
        if number == 6:
            penguin = world.penguin(**settings)  # a restart
        world.put(f"date=2024-01-{number + 1:02d}/a.parquet", {"id": [number]})
        assert world.run(penguin) == 1
    assert world.delta().version() == 11
    assert [row["id"] for row in world.rows()] == list(range(12))


@pytest.mark.promise("G-182")
def test_azure_says_what_to_do_where_startfrom_is_ignored(
    azurite: AzuriteServer, pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azurite before 3.37, at an address that delta-rs was not told."""
    monkeypatch.delenv("AZURITE_BLOB_STORAGE_URL", raising=False)
    world = TableHarness(f"az://{azurite.new_container()}/lake/events", pool, azurite.options)
    penguin = world.penguin()
    for number in range(2):
        world.put(f"{number}.parquet", {"id": [number]})
        world.run(penguin)
    world.put("2.parquet", {"id": [2]})
    with pytest.raises(StateError, match="set AZURITE_BLOB_STORAGE_URL in the environment"):
        world.run(penguin)
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", azurite.address)
    world.run()
    assert [row["id"] for row in world.rows()] == [0, 1, 2]
    assert not world.quarantined()
