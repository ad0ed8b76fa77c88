"""Servers that speak S3's API and lack something: refused with a sentence, or put up with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.errors import AccessDenied, StorageError, Unavailable
from blizzard_core.storage.objects import Patience
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.order import Ascending
from blizzard_core.storage.protocol import Storage
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.gcs_server import GcsServer
from tests.support.s3_server import S3Server

PATIENCE = Patience(connect_secs=5, read_secs=20, retry_secs=0.6)
PATH = "_blizzard/x.json"
KEYS = ["acme/1.ndjson", "acme/2.ndjson", "acme-corp/1.ndjson"]


@dataclass
class S3ServerHarness:
    proxy: FaultProxy
    uri: str
    options: dict[str, str]

    def __post_init__(self) -> None:
        self.storage = self.open()

    def open(self) -> Storage:
        return open_storage(self.uri, self.options, PATIENCE)


@pytest.fixture
def world(s3: S3Server) -> Iterator[S3ServerHarness]:
    with fault_proxy(s3.endpoint) as proxy:
        options = {**s3.options, "AWS_ENDPOINT_URL": proxy.endpoint}
        yield S3ServerHarness(proxy, f"s3://{s3.new_bucket()}/raw", options)


def take(storage: Storage) -> FencedFile:
    file = FencedFile(storage, PATH)
    file.take(lambda document, _where: document, lambda: {"a": 0})
    return file


def conditional(code: tuple[int, str], *numbers: int) -> Callable[..., tuple[int, str] | None]:
    """Answer conditional writes of these numbers so, counted from 0; all without numbers."""
    count = iter(range(1000))

    def refuse(method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        if method != "PUT" or not {"if-match", "if-none-match"} & headers.keys():
            return None
        number = next(count)
        return code if not numbers or number in numbers else None

    return refuse


@pytest.mark.promise("G-109")
@pytest.mark.parametrize("ignored", ["If-Match", "If-None-Match"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_store_that_ignores_one_condition_is_refused(
    world: S3ServerHarness, ignored: str, is_there: bool
) -> None:
    if is_there:
        take(world.storage)
    world.proxy.dropped = frozenset({ignored.lower()})
    with pytest.raises(StorageError, match=f"ignores {ignored}, so daemons") as caught:
        take(world.open())
    assert not caught.value.retryable


def test_conditions_are_tried_once_for_a_storage(world: S3ServerHarness) -> None:
    file = take(world.storage)
    file.save({"a": 1})
    file.save({"a": 2})
    puts = [line for line in world.proxy.seen if line.startswith("PUT")]
    assert len(puts) == 3 + 2


@pytest.mark.promise("G-110")
@pytest.mark.parametrize("number", range(5))
def test_one_conflict_with_nobody_is_tried_again(world: S3ServerHarness, number: int) -> None:
    world.proxy.refuse = conditional((409, "ConditionalRequestConflict"), number)
    file = take(world.storage)
    file.save({"a": 1})
    file.save({"a": 2})
    assert json.loads(world.storage.read(PATH))["a"] == 2


def test_conflicts_without_end_are_no_other_writer(world: S3ServerHarness) -> None:
    file = take(world.storage)
    world.proxy.refuse = conditional((409, "ConditionalRequestConflict"))
    with pytest.raises(Unavailable, match="changed the object just then"):
        file.save({"a": 1})
    with pytest.raises(Unavailable):
        take(world.storage)


@pytest.mark.promise("G-109")
def test_unimplemented_condition_fails_without_a_retry(world: S3ServerHarness) -> None:
    world.proxy.refuse = conditional((501, "NotImplemented"))
    with pytest.raises(StorageError, match="does not implement what is asked of it") as caught:
        take(world.storage)
    assert not caught.value.retryable
    assert sum(line.startswith("PUT") for line in world.proxy.seen) == 1


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (400, "ExpiredToken", "(ExpiredToken); the credentials have expired; renew them"),
        (403, "SignatureDoesNotMatch", "the secret key does not belong to the access key"),
        (403, "RequestTimeTooSkewed", "the clocks here and at the store differ"),
        (400, "AuthorizationHeaderMalformed", "is in the region eu-west-1; set AWS_REGION to it"),
    ],
)
def test_a_refused_head_names_the_reason(
    world: S3ServerHarness, status: int, code: str, text: str
) -> None:
    if code == "AuthorizationHeaderMalformed":
        world.proxy.refusal_headers = {"x-amz-bucket-region": "eu-west-1"}
    world.proxy.refuse = lambda _method, _headers: (status, code)
    with pytest.raises(StorageError, match=re.escape(text)):
        world.storage.stat("1.ndjson")
    gets = [line for line in world.proxy.seen if line.startswith("GET")]
    assert len(gets) == 1


def moved_to_the_end(data: bytes) -> bytes:
    """The listing as a server makes it that sorts names of directories without their slash."""
    item = re.compile(
        rb"<Contents>(?:(?!</Contents>).)*<Key>raw/acme-corp/.*?</Contents>", re.DOTALL
    )
    found = item.findall(data)
    end = data.rfind(b"</Contents>") + len(b"</Contents>")
    return item.sub(b"", data[:end]) + b"".join(found) + data[end:]


@pytest.mark.promise("G-108")
def test_a_listing_out_of_order_raises_and_names_both_keys(world: S3ServerHarness) -> None:
    for key in KEYS:
        world.storage.put_atomic(key, b"x")
    assert len([e for page in world.storage.list_range("", None) for e in page.entries]) == 3
    world.proxy.relist = moved_to_the_end
    with pytest.raises(StorageError) as caught:
        list(world.storage.list_range("", None))
    assert not caught.value.retryable
    assert str(caught.value).startswith(f"{world.storage.uri}/: ")
    assert "lists 'acme-corp/1.ndjson' behind 'acme/2.ndjson'" in str(caught.value)
    # Also where the upper bound ends the listing before the key that is out of order.
    with pytest.raises(StorageError, match="behind"):
        list(world.storage.list_range("", "acme/"))


def test_keys_are_held_against_the_start_and_the_page_before() -> None:
    order = Ascending("s3://raw", "acme/1")
    order.check(["acme/2"])
    order.check([])
    order.check(["acme/3", "b", "\ufffd", "\U00010000"])
    for page in (["\ufffd"], ["\U00010000"]):
        with pytest.raises(StorageError, match="s3://raw/: "):
            order.check(page)
    with pytest.raises(StorageError, match="'acme-corp/1' behind 'acme/1'"):
        Ascending("s3://raw", "acme/1").check(["acme-corp/1"])
    with pytest.raises(StorageError):
        Ascending("s3://raw", "a").check(["a"])
    Ascending("gs://raw", "a", inclusive=True).check(["a", "b"])
    with pytest.raises(StorageError):
        Ascending("gs://raw", "a", inclusive=True).check(["a", "a"])


@pytest.mark.promise("G-108")
def test_a_gcs_listing_out_of_order_raises(gcs: GcsServer) -> None:
    bucket = gcs.new_bucket()
    with fault_proxy(gcs.endpoint) as proxy:
        options = {**gcs.options, "GOOGLE_BASE_URL": proxy.endpoint}
        storage = open_storage(f"gs://{bucket}/raw", options, PATIENCE)
        for key in KEYS:
            gcs.put(bucket, f"raw/{key}", b"x")
        assert len([e for page in storage.list_range("", None) for e in page.entries]) == 3

        def backwards(data: bytes) -> bytes:
            found = json.loads(data)
            return json.dumps({**found, "items": found["items"][::-1]}).encode()

        proxy.relist = backwards
        with pytest.raises(StorageError, match="does not list keys in the order of their bytes"):
            list(storage.list_range("", None))


def test_refused_gcs_credentials_are_sent_once(gcs: GcsServer) -> None:
    bucket = gcs.new_bucket()
    with fault_proxy(gcs.endpoint) as proxy:
        proxy.refuse = lambda _method, _headers: (401, "Invalid Credentials")
        options = {**gcs.options, "GOOGLE_BASE_URL": proxy.endpoint}
        storage = open_storage(f"gs://{bucket}/raw", options)
        with pytest.raises(AccessDenied, match=r"access denied \(401\); check the credentials"):
            list(storage.list_range("", None))
        with pytest.raises(AccessDenied, match="401"):
            storage.put_atomic("x", b"x")
        assert len(proxy.seen) == 2


def emptied(data: bytes) -> bytes:
    """A page without keys that is never the last."""
    kept = re.sub(rb"<Contents>.*</Contents>", b"", data, flags=re.DOTALL)
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    return re.sub(rb"<IsTruncated>\w+</IsTruncated>", more, kept)


def test_a_listing_that_asks_for_itself_ends(world: S3ServerHarness, gcs: GcsServer) -> None:
    world.proxy.relist = emptied
    with pytest.raises(Unavailable, match="empty page that names itself"):
        list(world.storage.list_range("", None))
    bucket = gcs.new_bucket()
    with fault_proxy(gcs.endpoint) as proxy:
        options = {**gcs.options, "GOOGLE_BASE_URL": proxy.endpoint}
        storage = open_storage(f"gs://{bucket}/raw", options, PATIENCE)
        proxy.relist = lambda _: b'{"nextPageToken": "t"}'
        with pytest.raises(Unavailable, match="empty page that names itself"):
            list(storage.list_range("", None))
