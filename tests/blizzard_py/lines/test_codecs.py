"""Every codec: complete streams, and each way in which a stream can be damaged."""

from __future__ import annotations

import bz2
import io
import lzma
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest

from blizzard_core.settings.sources import SourceCompression
from blizzard_py.job import JobFile
from blizzard_py.lines import expansion
from blizzard_py.lines.codec_names import CODEC_ENDINGS
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import BLOCK_BYTES, FileFailed
from tests.support.ingest_job_harness import IngestJobHarness, by_path
from tests.support.memory_store import MemoryStorage
from tests.support.packing import (
    PACKERS,
    SNAPPY_IDENTIFIER,
    WITH_CHECKSUM,
    hadoop_snappy,
    lz4,
    snappy,
    snappy_checksum,
    snappy_chunk,
    zstd,
)

SMALL = b'{"id":1}\n' * 30 + b'{"id":2,"s":"0f9a71c2"}\n'
LONG = b"".join(b'{"id":%d,"s":"%x"}\n' % (n, n * 7919 % 100_003) for n in range(60_000))
NOISE = random.Random(1).randbytes(700_000)
SKIPPABLE = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"


def blocks_of(data: bytes, kind: str, expansion: Expansion | None = None) -> Iterator[bytes]:
    store = MemoryStorage()
    store.objects[f"x.ndjson.{kind}"] = (data, 0.0)
    with opened(store, JobFile(f"x.ndjson.{kind}", len(data)), expansion) as blocks:
        yield from blocks


def read(data: bytes, kind: str) -> bytes:
    return b"".join(blocks_of(data, kind))


def read_or_none(data: bytes, kind: str) -> bytes | None:
    """Return the content; None if the stream is reported as damaged."""
    try:
        return read(data, kind)
    except FileFailed as failed:
        known = failed
    assert (known.stage, known.outcome) == ("decompress", "quarantined")
    assert "again" in known.reason  # what to do
    return None


def flips(data: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


@pytest.mark.parametrize("content", [SMALL, LONG, NOISE, b"", b"\n"])
@pytest.mark.parametrize("kind", PACKERS)
def test_complete_stream_is_read(kind: str, content: bytes) -> None:
    blocks = list(blocks_of(PACKERS[kind](content), kind))
    assert b"".join(blocks) == content
    assert all(0 < len(block) <= BLOCK_BYTES for block in blocks)


@pytest.mark.parametrize("kind", PACKERS)
def test_joined_streams_are_read(kind: str) -> None:
    pack = PACKERS[kind]
    assert read(pack(SMALL) + pack(LONG) + pack(NOISE), kind) == SMALL + LONG + NOISE
    assert read(pack(SMALL) * 300, kind) == SMALL * 300


@pytest.mark.promise("G-107")
@pytest.mark.parametrize("named", ["ndjson", "GZ", *CODEC_ENDINGS.values()])
@pytest.mark.parametrize("kind", WITH_CHECKSUM)
def test_bytes_decide_whatever_the_name_says(kind: str, named: str) -> None:
    pack = WITH_CHECKSUM[kind]
    named = named.removeprefix(".")
    for packed in (pack(SMALL), zstd(pack(SMALL)), pack(lz4(SMALL))):
        assert read(packed, named) == SMALL


@pytest.mark.parametrize("kind", ["bz2", "BZ2", "snappy", "Snappy"])
def test_endings_of_hadoop_and_text_count_in_any_case(kind: str) -> None:
    """A name with another ending is that of a plain file; ``BZh1`` is a bad line there."""
    assert read(SMALL, kind) == SMALL
    packed = hadoop_snappy(SMALL)
    is_snappy = kind.lower() == "snappy"
    assert read_or_none(packed, kind) == (SMALL if is_snappy else None)
    assert read_or_none(packed, "other") == packed
    assert read_or_none(b"BZh1\n", kind) == (b"BZh1\n" if is_snappy else None)


@pytest.mark.promise("G-113")
@pytest.mark.parametrize("kind", PACKERS)
def test_stream_cut_at_any_byte_is_damaged(kind: str) -> None:
    packed = PACKERS[kind](SMALL)
    assert [n for n in range(len(packed)) if read_or_none(packed[:n], kind) is not None] == []
    joined = [n for n in range(1, len(packed)) if read_or_none(packed + packed[:n], kind)]
    assert joined == []


@pytest.mark.promise("G-113")
@pytest.mark.parametrize("kind", WITH_CHECKSUM)
def test_any_flipped_bit_is_damage_or_changes_nothing(kind: str) -> None:
    assert {read_or_none(data, kind) for data in flips(WITH_CHECKSUM[kind](SMALL))} <= {None, SMALL}


@pytest.mark.parametrize("kind", ["hadoop.snappy", "plain.lz4", "plain.xz"])
def test_flipped_bits_stay_in_bounds_without_checksum(kind: str) -> None:
    """Nothing shows that a letter has changed. No more than what the lengths say is read."""
    found = {read_or_none(data, kind) for data in flips(PACKERS[kind](SMALL))}
    assert None in found
    assert max(len(each) for each in found if each is not None) < 2 * len(SMALL)


@pytest.mark.promise("G-113")
@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("tail", [b"else", b"{}\n", b"\x80\0\0\0", b"\xff" * 20, b"\xfe\1\0\0x"])
def test_stream_followed_by_other_bytes_is_damaged(kind: str, tail: bytes) -> None:
    assert read_or_none(PACKERS[kind](SMALL) + tail, kind) is None


@pytest.mark.parametrize("kind", PACKERS)
def test_object_of_0_bytes_is_damaged(kind: str) -> None:
    with pytest.raises(FileFailed, match=r"an object of 0 bytes; store it again"):
        read(b"", kind)


def test_zeros_may_follow_xz() -> None:
    assert read(lzma.compress(SMALL) + bytes(100_000) + lzma.compress(SMALL), "xz") == SMALL * 2


@pytest.mark.parametrize("pack", [lz4, zstd])
def test_skippable_frames_are_skipped(pack: type[bytes]) -> None:
    packed = SKIPPABLE * 2 + pack(SMALL) + SKIPPABLE + pack(SMALL) + SKIPPABLE
    for kind in ("lz4", "zst", "ndjson"):
        assert read(packed, kind) == SMALL * 2
    assert read_or_none(packed[:-1], "lz4") is None


def test_xz_dictionary_that_is_too_large_is_named() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 256 << 20}]
    with pytest.raises(FileFailed, match=r"more than 128 MiB.*-9 at most"):
        read(lzma.compress(b"x", filters=filters), "xz")
    assert read(lzma.compress(SMALL, preset=9), "xz") == SMALL


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x82SNAPPY\0" + bytes(8), "begins with 82 53 4e 41, .*lz4 frames, snappy or zip; store"),
        (SNAPPY_IDENTIFIER, "ends after its identifier"),
        (snappy(SMALL) + SNAPPY_IDENTIFIER, "ends after its identifier"),
        (snappy(SMALL) + b"\xff\x06\0\0sNaPpy", "identifier does not match"),
        (snappy(SMALL) + b"\x81\2\0\0ab", "unknown kind 81"),
        (snappy(SMALL) + b"\1\3\0\0abc", "a chunk has 3 bytes"),
        (snappy(SMALL) + b"\0\xff\xff\xff", "a chunk has 16,777,215 bytes"),
        (
            snappy(SMALL) + b"\0\x08\0\0" + bytes(4) + b"\xff\xff\xff\x0f",
            "more than 65,536 bytes",
        ),
        (
            snappy(SMALL) + b"\1\5\0\1" + snappy_checksum(bytes(65_537)) + bytes(65_537),
            "checksum of a chunk",
        ),
        (bytes(8), "zeros where a block should be"),
        (hadoop_snappy(SMALL) + b"\0\0\1\0\xff\0\0\0", "a chunk has 4,278,190,080 bytes"),
        (hadoop_snappy(SMALL) + b"\0\0\0\1\0\0\0\4\2\4ab", "more than 1 bytes"),
        (hadoop_snappy(SMALL) + b"\xff\0\0\1\0\0\0\5\xff\xff\xff\x7fa", "more than 16,777,216"),
    ],
)
def test_broken_snappy_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(FileFailed, match=reason):
        read(data, "snappy")


def test_snappy_padding_and_joined_identifiers_are_skipped() -> None:
    padding = b"\xfe" + (100_000).to_bytes(3, "little") + bytes(100_000)
    packed = snappy(SMALL) + padding + SNAPPY_IDENTIFIER + padding + snappy_chunk(SMALL)
    assert read(packed, "snappy") == SMALL * 2


def test_hadoop_blocks_of_several_chunks_are_read() -> None:
    large = LONG[: 3 * BLOCK_BYTES // 2]
    packed = [pa.compress(part, "snappy", asbytes=True) for part in (large, SMALL, b"")]
    chunks = b"".join(len(each).to_bytes(4, "big") + each for each in packed)
    block = (len(large) + len(SMALL)).to_bytes(4, "big") + chunks.removesuffix(b"\0\0\0\1\0")
    for end in (b"", bytes(4)):
        blocks = list(blocks_of(bytes(4) + block * 2 + end, "snappy"))
        assert b"".join(blocks) == (large + SMALL) * 2
        assert max(map(len, blocks)) == BLOCK_BYTES


def bomb(kind: str, megabytes: int) -> bytes:
    """Return many equal bytes, packed."""
    zeros = b"0" * (1 << 20)
    if kind == "bz2":
        packer = bz2.BZ2Compressor(9)
        return b"".join([*(packer.compress(zeros) for _ in range(megabytes)), packer.flush()])
    if kind == "xz":
        target = io.BytesIO()
        with lzma.open(target, "w", preset=0) as file:
            for _ in range(megabytes):
                file.write(zeros)
        return target.getvalue()
    if kind == "hadoop.snappy":
        packed = pa.compress(zeros * 16, "snappy", asbytes=True)
        size = (16 << 20).to_bytes(4, "big")
        return (size + len(packed).to_bytes(4, "big") + packed) * (megabytes // 16)
    return PACKERS[kind](zeros) * megabytes


@pytest.mark.parametrize("kind", ["gz", "zst", "bz2", "xz", "snappy", "hadoop.snappy", "plain.lz4"])
def test_bomb_needs_little_memory(kind: str) -> None:
    packed = bomb(kind, 64)
    size = 0
    before = pa.total_allocated_bytes()  # what other tests of this process still hold
    tracemalloc.start()
    try:
        for block in blocks_of(packed, kind):
            assert len(block) <= BLOCK_BYTES
            assert pa.total_allocated_bytes() - before < 8 << 20
            size += len(block)
        # Hadoop's chunks of 16 MiB come whole.
        assert tracemalloc.get_traced_memory()[1] < (24 << 20 if "hadoop" in kind else 8 << 20)
    finally:
        tracemalloc.stop()
    assert size == 64 << 20


@pytest.mark.parametrize("kind", PACKERS)
def test_expansion_limit_holds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "EXPANSION_FREE_BYTES", 1 << 20)
    packed = bomb(kind, 16)
    with pytest.raises(FileFailed, match="becomes more than 2 times"):
        for _ in blocks_of(packed, kind, Expansion(len(packed), 2)):
            pass


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_many_empty_members_take_little_time(kind: str) -> None:
    assert read(PACKERS[kind](b"") * 100_000 + PACKERS[kind](SMALL), kind) == SMALL


def test_every_codec_has_a_setting() -> None:
    assert {*get_args(SourceCompression)} == {"auto", "none", "zip", *CODEC_ENDINGS}


@pytest.mark.promise("G-113")
def test_task_ingests_one_file_of_each_codec(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path)
    for number, (kind, pack) in enumerate(PACKERS.items()):
        world.put(f"good.ndjson.{kind}", pack(b'{"id":%d}\n' % number))
        world.put(f"bad.ndjson.{kind}", pack(b'{"id":99}\n' * 9)[:-3])
    report = world.run_task()
    assert world.ids(report) == list(range(len(PACKERS)))
    files = by_path(report)
    for kind in PACKERS:
        bad = files[f"bad.ndjson.{kind}"]
        assert (bad.outcome, bad.stage, bad.rows) == ("quarantined", "decompress", 0)
