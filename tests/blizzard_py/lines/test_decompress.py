from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import zstandard

from blizzard_core.storage.local import LocalStorage
from blizzard_py.job import JobFile
from blizzard_py.lines.decompress import BLOCK_BYTES, Codec, codec_of, decompressed
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.source import SourceStream

TEXT = b'{"id":1}\n' * 1000
NOISE = random.Random(1).randbytes(700_000)  # several reads long once compressed
SKIPPABLE = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"


def gzipped(data: bytes) -> bytes:
    """Without the time in it: cases are named by their bytes, alike in each process."""
    return gzip.compress(data, mtime=0)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def flipped(data: bytes, position: int) -> bytes:
    damaged = bytearray(data)
    damaged[position] ^= 0xFF
    return bytes(damaged)


def read(folder: Path, data: bytes, codec: Codec) -> list[bytes]:
    (folder / "x").write_bytes(data)
    stream = SourceStream(LocalStorage(str(folder)), JobFile("x", len(data)))
    try:
        return list(decompressed(stream, codec))
    finally:
        stream.close()


@pytest.mark.parametrize(
    ("path", "codec"),
    [("a.ndjson.gz", "gzip"), ("a.jsonl.zst", "zstd"), ("a.ndjson", "none"), ("gz", "none")],
)
def test_auto_goes_by_the_extension(path: str, codec: Codec) -> None:
    assert codec_of(path, "auto") == codec
    assert codec_of(path, "zstd") == "zstd"


@pytest.mark.parametrize(
    ("data", "codec", "expected"),
    [
        (gzipped(TEXT), "gzip", TEXT),
        (gzipped(b""), "gzip", b""),
        (gzipped(NOISE), "gzip", NOISE),
        (gzipped(TEXT) + gzipped(b"") + gzipped(NOISE), "gzip", TEXT + NOISE),
        (gzipped(TEXT) * 300, "gzip", TEXT * 300),
        (gzipped(TEXT) + b"\0" * 1000, "gzip", TEXT),
        (gzipped(TEXT) + b"\0" * 400_000 + gzipped(TEXT), "gzip", TEXT * 2),
        (zstd(TEXT), "zstd", TEXT),
        (zstd(b""), "zstd", b""),
        (zstd(TEXT) + zstd(b"") + zstd(NOISE), "zstd", TEXT + NOISE),
        (zstd(TEXT) * 300, "zstd", TEXT * 300),
        (SKIPPABLE + zstd(TEXT) + SKIPPABLE + zstd(TEXT), "zstd", TEXT * 2),
        (TEXT, "none", TEXT),
        (b"", "none", b""),
        (NOISE * 3, "none", NOISE * 3),
    ],
)
def test_complete_streams_are_read_whole(
    tmp_path: Path, data: bytes, codec: Codec, expected: bytes
) -> None:
    blocks = read(tmp_path, data, codec)
    assert b"".join(blocks) == expected
    assert all(0 < len(block) <= BLOCK_BYTES for block in blocks)


@pytest.mark.parametrize(
    ("data", "codec"),
    [
        (b"", "gzip"),
        (b"\0" * 100, "gzip"),
        (TEXT, "gzip"),
        (gzipped(TEXT)[:5], "gzip"),
        (gzipped(TEXT)[:-1], "gzip"),
        (gzipped(TEXT)[:-8], "gzip"),
        (gzipped(NOISE)[:300_000], "gzip"),
        (flipped(gzipped(TEXT), -6), "gzip"),
        (flipped(gzipped(TEXT), -2), "gzip"),
        (flipped(gzipped(NOISE), 400_000), "gzip"),
        (gzipped(TEXT) + b"garbage that is no member", "gzip"),
        (gzipped(TEXT) + gzipped(TEXT)[:-3], "gzip"),
        (gzipped(TEXT) + gzipped(TEXT)[:4], "gzip"),
        (b"", "zstd"),
        (TEXT, "zstd"),
        (zstd(TEXT)[:-1], "zstd"),
        (zstd(TEXT)[:3], "zstd"),
        (zstd(NOISE)[:300_000], "zstd"),
        (flipped(zstd(NOISE), 400_000), "zstd"),
        (zstd(TEXT) + b"garbage", "zstd"),
        (zstd(TEXT) + zstd(TEXT)[:-3], "zstd"),
        (zstd(TEXT) + zstd(TEXT)[:3], "zstd"),
    ],
)
def test_anything_but_a_complete_stream_fails(tmp_path: Path, data: bytes, codec: Codec) -> None:
    with pytest.raises(FileFailed, match=codec) as caught:
        read(tmp_path, data, codec)
    assert caught.value.stage == "decompress"
    assert caught.value.outcome == "quarantined"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_bomb_comes_in_bounded_blocks(tmp_path: Path, codec: Codec) -> None:
    zeros = b"0" * (64 << 20)
    packed = gzipped(zeros) if codec == "gzip" else zstd(zeros)
    blocks = read(tmp_path, packed, codec)
    assert sum(len(block) for block in blocks) == len(zeros)
    assert max(len(block) for block in blocks) <= BLOCK_BYTES


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
