"""Layers, names, damage far behind the beginning; `test_codecs` asks the rest of every codec."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import zstandard

from blizzard_core.storage.local import LocalStorage
from blizzard_py.job import JobFile
from blizzard_py.lines.decompress import MOST_LAYERS, decompressed
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import BLOCK_BYTES, FileFailed
from blizzard_py.lines.source import ObjectStream
from tests.support.packing import gzipped, zstd

TEXT = b'{"id":1}\n' * 1000
# Named by what the endings promise.
NAMES = {"gzip": "x.ndjson.gz", "zstd": "x.ndjson.zst", "none": "x.ndjson"}
NOISE = random.Random(1).randbytes(700_000)  # several reads long once compressed


def flipped(data: bytes, position: int) -> bytes:
    damaged = bytearray(data)
    damaged[position] ^= 0xFF
    return bytes(damaged)


def read(folder: Path, data: bytes, named: str, expansion: Expansion | None = None) -> list[bytes]:
    name = NAMES[named]
    (folder / name).write_bytes(data)
    stream = ObjectStream(LocalStorage(str(folder)), JobFile(name, len(data)))
    try:
        return list(decompressed(stream, name, expansion))
    finally:
        stream.close()


@pytest.mark.promise("G-107")
@pytest.mark.parametrize("named", ["gzip", "zstd", "none"])
@pytest.mark.parametrize(
    "packed", [TEXT, gzipped(gzipped(zstd(TEXT))), gzipped(TEXT[:1]) + gzipped(TEXT[1:])]
)
def test_the_bytes_decide_whatever_the_name_says(tmp_path: Path, packed: bytes, named: str) -> None:
    assert b"".join(read(tmp_path, packed, named)) == TEXT


@pytest.mark.parametrize("tail", [b"\n", b"\r\n", b" \t\n", b"\0\n\0", b"\n" * 400_000])
def test_gzip_may_be_followed_by_white_space(tmp_path: Path, tail: bytes) -> None:
    assert b"".join(read(tmp_path, gzipped(TEXT) + tail, "gzip")) == TEXT
    both = gzipped(TEXT) + tail + gzipped(TEXT)
    assert b"".join(read(tmp_path, both, "gzip")) == TEXT * 2


@pytest.mark.promise("G-107")
@pytest.mark.parametrize(
    ("data", "named", "reason"),
    [
        (gzipped(TEXT) + b"rest", "gzip", "a complete gzip stream, followed by .*72 65 73 74"),
        (gzipped(TEXT) + b"\n{}", "none", "a complete gzip stream, followed by .*7b 7d"),
        (zstd(TEXT) + b"\n", "zstd", "a complete zstd stream, followed by"),
        (b"\0" * 9, "gzip", "ends with .gz, but it begins with 00 00 00 00"),
        (b"PK\x01\x02", "zstd", "ends with .zst, but it begins with 50 4b 01 02"),
        ("{}".encode("utf-16"), "gzip", "ends with .gz, but it begins with ff fe 7b 00"),
    ],
)
def test_decompression_error_states_the_true_reason(
    tmp_path: Path, data: bytes, named: str, reason: str
) -> None:
    with pytest.raises(FileFailed, match=reason) as caught:
        read(tmp_path, data, named)
    assert "not a complete" not in caught.value.reason


def test_a_zstd_window_that_is_too_large_is_named(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=31)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = packed.compress(NOISE) + packed.flush()
    for named in NAMES:
        with pytest.raises(FileFailed, match=r"window of more than 128 MiB.*--long=27"):
            read(tmp_path, data, named)


def test_a_bad_first_line_that_begins_like_gzip_is_a_line(tmp_path: Path) -> None:
    junk = b"\x1f\x8b oops\n" + TEXT
    assert b"".join(read(tmp_path, junk, "none")) == junk


def test_too_many_layers_are_refused(tmp_path: Path) -> None:
    packed = TEXT
    for _ in range(MOST_LAYERS + 1):
        packed = gzipped(packed)
    with pytest.raises(FileFailed, match="packed more than 3 times"):
        read(tmp_path, packed, "gzip")


def test_inner_layer_counts_towards_the_expansion_limit(tmp_path: Path) -> None:
    """A stream of padding has no rows, and takes as long as its packed zeros last."""
    packed = gzipped(gzipped(TEXT) + bytes(256 << 20))
    with pytest.raises(FileFailed, match="becomes more than 10 times"):
        read(tmp_path, packed, "gzip", Expansion(len(packed), 10))


@pytest.mark.parametrize(
    ("data", "codec", "expected"),
    [
        (gzipped(TEXT) + b"\0" * 1000, "gzip", TEXT),
        (gzipped(TEXT) + b"\0" * 400_000 + gzipped(TEXT), "gzip", TEXT * 2),
        (zstd(TEXT) + zstd(b"") + zstd(NOISE), "zstd", TEXT + NOISE),
        (TEXT, "none", TEXT),
        (b"", "none", b""),
        (NOISE * 3, "none", NOISE * 3),
    ],
)
def test_complete_streams_are_read_to_the_end(
    tmp_path: Path, data: bytes, codec: str, expected: bytes
) -> None:
    blocks = read(tmp_path, data, codec)
    assert b"".join(blocks) == expected
    assert all(0 < len(block) <= BLOCK_BYTES for block in blocks)


@pytest.mark.promise("G-113")
@pytest.mark.parametrize(
    ("data", "codec"),
    [
        (b"\0" * 100, "gzip"),
        (gzipped(NOISE)[:300_000], "gzip"),
        (flipped(gzipped(NOISE), 400_000), "gzip"),
        (zstd(NOISE)[:300_000], "zstd"),
        (flipped(zstd(NOISE), 400_000), "zstd"),
    ],
)
def test_anything_but_a_complete_stream_fails(tmp_path: Path, data: bytes, codec: str) -> None:
    with pytest.raises(FileFailed, match=codec) as caught:
        read(tmp_path, data, codec)
    assert caught.value.stage == "decompress"
    assert caught.value.outcome == "quarantined"


def test_damaged_streams_leave_no_memory_behind(tmp_path: Path) -> None:
    """A block of the reader's own would stay for ever, as large as what was read into it."""
    damaged = zstd(TEXT * 200)[:-5]
    resident = []
    for _ in range(2):
        for _ in range(100):
            with pytest.raises(FileFailed):
                read(tmp_path, damaged, "zstd")
        status = Path("/proc/self/status").read_text()
        resident.append(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
    assert resident[1] - resident[0] < 30
