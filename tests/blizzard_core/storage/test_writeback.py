"""The disk is told of what is written while more is made; the bytes are what any file has."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from blizzard_core.storage import writeback
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.writeback import STEP_BYTES

PIECE = bytes(range(256)) * 1200  # 300 kB


def test_writeback_advises_the_disk_of_each_byte_once_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def advised(_descriptor: int, start: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        told.append((start, length))

    monkeypatch.setattr(writeback.os, "posix_fadvise", advised)
    with LocalStorage(str(tmp_path)).open_output("x.bin") as stream:
        for _ in range(20):
            stream.write(PIECE)
    assert (tmp_path / "x.bin").read_bytes() == PIECE * 20
    ends = [start + length for start, length in told]
    assert [start for start, _ in told] == [0, *ends[:-1]]
    assert all(length >= STEP_BYTES for _, length in told)
    assert 20 * len(PIECE) - ends[-1] < STEP_BYTES


def test_a_disk_that_takes_no_advice_has_the_file_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise OSError(errno.ESPIPE, "not for this file")

    monkeypatch.setattr(writeback.os, "posix_fadvise", refused)
    storage = LocalStorage(str(tmp_path))
    with storage.open_output("x.bin") as stream:
        for _ in range(20):
            stream.write(PIECE)
    storage.sync("x.bin")
    assert storage.read("x.bin") == PIECE * 20


def test_a_full_disk_is_an_error_of_the_write() -> None:
    with (
        io.BufferedWriter(writeback.EarlyWriteback(os.open("/dev/full", os.O_WRONLY))) as stream,
        pytest.raises(OSError, match="No space left"),
    ):
        stream.write(PIECE)
