"""The quarantine record: what is added costs the same however long it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.handover.quarantine import record_of
from blizzard_core.limits import QUARANTINE_BYTES
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Entry, Storage
from penguin_py.intake.quarantine import Quarantine
from penguin_py.model import Rejection
from tests.support.interrupted import Call, Interrupted

SHORT = "_penguin/events_quarantine.ndjson"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path), {})


def bad(number: int, modified: float = 1.0, why: str = "is not Parquet") -> Rejection:
    path = f"date=2024-01-01/hour=01/{number:08d}-0190b5a0-1111-7222-8333-444455556666.parquet"
    return Rejection(Entry(path, 100, modified), "read", why)


def sizes(storage: Storage, under: str) -> list[int]:
    pages = storage.list_range(f"{under}/", f"{under}0")
    return [entry.size for page in pages for entry in page.entries]


def test_record_costs_no_more_in_a_quarantine_of_100_000(storage: Storage) -> None:
    """Its duration is in the benchmarks."""
    Quarantine(storage, "few").keep([bad(0)], 1e9)
    Quarantine(storage, "events").keep([bad(number) for number in range(100_000)], 1e9)
    for number in range(3):  # each in a process of its own
        costs: list[list[tuple[str, int]]] = [[], []]
        for name, cost in zip(("few", "events"), costs, strict=True):

            def counted(call: Call, cost: list[tuple[str, int]] = cost) -> Any:
                answer = call()
                cost.append((call.name, len(call.arguments[1] if answer is None else answer)))
                return answer

            counting: Any = Interrupted(storage, counted)
            assert Quarantine(counting, name).keep([bad(100_000 + number)], 1e9)
        assert [kind for kind, _ in costs[1]] == [kind for kind, _ in costs[0]]
        assert len(costs[1]) == 2
        assert sum(size for _, size in costs[1]) <= sum(size for _, size in costs[0]) < 4000
    assert len(Quarantine(storage, "events").records()) == 100_003


def test_the_short_object_moves_when_it_has_grown(storage: Storage) -> None:
    quarantine = Quarantine(storage, "events")
    for start in range(0, 6000, 500):
        quarantine.keep([bad(number) for number in range(start, start + 500)], 1e9)
        assert len(storage.read(SHORT)) < 2 * QUARANTINE_BYTES
    assert sizes(storage, "_penguin/events_quarantine")
    found = Quarantine(storage, "events").records()
    assert list(found) == [bad(number).entry.path for number in range(6000)]
    # This process knows what it recorded, also when it has moved.
    assert not quarantine.keep([bad(0), bad(5999)], 1e9)


def test_a_record_is_renewed_and_released_in_any_object(storage: Storage) -> None:
    quarantine = Quarantine(storage, "events")
    quarantine.keep([bad(number) for number in range(5000)], 1e9)
    again = Quarantine(storage, "events")
    assert again.keep([bad(7, 2.0)], 2e9)
    assert again.records()[bad(7).entry.path].retry_count == 1
    assert again.records()[bad(7).entry.path].modified == 2.0
    again.release([bad(7).entry.path, bad(8).entry.path])
    found = Quarantine(storage, "events").records()
    assert len(found) == 4998
    assert not {bad(7).entry.path, bad(8).entry.path} & set(found)
    again.keep([bad(8)], 3e9)
    assert bad(8).entry.path in Quarantine(storage, "events").records()


def test_lines_in_both_places_count_once(storage: Storage) -> None:
    """A crash between moving the lines and shortening the object leaves them twice."""
    quarantine = Quarantine(storage, "events")
    quarantine.keep([bad(1), bad(2)], 1e9)
    storage.put_atomic(f"_penguin/events_quarantine/{0:08d}-x.ndjson", storage.read(SHORT))
    found = Quarantine(storage, "events").records()
    assert [record.retry_count for record in found.values()] == [0, 0]
    assert json.loads(storage.read(SHORT).splitlines()[0])["path"] == bad(1).entry.path


@pytest.mark.parametrize(
    "path", ["a\0b.parquet", "\ud800.parquet", "/etc/passwd", "../x.parquet", "a/../../x.parquet"]
)
def test_a_record_of_an_impossible_path_is_ignored(path: str) -> None:
    line = {"path": path, "error": "x", "stage": "read", "timestamp": "x", "size": 1}
    assert record_of(json.dumps(line).encode()) is None


def test_a_size_that_no_file_has_is_no_size() -> None:
    line = {"path": "a.parquet", "error": "x", "stage": "read", "timestamp": "x", "size": 10**30}
    record = record_of(json.dumps(line).encode())
    assert record.size == -1
