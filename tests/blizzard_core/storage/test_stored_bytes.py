"""Bytes go to each store and come back as they are: hostile ones, and packed ones."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from blizzard_core.errors import NotFound, Unavailable
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.stored_bytes import PART_BYTES
from tests.support.gcs_server import GcsServer

# Azure's client sends a body as one piece, and aiohttp would have it otherwise.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

# Lines that delimit parts of bodies, in the forms that parsers take for a delimiter.
BOUNDARIES = [
    b"before\n--==0==--\nafter\n",
    b"before\r\n--==0==--\r\nafter\r\n",
    b"before\n--==0==\n\nafter",
    b"before\n--==0== \nContent-Type: text/plain\n\nafter",
    b"--==0==--",
    b"--==0==\n\n{}\n--==0==--\n",
]
HOSTILE = [
    b"",
    b"\n",
    b"\r\n\r\n",
    b"\0",
    b"a\0b\0\r\n",
    b"0\r\n\r\n",  # the end of a body in chunks
    b"\xef\xbb\xbf{}\n",
    bytes(range(256)),
    gzip.compress(b'{"id":1}\n'),
    *BOUNDARIES,
]
NAMES = ["a/b.json", "a b/c+d%20.json", "brackets[1]*?/x.json", "ü/\U0001f427.json", "--==0==--"]


def put_atomic(storage: Storage, path: str, data: bytes) -> None:
    storage.put_atomic(path, data)


def put_if(storage: Storage, path: str, data: bytes) -> None:
    storage.put_if(path, data, None)


def replaced(storage: Storage, path: str, data: bytes) -> None:
    storage.put_if(path, data, storage.put_if(path, b"older", None))


def open_output(storage: Storage, path: str, data: bytes) -> None:
    with closing(storage.open_output(path)) as stream:
        stream.write(data)
    storage.sync(path)


def renamed(storage: Storage, path: str, data: bytes) -> None:
    open_output(storage, f"{path}.staged", data)
    storage.rename(f"{path}.staged", path)


WAYS: list[Callable[[Storage, str, bytes], None]] = [
    put_atomic,
    put_if,
    replaced,
    open_output,
    renamed,
]


@pytest.fixture(params=["local", "s3", "gcs", "azure"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(str(tmp_path), {})
    return Packed.of(request).storage


def streamed(storage: Storage, path: str) -> bytes:
    with closing(storage.open_input(path)) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


@pytest.mark.promise("G-105")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_hostile_bytes_come_back_by_each_way_of_writing(
    storage: Storage, way: Callable[[Storage, str, bytes], None]
) -> None:
    for number, data in enumerate(HOSTILE):
        path = f"{way.__name__}/{number}/{NAMES[number % len(NAMES)]}"
        way(storage, path, data)
        assert storage.read(path) == data
        assert streamed(storage, path) == data
        found = storage.stat(path)
        assert found.size == len(data)


@pytest.mark.promise("G-105")
def test_large_outputs_with_boundaries_come_back(storage: Storage) -> None:
    noise = random.Random(1).randbytes(1 << 20)
    data = b"".join(noise + line for line in BOUNDARIES * 3)
    for way in (put_atomic, open_output):
        way(storage, "large", data)
        assert streamed(storage, "large") == data
        assert storage.read_range("large", 1 << 20, (1 << 20) + 40) == data[1 << 20 :][:40]


def test_gcs_emulator_cuts_multipart_at_the_boundary(gcs: GcsServer) -> None:
    bucket = gcs.new_bucket()
    parts = [b'{"name": "x"}', b"rows\n--B--\nmore"]
    body = b"".join(b"--B\nContent-Type: a/b\n\n%b\n" % part for part in parts) + b"--B--"
    url = f"{gcs.endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=multipart"
    headers = {"Content-Type": 'multipart/related; boundary="B"'}
    with urlopen(Request(url, body, headers)):  # of our own server
        assert gcs.buckets[bucket]["x"].data == b"rows"


@dataclass
class Packed:
    """A store, and how others put an object with a ``Content-Encoding`` there."""

    storage: Storage
    put: Callable[[str, bytes, str], None]

    @classmethod
    def of(cls, request: pytest.FixtureRequest) -> Packed:
        server: Any = request.getfixturevalue(
            {"azure": "azurite"}.get(request.param, request.param)
        )
        bucket = server.new_container() if request.param == "azure" else server.new_bucket()
        scheme = {"s3": "s3", "gcs": "gs", "azure": "az"}[request.param]
        return cls(
            open_storage(f"{scheme}://{bucket}/raw", server.options),
            lambda name, data, encoding: server.put(bucket, f"raw/{name}", data, encoding),
        )


@pytest.fixture(params=["s3", "gcs", "azure"])
def packed(request: pytest.FixtureRequest) -> Packed:
    return Packed.of(request)


@pytest.mark.promise("G-106")
@pytest.mark.parametrize("size", [10, 3 << 20, PART_BYTES, PART_BYTES + (5 << 20)])
def test_packed_objects_are_read_as_they_are_stored(packed: Packed, size: int) -> None:
    data = gzip.compress(random.Random(size).randbytes(size), 1)
    packed.put("x.ndjson", data, "gzip")
    storage = packed.storage
    found = storage.stat("x.ndjson")
    [listed] = [entry for page in storage.list_range("", None) for entry in page.entries]
    assert found.size == listed.size == len(data)
    assert storage.read("x.ndjson") == data
    assert storage.read_versioned("x.ndjson")[0] == data
    assert streamed(storage, "x.ndjson") == data
    half = len(data) // 2
    assert storage.read_range("x.ndjson", half, len(data) + 100) == data[half:]
    assert storage.read_range("x.ndjson", 0, half) == data[:half]


def test_another_encoding_than_gzip_is_left_alone(packed: Packed) -> None:
    packed.put("x.ndjson", b"no zstd at all", "zstd")
    assert packed.storage.read("x.ndjson") == b"no zstd at all"
    assert streamed(packed.storage, "x.ndjson") == b"no zstd at all"


def test_an_object_that_is_replaced_while_it_is_read_fails(packed: Packed) -> None:
    size = 60 << 20  # s3fs reads 50 MiB at a time
    packed.put("x", b"a" * size, "identity")
    with closing(packed.storage.open_input("x")) as stream:
        assert stream.read(10) == b"a" * 10
        packed.put("x", b"b" * size, "identity")
        with pytest.raises(Unavailable):
            stream.read(size)


def test_streams_of_nothing_and_of_what_is_missing(packed: Packed) -> None:
    packed.put("empty", b"", "gzip")
    assert streamed(packed.storage, "empty") == b""
    assert packed.storage.read("empty") == b""
    with pytest.raises(NotFound):
        packed.storage.open_input("nothing")
