"""The discovery benchmark: its S3 stand-in against real clients, and the promise it checks."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3  # type: ignore[import-untyped]  # ships no types
import pytest

from benchmarks import discovery
from benchmarks.discovery import Cost, Row, Wrong, measure_edges, request_bound
from benchmarks.discovery_cases import EDGE_HISTORY, NOW, BucketHistory, edge_cases
from benchmarks.s3_stand_in import StandIn, stand_in
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import Progress
from blizzard_core.watermark.scan import scan
from tests.support.s3_server import S3Server
from tests.support.watermarks import passed

ODD = sorted(
    [
        "a b/c.json",
        "amp&ersand/<x>.json",
        "date=1-late/x.json",
        "date=1/x.json",
        "date=1/y.json",
        "date=10/x.json",
        "deep/er/and/deeper/x.json",
        "percent%41/x%2F.json",
        "plus+and&more/x.json",
        "root.json",
        "tail/",
        "ü/\U0001f427.json",
        "z=1/\ufffd.json",
        "z=1/\U00010000.json",
    ],
    key=str.encode,
)


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture
def client(server: StandIn) -> Iterator[Any]:
    found = client_of(server.endpoint)
    server.reset()
    yield found
    found.close()


@pytest.fixture
def bucket(client: Any) -> str:
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    return name


def client_of(endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test-secret",
        region_name="us-east-1",
    )


def fill(client: Any, bucket: str, keys: list[str]) -> None:
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=b"")


def pages(client: Any, bucket: str, **arguments: Any) -> list[tuple[list[str], list[str]]]:
    """Keys and common prefixes of each page, following the continuation tokens."""
    found = []
    token: dict[str, str] = {}
    while True:
        answer = client.list_objects_v2(Bucket=bucket, **arguments, **token)
        keys = [item["Key"] for item in answer.get("Contents", [])]
        prefixes = [item["Prefix"] for item in answer.get("CommonPrefixes", [])]
        assert answer["KeyCount"] == len(keys) + len(prefixes)
        found.append((keys, prefixes))
        if not answer["IsTruncated"]:
            assert "NextContinuationToken" not in answer
            return found
        token = {"ContinuationToken": answer["NextContinuationToken"]}


def test_it_answers_as_another_s3_does(client: Any, bucket: str, s3: S3Server) -> None:
    other = client_of(s3.endpoint)
    twin = s3.new_bucket()
    fill(client, bucket, ODD)
    fill(other, twin, ODD)
    # Not both at once: stores differ on a prefix that StartAfter points into.
    narrowings: list[dict[str, str]] = [
        {},
        {"StartAfter": "date=1/x.json"},
        {"StartAfter": "percent%"},
        {"Delimiter": "/"},
    ]
    for prefix, narrowing in itertools.product(["", "date=1", "ü/"], narrowings):
        arguments = {"Prefix": prefix, **narrowing}
        assert pages(client, bucket, **arguments) == pages(other, twin, **arguments), arguments
    other.close()


def test_it_counts_requests_keys_and_bytes(server: StandIn, client: Any, bucket: str) -> None:
    server.load(bucket, {f"{number:05}": 0.0 for number in range(2500)})
    server.reset()
    assert [len(keys) for keys, _ in pages(client, bucket)] == [1000, 1000, 500]
    client.delete_object(Bucket=bucket, Key="00000")
    counted = server.reset()
    assert (counted.requests, counted.lists, counted.keys) == (4, 3, 2500)
    assert counted.bytes_sent > 2500 * len("<Key>00000</Key>")
    assert server.reset().requests == 0


def test_latency_holds_requests_back_together(server: StandIn, client: Any, bucket: str) -> None:
    server.set_latency(0.2)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: client.list_objects_v2(Bucket=bucket), range(8)))
    finally:
        server.set_latency(0)
    assert server.reset().peak > 1


@pytest.mark.promise("G-120")
@pytest.mark.parametrize("new", [0, 100])
@pytest.mark.parametrize("active", [2, 24, 100])
def test_poll_cost_is_bounded_and_independent_of_history(
    server: StandIn, active: int, new: int
) -> None:
    requests = {}
    storage = discovery.source_on(server)
    for size in (1_000, 10_000, 30_000):
        world = BucketHistory(size, active)
        old = world.old_files()
        fresh = world.new_files(new)
        discovery.load(server, [*old, *(Entry(path, 0, NOW) for path in fresh)])
        counted = discovery.counted_poll(server, storage, world.progress(old), fresh)
        requests[size] = counted.requests
    # With little history neighbours share pages.
    assert requests[1_000] <= requests[10_000] <= request_bound(active, new)
    assert requests[10_000] == requests[30_000]


def test_a_second_page_is_paid_from_100_names_in_a_gap_on(server: StandIn) -> None:
    world = EDGE_HISTORY
    tracked = world.active
    expected = {
        "nothing new, nothing within grace": tracked,
        "99 names of each partition within grace": tracked,
        # Every gap but the last, behind which nothing lies.
        "100 names of each partition within grace": tracked + tracked - 1,
        "100 new in the newest partition": tracked,
        "5,000 new in the newest partition": tracked + 5,
        "5,000 new in the oldest partition": tracked + 5,
        "99 new in every partition": tracked,
        "100 new in every partition": tracked + tracked - 1,
    }
    measured = {label: cost.requests for label, _, cost in measure_edges(server, world)}
    assert measured == expected
    assert [case.label for case in edge_cases(world, world.old_files())] == list(expected)


def test_tables_are_printed_as_they_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cost = Cost(1, 1, 1, dict.fromkeys(discovery.LATENCIES, 1.0))

    def fail(*_: object) -> None:
        raise Wrong

    monkeypatch.setattr("sys.argv", ["discovery", "--quick"])
    monkeypatch.setattr(discovery, "measure_rows", lambda *_, **__: [Row(1, 1, 1, *[cost] * 3)])
    monkeypatch.setattr(discovery, "measure_edges", fail)
    with pytest.raises(Wrong):
        discovery.main()
    assert "Seconds of one poll" in capsys.readouterr().out


def test_year_of_hours_with_two_files_each_needs_one_request(server: StandIn) -> None:
    newest = datetime(2024, 12, 31, 23, tzinfo=UTC)
    hours = [newest - timedelta(hours=back) for back in reversed(range(8760))]
    partitions = [hour.strftime("date=%Y-%m-%d/hour=%H") for hour in hours]
    old = [
        Entry(f"{partition}/{number:06}.ndjson.gz", 0, hour.timestamp())
        for partition, hour in zip(partitions, hours, strict=True)
        for number in range(2)
    ]
    tracked = partitions[-48:]
    done = [entry.path for entry in old if entry.path >= tracked[0]]
    now = newest.timestamp() + 3600
    progress = passed(Progress(depth=2, floor=tracked[0]), done)
    new = [
        f"{tracked[0]}/900000.ndjson.gz",
        f"{tracked[-1]}/900000.ndjson.gz",
        "date=2025-01-01/hour=00/000000.ndjson.gz",
    ]
    closed = f"{partitions[0]}/900000.ndjson.gz"
    everything = [*(entry.path for entry in old), *new, closed]
    server.load("year", {f"raw/{path}": now for path in everything})
    server.reset()
    found = scan(
        open_storage("s3://year/raw", server.options), progress, lambda _file: True, concurrency=8
    )
    counted = server.reset()
    assert [entry.path for entry in found.entries] == new
    assert found.requests == counted.requests == 1
