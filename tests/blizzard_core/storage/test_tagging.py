"""Tags on condition of a version, over HTTP: overwrites and deaths at every request."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import Conflict, StorageError, TagsFull
from blizzard_core.storage.azure import AzureStorage
from blizzard_core.storage.gcs import GCSStorage
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.s3 import S3Storage
from blizzard_py.cleaning.eligible import CleanableFile
from blizzard_py.cleaning.lists import CleaningList
from blizzard_py.cleaning.removal import remove_files
from tests.support.gcs_server import GcsServer
from tests.support.memory_store import Died
from tests.support.s3_server import S3Server

PATH = "d=1/a b+c.json"
TAG = "blizzard=ingested"
OURS = {"blizzard": "ingested"}


class Watched:
    """A client of S3 that tells before and after each of its requests."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.methods: list[str] = []
        self.at = self.before = self.after = -1
        self.act: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def call_s3(self, method: str, **arguments: Any) -> Any:
        number = len(self.methods)
        self.methods.append(method)
        if number == self.before:
            self.act()
        answer = self._inner.call_s3(method, **arguments)
        if number == self.after:
            self.act()
        return answer


def s3_store(s3: S3Server, *, versions: bool = False) -> tuple[S3Storage, Watched]:
    bucket = s3.new_bucket()
    if versions:
        s3.keep_versions(bucket)
    storage = open_storage(f"s3://{bucket}/raw", s3.options, versions=True)
    assert isinstance(storage, S3Storage)
    watched = Watched(storage._s3)  # noqa: SLF001  # the same client, watched
    storage._s3 = watched  # type: ignore[assignment]  # noqa: SLF001  # see above
    return storage, watched


def version_of(storage: S3Storage | AzureStorage | GCSStorage) -> str:
    found = storage.stat(PATH)
    return found.version


def tags_of(storage: S3Storage | AzureStorage) -> dict[str, str]:
    return dict(storage.read_tags(PATH, storage.object_version(PATH)))


def overwrite(storage: S3Storage) -> None:
    storage.put_atomic(PATH, b"of another")


@pytest.fixture(params=["s3", "s3-versions", "azure"])
def storage(request: pytest.FixtureRequest) -> S3Storage | AzureStorage:
    """Return a store with an object."""
    found: S3Storage | AzureStorage
    if request.param == "azure":
        azurite = request.getfixturevalue("azurite")
        made = open_storage(f"az://{azurite.new_container()}/raw", azurite.options, versions=True)
        assert isinstance(made, AzureStorage)
        found = made
    else:
        server = request.getfixturevalue("s3")
        found, _ = s3_store(server, versions=request.param == "s3-versions")
    found.put_atomic(PATH, b"1")
    return found


class TestTags:
    def test_other_tags_stay(self, storage: S3Storage | AzureStorage) -> None:
        version = version_of(storage)
        storage.write_tags(PATH, storage.object_version(PATH), {"team": "a", "blizzard": "no"})
        for _ in range(2):
            assert storage.tag_if(PATH, version, TAG)
            assert tags_of(storage) == {"team": "a", **OURS}
        assert (version_of(storage), storage.read(PATH)) == (version, b"1")

    def test_another_version_loses_the_tag(self, storage: S3Storage | AzureStorage) -> None:
        for others in ({"team": "a"}, {}):
            storage.write_tags(PATH, storage.object_version(PATH), {**others, **OURS})
            for version in ("another", ""):
                with pytest.raises(Conflict):
                    storage.tag_if(PATH, version, TAG)
                assert tags_of(storage) == others

    def test_missing_object_is_no_error(self, storage: S3Storage | AzureStorage) -> None:
        version = version_of(storage)
        storage.delete(PATH)
        assert not storage.tag_if(PATH, version, TAG)
        assert not storage.tag_if(PATH, "", TAG)

    def test_ten_other_tags_leave_no_room(self, storage: S3Storage | AzureStorage) -> None:
        full = {f"t{number}": "v" for number in range(10)}
        storage.write_tags(PATH, storage.object_version(PATH), full)
        with pytest.raises(TagsFull, match="10 other tags"):
            storage.tag_if(PATH, version_of(storage), TAG)
        assert tags_of(storage) == full
        assert clean(storage, version_of(storage)) == "left"


def clean(
    storage: S3Storage | AzureStorage, version: str, barred: frozenset[str] = frozenset()
) -> str:
    """Work a list with the object off, once more if a death cut it off."""
    made = CleaningList("id", 0.0, "", "b", (CleanableFile(PATH, 1, version),), TAG)
    return remove_files(made, storage, None, barred, lambda: None)[PATH]


def without_versions(s3: S3Server) -> tuple[S3Storage, Watched, str]:
    storage, watched = s3_store(s3)
    storage.put_atomic(PATH, b"1")
    version = version_of(storage)
    watched.methods.clear()
    return storage, watched, version


def test_requests_of_a_tag(s3: S3Server) -> None:
    storage, watched, version = without_versions(s3)
    assert clean(storage, version) == "cleaned"
    write = ["head_object", "get_object_tagging", "put_object_tagging"]
    assert watched.methods == [*write, "head_object"]
    kept, watched = s3_store(s3, versions=True)
    kept.put_atomic(PATH, b"1")
    version = version_of(kept)
    watched.methods.clear()
    assert clean(kept, version) == "cleaned"
    assert watched.methods == write


@pytest.mark.parametrize("at", range(4))
def test_overwrite_before_a_request_gets_no_tag(s3: S3Server, at: int) -> None:
    storage, watched, version = without_versions(s3)
    watched.before, watched.act = at, lambda: overwrite(storage)
    assert clean(storage, version) == "changed"
    assert tags_of(storage) == {}


@pytest.mark.parametrize("at", range(1, 3))
def test_only_the_named_version_gets_the_tag(s3: S3Server, at: int) -> None:
    storage, watched = s3_store(s3, versions=True)
    storage.put_atomic(PATH, b"1")
    version, first = version_of(storage), storage.object_version(PATH)
    watched.methods.clear()
    watched.before, watched.act = at, lambda: overwrite(storage)
    assert clean(storage, version) == "cleaned"
    assert tags_of(storage) == {}
    assert storage.read_tags(PATH, first) == OURS


def test_removal_before_a_request_is_noticed(s3: S3Server) -> None:
    for at in range(4):
        storage, watched, version = without_versions(s3)
        watched.before, watched.act = at, lambda: storage.delete(PATH)  # noqa: B023  # called in this turn
        assert clean(storage, version) == "gone"


def die() -> None:
    raise Died


@pytest.mark.parametrize("deed", ["nothing", "overwritten", "left"])
def test_death_at_a_request_is_worked_off(s3: S3Server, deed: str) -> None:
    for at in range(4):
        storage, watched, version = without_versions(s3)
        watched.after, watched.act = at, die
        with pytest.raises(Died):
            clean(storage, version)
        if deed == "overwritten":
            overwrite(storage)
            # A producer may take the tags of what it replaces with it.
            storage.write_tags(PATH, storage.object_version(PATH), {**OURS, "team": "a"})
        barred = frozenset({PATH} if deed == "left" else ())
        outcome = {"nothing": "cleaned", "overwritten": "changed", "left": "left"}[deed]
        assert clean(storage, version, barred) == outcome
        wanted = {"nothing": OURS, "overwritten": {"team": "a"}, "left": {}}[deed]
        assert tags_of(storage) == wanted


class TestCustomTime:
    @pytest.fixture
    def storage(self, gcs: GcsServer) -> GCSStorage:
        """Return a store with an object."""
        found = open_storage(f"gs://{gcs.new_bucket()}/raw", gcs.options, versions=True)
        assert isinstance(found, GCSStorage)
        found.put_atomic(PATH, b"1")
        return found

    @staticmethod
    def time_of(storage: GCSStorage, gcs: GcsServer) -> str | None:
        return gcs.buckets[storage.uri.split("/")[2]][f"raw/{PATH}"].custom_time

    def test_moves_to_now_and_no_further(self, storage: GCSStorage, gcs: GcsServer) -> None:
        version, times = version_of(storage), []
        begun = dt.datetime.now(dt.UTC)
        for _ in range(2):
            assert storage.tag_if(PATH, version, TAG)
            found = self.time_of(storage, gcs)
            assert found is not None
            times.append(dt.datetime.fromisoformat(found))
        assert begun <= times[0] <= times[1] <= dt.datetime.now(dt.UTC)
        assert version_of(storage) == version

    def test_is_no_change_of_the_file(self, storage: GCSStorage) -> None:
        before = storage.stat(PATH)
        assert storage.tag_if(PATH, before.version, TAG)
        [after] = [entry for page in storage.list_range("", None) for entry in page.entries]
        # Else each tagged file is reported as changed after it was ingested.
        assert storage.stat(PATH) == before == after

    def test_later_one_stays(self, storage: GCSStorage, gcs: GcsServer) -> None:
        later = "2999-01-01T00:00:00Z"
        gcs.buckets[storage.uri.split("/")[2]][f"raw/{PATH}"].custom_time = later
        assert storage.tag_if(PATH, version_of(storage), TAG)
        assert self.time_of(storage, gcs) == later

    @pytest.mark.parametrize("request_", ["GET", "PATCH"])
    def test_another_version_has_none(
        self, storage: GCSStorage, gcs: GcsServer, request_: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = storage._gcs  # noqa: SLF001  # its requests are raced
        version, call = version_of(storage), client.call

        def racing(method: str, *where: Any, **arguments: Any) -> Any:
            if method == request_:
                bucket = storage.uri.split("/")[2]
                gcs.put(bucket, f"raw/{PATH}", b"of another")
            return call(method, *where, **arguments)

        monkeypatch.setattr(client, "call", racing)
        with pytest.raises(Conflict):
            storage.tag_if(PATH, version, TAG)
        assert self.time_of(storage, gcs) is None

    def test_missing_object_is_no_error(self, storage: GCSStorage) -> None:
        version = version_of(storage)
        with pytest.raises(Conflict):
            storage.tag_if(PATH, "", TAG)
        storage.delete(PATH)
        assert not storage.tag_if(PATH, version, TAG)


def test_store_without_tags_refuses(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no tags"):
        open_storage(str(tmp_path), {}).tag_if(PATH, "v", TAG)
