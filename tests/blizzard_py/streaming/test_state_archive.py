"""A directory that changes, kept in objects: what a manifest names can always be made again."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from pathlib import Path
from typing import BinaryIO

import pytest

from blizzard_core.errors import StateError, StorageError
from blizzard_py.state.stream_state import Packed
from blizzard_py.streaming import state_archive as module
from blizzard_py.streaming.state_archive import ALONE_BYTES, StateArchive, WorkingCopy
from tests.support.memory_store import MemoryStorage

FOLDER = "_blizzard/state/p_s"
# Takes no byte.
FULL = Path("/dev/full")


@pytest.fixture
def store() -> MemoryStorage:
    return MemoryStorage("mem://lake", lambda: 1.0)


def write(root: Path, path: str, data: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)


def content(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_restore_returns_the_packed_files(store: MemoryStorage, tmp_path: Path) -> None:
    copy = WorkingCopy(tmp_path / "a")
    write(copy.root, "offsets/0", b"zero")
    write(copy.root, "state/0/0/big.sst", b"x" * ALONE_BYTES)
    write(copy.root, "state/0/0/.1.crc", b"checksum")
    packs = StateArchive(store, FOLDER)
    manifest = packs.pack(copy, {}, 1, "00000001")
    assert set(manifest) == {"offsets/0", "state/0/0/big.sst"}
    restored = packs.restore(manifest, tmp_path / "b")
    assert content(restored.root) == {"offsets/0": b"zero", "state/0/0/big.sst": b"x" * ALONE_BYTES}


def test_small_files_share_an_object_large_ones_have_their_own(
    store: MemoryStorage, tmp_path: Path
) -> None:
    copy = WorkingCopy(tmp_path)
    for number in range(5):
        write(copy.root, f"commits/{number}", b"c")
    write(copy.root, "big", b"x" * ALONE_BYTES)
    manifest = StateArchive(store, FOLDER).pack(copy, {}, 1, "00000001")
    assert len({packed.object for packed in manifest.values()}) == 2
    assert len(store.objects) == 2


def test_only_what_is_new_is_written(store: MemoryStorage, tmp_path: Path) -> None:
    copy = WorkingCopy(tmp_path)
    packs = StateArchive(store, FOLDER)
    write(copy.root, "a", b"1")
    first = packs.pack(copy, {}, 1, "00000001")
    assert packs.pack(copy, first, 1, "00000002") == first
    assert len(store.objects) == 1
    write(copy.root, "b", b"2")
    second = packs.pack(copy, first, 1, "00000003")
    assert second["a"] == first["a"]
    assert second["b"].object != first["a"].object


def test_a_file_that_has_changed_means_again(store: MemoryStorage, tmp_path: Path) -> None:
    copy = WorkingCopy(tmp_path / "a")
    packs = StateArchive(store, FOLDER)
    write(copy.root, "a", b"1")
    first = packs.pack(copy, {}, 1, "00000001")
    write(copy.root, "a", b"22")
    second = packs.pack(copy, first, 1, "00000002")
    assert content(packs.restore(second, tmp_path / "b").root) == {"a": b"22"}
    assert content(packs.restore(first, tmp_path / "c").root) == {"a": b"1"}


def test_a_restored_copy_writes_nothing_that_it_has(store: MemoryStorage, tmp_path: Path) -> None:
    copy = WorkingCopy(tmp_path / "a")
    packs = StateArchive(store, FOLDER)
    write(copy.root, "a", b"1")
    manifest = packs.pack(copy, {}, 1, "00000001")
    restored = packs.restore(manifest, tmp_path / "b")
    assert packs.pack(restored, manifest, 2, "00000002") == manifest


def test_a_file_that_goes_while_it_is_packed_does_not_count(
    store: MemoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = WorkingCopy(tmp_path)
    write(copy.root, "gone", b"1")
    write(copy.root, "stays", b"2")
    listed = module._files(copy.root)  # noqa: SLF001  # what was there a moment ago
    known = list(listed)
    monkeypatch.setattr(module, "_files", lambda _: iter(known))
    (copy.root / "gone").unlink()
    assert set(StateArchive(store, FOLDER).pack(copy, {}, 1, "00000001")) == {"stays"}


def test_a_part_that_grows_while_archived_is_archived_again(
    store: MemoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = WorkingCopy(tmp_path / "a")
    path = "state/0/0/SSTs/a.sst"
    write(copy.root, path, b"x" * ALONE_BYTES)
    opened = store.open_output
    grown = [b"y", b"z"]

    def slow(name: str) -> BinaryIO:
        if grown:
            with (copy.root / path).open("ab") as file:
                file.write(grown.pop())
        return opened(name)

    monkeypatch.setattr(store, "open_output", slow)
    packs = StateArchive(store, FOLDER)
    manifest: dict[str, Packed] = {}
    for step in range(3):
        manifest = packs.pack(copy, manifest, 1, f"{step:08d}")
        restored = packs.restore(manifest, tmp_path / f"w{step}")
        assert content(restored.root) == {path: (copy.root / path).read_bytes()}


def test_an_archive_is_never_without_what_it_is_made_of(tmp_path: Path) -> None:
    write(tmp_path, "state/0/0/SSTs/a.sst", b"1")
    write(tmp_path, "state/0/0/3.zip", b"2")
    listing = module._files(tmp_path)  # noqa: SLF001  # the order is the promise
    assert next(listing)[0] == "state/0/0/3.zip"
    # What appears now belongs to an archive that was not listed, or to the one that was.
    write(tmp_path, "state/0/0/SSTs/b.sst", b"3")
    assert [path for path, _ in listing] == ["state/0/0/SSTs/a.sst", "state/0/0/SSTs/b.sst"]


def one_packed(
    store: MemoryStorage, place: Path, size: int
) -> tuple[StateArchive, dict[str, Packed]]:
    """A working copy of one file, packed."""
    copy, packs = WorkingCopy(place / "a"), StateArchive(store, FOLDER)
    write(copy.root, "state/x", b"x" * size)
    return packs, packs.pack(copy, {}, 1, "00000001")


@pytest.mark.parametrize("size", [1, ALONE_BYTES])
def test_a_missing_object_is_named(store: MemoryStorage, tmp_path: Path, size: int) -> None:
    packs, manifest = one_packed(store, tmp_path, size)
    name = manifest["state/x"].object
    store.delete(name)
    with pytest.raises(StateError, match=name):
        packs.restore(manifest, tmp_path / "b")


@pytest.mark.parametrize("size", [1, ALONE_BYTES])
def test_error_names_a_truncated_object(store: MemoryStorage, tmp_path: Path, size: int) -> None:
    packs, manifest = one_packed(store, tmp_path, size)
    name = manifest["state/x"].object
    store.put_atomic(name, store.read(name)[: size // 2])
    with pytest.raises(StateError, match=name):
        packs.restore(manifest, tmp_path / "b")


@pytest.mark.promise("G-066")
@pytest.mark.parametrize("size", [1, ALONE_BYTES])
def test_an_object_with_other_bytes_is_named(
    store: MemoryStorage, tmp_path: Path, size: int
) -> None:
    packs, manifest = one_packed(store, tmp_path, size)
    name = manifest["state/x"].object
    data = store.read(name)
    place = data.index(b"x" * min(size, 512) + (b"\0" if size == 1 else b"")) + size // 2
    store.put_atomic(name, data[:place] + b"y" + data[place + 1 :])
    with pytest.raises(StateError, match=name):
        packs.restore(manifest, tmp_path / "b")


@pytest.mark.parametrize("size", [1, ALONE_BYTES])
def test_a_full_store_is_named_and_earlier_objects_stay(
    store: MemoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    copy = WorkingCopy(tmp_path / "a")
    packs = StateArchive(store, FOLDER)
    write(copy.root, "first", b"1")
    manifest = packs.pack(copy, {}, 1, "00000001")
    write(copy.root, "second", b"x" * size)
    with monkeypatch.context() as patch:
        patch.setattr(store, "open_output", lambda _: FULL.open("wb", buffering=0))
        with pytest.raises(StorageError, match=r"state/p_s/00000001/00000002-.*No space left"):
            packs.pack(copy, manifest, 1, "00000002")
    # Whoever starts over restores what was saved, and packs what came since.
    restored = packs.restore(manifest, tmp_path / "b")
    write(restored.root, "second", b"x" * size)
    after = packs.pack(restored, manifest, 1, "00000002")
    assert content(packs.restore(after, tmp_path / "c").root) == {
        "first": b"1",
        "second": b"x" * size,
    }


def test_a_local_disk_that_is_full_is_named(
    store: MemoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = WorkingCopy(tmp_path / "a")
    packs = StateArchive(store, FOLDER)
    write(copy.root, "state/x", b"1")
    manifest = packs.pack(copy, {}, 1, "00000001")
    (tmp_path / "b" / "state").mkdir(parents=True)
    (tmp_path / "b" / "state" / "x").symlink_to(FULL)
    with pytest.raises(StorageError, match=r"b/state \(working copy.*No space left"):
        packs.restore(manifest, tmp_path / "b")
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda **_: FULL.open("w+b", buffering=0))
    write(copy.root, "state/y", b"2")
    with pytest.raises(StorageError, match=r"\(working copy of event_time state\).*No space left"):
        packs.pack(copy, manifest, 1, "00000002")


def test_restore_rejects_paths_outside_the_copy(store: MemoryStorage, tmp_path: Path) -> None:
    store.put_atomic("evil", b"x")
    with pytest.raises(StateError, match="outside"):
        StateArchive(store, FOLDER).restore({"../x": Packed("evil", 1, "d")}, tmp_path / "b")
    assert not (tmp_path / "x").exists()


def test_a_sweep_takes_what_older_epochs_left_and_nothing_else(
    store: MemoryStorage, tmp_path: Path
) -> None:
    packs = StateArchive(store, FOLDER)
    copy = WorkingCopy(tmp_path)
    write(copy.root, "a", b"1")
    kept = packs.pack(copy, {}, 1, "00000001")
    orphan = packs.pack(WorkingCopy(tmp_path), {}, 1, "00000001")
    ours = packs.pack(WorkingCopy(tmp_path), {}, 2, "00000002")
    newer = packs.pack(WorkingCopy(tmp_path), {}, 3, "00000002")
    packs.sweep(frozenset(one.object for one in kept.values()), 2)
    left = {one.object for manifest in (kept, ours, newer) for one in manifest.values()}
    assert set(store.objects) == left
    assert orphan["a"].object not in store.objects


def test_any_history_can_be_restored(store: MemoryStorage, tmp_path: Path) -> None:
    draw = random.Random(16)
    packs = StateArchive(store, FOLDER)
    copy = WorkingCopy(tmp_path / "w0")
    copy.root.mkdir()
    manifest: dict[str, Packed] = {}
    writes = itertools.count(1)
    for step in range(40):
        for _ in range(draw.randint(0, 4)):
            size = draw.choice([0, 10, 5000, ALONE_BYTES])
            path = f"d{draw.randint(0, 3)}/f{draw.randint(0, 9)}"
            write(copy.root, path, draw.randbytes(size))
            # Of a file that is changed and no larger only this tells, where clocks are coarse.
            os.utime(copy.root / path, ns=(next(writes),) * 2)
        there = sorted(content(copy.root))
        if there and draw.random() < 0.4:
            (copy.root / draw.choice(there)).unlink()
        before = manifest
        manifest = packs.pack(copy, before, 1, f"{step:08d}")
        packs.drop(
            frozenset(p.object for p in before.values())
            - frozenset(p.object for p in manifest.values())
        )
        if draw.random() < 0.3:
            expected = content(copy.root)
            copy = packs.restore(manifest, tmp_path / f"w{step + 1}")
            assert content(copy.root) == expected
