"""A listing is complete or it raises: at any page, for any fault, on every store over HTTP.

The clients' waits between tries are recorded and not waited for, so how long a
failure takes to surface in production is a sum and not a measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import gcsfs.retry
import pytest
import s3fs.core
from azure.storage.blob.aio import ExponentialRetry

from blizzard_core.errors import AccessDenied, Unavailable
from blizzard_core.storage import azure, gcs, s3
from blizzard_core.storage.objects import Patience
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_core.watermark.progress import Progress
from blizzard_core.watermark.scan import scan
from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.watermarks import passed

NAMES = [f"date=1/{number:02d}" for number in range(30)]
REQUESTS = 4  # S3 and GCS: pages of 5, 10, 10, 5; Azure: the root, then pages of 10
# Whether Azure answers 429 at all is not documented, and its client does not retry it.
TRANSIENT: list[Fault] = [429, 500, 503, "cut"]


@dataclass
class FaultyStoreHarness:
    proxy: FaultProxy
    uri: str
    options: dict[str, str]
    naps: list[float] = field(default_factory=list)

    def open(self, patience: Patience | None = None) -> Storage:
        return open_storage(self.uri, self.options, patience)

    @property
    def retries_429(self) -> bool:
        return not self.uri.startswith("az")


@dataclass
class Seeded:
    """A server whose bucket holds `NAMES` below ``x/``. Tests write elsewhere only."""

    server: Any
    uri: str
    option: str


@pytest.fixture(scope="module", params=["s3", "gs", "az"])
def seeded(request: pytest.FixtureRequest) -> Seeded:
    match request.param:
        case "s3":
            server, option = request.getfixturevalue("s3"), "AWS_ENDPOINT_URL"
            found = Seeded(server, f"s3://{server.new_bucket()}/x", option)
        case "gs":
            server, option = request.getfixturevalue("gcs"), "GOOGLE_BASE_URL"
            found = Seeded(server, f"gs://{server.new_bucket()}/x", option)
        case _:
            server, option = request.getfixturevalue("azurite"), "AZURE_STORAGE_ENDPOINT"
            found = Seeded(server, f"az://{server.new_container()}/x", option)
    direct = open_storage(found.uri, server.options)
    for name in NAMES:
        direct.put_atomic(name, b"x")
    return found


@pytest.fixture
def world(seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStoreHarness]:
    monkeypatch.setattr(s3, "FIRST_PAGE_KEYS", 5)
    monkeypatch.setattr(s3, "PAGE_KEYS", 10)
    monkeypatch.setattr(gcs, "FIRST_PAGE_KEYS", 5)
    monkeypatch.setattr(gcs, "PAGE_KEYS", 10)
    monkeypatch.setattr(azure, "PAGE_NAMES", 10)
    with fault_proxy(seeded.server.endpoint) as proxy:
        endpoint = proxy.endpoint + urlsplit(seeded.server.endpoint).path
        found = FaultyStoreHarness(
            proxy, seeded.uri, {**seeded.server.options, seeded.option: endpoint}
        )
        record_waits(monkeypatch, found.naps)
        yield found


def record_waits(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    pause = asyncio.sleep

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        await pause(0)

    without_waits = SimpleNamespace(**{**vars(asyncio), "sleep": nap})
    monkeypatch.setattr(s3fs.core, "asyncio", without_waits)
    monkeypatch.setattr(gcsfs.retry, "asyncio", without_waits)
    wait_of = ExponentialRetry.get_backoff_time

    def no_wait(policy: Any, settings: dict[str, Any]) -> float:
        naps.append(wait_of(policy, settings))
        return 0

    monkeypatch.setattr(ExponentialRetry, "get_backoff_time", no_wait)


def listed(storage: Storage) -> list[str]:
    return [entry.path for page in storage.list_range("", None) for entry in page.entries]


def only(number: int, fault: Fault) -> Callable[[int], Fault | None]:
    return lambda n: fault if n == number else None


def from_on(number: int, fault: Fault) -> Callable[[int], Fault | None]:
    return lambda n: fault if n >= number else None


def test_without_faults_the_proxy_changes_nothing(world: FaultyStoreHarness) -> None:
    assert listed(world.open()) == NAMES
    assert (world.proxy.listings, world.naps) == (REQUESTS, [])


@pytest.mark.parametrize("fault", TRANSIENT)
def test_listing_retries_a_page_that_fails_once(world: FaultyStoreHarness, fault: Fault) -> None:
    storage = world.open()
    for page in range(REQUESTS):
        world.proxy.arm(only(page, fault))
        if fault == 429 and not world.retries_429:
            with pytest.raises(Unavailable):
                listed(storage)
        else:
            assert listed(storage) == NAMES
            assert world.proxy.listings == REQUESTS + 1


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_failing_page_fails_the_listing_in_limited_time(
    world: FaultyStoreHarness, fault: Fault
) -> None:
    storage = world.open()
    for page in range(REQUESTS):
        world.naps.clear()
        world.proxy.arm(from_on(page, fault))
        with pytest.raises(Unavailable, match=world.uri):
            listed(storage)
        assert sum(world.naps) <= Patience().retry_secs
        retries = world.proxy.listings - page - 1
        assert retries == 0 if fault == 429 and not world.retries_429 else 2 <= retries <= 8
    world.proxy.arm(lambda _number: None)
    assert listed(storage) == NAMES


def test_a_refused_page_fails_the_listing_at_once(world: FaultyStoreHarness) -> None:
    storage = world.open()
    for page in range(REQUESTS):
        world.proxy.arm(from_on(page, 403))
        with pytest.raises(AccessDenied, match=world.uri):
            listed(storage)
        assert (world.proxy.listings, world.naps) == (page + 1, [])


def test_listing_retries_a_page_after_the_read_timeout(world: FaultyStoreHarness) -> None:
    world.proxy.arm(only(2, "hang"))
    assert listed(world.open(Patience(read_secs=1))) == NAMES
    # A page that a busy machine is late with is asked for again as well.
    assert world.proxy.listings >= REQUESTS + 1


def test_a_store_that_keeps_hanging_fails_the_listing(world: FaultyStoreHarness) -> None:
    world.proxy.arm(from_on(0, "hang"))
    with pytest.raises(Unavailable, match=world.uri):
        listed(world.open(Patience(read_secs=0.5, retry_secs=3)))
    assert 1 < world.proxy.listings <= 5


def test_a_store_that_is_not_there_is_unavailable(world: FaultyStoreHarness) -> None:
    nowhere = "http://127.0.0.1:9"  # the port of "discard", which nothing serves
    options = {
        name: nowhere + urlsplit(value).path if value.startswith("http://") else value
        for name, value in world.options.items()
    }
    with pytest.raises(Unavailable, match=world.uri):
        listed(open_storage(world.uri, options))


@pytest.mark.promise("G-009")
def test_a_failed_scan_loses_nothing_for_the_next_one(world: FaultyStoreHarness) -> None:
    storage = open_storage(f"{world.uri.removesuffix('/x')}/scanned", world.options)
    old = [f"date={day}/{number}" for day in (1, 2, 3) for number in range(3)]
    new = ["date=1/9", "date=2/9", "date=4/0"]
    for name in [*old, *new]:
        storage.put_atomic(name, b"x")
    progress = passed(Progress(depth=1), old)
    world.proxy.arm(from_on(2, 503))
    with pytest.raises(Unavailable):
        scan(storage, progress, lambda _file: True, 4)
    world.proxy.arm(lambda _number: None)
    found = scan(storage, progress, lambda _file: True, 4)
    assert [entry.path for entry in found.entries] == new
    assert found.requests == world.proxy.listings
