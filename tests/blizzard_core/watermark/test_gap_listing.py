"""The contract of gap listings: every way finds the same, none costs more than each gap alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import (
    Entry,
    ListingPage,
    NameTest,
    Range,
    Storage,
    is_hidden,
    order_key,
)
from blizzard_core.watermark.gap_listing import visible_ranges
from blizzard_core.watermark.progress import PartitionProgress, Progress, gaps, is_new
from blizzard_core.watermark.scan import scan
from tests.support.azurite_server import AzuriteServer
from tests.support.memory_store import MemoryStorage
from tests.support.watermarks import passed

FOLDERS = st.sampled_from(["a", "a-", "b", "date=2024-01-01", "date=2024-01-02", "_h", ".h", "`"])
NAMES = st.sampled_from(["1", "2", "3", "4", "_5", "`", "a"])
PATHS = st.one_of(
    NAMES,
    st.builds("{}/{}".format, FOLDERS, NAMES),
    st.builds("{}/{}/{}".format, FOLDERS, FOLDERS, NAMES),
    st.builds("{0}/{0}/{1}/{2}".format, FOLDERS, FOLDERS, NAMES),
)
TREES = st.lists(PATHS, unique=True, max_size=60)


@st.composite
def states(draw: st.DrawFn) -> tuple[Progress, list[str]]:
    """Files, and the progress of a daemon that did some of them."""
    paths = [path for path in draw(TREES) if not is_hidden(path)]
    hidden = [path for path in draw(TREES) if is_hidden(path)]
    depth = draw(st.sampled_from([None, 0, 1, 2]))
    done = [path for path in paths if draw(st.booleans())]
    floor = draw(st.sampled_from([None, "a", "date=2024-01-02"])) if depth == 1 else None
    return passed(Progress(depth=depth, floor=floor), done), [*paths, *hidden]


class Alone(MemoryStorage):
    """Listings of each gap alone, to its end and no further, as a measure."""

    def cost_of(self, ranges: Sequence[Range]) -> int:
        return sum(page.requests for low, high in ranges for page in self.list_range(low, high))


def filled(storage: MemoryStorage, paths: Sequence[str], page_keys: int) -> None:
    storage.page_keys = page_keys
    storage.objects = dict.fromkeys(paths, (b"", 0.0))


@given(state=states(), page_keys=st.integers(1, 9), concurrency=st.integers(1, 3))
def test_pages_of_neighbours_find_what_each_gap_alone_finds(
    state: tuple[Progress, list[str]], page_keys: int, concurrency: int
) -> None:
    progress, paths = state
    storage = Alone()
    filled(storage, paths, page_keys)
    asked: list[str] = []

    def accept(entry: Entry) -> bool:
        asked.append(entry.path)
        return True

    found = scan(storage, progress, accept, concurrency)
    assert [entry.path for entry in found.entries] == sorted(
        (path for path in paths if not is_hidden(path) and is_new(found.progress, path)),
        key=order_key,
    )
    # Foreign names of a shared page decide nothing.
    within = [(order_key(g.after), g.until and order_key(g.until)) for g in gaps(progress)]
    for key in map(order_key, asked):
        assert any(low < key and (high is None or key < high) for low, high in within)
    if not any(map(is_hidden, paths)):  # whose jumps cost requests
        assert found.requests <= storage.cost_of([(g.after, g.until) for g in gaps(progress)])


@given(
    state=states(),
    coming=TREES,
    leaving=st.sets(st.integers(0, 60)),
    page_keys=st.integers(1, 4),
    limit=st.sampled_from([None, 1, 5]),
)
def test_files_that_stay_are_found_whatever_arrives(
    state: tuple[Progress, list[str]],
    coming: list[str],
    leaving: set[int],
    page_keys: int,
    limit: int | None,
) -> None:
    progress, paths = state
    storage = MemoryStorage()
    filled(storage, paths, page_keys)
    gone = [path for number, path in enumerate(paths) if number in leaving]
    arriving = [path for path in coming if path not in paths]

    def change() -> None:
        if arriving:
            storage.objects[arriving.pop()] = (b"", 0.0)
        if gone:
            del storage.objects[gone.pop()]

    storage.between_pages = change
    found = scan(storage, progress, lambda _file: True, 1, limit)
    steady = [path for path in paths if path in storage.objects and not is_hidden(path)]
    listed = {entry.path for entry in found.entries}
    until = None if found.until is None else order_key(found.until)
    for path in steady:
        if is_new(found.progress, path) and (until is None or order_key(path) <= until):
            assert path in listed


@settings(max_examples=60, deadline=None)
@given(state=states())
def test_one_pass_finds_the_same_and_reads_each_directory_once(
    state: tuple[Progress, list[str]],
) -> None:
    progress, paths = state
    folders = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
    paths = [path for path in paths if path not in folders]
    with tempfile.TemporaryDirectory() as root:
        for path in paths:
            place = Path(root, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        found = scan(open_storage(root, {}), progress, lambda _file: True, 8)
    assert [entry.path for entry in found.entries] == sorted(
        (path for path in paths if not is_hidden(path) and is_new(found.progress, path)),
        key=order_key,
    )
    visible = {folder for folder in folders if not folder.startswith(("_", "."))}
    assert found.requests <= 1 + len(visible)


@given(after=PATHS, length=PATHS, names=st.lists(PATHS))
def test_ranges_without_hidden_names_leave_out_nothing_else(
    after: str, length: str, names: list[str]
) -> None:
    low, high = sorted((after, length), key=order_key)
    for gap in (Range(low, None), Range(low, high), Range("", None)):
        ranges = visible_ranges([gap])

        def lies_in(path: str, parts: Sequence[Range]) -> bool:
            key = order_key(path)
            return any(
                order_key(begin) < key and (end is None or key < order_key(end))
                for begin, end in parts
            )

        for path in names:
            if not path.startswith(("_", ".")):
                assert lies_in(path, ranges) == lies_in(path, [(gap.after, gap.until)])
            elif "/" in path:
                assert not lies_in(path, ranges)


class Ordered(MemoryStorage):
    """Pages as S3 sends them: a small one first."""

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        low, size = after, 100
        while True:
            self.page_keys = size
            page = next(super().list_range(low, until))
            yield page
            if page.keys < size or len(page.entries) < page.keys:
                return
            low, size = page.entries[-1].path, 1000


def tree(partitions: int, files: int) -> list[str]:
    return [f"partition={p:05}/{f:05}" for p in range(partitions) for f in range(files)]


@pytest.mark.promise("G-120")
@pytest.mark.parametrize(
    ("partitions", "files", "most"),
    [
        (2000, 2, 5),  # a page of 100, and four of 1,000
        (64, 2, 2),
        (64, 90, 10),
        (100, 0, 1),
        (24, 2, 8),  # a round at once
        (64, 500, 65),  # none can be shared
    ],
)
def test_small_partitions_share_pages(partitions: int, files: int, most: int) -> None:
    storage = Ordered()
    paths = tree(partitions, files)
    storage.objects = dict.fromkeys(paths, (b"", 0.0))
    progress = passed(Progress(depth=1), paths or tree(partitions, 1))
    storage.objects["partition=00000/99999"] = (b"", 0.0)
    storage.objects["z/1"] = (b"", 0.0)
    found = scan(storage, progress, lambda _file: True, 8)
    assert [entry.path for entry in found.entries] == ["partition=00000/99999", "z/1"]
    assert found.requests <= most


@pytest.mark.promise("G-120")
def test_large_partitions_after_small_ones_are_listed_singly() -> None:
    storage = Ordered()
    paths = [*tree(400, 1), *(f"{path}" for p in range(40) for path in large(p))]
    storage.objects = dict.fromkeys(paths, (b"", 0.0))
    found = scan(storage, passed(Progress(depth=1), paths), lambda _file: True, 8)
    assert found.entries == ()
    assert found.requests <= 2 + 41
    assert found.keys <= 400 + 2 * 1000 + 41 * 100


def large(number: int) -> list[str]:
    return [f"partition={900 + number:05}/{f:05}" for f in range(3000)]


@pytest.mark.promise("G-120")
def test_many_new_files_behind_small_partitions_are_listed_once() -> None:
    storage = Ordered()
    paths = tree(500, 2)
    new = [f"z/{number:05}" for number in range(5000)]
    storage.objects = dict.fromkeys([*paths, *new], (b"", 0.0))
    found = scan(storage, passed(Progress(depth=1), paths), lambda _file: True, 8)
    assert len(found.entries) == 5000
    assert found.requests == 1 + 6  # a page of 100, and 5,900 keys in thousands


@pytest.mark.promise("G-120")
@pytest.mark.parametrize("kind", ["local", "azure"])
def test_a_poll_of_directories_lists_each_level_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    storage: Storage
    if kind == "local":
        storage = open_storage(str(tmp_path), {})
    else:
        azurite: AzuriteServer = request.getfixturevalue("azurite")
        storage = open_storage(f"az://{azurite.new_container()}/x", azurite.options)
    old, tracked = 500, 64
    paths = [f"date={number:04}/a" for number in range(old + tracked)]
    new = [f"{path[:-1]}b" for path in paths[-tracked:]]
    for path in [*paths, *new]:
        with storage.open_output(path):
            pass
    progress = passed(Progress(depth=1, floor=f"date={old:04}"), paths[-tracked:])
    found = scan(storage, progress, lambda _file: True, 8)
    assert [entry.path for entry in found.entries] == new
    assert found.requests <= tracked + 1
    assert found.keys <= tracked * 2 + old + tracked


class _Noting(LocalStorage):
    """A disk that notes the files whose status was asked for."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.asked: list[str] = []

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage]:
        for page in super().list_ranges(ranges, may_be_wanted):
            self.asked += [entry.path for entry in page.entries]
            yield page


def test_a_scan_of_a_disk_asks_only_for_new_files(tmp_path: Path) -> None:
    for name in ("d=1/a", "d=1/b", "d=1/c"):
        Path(tmp_path, name).parent.mkdir(exist_ok=True)
        Path(tmp_path, name).touch()
    storage = _Noting(str(tmp_path))
    progress = Progress(depth=1, partitions={"d=1": PartitionProgress(done={"a": 0.0, "b": 0.0})})
    found = scan(storage, progress, lambda _file: True, 1)
    assert [entry.path for entry in found.entries] == storage.asked == ["d=1/c"]
