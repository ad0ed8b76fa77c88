"""One contract, every back end: local disk, S3 over HTTP, fsspec's memory, and the test double."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blizzard_py.core.errors import AccessDenied, NotFound, Unavailable
from blizzard_py.core.storage import Storage, join, order_key
from blizzard_py.core.store_object import wrap_error
from blizzard_py.core.stores import fsspec_arguments, normalize_uri, open_storage, problems_of
from tests.memory_store import MemoryStorage
from tests.s3_server import S3Server

BACKENDS = ["local", "s3", "fsspec-memory", "double"]

AWKWARD = [
    "a b/c.json",
    "date=1/x.json",
    "date=1-late/x.json",
    "date=10/x.json",
    "deep/er/and/deeper/x.json",
    "percent%41/x%2F.json",
    "plus+and&more/x.json",
    "root.json",
    "ü/\U0001f427.json",
    "z=1/\ufffd.json",
    "z=1/\U00010000.json",
]


@pytest.fixture(params=BACKENDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    match request.param:
        case "local":
            yield open_storage(str(tmp_path / "root"), {})
        case "s3":
            server: S3Server = request.getfixturevalue("s3")
            yield open_storage(f"s3://{server.new_bucket()}/some/prefix", server.options)
        case "fsspec-memory":
            yield open_storage(f"memory://{uuid.uuid4().hex}/prefix", {})
        case _:
            yield MemoryStorage()


def listed(storage: Storage, after: str = "", until: str | None = None) -> list[str]:
    return [entry.path for page in storage.list_range(after, until) for entry in page.entries]


def test_what_was_put_is_read_and_replaced_whole(storage: Storage) -> None:
    storage.put_atomic("a/b.json", b"one")
    storage.put_atomic("a/b.json", b"two and more")
    assert storage.read("a/b.json") == b"two and more"
    assert storage.read_range("a/b.json", 4, 7) == b"and"
    with storage.open_input("a/b.json") as stream:
        assert stream.read(3) + stream.read() == b"two and more"
    found = storage.stat("a/b.json")
    assert found is not None
    assert (found.path, found.size) == ("a/b.json", 12)


def test_output_streams_become_objects(storage: Storage) -> None:
    with storage.open_output("x/y.bin") as stream:
        stream.write(b"abc")
        stream.write(b"def")
    storage.sync("x/y.bin")
    assert storage.read("x/y.bin") == b"abcdef"


def test_what_is_not_there(storage: Storage) -> None:
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


def test_listings_are_in_utf8_byte_order_whatever_the_names(storage: Storage) -> None:
    for path in AWKWARD:
        storage.put_atomic(path, b"x")
    assert listed(storage) == sorted(AWKWARD, key=order_key)


def test_both_bounds_of_a_range_are_exclusive(storage: Storage) -> None:
    for path in AWKWARD:
        storage.put_atomic(path, b"x")
    bounds = [*AWKWARD, "date=1", "date=1/", "date=10/", "deep/er", "d", "zz"]
    for after in ["", *bounds]:
        for until in [None, "date=10/", "root.json", "ü/"]:
            expected = sorted(
                (
                    path
                    for path in AWKWARD
                    if order_key(path) > order_key(after)
                    and (until is None or order_key(path) < order_key(until))
                ),
                key=order_key,
            )
            assert listed(storage, after, until) == expected, (after, until)


def test_a_listing_over_many_pages_is_complete(storage: Storage) -> None:
    names = [f"p={number % 3}/{number:05d}" for number in range(1250)]
    if isinstance(storage, MemoryStorage):
        storage.page_keys = 100
    for name in names:
        storage.put_atomic(name, b"")
    assert listed(storage) == sorted(names)
    assert listed(storage, "p=1/", "p=2/") == sorted(n for n in names if n.startswith("p=1/"))


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


def test_a_missing_bucket_is_named(s3: S3Server) -> None:
    storage = open_storage("s3://no-such-bucket/x", s3.options)
    with pytest.raises(NotFound, match="s3://no-such-bucket/x/: the bucket does not exist"):
        listed(storage)


def test_a_missing_local_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="absent: no such directory"):
        listed(open_storage(str(tmp_path / "absent"), {}))


def test_a_local_listing_reads_only_directories_in_range(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), {})
    for day in range(50):
        storage.put_atomic(f"date={day:02d}/a", b"")
    requests = sum(page.requests for page in storage.list_range("date=48/a", None))
    assert requests == 3  # the root, date=48 and date=49


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


def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises((NotFound, AccessDenied, Unavailable), match=r"file/x\.json"):
        open_storage(str(tmp_path / "file"), {}).put_atomic("x.json", b"")


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class NoCredentialsError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ClientError("SignatureDoesNotMatch"), AccessDenied, "access denied"),
        (ClientError("SlowDown"), Unavailable, "SlowDown"),
        (ClientError("NoSuchBucket"), NotFound, "bucket does not exist"),
        (PermissionError("Forbidden"), AccessDenied, "access denied"),
        (FileNotFoundError("x"), NotFound, "not found"),
        (TimeoutError(), Unavailable, "timed out"),
        (NoCredentialsError(), AccessDenied, "no credentials found"),
        (OSError("connection reset"), Unavailable, "connection reset"),
    ],
)
def test_foreign_errors_become_ours_by_what_happened(
    error: Exception, kind: type[Exception], text: str
) -> None:
    wrapped = wrap_error("s3://b/k", error)
    assert type(wrapped) is kind
    assert text in str(wrapped)
    assert "s3://b/k" in str(wrapped)


def test_wrong_credentials_are_denied_and_not_shown() -> None:
    assert "geheim" not in repr(open_storage("s3://b/x", {"AWS_SECRET_ACCESS_KEY": "geheim"}))


def test_option_names_are_translated_for_fsspec() -> None:
    arguments = fsspec_arguments(
        "s3://b/x",
        {
            "AWS_ACCESS_KEY_ID": "k",
            "aws_secret_access_key": "s",
            "AWS_REGION": "r",
            "AWS_ENDPOINT_URL": "http://e",
            "AWS_ALLOW_HTTP": "true",
        },
    )
    assert (arguments["key"], arguments["secret"]) == ("k", "s")
    assert arguments["client_kwargs"] == {"region_name": "r", "endpoint_url": "http://e"}
    assert arguments["use_listings_cache"] is False
    assert arguments["config_kwargs"]["read_timeout"] == 60
    assert fsspec_arguments("gs://b", {"GOOGLE_SERVICE_ACCOUNT": "f"})["token"] == "f"
    assert fsspec_arguments("az://b", {"AZURE_STORAGE_ACCOUNT_NAME": "n"})["account_name"] == "n"


def test_one_spelling_per_place() -> None:
    assert normalize_uri("s3a://b//x/") == "s3://b/x"
    assert normalize_uri("S3://b") == "s3://b"
    assert normalize_uri("file:///a/../b/") == "/b"
    assert normalize_uri("gcs://b/x") == "gs://b/x"
    assert normalize_uri("abfss://c@account.dfs/x/") == "abfss://c@account.dfs/x"
    assert Path(normalize_uri("relative/x")).is_absolute()
    assert join("", "a/", "/b") == "a/b"
    assert problems_of("gs://b/x", {}) == []
