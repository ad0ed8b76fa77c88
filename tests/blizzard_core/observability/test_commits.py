"""The newest commits of a Delta log, as the page tells of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blizzard_core.delta_json import commit_path
from blizzard_core.limits import SHOWN_COMMIT_BYTES
from blizzard_core.observability.commits import COMMITS_SHOWN, CommitTail, summarize_commit
from blizzard_core.storage.protocol import Entry
from tests.support.delta_commits import commit
from tests.support.memory_store import MemoryStorage


class Counting(MemoryStorage):
    """Counts what is read, and lists as a store does."""

    def __init__(self) -> None:
        super().__init__("mem://lake")
        self.page_keys = 1000
        self.reads = 0

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self.reads += 1
        return super().read_range(path, start, end)


def test_summary_of_a_commit_lists_its_files_and_its_writer() -> None:
    raw = commit("date=1/a%20b.parquet", "c.parquet", penguin={"app_id": "penguin-orders"})
    raw += b'\n{"remove": {"path": "old.parquet"}}\n{damaged'
    found = summarize_commit(raw, Entry(commit_path(7), len(raw), 1.0), "mem://lake")
    assert (found.version, found.at, found.ours) == (7, 1_800_000_000.5, "penguin-orders")
    assert (found.files, found.rows, found.bytes, found.removed) == (2, 20, 200, 1)
    assert found.paths == {"date=1/a b.parquet", "c.parquet"}
    assert found.whole


def test_summary_of_a_malformed_commit_has_the_readable_fields() -> None:
    raw = b'{"commitInfo": {"timestamp": "x", "penguin": 3}}\n[1]\n'
    raw += b'{"add": {"path": "a", "stats": "{"}}'
    found = summarize_commit(raw, Entry(commit_path(0), len(raw), 5.0), "mem://lake")
    assert (found.at, found.ours, found.files, found.rows) == (5.0, None, 1, 0)


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "line",
    [
        b'{"commitInfo": {"x": %b}}' % DEEP,
        b'{"add": {"path": "\xff", "size": 1}}',
        b'{"add": {"path": "a", "stats": "{\\"minValues\\": %b}"}}' % DEEP,
    ],
    ids=["nested", "not UTF-8", "nested statistics"],
)
def test_lines_that_no_parser_takes_cost_themselves_alone(line: bytes) -> None:
    raw = line + b'\n{"add": {"path": "b", "size": 2, "stats": "{\\"numRecords\\": 7}"}}\n'
    found = summarize_commit(raw, Entry(commit_path(0), len(raw), 5.0), "mem://lake")
    assert (found.rows, found.bytes) == (7, 2)


@pytest.mark.parametrize("timestamp", [10**400, 1e300, -1, True, None])
def test_invalid_times_and_long_words_do_not_end_the_history(timestamp: Any) -> None:
    raw = commit("a.parquet", rows=-5, timestamp=timestamp, operation="x" * 1_000_000)
    found = summarize_commit(raw, Entry(commit_path(0), len(raw), 5.0), "mem://lake")
    assert (found.at, found.rows) == (5.0, 0)
    assert len(found.operation) < 5_000


def test_commit_tail_lists_newest_first_and_reads_each_once() -> None:
    store = Counting()
    assert CommitTail(store).look() == []
    for version in range(COMMITS_SHOWN + 20):
        store.put_atomic(commit_path(version), commit(f"{version}.parquet"))
    store.put_atomic("_delta_log/00000000000000000050.checkpoint.parquet", b"x")
    store.put_atomic("_delta_log/_last_checkpoint", b'{"version": 70}')
    tail = CommitTail(store)
    assert [each.version for each in tail.look()] == list(range(COMMITS_SHOWN + 19, 19, -1))
    assert store.reads == COMMITS_SHOWN
    store.put_atomic(commit_path(COMMITS_SHOWN + 20), commit("new.parquet"))
    assert tail.look()[0].paths == {"new.parquet"}
    assert store.reads == COMMITS_SHOWN + 1


def test_a_hint_that_is_none_is_left_out() -> None:
    beyond = json.dumps({"version": 10**30}).encode()
    for hint in (b"{damaged", b"[]", b'{"version": "x"}', b'{"version": 4711}', beyond):
        store = Counting()
        store.put_atomic("_delta_log/_last_checkpoint", hint)
        store.put_atomic(commit_path(0), commit("a.parquet"))
        assert len(CommitTail(store).look()) == 1


def test_a_long_commit_is_summarized_by_its_beginning() -> None:
    store = Counting()
    raw = commit(*(f"{'x' * 200}{n}.parquet" for n in range(20_000)))
    assert len(raw) > SHOWN_COMMIT_BYTES
    store.put_atomic(commit_path(0), raw)
    [found] = CommitTail(store).look()
    assert not found.whole
    assert 1000 < found.files < 20_000
