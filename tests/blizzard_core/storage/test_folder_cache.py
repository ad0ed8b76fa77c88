"""Listings from memory show what a fresh listing shows, and a poll reads what has changed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blizzard_core.storage import folder_cache
from blizzard_core.storage.folder_cache import has_true_times
from blizzard_core.storage.local import LocalStorage

# Between the last change of a directory and a listing that is stored; the clock has microseconds.
QUIET = 2.001


class Disk:
    """A directory with an old and a tracked partition, and a storage with a clock of the test.

    ``keys`` counts the names that the last poll looked at.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "raw"
        self._scratch = folder / "scratch"
        self.clock = 0.0
        self.keys = 0
        self.storage = LocalStorage(str(self.root), follow=False, clock=lambda: self.clock)
        for name in ("1", "2", "3", "7"):
            self.write(f"p=1/{name}")
            self.write(f"p=2/{name}")
        self.pass_time()

    def write(self, path: str, content: bytes = b"x") -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def pass_time(self, seconds: float = QUIET) -> None:
        """Set the clock behind the last change, and let the kernel's tick of that change pass."""
        last = max(path.lstat().st_ctime_ns for path in [self.root, *self.root.rglob("*")])
        self.clock = last / 1e9 + seconds
        self._scratch.touch()
        while self._scratch.stat().st_ctime_ns <= last:
            self._scratch.touch()

    def poll(self, after: str = "p=2/5") -> dict[str, int]:
        """Return paths and sizes above a watermark, as a fresh storage sees them too."""
        found: dict[str, int] = {}
        self.keys = 0
        for page in self.storage.list_range(after, None):
            self.keys += page.keys
            found |= {entry.path: entry.size for entry in page.entries}
        fresh = LocalStorage(str(self.root), follow=False).list_range(after, None)
        assert found == {entry.path: entry.size for page in fresh for entry in page.entries}
        return found


# Names that a poll above `p=2/5` looks at: both partitions and the files of one.
READ = 2 + 4
# The partition and the file above the watermark.
FROM_MEMORY = 1 + 1


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Trust the file system of the tests, which may be an overlay."""
    monkeypatch.setattr(folder_cache, "has_true_times", lambda _place: True)
    return Disk(tmp_path)


def test_an_unchanged_directory_is_not_read_again(disk: Disk) -> None:
    assert disk.poll() == {"p=2/7": 1}
    assert disk.keys == READ
    assert disk.poll() == {"p=2/7": 1}
    assert disk.keys == FROM_MEMORY


@pytest.mark.parametrize(
    ("seconds", "keys"), [(-3600.0, READ), (0.0, READ), (1.9, READ), (QUIET, FROM_MEMORY)]
)
def test_a_listing_soon_after_a_change_is_not_stored(disk: Disk, seconds: float, keys: int) -> None:
    """The next change may have the same time."""
    disk.pass_time(seconds)
    disk.poll()
    disk.pass_time(3600)
    disk.poll()
    assert disk.keys == keys


def add(root: Path) -> None:
    (root / "p=2/8").write_bytes(b"new")


def add_and_set_times_back(root: Path) -> None:
    before = (root / "p=2").stat()
    add(root)
    os.utime(root / "p=2", ns=(before.st_atime_ns, before.st_mtime_ns))


def remove_and_add_again(root: Path) -> None:
    (root / "p=2/7").unlink()
    (root / "p=2/7").write_bytes(b"again")


def rename_into(root: Path) -> None:
    (root / "p=1/3").rename(root / "p=2/9")


def rename_over(root: Path) -> None:
    (root / "p=2/1").write_bytes(b"other")
    (root / "p=2/1").rename(root / "p=2/7")


def link_file(root: Path) -> None:
    os.link(root / "p=1/1", root / "p=2/8")


def link_by_name(root: Path) -> None:
    (root / "p=2/8").symlink_to(root / "p=1/1")


def replace_directory(root: Path) -> None:
    (root / "p=2").rename(root.parent / "old")
    (root / "p=1").rename(root / "p=2")


def replace_by_directory(root: Path) -> None:
    (root / "p=2/7").unlink()
    (root / "p=2/7").mkdir()
    (root / "p=2/7/1").write_bytes(b"nested")


def make_again(root: Path) -> None:
    shutil.rmtree(root / "p=2")
    (root / "p=2").mkdir()
    (root / "p=2/6").write_bytes(b"x")


def delete(root: Path) -> None:
    shutil.rmtree(root / "p=2")


def make_root_again(root: Path) -> None:
    root.rename(root.parent / "old")
    shutil.copytree(root.parent / "old", root)
    add(root)


def add_directories(root: Path) -> None:
    (root / "p=3/a/b").mkdir(parents=True)
    (root / "p=3/a/b/1").write_bytes(b"x")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (add, {"p=2/7": 1, "p=2/8": 3}),
        (add_and_set_times_back, {"p=2/7": 1, "p=2/8": 3}),
        (remove_and_add_again, {"p=2/7": 5}),
        (rename_into, {"p=2/7": 1, "p=2/9": 1}),
        (rename_over, {"p=2/7": 5}),
        (link_file, {"p=2/7": 1, "p=2/8": 1}),
        (link_by_name, {"p=2/7": 1, "p=2/8": 1}),
        (replace_directory, {"p=2/7": 1}),
        (replace_by_directory, {"p=2/7/1": 6}),
        (make_again, {"p=2/6": 1}),
        (delete, {}),
        (make_root_again, {"p=2/7": 1, "p=2/8": 3}),
        (add_directories, {"p=2/7": 1, "p=3/a/b/1": 1}),
    ],
)
def test_a_change_of_a_directory_is_found(
    disk: Disk, change: Callable[[Path], None], expected: dict[str, int]
) -> None:
    disk.poll()
    disk.poll()
    assert disk.keys == FROM_MEMORY
    change(disk.root)
    assert disk.poll() == expected
    disk.pass_time()
    assert disk.poll() == expected
    assert disk.poll() == expected
    disk.write("p=2/a/later")
    assert disk.poll() == expected | {"p=2/a/later": 1}


def test_a_file_that_grows_in_its_place_has_its_new_size(disk: Disk) -> None:
    disk.poll()
    (disk.root / "p=2/7").write_bytes(b"larger")
    assert disk.poll() == {"p=2/7": 6}
    assert disk.keys == FROM_MEMORY


def test_a_lower_watermark_reads_what_was_not_stored(disk: Disk) -> None:
    disk.poll()
    assert disk.poll("p=2/1") == {"p=2/2": 1, "p=2/3": 1, "p=2/7": 1}
    assert disk.poll("p=1/3") == {"p=1/7": 1, "p=2/1": 1, "p=2/2": 1, "p=2/3": 1, "p=2/7": 1}


def test_a_higher_watermark_takes_the_rest_from_memory(disk: Disk) -> None:
    disk.poll("p=2/1")
    assert disk.poll("p=2/3") == {"p=2/7": 1}
    assert disk.keys == FROM_MEMORY
    assert disk.poll("p=2/7") == {}
    assert disk.keys == 1


@pytest.mark.parametrize("after", ["", "p=1/", "p=2/"])
def test_files_of_a_full_listing_are_not_stored(disk: Disk, after: str) -> None:
    """A sweep lists all files, and does not come again soon."""
    expected = disk.poll(after)
    assert disk.poll(after) == expected
    # The names of partitions are stored, those of files are not.
    assert disk.keys == len(expected) + len({name.partition("/")[0] for name in expected})


def test_a_full_listing_of_a_flat_source_is_not_stored(disk: Disk) -> None:
    flat = LocalStorage(str(disk.root / "p=1"), clock=lambda: disk.clock)
    for _ in range(2):
        assert len([entry for page in flat.list_range("", None) for entry in page.entries]) == 4
    [page] = flat.list_range("2", None)
    assert page.keys == 4
    [page] = flat.list_range("2", None)
    assert page.keys == 2


def made_in_one_tick(folder: Path) -> tuple[Path, Path]:
    """Return two directories whose subdirectories `p` have the same times and other files."""
    for attempt in range(1000):
        pair = folder / f"one{attempt}", folder / f"other{attempt}"
        for place in pair:
            (place / "p").mkdir(parents=True)
            (place / "p" / place.name).touch()
        one, other = ((place / "p").stat() for place in pair)
        if (one.st_ctime_ns, one.st_mtime_ns) == (other.st_ctime_ns, other.st_mtime_ns):
            return pair
    pytest.skip("the ticks of this file system are too short")


def test_directories_with_equal_times_are_distinguished(disk: Disk, tmp_path: Path) -> None:
    one, other = made_in_one_tick(tmp_path)
    one.rename(disk.root / "p=3")
    disk.pass_time()
    for _ in range(2):
        assert f"p=3/p/{one.name}" in disk.poll("p=3/p/0")
    (disk.root / "p=3").rename(tmp_path / "old")
    other.rename(disk.root / "p=3")
    assert disk.poll("p=3/p/0") == {f"p=3/p/{other.name}": 0}


def test_the_target_of_a_link_changes_without_its_directory(disk: Disk) -> None:
    target = disk.root.parent / "target"
    target.write_bytes(b"x")
    storage = LocalStorage(str(disk.root), clock=lambda: disk.clock)
    (disk.root / "p=2/6").symlink_to(target)
    disk.pass_time()

    def paths() -> list[str]:
        pages = storage.list_range("p=2/5", None)
        return [entry.path for page in pages for entry in page.entries]

    assert paths() == ["p=2/6", "p=2/7"]
    target.unlink()
    target.mkdir()
    (target / "1").write_bytes(b"x")
    assert paths() == ["p=2/6/1", "p=2/7"]


def test_a_clock_set_back_empties_the_memory(disk: Disk) -> None:
    """A later change may then get the time of the stored one."""
    disk.poll()
    disk.clock -= 0.5
    disk.poll()
    assert disk.keys == READ


def test_memory_is_bounded(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three directories have room. The root has not: too many names are in it."""
    monkeypatch.setattr(folder_cache, "CACHED_NAMES", 3 * (4 + 1))
    for name in "abcdefghijklm":
        disk.write(f"{name}/1")
        disk.write(f"{name}/9")
    disk.pass_time()

    def is_read(name: str) -> bool:
        _, folder, *_ = disk.storage.list_range(f"{name}/5", f"{name}0")
        assert [entry.path for entry in folder.entries] == [f"{name}/9"]
        return folder.keys == 2

    assert [is_read(name) for name in "abc"] == [True, True, True]
    assert [is_read(name) for name in "abc"] == [False, False, False]
    assert [is_read(name) for name in "da"] == [True, True]
    assert [is_read(name) for name in "adcb"] == [False, False, False, True]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no file system is trusted")
def test_only_known_file_systems_are_trusted() -> None:
    assert not has_true_times("/proc")
    assert not has_true_times("/absent")
    types = dict(line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines())
    if types.get("/dev/shm") == "tmpfs":  # a mount of each Linux, nothing is written
        assert has_true_times("/dev/shm")


def test_other_file_systems_are_listed_each_time(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(folder_cache, "has_true_times", asked.append)
    for _ in range(2):
        disk.poll()
        assert disk.keys == READ
    assert len(asked) == 1
