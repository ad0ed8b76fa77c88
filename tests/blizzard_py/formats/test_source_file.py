"""Random access to a source file: its requests, its failures, and objects that change meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from blizzard_core.errors import Unavailable
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.formats.protocol import Format, OpenFile
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import JobFile, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece
from blizzard_py.lines.source import WHOLE_BYTES

NONE = RowSchema(())
LARGE = WHOLE_BYTES + 1


class Requests(LocalStorage):
    """A directory that notes its requests."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.sent: list[str] = []

    def stat(self, path: str) -> Entry | None:
        self.sent.append("stat")
        return super().stat(path)

    def read(self, path: str) -> bytes:
        self.sent.append("read")
        return super().read(path)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self.sent.append(f"range {start}-{end}")
        return super().read_range(path, start, end)


class Ends:
    """A format whose only record is the first and last byte of a file."""

    def __init__(self, between: Any = lambda: None) -> None:
        self.between = between

    def pieces(self, file: OpenFile, _schema: RowSchema) -> Iterator[Piece]:
        first = file.read_range(0, 1)
        self.between()
        yield Piece(first + file.read_range(file.size - 1, file.size), -1)


def form(between: Any = lambda: None) -> Format:
    return cast("Format", Ends(between))


def large_file(root: Path, name: str = "a.bin") -> JobFile:
    with (root / name).open("wb") as file:
        file.write(b"a")
        file.truncate(LARGE)
    return JobFile(name, LARGE)


@pytest.mark.parametrize("listed", [5, 0])
def test_a_small_object_is_fetched_at_once(tmp_path: Path, listed: int) -> None:
    (tmp_path / "a.bin").write_bytes(b"a...z")
    storage = Requests(tmp_path)
    counted: list[int] = []
    with SourceFile(storage, JobFile("a.bin", listed), counted=counted.append) as file:
        assert [piece.data for piece in file.pieces(form(), NONE)] == [b"az"]
        assert file.read_range(3, 99) == b".z"
    # A size of 0 may be one that is not known.
    assert storage.sent == (["read"] if listed else ["stat", "read", "stat"])
    assert counted == [1, 1, 2]


def test_a_large_object_is_read_by_ranges(tmp_path: Path) -> None:
    storage = Requests(tmp_path)
    with SourceFile(storage, large_file(tmp_path)) as file:
        assert [piece.data for piece in file.pieces(form(), NONE)] == [b"a\0"]
        assert file.read_range(LARGE, LARGE + 5) == b""
    assert storage.sent == ["stat", "range 0-1", f"range {LARGE - 1}-{LARGE}", "stat"]


@pytest.mark.parametrize("first", ["modified", "content"])
def test_content_is_of_its_modification_time(tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    os.utime(path, (1, 1))
    with SourceFile(Requests(tmp_path), JobFile("a.bin", 3)) as file:
        if first == "content":
            assert file.read_range(0, 3) == b"old"
            path.write_bytes(b"new")
            os.utime(path, (2, 2))
        assert file.modified == (1 if first == "modified" else 2)
        assert file.read_range(0, 3) == (b"old" if first == "modified" else b"new")


def test_a_small_object_that_changes_behind_its_time_fails(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"old")
    with SourceFile(Requests(tmp_path), JobFile("a.bin", 3)) as file:
        assert file.modified
        pieces = file.pieces(form(lambda: os.utime(tmp_path / "a.bin", (1, 1))), NONE)
        with pytest.raises(FileFailed, match="was replaced") as raised:
            list(pieces)
    assert raised.value.outcome == "retry"


@pytest.mark.parametrize("change", ["rewrite", "truncate", "delete"])
def test_a_change_under_the_ranges_fails_the_file(tmp_path: Path, change: str) -> None:
    job = large_file(tmp_path)
    (tmp_path / "other").write_bytes(b"x")  # an empty place counts as one that is not mounted

    def replace() -> None:
        if change == "rewrite":
            os.utime(tmp_path / "a.bin", (1, 1))
        elif change == "truncate":
            (tmp_path / "a.bin").write_bytes(b"b")
        else:
            (tmp_path / "a.bin").unlink()

    with pytest.raises(FileFailed) as raised, SourceFile(Requests(tmp_path), job) as file:
        list(file.pieces(form(replace), NONE))
    assert raised.value.stage == "read"
    if change == "delete":
        assert raised.value.outcome == "quarantined"
        assert "deleted between listing and reading" in raised.value.reason
    else:
        assert raised.value.outcome == "retry"
        assert "was replaced while it was read" in raised.value.reason


@pytest.mark.parametrize(("changed", "outcome"), [(True, "retry"), (False, "quarantined")])
def test_damage_is_no_verdict_if_the_object_changed(
    tmp_path: Path, changed: bool, outcome: str
) -> None:
    def read() -> None:
        with SourceFile(Requests(tmp_path), large_file(tmp_path)) as file:
            next(file.pieces(form(), NONE))
            if changed:
                os.utime(tmp_path / "a.bin", (1, 1))
            raise FileFailed("parse", "nonsense")

    with pytest.raises(FileFailed) as raised:
        read()
    assert raised.value.outcome == outcome


def test_a_store_that_fails_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = large_file(tmp_path)

    def fail(*_: Any) -> bytes:
        raise Unavailable("no answer")

    monkeypatch.setattr(LocalStorage, "read_range", fail)
    with pytest.raises(FileFailed) as raised, SourceFile(Requests(tmp_path), job) as file:
        file.read_range(0, 1)
    assert (raised.value.stage, raised.value.outcome) == ("read", "retry")
