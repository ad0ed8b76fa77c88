"""The background cache of the page: readers, times and frequency."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from blizzard_core.errors import Unavailable
from blizzard_core.observability.background_cache import (
    FRESH_SECS,
    KEPT_SECS,
    BackgroundCache,
    Busy,
    CachedDocument,
    next_of,
)
from blizzard_core.observability.token_bucket import RequestLimitReached, TokenBucket


class Reader:
    """Lookups whose clock is turned by hand, and what they have read."""

    def __init__(self, waiting: int = 10) -> None:
        self.now = 1000.0
        self.read: list[str] = []
        self.fails: Exception | None = None
        self.lookups = BackgroundCache("test", self._read, self.clock, self.clock, waiting)

    def clock(self) -> float:
        return self.now

    def _read(self, key: str) -> Any:
        self.read.append(key)
        if self.fails is not None:
            raise self.fails
        return f"{key} {len(self.read)}"


def test_cache_reads_a_document_only_after_a_request() -> None:
    reader = Reader()
    assert not reader.lookups.look()
    assert reader.lookups.ask("a") == CachedDocument()
    assert reader.read == []
    assert reader.lookups.look()
    assert reader.lookups.ask("a") == CachedDocument(1000.0, "a 1")


def test_only_old_documents_in_demand_are_read_again() -> None:
    reader = Reader()
    reader.lookups.ask("a")
    reader.lookups.look()
    reader.now += FRESH_SECS - 1
    reader.lookups.ask("a")
    assert not reader.lookups.look()
    reader.now += 1
    assert reader.lookups.look()
    assert reader.lookups.ask("a").document == "a 2"
    reader.now += KEPT_SECS + 1  # nobody has asked for a long time
    assert not reader.lookups.look()


def test_cache_shows_the_error_and_retains_the_last_document() -> None:
    reader = Reader()
    reader.lookups.ask("a")
    reader.lookups.look()
    reader.fails = Unavailable("GET https://x/?sig=geheimgeheim: 503")
    reader.now += FRESH_SECS
    reader.lookups.ask("a")
    reader.lookups.look()
    found = reader.lookups.ask("a")
    assert found.document == "a 1"
    assert "503" in found.error
    assert "geheim" not in found.error
    assert found.at == 1000.0  # when that was, and not when it failed


def test_a_bug_ends_neither_the_thread_nor_the_page() -> None:
    reader = Reader()
    reader.fails = KeyError("x")
    reader.lookups.ask("a")
    assert reader.lookups.look()
    assert "cannot be shown" in reader.lookups.ask("a").error


def test_so_many_wait_for_their_first_answer_at_most() -> None:
    reader = Reader(waiting=2)
    for key in "ab":
        reader.lookups.ask(key)
    with pytest.raises(Busy):
        reader.lookups.ask("c")
    reader.lookups.ask("a")  # who waits already may ask again
    reader.lookups.look()
    reader.lookups.ask("c")
    reader.now += FRESH_SECS  # those who gave up hold no place
    for key in "de":
        reader.lookups.ask(key)


def test_cache_drops_documents_without_recent_requests() -> None:
    reader = Reader()
    reader.lookups.ask("a")
    reader.lookups.look()
    reader.now += KEPT_SECS + 1
    reader.lookups.ask("b")
    assert reader.lookups.ask("a") == CachedDocument()


def test_cache_reads_new_entries_before_old_ones() -> None:
    entries = {
        "old": (100.0, 1.0),
        "older": (100.0, 0.5),
        "new": (99.0, None),
        "fresh": (100.0, 99.0),
    }
    assert next_of(entries, 100.0) == "new"
    del entries["new"]
    assert next_of(entries, 100.0) == "older"
    assert next_of({"gone": (10.0, None)}, 100.0) is None


def test_a_thread_reads_while_it_is_open_and_ends() -> None:
    done = threading.Event()
    lookups = BackgroundCache("test", lambda _key: done.set(), lambda: 0.0, lambda: 0.0, 1)
    with lookups.working():
        lookups.ask("a")
        assert done.wait(60)
    assert not any(thread.name.startswith("test-") for thread in threading.enumerate())


def test_a_store_that_hangs_holds_up_itself_alone_and_says_so() -> None:
    reader = Reader()
    begun, freed = threading.Event(), threading.Event()
    reads = []

    def read(key: str) -> str:
        reads.append(key)
        if key == "hangs":
            begun.set()
            freed.wait(60)
        return key

    lookups = BackgroundCache("test", read, reader.clock, reader.clock, 10)
    lookups.ask("hangs")
    hanging = threading.Thread(target=lookups.look)
    hanging.start()
    assert begun.wait(60)
    lookups.ask("well")
    assert lookups.look()
    assert lookups.ask("well").document == "well"
    assert lookups.ask("hangs") == CachedDocument()
    for _ in range(10):
        reader.now += 10
        late = lookups.ask("hangs")
    assert "could not be read for 100 s" in late.error
    assert not lookups.look()  # nobody else goes and hangs there, too
    reader.now += 10 * KEPT_SECS
    lookups.ask("third")
    lookups.ask("hangs")
    assert lookups.look()
    assert not lookups.look()
    assert reads == ["hangs", "well", "third"]
    freed.set()
    hanging.join()
    found = lookups.ask("hangs")
    assert (found.document, found.error) == ("hangs", "")


def test_old_documents_carry_an_error_only_while_in_demand() -> None:
    reader = Reader()
    reader.lookups.ask("a")
    reader.lookups.look()
    reader.now += 500  # nobody asked meanwhile
    assert reader.lookups.ask("a").error == ""
    for _ in range(4):
        reader.now += 10
        found = reader.lookups.ask("a")
    assert "could not be read for 40 s" in found.error
    assert (found.at, found.document) == (1000.0, "a 1")


def test_an_allowance_is_spent_at_once_and_comes_back_slowly() -> None:
    now = 0.0
    allowance = TokenBucket(lambda: now, burst=3, per_sec=1.0)
    for _ in range(3):
        allowance.spend()
    with pytest.raises(RequestLimitReached, match="blizzard explain"):
        allowance.spend()
    now = 2.0
    allowance.spend()
    allowance.spend()
    with pytest.raises(RequestLimitReached):
        allowance.spend()
    now = 1e6
    for _ in range(3):
        allowance.spend()
    with pytest.raises(RequestLimitReached):
        allowance.spend()
