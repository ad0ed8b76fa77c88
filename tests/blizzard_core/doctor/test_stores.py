"""Stores that `doctor` tries, over HTTP: sound ones, and ones that lack something."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from blizzard_core.doctor.findings import CheckResult, exit_code_of
from blizzard_core.doctor.store_probe import PREFIX
from blizzard_core.doctor.stores import Use, UsedStore, check_stores, region_steps
from blizzard_core.errors import BucketMissing
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import ServerFacts, is_hidden
from tests.support.azurite_server import AzuriteServer
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.gcs_server import GcsServer
from tests.support.s3_server import S3Server

SOURCE = ["list", "read", "start_after"]
BASICS = ["write", "read", "move", "delete"]
TABLE = ["list", *BASICS, "conditions", "race", "order", "start_after"]


@dataclass
class Store:
    proxy: FaultProxy
    bucket: str
    options: dict[str, str]

    def __post_init__(self) -> None:
        self.source = UsedStore("source", f"{self.bucket}/raw", self.options)
        self.table = UsedStore("table", f"{self.bucket}/lake/events", self.options)
        self.letters = UsedStore("dead letters", f"{self.bucket}/dlq", self.options)

    def check(self, *places: UsedStore, writes_sources: bool = False) -> list[CheckResult]:
        stop = threading.Event()
        return list(check_stores(places, stop, writes_sources=writes_sources))

    def names(self) -> list[str]:
        """Everything in the bucket."""
        storage = open_storage(self.bucket, self.options)
        return [entry.path for page in storage.list_range("", None) for entry in page.entries]


@pytest.fixture
def store(s3: S3Server) -> Iterator[Store]:
    with fault_proxy(s3.endpoint) as proxy:
        bucket = s3.new_bucket()
        s3.put(bucket, "raw/1.ndjson", b"{}\n")
        yield Store(proxy, f"s3://{bucket}", {**s3.options, "AWS_ENDPOINT_URL": proxy.endpoint})


def checks(findings: list[CheckResult], result: str | None = None) -> list[str]:
    return [each.check for each in findings if result in (None, each.result)]


def only(findings: list[CheckResult], check: str) -> CheckResult:
    return next(each for each in findings if each.check == check and each.result != "ok")


def test_a_sound_s3_store_passes_and_keeps_nothing(store: Store) -> None:
    found = store.check(store.source, store.table, store.letters)
    assert exit_code_of(found) == 0
    assert checks(found, "ok") == checks(found)
    by_place: dict[str, list[str]] = {each.subject: [] for each in found}
    for each in found:
        by_place[each.subject].append(each.check)
    source, table, letters = by_place.values()
    assert (source, letters) == (SOURCE, ["list", *BASICS])
    assert table == ["clock", "region", *TABLE]
    assert store.names() == ["raw/1.ndjson"]
    # A source is often another team's bucket.
    assert not [line for line in store.proxy.seen if "/raw/" in line and line[:3] != "GET"]


def test_doctor_writes_to_sources_only_with_the_option(store: Store) -> None:
    found = store.check(store.source, writes_sources=True)
    assert exit_code_of(found) == 0
    assert {*BASICS, "order"} <= {*checks(found, "ok")}
    assert "conditions" not in checks(found)
    assert store.names() == ["raw/1.ndjson"]


def test_what_a_server_does_is_tried_once_a_bucket(store: Store) -> None:
    other = UsedStore("table", f"{store.bucket}/lake/clicks", store.options)
    found = store.check(store.table, other)
    assert checks(found).count("race") == 1
    assert checks(found).count("write") == 2


def test_removal_is_tried_where_files_are_cleaned(store: Store, s3: S3Server) -> None:
    cleaned = replace(store.source, cleans=True)
    found = store.check(cleaned)
    assert "clean" in checks(found, "ok")
    assert "versions" not in checks(found)
    assert store.names() == ["raw/1.ndjson"]
    s3.keep_versions(store.bucket.removeprefix("s3://"))
    assert "lifecycle rule" in only(store.check(cleaned), "versions").text


def test_removal_without_its_condition_fails(store: Store) -> None:
    store.proxy.dropped = frozenset({"if-match"})
    found = store.check(replace(store.source, cleans=True))
    assert "ignores If-Match" in only(found, "clean").text
    assert store.names() == ["raw/1.ndjson"]


def test_tags_are_tried_where_files_are_tagged(store: Store) -> None:
    tagged = replace(store.source, cleans=True, tag="blizzard=ingested")
    assert "taken off" in next(each for each in store.check(tagged) if each.check == "clean").text
    assert store.names() == ["raw/1.ndjson"]
    forbidden = "DELETE"

    def refuse(method: str, _headers: dict[str, str]) -> tuple[int, str] | None:
        is_tagging = "?tagging" in store.proxy.seen[-1]
        return (403, "AccessDenied") if method == forbidden and is_tagging else None

    store.proxy.refuse = refuse
    assert only(store.check(tagged), "clean").result == "failed"
    assert store.names() == ["raw/1.ndjson"]
    forbidden = "PUT"
    store.proxy.refuse = lambda method, _headers: (403, "AccessDenied") if method == "PUT" else None
    found = only(store.check(tagged), "clean")
    assert (found.result, "was not tried" in found.text) == ("note", True)


@pytest.mark.parametrize("ignored", ["If-Match", "If-None-Match"])
def test_an_ignored_condition_fails(store: Store, ignored: str) -> None:
    store.proxy.dropped = frozenset({ignored.lower()})
    found = store.check(store.table)
    assert f"ignores {ignored}, so daemons" in only(found, "conditions").text
    assert exit_code_of(found) == 1
    assert "order" in checks(found, "ok")
    assert store.names() == ["raw/1.ndjson"]


def test_two_winners_of_a_race_fail(store: Store) -> None:
    alone = 6  # the writes that come one after the other
    count = iter(range(1000))

    def refuse(method: str, headers: dict[str, str]) -> None:
        conditional = method == "PUT" and {"if-match", "if-none-match"} & headers.keys()
        if conditional and next(count) >= alone:
            store.proxy.dropped = frozenset({"if-match", "if-none-match"})

    store.proxy.refuse = refuse
    found = store.check(store.table)
    assert "conditions" in checks(found, "ok")
    assert "both won" in only(found, "race").text


def folders_first(data: bytes) -> bytes:
    """The listing as a server makes it that sorts names of folders without their slash."""
    item = re.compile(rb"<Contents>(?:(?!</Contents>).)*?/order/a-b/.*?</Contents>", re.DOTALL)
    found = item.findall(data)
    end = data.rfind(b"</Contents>") + len(b"</Contents>")
    return item.sub(b"", data[:end]) + b"".join(found) + data[end:]


def test_another_order_of_names_fails(store: Store) -> None:
    store.proxy.relist = folders_first
    problem = only(store.check(store.table), "order")
    assert "does not list keys in the order of their bytes" in problem.text
    store.proxy.relist = lambda data: data
    assert store.names() == ["raw/1.ndjson"]


def test_a_listing_that_begins_at_the_beginning_fails(store: Store) -> None:
    store.proxy.repath = lambda path: re.sub("&?start-after=[^&]*", "", path)
    found = store.check(store.table)
    assert "order" in checks(found, "ok")
    assert only(found, "start_after").result == "failed"


@pytest.mark.parametrize(
    ("ahead", "result", "text"),
    [(-100, "note", "ahead of"), (100, "note", "behind"), (1000, "failed", "behind")],
)
def test_clocks_are_compared(store: Store, ahead: float, result: str, text: str) -> None:
    store.proxy.clock_ahead = ahead
    problem = only(store.check(store.source), "clock")
    assert problem.result == result
    assert f"s {text} the store's; set it right" in problem.text


def test_a_date_that_is_none_costs_no_check(store: Store) -> None:
    store.proxy.date = "yesterday"
    found = store.check(store.table)
    assert exit_code_of(found) == 0
    assert "clock" in checks(found, "ok")  # by the time of an object


def test_a_source_that_is_not_listed_is_not_called_empty(store: Store) -> None:
    store.proxy.refuse = lambda _method, _headers: (403, "AccessDenied")
    assert "read" not in checks(store.check(store.source))


def test_a_bucket_in_another_region_is_named(store: Store) -> None:
    problem = only(
        store.check(UsedStore("table", store.bucket, {**store.options, "AWS_REGION": "eu-west-1"})),
        "region",
    )
    assert "the bucket is in us-east-1, and requests are signed for eu-west-1" in problem.text


def test_another_region_stops_penguin_on_aws_only() -> None:
    def result(use: Use, host: str) -> str:
        facts = ServerFacts(None, "eu-west-1", "us-east-1", checks_region="amazonaws" in host)
        (step,) = region_steps(facts, is_table=use == "table")
        return step.result

    assert result("table", "s3.us-east-1.amazonaws.com") == "failed"
    # Blizzard's client follows the redirect.
    assert result("source", "s3.us-east-1.amazonaws.com") == "note"
    assert result("table", "minio.example") == "note"


def test_a_missing_bucket_has_its_own_exit_code(store: Store) -> None:
    found = store.check(store.table, UsedStore("source", "s3://no-such-bucket/raw", store.options))
    assert exit_code_of(found) == BucketMissing.exit_code == 10
    assert [each.text for each in found if each.result == "failed"] == [
        "the bucket does not exist; create it, or correct the URI"
    ]


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (400, "ExpiredToken", "the credentials have expired; renew them"),
        (403, "InvalidAccessKeyId", "correct AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "correct AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", "set this one right"),
        (400, "AuthorizationHeaderMalformed", "in the region eu-west-1; set AWS_REGION to it"),
        (503, "SlowDown", "try again later"),
    ],
)
def test_the_stores_own_code_says_why(store: Store, status: int, code: str, remedy: str) -> None:
    if status == 400:
        store.proxy.refusal_headers = {"x-amz-bucket-region": "eu-west-1"}
    store.proxy.refuse = lambda _method, _headers: (status, code)
    text = only(store.check(store.source), "list").text
    assert code in text
    assert remedy in text
    assert "test-secret" not in text


def test_no_right_to_write_fails_with_one_line(store: Store) -> None:
    def refuse(method: str, _headers: dict[str, str]) -> tuple[int, str] | None:
        return (403, "AccessDenied") if method == "PUT" else None

    store.proxy.refuse = refuse
    found = store.check(store.table)
    assert checks(found, "failed") == ["write"]
    assert "race" not in checks(found)


def test_nothing_is_deleted_with_rights_to_read_only(store: Store) -> None:
    def refuse(method: str, _headers: dict[str, str]) -> tuple[int, str] | None:
        return (403, "AccessDenied") if method in {"PUT", "DELETE"} else None

    store.proxy.refuse = refuse
    [write] = [each for each in store.check(store.table) if each.result == "failed"]
    assert write.check == "write"
    assert write.text.startswith(f"{PREFIX}")
    assert not any(request.startswith(("DELETE", "POST")) for request in store.proxy.seen)


def test_an_address_without_a_server_is_named_with_a_remedy(store: Store) -> None:
    options = {**store.options, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    [found] = store.check(UsedStore("source", store.source.uri, options))
    assert "http://127.0.0.1:1/" in found.text
    assert "see that the endpoint (its scheme, host and port) is right" in found.text


def test_what_cannot_be_deleted_is_named(store: Store) -> None:
    def refuse(method: str, _headers: dict[str, str]) -> tuple[int, str] | None:
        return (403, "AccessDenied") if method == "DELETE" else None

    store.proxy.refuse = refuse
    moved, last = store.check(store.letters)[-2:]
    assert (moved.check, moved.result) == ("move", "failed")
    assert last.check == "delete"
    assert last.text.startswith(PREFIX)
    assert "could not be deleted" in last.text


def test_an_object_that_stays_does_not_keep_the_others(store: Store) -> None:
    deletes = iter(range(1000))

    def refuse(method: str, _headers: dict[str, str]) -> tuple[int, str] | None:
        # The first two belong to the tries of a move and a delete.
        return (403, "AccessDenied") if method == "DELETE" and next(deletes) == 2 else None

    store.proxy.refuse = refuse
    last = store.check(store.table)[-1]
    assert (last.check, last.result) == ("delete", "failed")
    store.proxy.refuse = lambda _method, _headers: None
    assert len(store.names()) == 2


@pytest.mark.parametrize("number", [1, 9])
def test_probe_objects_are_deleted_after_a_failure(store: Store, number: int) -> None:
    puts = iter(range(1000))

    def refuse(method: str, _headers: dict[str, str]) -> tuple[int, str] | None:
        return (403, "AccessDenied") if method == "PUT" and next(puts) >= number else None

    store.proxy.refuse = refuse
    assert exit_code_of(store.check(store.table)) == 1
    store.proxy.refuse = lambda _method, _headers: None
    assert store.names() == ["raw/1.ndjson"]


def test_a_stop_ends_the_checks_without_a_trace(store: Store) -> None:
    stop = threading.Event()
    store.proxy.lose = lambda method: stop.set() if method == "PUT" else None  # type: ignore[func-returns-value]
    found = list(check_stores([store.table, store.letters], stop))
    assert "race" not in checks(found)
    assert store.names() == ["raw/1.ndjson"]


def test_two_runs_do_not_meet(store: Store) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: store.check(store.table), range(2)))
    assert [exit_code_of(found) for found in runs] == [0, 0]
    assert store.names() == ["raw/1.ndjson"]


def test_a_killed_runs_objects_are_deleted_later(store: Store, s3: S3Server) -> None:
    bucket = store.bucket.removeprefix("s3://")
    old = [f"lake/events/{PREFIX}old/object", f"dlq/{PREFIX}old/object"]
    for path in (*old, f"lake/events/{PREFIX}new/object"):
        s3.put(bucket, path, b"")
    store.proxy.dated = dict.fromkeys(old, time.time() - 4000)
    assert exit_code_of(store.check(store.table, store.letters)) == 0
    assert store.names() == [f"lake/events/{PREFIX}new/object", "raw/1.ndjson"]


def test_no_daemon_takes_a_probe_for_data() -> None:
    assert is_hidden(f"{PREFIX}0/date=2024-01-01/part.parquet")


def test_a_sound_gcs_store_passes(gcs: GcsServer) -> None:
    bucket = gcs.new_bucket()
    gcs.put(bucket, "raw/1.ndjson", b"{}\n")
    places = [UsedStore(use, f"gs://{bucket}/{path}", gcs.options) for use, path in _USES]
    found = list(check_stores(places, threading.Event()))
    assert [*checks(found, "failed"), *checks(found, "note")] == []
    assert {"clock", "race", "order"} <= {*checks(found)}
    assert [*gcs.buckets[bucket]] == ["raw/1.ndjson"]


def test_a_sound_azure_store_passes(azurite: AzuriteServer) -> None:
    container = azurite.new_container()
    azurite.put(container, "raw/1.ndjson", b"{}\n")
    places = [UsedStore(use, f"az://{container}/{path}", azurite.options) for use, path in _USES]
    found = list(check_stores(places, threading.Event()))
    assert [*checks(found, "failed"), *checks(found, "note")] == []
    storage = open_storage(f"az://{container}", azurite.options)
    assert [e.path for page in storage.list_range("", None) for e in page.entries] == [
        "raw/1.ndjson"
    ]


_USES = (("source", "raw"), ("table", "lake"), ("dead letters", "dlq"))


def test_local_folders_are_tried_and_left_as_they_were(tmp_path: Path) -> None:
    for folder in ("raw", "lake"):
        (tmp_path / folder).mkdir()
    (tmp_path / "raw" / "1.ndjson").write_text("{}\n")
    places = [
        UsedStore("source", str(tmp_path / "raw"), cleans=True),
        UsedStore("table", str(tmp_path / "lake")),
    ]
    found = list(check_stores(places, threading.Event()))
    assert exit_code_of(found) == 0
    assert {"race", "clean"} <= {*checks(found, "ok")}
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "lake",
        "raw",
        "raw/1.ndjson",
    ]


def test_a_file_in_place_of_a_local_table_fails(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    [found] = check_stores([UsedStore("table", str(tmp_path / "lake"))], threading.Event())
    assert (found.check, found.result) == ("list", "failed")
    assert "is a file, and not a directory" in found.text


def test_a_missing_local_folder_is_named_by_its_use(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    places = [
        UsedStore("source", str(tmp_path / "raw")),
        UsedStore("table", str(tmp_path / "lake" / "events")),
        UsedStore("dead letters", str(closed / "dlq")),
    ]
    found = list(check_stores(places, threading.Event()))
    expected = ["failed", "ok", "failed" if os.geteuid() else "ok"]
    assert [each.result for each in found] == expected
    assert not (tmp_path / "lake").exists()
