"""Objects with ``Content-Encoding: gzip`` give all their lines, at each store and size."""

from __future__ import annotations

import gzip
import random
from typing import Any

import pytest
import zstandard

from blizzard_core.storage.opening import open_storage
from blizzard_py.job import JobFile
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.source import WHOLE_BYTES

# Azure's client sends a body as one piece, and aiohttp would have it otherwise.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

FEW = b'{"id":1}\n' * 1000
# More than what is read whole, also packed.
_DRAW = random.Random(1)
MANY = b"".join(b"%x\n" % _DRAW.getrandbits(800) for _ in range(60_000))
assert len(gzip.compress(MANY, 1)) > WHOLE_BYTES


@pytest.fixture(params=["s3", "gcs", "azurite"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.param, request.getfixturevalue(request.param)


@pytest.mark.promise("G-106")
@pytest.mark.parametrize("lines", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("name", ["x.ndjson", "x.ndjson.gz", "x.ndjson.zst"])
def test_encoded_objects_give_all_their_lines(server: Any, name: str, lines: bytes) -> None:
    kind, store = server
    bucket = store.new_container() if kind == "azurite" else store.new_bucket()
    scheme = {"s3": "s3", "gcs": "gs", "azurite": "az"}[kind]
    once = zstandard.compress(lines) if name.endswith(".zst") else gzip.compress(lines, 1)
    # As its name says and once more for the way, and without the second.
    for packed, encoding in ((gzip.compress(once, 1), "gzip"), (once, None), (once, "gzip")):
        if encoding == "gzip" and not packed.startswith(b"\x1f\x8b"):
            continue  # no store has that
        store.put(bucket, f"raw/{name}", packed, encoding)
        storage = open_storage(f"{scheme}://{bucket}/raw", store.options)
        [entry] = [entry for page in storage.list_range("", None) for entry in page.entries]
        assert entry.size == len(packed)
        with opened(storage, JobFile(entry.path, entry.size)) as blocks:
            assert b"".join(blocks) == lines
