"""One contract, every back end: local disk, S3, GCS and Azure over HTTP, fsspec's memory, ours.

The servers are moto, a JSON API of ours and Azurite. Their gaps are named where
they are started: tests/support/s3_server.py, tests/support/gcs_server.py,
tests/support/azurite_server.py.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from errno import EPERM
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blizzard_core.errors import (
    AccessDenied,
    BucketMissing,
    Conflict,
    NotFound,
    StorageError,
    Unavailable,
    UnreadableName,
)
from blizzard_core.limits import FIRST_PAGE_KEYS
from blizzard_core.log import configure
from blizzard_core.storage import azure
from blizzard_core.storage import gcs as store_gcs
from blizzard_core.storage import s3 as store_s3
from blizzard_core.storage.azure import AzureStorage
from blizzard_core.storage.gcs import GCSStorage
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.opening import open_private, open_source, open_storage
from blizzard_core.storage.protocol import Storage, order_key
from blizzard_core.storage.s3 import S3Storage
from blizzard_py.job import JobFile
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.source import ObjectStream
from tests.support.azurite_server import AzuriteServer
from tests.support.gcs_server import GcsServer
from tests.support.memory_store import MemoryStorage
from tests.support.s3_server import S3Server

BACKENDS = ["local", "s3", "gcs", "azure", "double"]

AWKWARD = [
    " leading and trailing /x.json",
    "a b/c.json",
    "brackets[1]*?/x[ab].json",
    "date=1.json",
    "date=1/hour=10/x.json",
    "date=1/hour=9/x.json",
    "date=1/x.json",
    "date=1-late/x.json",
    "date=10/x.json",
    "deep/er/and/deeper/x.json",
    "date=10.json",
    "date=10-x.json",
    "hash#1/semi;colon,comma.json",
    "percent%41/x%2F.json",
    "plus+and&more/x.json",
    "quote'and\"/x.json",
    "root.json",
    "root.json-/x.json",
    "~tilde@at:colon/x!$().json",
    "ü/\U0001f427.json",
    "z=1/\ufffd.json",
    "z=1/\U00010000.json",
]

# Names that clients take apart, drop parts of, or read as a place elsewhere.
HOSTILE = [
    "d=1/a.ndjson",
    "d=1/a.ndjson?versionId=1.ndjson",
    "d=1/a.ndjson?versionid=1.ndjson",
    "d=1/a.ndjson?versionId=",
    "d=1/a.ndjson?generation=5",
    "d=1/a.ndjson#1",
    "d=1/a.ndjson ",
    "d=1/a.ndjson.",
    "x.ndjson",
    "/x.ndjson",
    "//d=1/a.ndjson",
    "d=1//a.ndjson",
    "d=1/ab.ndjson",
    "d=1/a b.ndjson",
    "d=1/a+b.ndjson",
    "d=1/a%20b.ndjson",
    "d=1%2Fa.ndjson",
    "d=1/a\tb.ndjson",
    "d=1/a\rb.ndjson",
    "d=1/a\x7fb.ndjson",
    "d=1/a\x85b.ndjson",
    "d=1/a\u2028b.ndjson",
    "d=1/a*b?.ndjson",
    "d=1/a&b=1;c.ndjson",
    "d=1/\u00e9.ndjson",
    "d=1/e\u0301.ndjson",
    "s3://other/x.ndjson",
    "abfs://other/x.ndjson",
    "user@host/x.ndjson",
]
DOTTED = ["d=1/./a.ndjson", "d=1/../x.ndjson", "../x.ndjson", "./x.ndjson", "d=1/.."]
# What a server of the tests cannot hold: moto's routes know no line break, moto and Azurite
# answer 500 to a listing with a character that XML has not, and Azure takes \\ for /.
LINE_BREAKS = ["d=1/a\nb.ndjson", "\r\n.ndjson"]
NO_XML = ["d=1/a\x01b.ndjson"]
BACKSLASHES = ["d=1\\a.ndjson"]
HELD = {
    "s3": [*HOSTILE, *DOTTED, *BACKSLASHES],
    "gcs": [*HOSTILE, *DOTTED, *LINE_BREAKS, *NO_XML, *BACKSLASHES],
    "azure": [*HOSTILE, *LINE_BREAKS],
    "double": [*HOSTILE, *DOTTED, *LINE_BREAKS, *NO_XML, *BACKSLASHES],
}


@pytest.fixture(params=BACKENDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    match request.param:
        case "local":
            yield open_storage(str(tmp_path / "root"), {}, versions=True)
        case "s3":
            server: S3Server = request.getfixturevalue("s3")
            yield open_storage(
                f"s3://{server.new_bucket()}/some/prefix", server.options, versions=True
            )
        case "gcs":
            gcs: GcsServer = request.getfixturevalue("gcs")
            yield open_storage(f"gs://{gcs.new_bucket()}/some/prefix", gcs.options, versions=True)
        case "azure":
            azurite: AzuriteServer = request.getfixturevalue("azurite")
            yield open_storage(
                f"az://{azurite.new_container()}/some/prefix", azurite.options, versions=True
            )
        case _:
            yield MemoryStorage()


def listed(storage: Storage, after: str = "", until: str | None = None) -> list[str]:
    return [entry.path for page in storage.list_range(after, until) for entry in page.entries]


def put_all(storage: Storage, paths: Iterable[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: storage.put_atomic(path, b"x"), paths))


def has_directories(storage: Storage) -> bool:
    """Return whether one name cannot be both an object and a directory."""
    return isinstance(storage, LocalStorage)


def between(paths: Iterable[str], after: str, until: str | None) -> list[str]:
    """Return the expected listing, by brute force."""
    found = (p for p in paths if order_key(p) > order_key(after))
    return sorted(
        (p for p in found if until is None or order_key(p) < order_key(until)), key=order_key
    )


def test_put_replaces_an_object_and_read_returns_its_bytes(storage: Storage) -> None:
    storage.put_atomic("a/b.json", b"one")
    storage.put_atomic("a/b.json", b"two and more")
    assert storage.read("a/b.json") == b"two and more"
    assert storage.read_range("a/b.json", 4, 7) == b"and"
    with storage.open_input("a/b.json") as stream:
        assert stream.read(3) + stream.read() == b"two and more"
    found = storage.stat("a/b.json")
    assert (found.path, found.size) == ("a/b.json", 12)


def test_output_streams_become_objects(storage: Storage) -> None:
    with storage.open_output("x/y.bin") as stream:
        stream.write(b"abc")
        stream.write(b"def")
    storage.sync("x/y.bin")
    assert storage.read("x/y.bin") == b"abcdef"


def test_missing_objects_have_no_stat_and_raise_not_found(storage: Storage) -> None:
    storage.put_atomic("a", b"")
    assert storage.stat("nothing") is None
    storage.delete("nothing")
    assert storage.delete_tree("nothing") == 0
    for action in (
        lambda: storage.read("nothing"),
        lambda: storage.read_range("nothing", 0, 1),
        lambda: storage.open_input("nothing").read(1),
        lambda: storage.rename("nothing", "b"),
    ):
        with pytest.raises(NotFound, match="nothing"):
            action()


def test_rename_moves_over_what_is_there(storage: Storage) -> None:
    storage.put_atomic("from/a", b"new")
    storage.put_atomic("to/b", b"old")
    storage.rename("from/a", "to/b")
    assert storage.read("to/b") == b"new"
    assert storage.stat("from/a") is None


def test_delete_tree_takes_the_directory_and_no_neighbour(storage: Storage) -> None:
    for path in ("t/a", "t/b/c", "t2/a", "t-/a", "s"):
        storage.put_atomic(path, b"x")
    assert storage.delete_tree("t") == 2
    assert listed(storage) == ["s", "t-/a", "t2/a"]


def test_objects_with_awkward_names_are_read_renamed_and_deleted(storage: Storage) -> None:
    put_all(storage, AWKWARD)
    for path in AWKWARD:
        assert storage.read(path) == b"x"
        found = storage.stat(path)
        assert found.path == path
        storage.rename(path, f"moved/{path}")
        assert storage.put_if(path, b"again", None)
        assert storage.read_versioned(path)[0] == b"again"
        storage.delete(path)
    assert storage.delete_tree("moved") == len(AWKWARD)
    assert [path for path in listed(storage) if not path.endswith(".lock")] == []


@pytest.mark.promise("G-189")
@pytest.mark.parametrize(("storage", "names"), HELD.items(), indirect=["storage"], ids=HELD.keys())
def test_a_name_is_the_object_that_was_listed_and_never_another(
    storage: Storage, names: list[str]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: storage.put_atomic(path, path.encode()), names))
    assert listed(storage) == sorted(names, key=order_key)
    for path in names:
        assert listed(storage, path, f"{path}\0\0") == []
        assert storage.read(path) == path.encode()
        assert storage.read_range(path, 1, 1000) == path.encode()[1:]
        with storage.open_input(path) as stream:
            assert stream.read() == path.encode()
        assert storage.read_versioned(path)[0] == path.encode()
        found = storage.stat(path)
        assert (found.path, found.size) == (path, len(path.encode()))
    gone = names[::2]
    for number, path in enumerate(gone):
        storage.rename(path, f"moved/{number}")
        assert storage.read(f"moved/{number}") == path.encode()
    assert storage.delete_tree("moved") == len(gone)
    for path in names[1::2]:
        assert storage.read(path) == path.encode()
        storage.delete(path)
    assert listed(storage) == []


@pytest.mark.promise("G-189")
@pytest.mark.parametrize("path", DOTTED)
def test_azure_refuses_names_that_a_url_would_resolve(azurite: AzuriteServer, path: str) -> None:
    storage = open_storage(f"az://{azurite.new_container()}/some/prefix", azurite.options)
    storage.put_atomic("x.ndjson", b"another")
    for action in (storage.read, storage.open_input, storage.stat, storage.delete):
        with pytest.raises(UnreadableName, match="store the file under another name"):
            action(path)
    with pytest.raises(FileFailed, match="cannot be asked for") as failed:
        ObjectStream(storage, JobFile(path, 7))
    assert (failed.value.stage, failed.value.outcome) == ("read", "quarantined")


def test_listings_are_in_utf8_byte_order_whatever_the_names(storage: Storage) -> None:
    put_all(storage, AWKWARD)
    assert listed(storage) == sorted(AWKWARD, key=order_key)


def test_both_bounds_of_a_range_are_exclusive(storage: Storage) -> None:
    put_all(storage, AWKWARD)
    bounds = [*AWKWARD, "date=1", "date=1/", "date=1/hour=9", "date=10/", "deep/er", "d", "zz"]
    for after in ["", *bounds]:
        for until in [None, "date=1/hour=9/", "date=10/", "root.json", "z=1/\ufffd", "ü/"]:
            assert listed(storage, after, until) == between(AWKWARD, after, until), (after, until)


def test_a_listing_over_many_pages_is_complete(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_http = isinstance(storage, S3Storage | GCSStorage | AzureStorage)
    if over_http:  # smaller pages for fewer objects: writing them takes seconds
        monkeypatch.setattr(store_s3, "PAGE_KEYS", 150)
        monkeypatch.setattr(store_gcs, "PAGE_KEYS", 150)
        monkeypatch.setattr(azure, "PAGE_NAMES", 150)
    count = 400 if over_http else 3000
    partitions = [f"date={number:04d}/hour={number % 24:02d}" for number in range(count)]
    names = [f"{partition}/a.json" for partition in partitions]
    names += [f"{partitions[70]}/{number:04d}" for number in range(200)]
    if not has_directories(storage):
        names += [f"date={number:04d}" for number in range(60, 90)]
        names += ["date=0050", "date=0050/hour=02"]
    if isinstance(storage, MemoryStorage):
        storage.page_keys = 100
    put_all(storage, names)
    assert listed(storage) == between(names, "", None)
    for after, until in [
        ("date=0010/", "date=0350/"),
        (f"{partitions[70]}/0100", "date=0071/"),
        ("date=0064/hour=16/a.json", None),
        ("date=0050", "date=0050/hour=02/"),
        ("", "date=0001/"),
    ]:
        assert listed(storage, after, until) == between(names, after, until), (after, until)


def _paths(storage: Storage) -> list[str]:
    return [e.path for page in storage.list_range("", None) for e in page.entries]


def _listed_version(storage: Storage, path: str) -> str:
    [entry] = [e for page in storage.list_range("", None) for e in page.entries if e.path == path]
    stat = storage.stat(path)
    assert stat.version == entry.version
    return entry.version


def test_a_listed_version_allows_a_deletion(storage: Storage) -> None:
    storage.put_atomic("d=1/a.json", b"1")
    storage.put_atomic("d=1/b.json", b"2")
    version = _listed_version(storage, "d=1/a.json")
    if not version:
        with pytest.raises(StorageError):
            storage.delete_if("d=1/a.json", version)
        return
    assert storage.delete_if("d=1/a.json", version)
    assert _paths(storage) == ["d=1/b.json"]
    storage.delete_if("d=1/a.json", version)  # gone already is no error


def test_a_listing_has_versions_only_on_request(tmp_path: Path) -> None:
    storage = open_source(str(tmp_path), {})
    storage.put_atomic("a.json", b"1")
    [entry] = [e for page in storage.list_range("", None) for e in page.entries]
    assert entry.version == ""


def test_an_overwritten_object_is_not_deleted(storage: Storage) -> None:
    storage.put_atomic("d=1/a.json", b"1")
    version = _listed_version(storage, "d=1/a.json")
    storage.put_atomic("d=1/a.json", b"2")
    with pytest.raises(Conflict if version else StorageError):
        storage.delete_if("d=1/a.json", version)
    assert storage.read("d=1/a.json") == b"2"
    assert _paths(storage) == ["d=1/a.json"]


def _local_version(folder: Path) -> tuple[LocalStorage, str]:
    """Return a store with a file, ``a.json``, and its version."""
    storage = LocalStorage(str(folder), versions=True)
    storage.put_atomic("a.json", b"1")
    return storage, _listed_version(storage, "a.json")


class TestLocalDeletion:
    def test_put_back_when_replaced_after_the_look(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage, version = _local_version(tmp_path)
        rename = Path.rename

        def overwritten(self: Path, target: Path) -> Path:
            storage.put_atomic("a.json", b"never ingested")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", overwritten)
        with pytest.raises(Conflict):
            storage.delete_if("a.json", version)
        assert storage.read("a.json") == b"never ingested"
        assert [each.name for each in tmp_path.iterdir()] == ["a.json"]

    @pytest.mark.parametrize("is_replaced", [False, True])
    def test_a_death_after_moving_aside_is_mended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
    ) -> None:
        storage, version = _local_version(tmp_path)
        rename = Path.rename

        def dies(self: Path, target: Path) -> Path:
            if is_replaced:
                storage.put_atomic("a.json", b"2")
            rename(self, target)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", dies)
            with pytest.raises(KeyboardInterrupt):
                storage.delete_if("a.json", version)
        if is_replaced:
            with pytest.raises(Conflict):
                storage.delete_if("a.json", version)
            assert storage.read("a.json") == b"2"
        else:
            storage.delete_if("a.json", version)
        assert len(list(tmp_path.iterdir())) == is_replaced

    def test_put_back_on_a_disk_without_hard_links(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage, version = _local_version(tmp_path)
        rename = Path.rename

        def overwritten(self: Path, target: Path) -> Path:
            storage.put_atomic("a.json", b"never ingested")
            monkeypatch.setattr(Path, "rename", rename)
            return rename(self, target)

        def refused(*_: object, **__: object) -> None:
            raise PermissionError(EPERM, "no hard links")

        monkeypatch.setattr(Path, "rename", overwritten)
        monkeypatch.setattr(os, "link", refused)
        with pytest.raises(Conflict):
            storage.delete_if("a.json", version)
        assert storage.read("a.json") == b"never ingested"

    def test_a_directory_in_its_place_is_put_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage, version = _local_version(tmp_path)
        rename = Path.rename

        def replaced(self: Path, target: Path) -> Path:
            monkeypatch.setattr(Path, "rename", rename)
            self.unlink()
            storage.put_atomic("a.json/b.json", b"never ingested")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", replaced)
        with pytest.raises(Conflict):
            storage.delete_if("a.json", version)
        assert storage.read("a.json/b.json") == b"never ingested"

    def test_a_file_that_was_moved_aside_comes_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = LocalStorage(str(tmp_path / "raw"), versions=True)
        storage.put_atomic("a.json", b"1")
        version = _listed_version(storage, "a.json")
        rename = Path.rename

        def dies(self: Path, target: Path) -> Path:
            rename(self, target)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", dies)
            with pytest.raises(KeyboardInterrupt):
                storage.delete_if("a.json", version)
        moved = (tmp_path / "raw").rename(tmp_path / "mounted_elsewhere")
        with pytest.raises(Conflict):
            LocalStorage(str(moved)).delete_if("a.json", "")
        assert (moved / "a.json").read_bytes() == b"1"


def test_a_link_is_removed_and_not_its_target(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path), versions=True)
    storage.put_atomic("a.json", b"1")
    (tmp_path / "link.json").symlink_to("a.json")
    assert storage.delete_if("link.json", _listed_version(storage, "link.json"))
    assert _paths(storage) == ["a.json"]


def test_the_same_bytes_written_again_are_another_version(s3: S3Server) -> None:
    storage = open_storage(f"s3://{s3.new_bucket()}/raw", s3.options, versions=True)
    storage.put_atomic("a.json", b"1")
    version = _listed_version(storage, "a.json")
    etag, _, at = version.rpartition("@")
    with pytest.raises(Conflict):
        storage.delete_if("a.json", f"{etag}@{int(at) - 1}")
    assert storage.delete_if("a.json", version)


def test_a_move_replaces_no_object(storage: Storage) -> None:
    storage.put_atomic("part/a.json", b"1")
    storage.put_atomic("part/b.json", b"2")
    storage.rename_if_absent("part/a.json", "d=1/a.json")
    with pytest.raises(Conflict):
        storage.rename_if_absent("part/b.json", "d=1/a.json")
    assert storage.read("d=1/a.json") == b"1"
    assert _paths(storage) == ["d=1/a.json", "part/b.json"]


def test_a_conditional_write_needs_the_version_that_is_there(storage: Storage) -> None:
    first = storage.put_if("state/a.json", b"one", None)
    assert storage.read_versioned("state/a.json") == (b"one", first)
    with pytest.raises(Conflict, match=r"state/a\.json"):
        storage.put_if("state/a.json", b"other", None)
    second = storage.put_if("state/a.json", b"two", first)
    assert second != first
    with pytest.raises(Conflict):
        storage.put_if("state/a.json", b"other", first)
    assert storage.read_versioned("state/a.json") == (b"two", second)
    storage.put_atomic("state/a.json", b"unconditional")
    with pytest.raises(Conflict):
        storage.put_if("state/a.json", b"other", second)
    assert storage.read("state/a.json") == b"unconditional"


def test_a_conditional_write_does_not_restore_a_deleted_object(storage: Storage) -> None:
    version = storage.put_if("state/a.json", b"one", None)
    storage.delete("state/a.json")
    with pytest.raises(Conflict):
        storage.put_if("state/a.json", b"two", version)
    with pytest.raises(NotFound):
        storage.read_versioned("state/a.json")


def test_of_writers_at_the_same_time_one_wins_each_round(storage: Storage) -> None:
    version = storage.put_if("state/a.json", b"start", None)

    def write(text: str, known: str) -> str | None:
        try:
            return storage.put_if("state/a.json", text.encode(), known)
        except Conflict:
            return None

    for turn in range(5):
        texts = [f"round {turn}, writer {writer}" for writer in range(4)]
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(write, texts, [version] * 4))
        [winner] = [number for number, outcome in enumerate(outcomes) if outcome is not None]
        data, version = storage.read_versioned("state/a.json")
        assert (data, version) == (texts[winner].encode(), outcomes[winner])


def _count_up(root: str, times: int) -> None:
    storage = open_storage(root, {})
    done = 0
    while done < times:
        data, version = storage.read_versioned("counter")
        try:
            storage.put_if("counter", str(int(data) + 1).encode(), version)
        except Conflict:
            continue
        done += 1


def test_local_processes_exclude_each_other(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), {})
    storage.put_if("counter", b"0", None)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_count_up, args=(str(tmp_path), 25)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert storage.read("counter") == b"75"


def test_a_stopped_listing_costs_one_small_page(s3: S3Server) -> None:
    storage = open_storage(f"s3://{s3.new_bucket()}/x", s3.options)
    for number in range(150):
        storage.put_atomic(f"{number:05d}", b"")
    page = next(iter(storage.list_range("", None)))
    assert (page.requests, page.keys, len(page.entries)) == (1, 100, 100)
    [last] = list(storage.list_range("00148", None))
    assert (last.requests, last.keys) == (1, 1)
    [bounded] = list(storage.list_range("00010", "00020"))
    assert (bounded.requests, len(bounded.entries)) == (1, 9)


def test_gcs_sends_only_what_lies_between_the_bounds(gcs: GcsServer) -> None:
    storage = open_storage(f"gs://{gcs.new_bucket()}/x", gcs.options)
    put_all(storage, (f"{number:05d}" for number in range(250)))
    assert [page.keys for page in storage.list_range("", None)] == [FIRST_PAGE_KEYS, 150]
    # One key more than asked for: Google's lower bound is inclusive.
    pages = storage.list_range("00010", "00020")
    assert [(page.requests, page.keys, len(page.entries)) for page in pages] == [(1, 10, 9)]


def test_azure_reads_only_the_levels_of_the_range(
    azurite: AzuriteServer,
) -> None:
    storage = open_storage(f"az://{azurite.new_container()}/x", azurite.options)
    names = [f"date={day}/hour={hour}/{n}" for day in "123" for hour in "123" for n in range(5)]
    put_all(storage, names)
    gap = list(storage.list_range("date=2/hour=1/3", "date=2/hour=2/"))
    assert [entry.path for page in gap for entry in page.entries] == ["date=2/hour=1/4"]
    # date=2/ and hour=1/ below it: three directories and five files.
    assert (sum(p.requests for p in gap), sum(p.keys for p in gap)) == (2, 8)
    last = list(storage.list_range("date=3/hour=3/4", None))
    assert (sum(p.requests for p in last), sum(p.keys for p in last)) == (3, 3 + 3 + 5)
    everything = list(storage.list_range("", None))
    assert sum(p.requests for p in everything) == 1 + 3  # the root, and each date flat


def test_azure_folder_objects_are_no_files(azurite: AzuriteServer) -> None:
    container = azurite.new_container()
    storage = open_storage(f"az://{container}", azurite.options)
    storage.put_atomic("date=1/x.json", b"x")
    for name in ("date=1", "date=1/sub"):
        azurite.put_folder(container, name)
    assert listed(storage) == ["date=1/x.json"]


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_missing_bucket_is_named(scheme: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue({"s3": "s3", "gs": "gcs", "az": "azurite"}[scheme])
    storage = open_storage(f"{scheme}://no-such-bucket/x", server.options)
    with pytest.raises(
        BucketMissing, match=f"{scheme}://no-such-bucket/x/: the bucket does not exist"
    ):
        listed(storage)
    with pytest.raises(BucketMissing):
        storage.put_if("a", b"", None)


def test_a_missing_local_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="absent: no such directory"):
        listed(open_storage(str(tmp_path / "absent"), {}))


def test_a_local_listing_reads_only_directories_in_range(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), {})
    for day in range(50):
        storage.put_atomic(f"date={day:02d}/a", b"")
    requests = sum(page.requests for page in storage.list_range("date=48/a", None))
    assert requests == 3  # the root, date=48 and date=49


def test_a_local_listing_leaves_out_what_nobody_wants(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), {})
    for name in "abc":
        storage.put_atomic(name, b"")
    pages = list(storage.list_ranges([("", None)], lambda path: path == "b") or ())
    assert [entry.path for page in pages for entry in page.entries] == ["b"]
    assert sum(page.keys for page in pages) == 3


def test_local_storage_lists_only_regular_files(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), {})
    storage.put_atomic("d/1.json", b"x")
    os.mkfifo(tmp_path / "d" / "2.json")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "d" / "3.json"))
    (tmp_path / "d" / "4.json").symlink_to("/dev/zero")
    (tmp_path / "d" / "5.json").symlink_to("nowhere.json")
    (tmp_path / "d" / "6.json").symlink_to("6.json")
    (tmp_path / "d" / "7.json").symlink_to("1.json")
    assert listed(storage) == ["d/1.json", "d/7.json"]
    shown = [n for n in range(1, 8) if storage.stat(f"d/{n}.json") is not None]
    assert shown == [1, 7]


def test_links_that_lead_back_are_not_followed_where_links_are(tmp_path: Path) -> None:
    """Two of them would be listed as 2⁴⁰ directories."""
    table, outside = tmp_path / "table", tmp_path / "outside"
    for folder in (table / "d=1", outside):
        folder.mkdir(parents=True)
        (folder / "x").write_bytes(b"x")
    for name in ("d=1/back", "d=2", "d=3"):
        (table / name).symlink_to(table)
    (table / "d=4").symlink_to(outside)
    for name in ("back", "again"):
        (outside / name).symlink_to(table)
    pages = LocalStorage(str(table)).list_range("", None)
    assert [entry.path for page in pages for entry in page.entries] == ["d=1/x", "d=4/x"]


def test_a_link_in_the_place_of_what_is_written_leads_nowhere(tmp_path: Path) -> None:
    theirs, table = tmp_path / "theirs", tmp_path / "table"
    theirs.write_bytes(b"x")
    table.mkdir()
    for name in ("out.parquet", "state.json.lock", "state.json"):
        (table / name).symlink_to(theirs)
    storage = LocalStorage(str(table))
    with pytest.raises(StorageError, match=r"out\.parquet"):
        storage.open_output("out.parquet")
    with pytest.raises(StorageError, match=r"state\.json\.lock"):
        storage.put_if("state.json", b"y", None)
    storage.put_atomic("state.json", b"y")
    assert (theirs.read_bytes(), (table / "state.json").read_bytes()) == (b"x", b"y")


def make_deep(root: Path, names: list[str], file: str) -> str:
    """A file below all of these, made step by step as no path leads there; its path."""
    at = os.open(root, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    return "/".join([*names, file])


@pytest.fixture
def deep_place(tmp_path: Path) -> Iterator[Path]:
    """A directory that may become deeper than Python's own clearing up goes."""
    place = tmp_path / "deep"
    place.mkdir()
    yield place
    subprocess.run(["rm", "-rf", str(place)], check=True)  # it is everywhere


def test_very_deep_directories_end_no_listing(
    deep_place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A writer of a source decides its depth."""
    configure("info")
    (deep_place / "a.json").write_bytes(b"x")
    (deep_place / "z.json").write_bytes(b"x")
    deep = make_deep(deep_place, ["d"] * 1200, "x.json")
    long = make_deep(deep_place, ["e" * 250] * 20, "y.json")  # longer than any path may be
    storage = LocalStorage(str(deep_place), follow=False)
    for _ in range(2):
        found = [entry.path for page in storage.list_range("", None) for entry in page.entries]
        assert found[:2] == ["a.json", deep]
        assert found[-1] == "z.json"
        assert len(found) == 3
    assert storage.stat(long) is None
    told = [line for line in capsys.readouterr().err.splitlines() if "paths_too_long" in line]
    assert len(told) == 1
    assert len(told[0]) < 5000


def test_directory_links_are_skipped_with_one_warning(
    tmp_path: Path,
) -> None:
    (tmp_path / "real/date=1").mkdir(parents=True)
    (tmp_path / "root").symlink_to("real")
    (tmp_path / "real/date=1/1.json").write_bytes(b"x")
    (tmp_path / "real/date=1/again").symlink_to(".")
    (tmp_path / "real/latest").symlink_to("date=1")
    (tmp_path / "real/..data").symlink_to("date=1")
    (tmp_path / "real/2.json").symlink_to("..data/1.json")
    source = open_source(str(tmp_path / "root"), {})
    stream = io.StringIO()
    configure("info", stream)
    assert listed(source) == ["2.json", "date=1/1.json"]
    assert listed(source, "latest/", "latest0") == []
    [told] = map(json.loads, stream.getvalue().splitlines())
    assert (told["event"], told["first"]) == ("links_not_followed", "date=1/again/")
    paths = ("2.json", "date=1/1.json", "latest/1.json", "date=1/again/1.json")
    assert [path for path in paths if source.stat(path)] == ["2.json", "date=1/1.json"]


def test_links_out_of_a_local_source_are_never_read(tmp_path: Path) -> None:
    source = open_source(str(tmp_path / "raw"), {})
    (tmp_path / "raw/d").mkdir(parents=True)
    (tmp_path / "raw2").mkdir()
    for secret in (tmp_path / "secret", tmp_path / "raw2/secret"):
        secret.write_bytes(b"secret")
    places = {
        "1.json": "/proc/self/environ",
        "2.json": "/etc/passwd",
        "3.json": tmp_path / "secret",
        "d/4.json": "../../secret",
        "5.json": tmp_path / "raw2/secret",
        "6.json": "3.json",
    }
    for path, place in places.items():
        (tmp_path / "raw" / path).symlink_to(place)
    (tmp_path / "raw/7.json").write_bytes(b"x")
    (tmp_path / "raw/8.json").symlink_to("d/../7.json")
    assert listed(source) == ["7.json", "8.json"]
    for path in places:
        assert source.stat(path) is None
        for read in (source.read, source.open_input, lambda path: source.read_range(path, 0, 9)):
            with pytest.raises(NotFound, match="a link leads out of the source"):
                read(path)
    assert source.read("8.json") == b"x"


@pytest.mark.parametrize("opened", [open_source, open_storage])
@pytest.mark.parametrize("way", ["read", "open_input", "read_range"])
def test_a_pipe_or_device_in_a_files_place_does_not_block(
    tmp_path: Path, opened: Callable[..., Storage], way: str
) -> None:
    os.mkfifo(tmp_path / "1.json")
    (tmp_path / "2.json").symlink_to("/dev/zero")
    storage = opened(str(tmp_path), {})
    for path in ("1.json", "2.json"):
        with pytest.raises(NotFound, match="is no regular file"):
            getattr(storage, way)(path, *([0, 4] if way == "read_range" else []))


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): f"{path.stat().st_mode & 0o777:o}"
        for path in sorted(root.rglob("*"))
    }


@pytest.mark.usefixtures("usual_umask")
def test_state_and_letters_on_a_local_disk_are_nobody_elses(tmp_path: Path) -> None:
    table = open_storage(str(tmp_path / "table"), {})
    table.put_if("_blizzard/checkpoints/p_s.json", b"state", None)
    table.put_atomic("_penguin/t.json", b"state")
    for name in ("1.parquet", "2.ndjson"):
        with table.open_output(f"_blizzard/staging/{name}") as stream:
            stream.write(b"rows")
    table.rename("_blizzard/staging/1.parquet", "date=1/1.parquet")
    assert modes(tmp_path / "table") == {
        "_blizzard": "750",
        "_blizzard/checkpoints": "750",
        "_blizzard/checkpoints/p_s.json": "640",
        "_blizzard/checkpoints/p_s.json.lock": "640",
        "_blizzard/staging": "750",
        "_blizzard/staging/2.ndjson": "644",
        "_penguin": "750",
        "_penguin/t.json": "640",
        "date=1": "755",
        "date=1/1.parquet": "644",
    }
    letters = open_private(str(tmp_path / "dlq/own"), {})
    letters.put_atomic("p_s/1.ndjson", b"letter")
    with letters.open_output("p_s/1.records.ndjson") as stream:
        stream.write(b"letter")
    assert modes(tmp_path / "dlq") == {
        "own": "750",
        "own/p_s": "750",
        "own/p_s/1.ndjson": "640",
        "own/p_s/1.records.ndjson": "640",
    }


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a/.."])
def test_paths_with_dots_out_of_a_local_root_are_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "x").write_bytes(b"theirs")
    storage = open_storage(str(tmp_path / "root"), {})
    storage.put_atomic("a/b", b"ours")
    actions: list[Callable[[], object]] = [
        lambda: storage.stat(path),
        lambda: storage.read(path),
        lambda: storage.read_range(path, 0, 1),
        lambda: storage.open_input(path),
        lambda: storage.open_output(path),
        lambda: storage.put_atomic(path, b"ours"),
        lambda: storage.put_if(path, b"ours", None),
        lambda: storage.rename("a/b", path),
        lambda: storage.rename(path, "c"),
        lambda: storage.sync(path),
        lambda: storage.delete(path),
        lambda: storage.delete_tree(path),
    ]
    for action in actions:
        with pytest.raises(AccessDenied, match="leads out of"):
            action()
    assert (tmp_path / "x").read_bytes() == b"theirs"
    assert listed(storage) == ["a/b"]


@pytest.mark.parametrize("path", ["a\0b", "a/\0", "\ud800"])
@pytest.mark.parametrize("follow", [True, False])
def test_local_storage_has_no_file_at_an_impossible_name(
    tmp_path: Path, path: str, *, follow: bool
) -> None:
    storage = LocalStorage(str(tmp_path), follow=follow)
    assert storage.stat(path) is None
    for read in (storage.read, storage.open_input, lambda path: storage.read_range(path, 0, 1)):
        with pytest.raises(NotFound):
            read(path)


def test_a_tables_directories_on_a_local_disk_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "table").mkdir()
    (tmp_path / "table/_blizzard").symlink_to("../other")
    table = open_storage(str(tmp_path / "table"), {})
    table.put_atomic("_blizzard/1", b"x")
    assert listed(table) == ["_blizzard/1"]


def test_local_files_whose_names_are_no_utf8_are_listed(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with open(bytes(tmp_path / "d") + b"/\xff.json", "wb") as stream:  # noqa: PTH123 (bytes)
        stream.write(b"x")
    storage = open_storage(str(tmp_path), {})
    [path] = listed(storage)
    assert storage.read(path) == b"x"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    paths=st.sets(
        st.lists(
            st.text("ab-/=. é\ufffd\U00010000", min_size=1, max_size=3).filter(
                lambda part: "/" not in part and part not in {".", ".."}
            ),
            min_size=1,
            max_size=3,
        ).map("/".join),
        max_size=8,
    ),
    after=st.text("ab-/=é", max_size=5),
    until=st.none() | st.text("ab-/=é", max_size=5),
)
def test_local_ranges_equal_a_brute_force_filter(
    tmp_path: Path, paths: set[str], after: str, until: str | None
) -> None:
    storage = open_storage(str(tmp_path / uuid.uuid4().hex), {})
    kept = set()
    for path in sorted(paths):
        try:
            storage.put_atomic(path, b"")
        except (NotFound, Unavailable):
            continue  # a directory of that name is there already, or the reverse
        kept.add(path)
    if not kept:
        return
    assert listed(storage, after, until) == sorted(
        (
            p
            for p in kept
            if order_key(p) > order_key(after)
            and (until is None or order_key(p) < order_key(until))
        ),
        key=order_key,
    )
