"""Requests of an idle poll, without and with sources of work units.

Through an S3 API, every request counted on the wire.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import unquote

from uuid_utils import uuid7

from benchmarks.penguin_table import THREADS
from blizzard_core.handover.groups import GROUPS_FOLDER, Group, GroupFile, encode_group, group_path
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from penguin_py.app import table_pipeline
from penguin_py.settings import tables_of
from tests.support.fault_proxy import fault_proxy
from tests.support.s3_server import s3_server
from tests.support.table_harness import parquet

# Requests that a source may add to an idle poll.
GOAL = 1.0
_POLLS = 20


class Requests(NamedTuple):
    """Requests of an idle poll: all, and those for manifests."""

    all: float
    manifests: float


def polls(counts: list[int]) -> dict[int, Requests]:
    """Return the requests of an idle poll of a table that so many sources of units feed."""
    return {count: polled(count) for count in counts}


def polled(sources: int) -> Requests:
    """Return the requests of an idle poll, over twenty of them."""
    with (
        s3_server() as server,
        fault_proxy(server.endpoint) as proxy,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        uri = f"s3://{server.new_bucket()}/t"
        storage = open_storage(uri, server.options)
        arrive(storage, 1)
        for number in range(sources):
            name = f"unit-{number}.parquet"
            data = parquet({"id": [1], "_unit": [f"s{number}/a/0"]}, f"p/s{number}/2/1/0")
            storage.put_atomic(name, data)
            file = GroupFile(name, len(data), 1, f"p/s{number}/2/1/0")
            group = Group(f"s{number}", 1, 1, "b", (file,), ((f"s{number}/", f"s{number}0"),))
            storage.put_atomic(group_path(f"s{number}", 1), encode_group(group))
        options = {**server.options, "AWS_ENDPOINT_URL": proxy.endpoint}
        [table] = tables_of(configured(uri, max(1, sources)))
        ids = table.source_ids[:sources]  # none: as if nobody knew of the source
        table = replace(table, storage_options=options, source_ids=ids)
        worker = table_pipeline(table, pool)
        stop = threading.Event()
        for number in range(10):
            if number == 5:  # as in a table to which files keep coming
                arrive(storage, 2)
            worker.cycle(stop)
        proxy.seen.clear()
        for _ in range(_POLLS):
            assert not worker.cycle(stop)
        manifests = sum(GROUPS_FOLDER in unquote(str(request)) for request in proxy.seen)
        return Requests(len(proxy.seen) / _POLLS, manifests / _POLLS)


def arrive(storage: Storage, number: int) -> None:
    """Put a file that listings find."""
    data = parquet({"id": [0], "_unit": [""]}, f"p/s/{number}/1/0")
    storage.put_atomic(f"{uuid7()}.parquet", data)


def configured(uri: str, sources: int) -> Config:
    """Return the configuration of a table that so many sources of units feed."""
    advanced = {"grace_period": 0, "own_prefixes": [""]}
    block: dict[str, Any] = {"table_uri": uri, "advanced": advanced}
    source = {
        "kind": "http", "connection": "api", "records": "", "request": {"path": "/x"},
        "units": {"range": {"from": "2020-01-01", "to": "-"}},
    }  # fmt: skip
    pipeline = {
        "sources": {f"s{n}": {**source, "id": f"s{n}"} for n in range(sources)},
        "sink": {"table_uri": uri},
        "schema": {"fields": [{"name": "id", "type": "int64"}]},
    }
    return Config.model_validate(
        {
            "connections": {"api": {"driver": "http", "base_url": "http://127.0.0.1:1"}},
            "pipelines": {"p": pipeline},
            "tables": {"t": block},
        }
    )
