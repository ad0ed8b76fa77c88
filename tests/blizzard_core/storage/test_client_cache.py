"""Storages with the same options share their client, and others do not."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from blizzard_core.storage.objects import Patience
from blizzard_core.storage.opening import open_storage, shared
from blizzard_core.storage.s3 import S3Storage
from tests.support.s3_server import S3Server


class Client:
    made = 0

    def __init__(self, patience: Patience, **options: Any) -> None:
        Client.made += 1
        self.patience = patience
        self.options = options


def client(secs: float = 1, **options: Any) -> Client:
    return shared(partial(Client, Patience(read_secs=secs), **options))


def test_equal_calls_share_a_client_and_others_do_not() -> None:
    first = client(client_kwargs={"endpoint_url": "a", "region_name": "b"}, key="k")
    same = client(key="k", client_kwargs={"region_name": "b", "endpoint_url": "a"})
    assert first is same
    assert client(key="k") is not first
    assert client(key="other", client_kwargs=first.options["client_kwargs"]) is not first
    assert client(2, **first.options) is not first


def test_cache_makes_a_new_client_when_nobody_holds_the_old() -> None:
    first = client(key="held")
    before = Client.made
    del first
    gc.collect()
    client(key="held")
    assert Client.made == before + 1


def test_a_forked_process_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = client(key="forked")
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert client(key="forked") is not first


def test_a_fork_during_client_creation_blocks_nobody() -> None:
    making, forked = threading.Event(), threading.Event()

    def slow(**_options: Any) -> Client:
        making.set()
        assert forked.wait(60)
        return Client(Patience())

    thread = threading.Thread(target=lambda: shared(partial(slow, key="slow")))
    thread.start()
    assert making.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)  # ends who waits for ever
        client(key="of a child")
        os._exit(0)
    forked.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_many_storages_of_one_store_work_at_once_on_one_client(s3: S3Server) -> None:
    bucket = s3.new_bucket()
    storages = [open_storage(f"s3://{bucket}/{number}", s3.options) for number in range(50)]
    clients = {id(storage._fs) for storage in storages if isinstance(storage, S3Storage)}  # noqa: SLF001  # what is shared
    assert len(clients) == 1

    def written(number: int) -> bytes:
        storages[number].put_atomic("a", b"%d" % number)
        return storages[number].read("a")

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(written, range(50)))
    assert found == [b"%d" % number for number in range(50)]
