"""Groups that the table does not accept, in the status of their source."""

from __future__ import annotations

import time
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from blizzard_py.app.inspection import status
from blizzard_py.state.committers import blocked_by
from tests.support.memory_store import MemoryStorage
from tests.support.table_harness import TableHarness
from tests.support.unit_shop import ID, WHERE, UnitShop


def source_of(shop: UnitShop) -> dict[str, Any]:
    document, errors = status(shop.config())
    assert not errors
    return document["pipelines"][WHERE[0]]["sources"][WHERE[1]]


def blocked_group(shop: UnitShop) -> str | None:
    return source_of(shop)["units"]["blocked_group"]


def test_status_tells_why_the_next_group_waits_until_it_is_in(
    tmp_path: Path, pool: Executor
) -> None:
    shop = UnitShop(tmp_path)
    lake = TableHarness(str(shop.lake), pool, now=time.time())  # polls of the future do not count
    shop.put(("2020-01-05", "s1", "a"))
    shop.run()
    lake.run(own_prefixes=[])
    assert blocked_group(shop) is None
    shop.put(("2020-02-22 12:00:00", "s1", "b"))
    shop.passes(days=1)
    shop.run()
    [newest] = [path for path in shop.lake.glob("unit-*.parquet") if path.name not in lake.paths()]
    away = newest.rename(tmp_path / "away")
    lake.run(own_prefixes=[])
    reason = blocked_group(shop)
    assert reason is not None
    waiting = source_of(shop)["uncommitted"]
    assert (waiting["batches"], waiting["files"], waiting["rows"]) == (1, 1, 1)
    assert newest.name in reason
    away.rename(newest)
    lake.run(own_prefixes=[])
    assert blocked_group(shop) is None
    assert source_of(shop)["uncommitted"]["rows"] == 0
    assert [row["text"] for row in lake.rows()] == ["a", "b"]


def test_unreadable_committer_states_are_ignored() -> None:
    sink = MemoryStorage()
    assert blocked_by(sink, ID) is None
    for number, text in enumerate([b"{", b"[]", b'{"blocked": 1}', b'{"blocked": {"answers": 1}}']):
        sink.put_atomic(f"_penguin/{number}_checkpoint.json", text)
    assert blocked_by(sink, ID) is None
    sink.put_atomic("_penguin/other_checkpoint.json", b'{"blocked": {"answers": "full"}}')
    assert (blocked_by(sink, ID), blocked_by(sink, "another")) == ("full", None)
