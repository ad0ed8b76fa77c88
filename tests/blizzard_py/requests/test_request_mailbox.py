"""The mailbox: a command given again finds its request, whatever died or was lost before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import Conflict, NotFound, Unavailable
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.requests import mailbox as module
from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.document import Cancel, End, Request, digest, inputs
from blizzard_py.requests.mailbox import Contents, Mailbox
from tests.support.gcs_server import GcsServer
from tests.support.interrupted import Call, Interrupted
from tests.support.memory_store import Died, MemoryStorage
from tests.support.s3_server import S3Server

FOLDER = "_blizzard/requests/events_main"
AT = "2026-11-25T09:12:04Z"
REQUEST = Request(
    kind="mark_units",
    select={"units": ["2024-01-28T00:00:00.000Z/eu"]},
    config="sha256:5b1c",
    by="ann@ops-3",
    at=AT,
    why="corrected day",
    release="0.1.0",
)
OTHER = replace(REQUEST, select={"units": ["2024-01-29T00:00:00.000Z/eu"]})
ONE, TWO, THREE = (f"{digest(REQUEST)}.{number}" for number in (1, 2, 3))
DONE = End(kind="mark_units", state="done", at=5.0, counts={"units": 1}, by="ann@ops-3")
NOTHING = Contents((), frozenset(), ())


def failing(sink: MemoryStorage, at: int, error: BaseException, *, after: bool) -> Interrupted:
    """Return a storage whose call number ``at`` raises, before it took effect or after it."""
    calls = count(1)

    def around(call: Call) -> Any:
        is_this = next(calls) == at
        if is_this and not after:
            raise error
        result = call()
        if is_this:
            raise error
        return result

    return Interrupted(sink, around)


def box(sink: Any, source_id: str = "events_main") -> Mailbox:
    return Mailbox(cast("Storage", sink), source_id)


def each_failure(
    prepare: Callable[[Mailbox], object], act: Callable[[Mailbox], object]
) -> Iterator[MemoryStorage]:
    """Yield the store after each way in which one call of the act can fail."""
    for error in (Died(), Unavailable("no answer")):
        for after in (False, True):
            at = 0
            while True:
                at += 1
                sink = MemoryStorage()
                prepare(box(sink))
                try:
                    act(box(failing(sink, at, error, after=after)))
                except type(error):
                    yield sink
                else:
                    assert at > 1
                    break


# -- submit -----------------------------------------------------------------------


def test_the_same_command_follows_its_request() -> None:
    mail = box(MemoryStorage())
    mail.submit(REQUEST)
    before = mail.bell()
    assert mail.submit(replace(REQUEST, by="bob", at="2026-11-26T09:12:04Z")) == (ONE, False)
    assert mail.read(ONE) == REQUEST
    assert mail.bell() != before


def test_an_end_is_followed_where_once_is_enough() -> None:
    mail = box(MemoryStorage())
    assert mail.submit(REQUEST, once_more=False) == (ONE, True)
    mail.end(ONE, DONE)
    assert mail.submit(REQUEST, once_more=False) == (ONE, False)
    assert mail.submit(REQUEST, once_more=True) == (TWO, True)
    mail.end(TWO, DONE)
    assert mail.submit(REQUEST, once_more=False) == (TWO, False)


def test_a_cancelled_request_is_not_followed() -> None:
    mail = box(MemoryStorage())
    mail.submit(REQUEST)
    mail.cancel(ONE, "bob", AT, "wrong day")
    assert mail.submit(REQUEST, once_more=False) == (ONE, False)
    assert mail.submit(REQUEST) == (TWO, True)
    assert mail.submit(REQUEST) == (TWO, False)


def test_an_equal_digest_alone_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "digest", lambda _request: "7f3a9c2e")
    mail = box(MemoryStorage())
    assert mail.submit(REQUEST) == ("7f3a9c2e.1", True)
    assert mail.submit(OTHER) == ("7f3a9c2e.2", True)
    assert mail.submit(OTHER) == ("7f3a9c2e.2", False)
    assert mail.submit(REQUEST) == ("7f3a9c2e.1", False)


@pytest.mark.parametrize("content", [b"", b"damaged", b" " * (2 << 20)])
def test_a_request_that_cannot_be_read_is_not_followed(content: bytes) -> None:
    sink = MemoryStorage()
    sink.objects[f"{FOLDER}/{ONE}.json"] = (content, 0.0)
    assert box(sink).submit(REQUEST) == (TWO, True)
    with pytest.raises(RequestInvalid, match=rf"{ONE}\.json: is "):
        box(sink).read(ONE)


def test_numbers_go_on_behind_the_highest() -> None:
    mail = box(MemoryStorage())
    for _ in range(11):
        request_id, is_new = mail.submit(REQUEST)
        assert is_new
        mail.end(request_id, DONE)
    assert [each.rpartition(".")[2] for each in mail.contents().ended] == [
        str(number) for number in range(1, 12)
    ]


def test_a_cancellation_alone_never_meets_a_new_request() -> None:
    sink = MemoryStorage()
    sink.objects[f"{FOLDER}/{ONE}.cancel.json"] = (b"{}", 0.0)
    assert box(sink).submit(REQUEST) == (TWO, True)
    assert box(sink).contents() == Contents((TWO,), frozenset(), ())


def test_a_request_that_the_owner_would_refuse_is_not_sent() -> None:
    sink = MemoryStorage()
    with pytest.raises(RequestInvalid, match=r"^mark_units for .*: select: units: .*correct the"):
        box(sink).submit(replace(REQUEST, select={"units": []}))
    assert not sink.objects


def test_two_commands_at_once_make_one_request() -> None:
    sink = MemoryStorage()

    def other(operation: str, _path: str) -> None:
        if operation == "put_if":
            sink.before_mutation = lambda _op, _path: None
            assert box(sink).submit(REQUEST) == (ONE, True)

    sink.before_mutation = other
    assert box(sink).submit(REQUEST) == (ONE, False)
    assert box(sink).contents().open == (ONE,)


def test_another_request_of_the_digest_takes_its_number_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "digest", lambda _request: "7f3a9c2e")
    sink = MemoryStorage()

    def other(operation: str, _path: str) -> None:
        if operation == "put_if":
            sink.before_mutation = lambda _op, _path: None
            box(sink).submit(OTHER)

    sink.before_mutation = other
    assert box(sink).submit(REQUEST) == ("7f3a9c2e.2", True)
    assert box(sink).read("7f3a9c2e.1") == OTHER


def test_a_client_that_repeats_its_write_follows_itself() -> None:
    sink = MemoryStorage()

    def conflict(operation: str, path: str) -> None:
        if operation == "put_if":
            raise Conflict(path)

    sink.after_mutation = conflict
    assert box(sink).submit(REQUEST) == (ONE, False)


def test_a_store_that_always_conflicts_ends_the_command() -> None:
    sink = MemoryStorage()

    def conflict(operation: str, path: str) -> None:
        if operation == "put_if":
            raise Conflict(path)

    sink.before_mutation = conflict
    with pytest.raises(Conflict, match=r"events_main: .* give the command again"):
        box(sink).submit(REQUEST)
    assert not sink.objects


def test_a_command_that_failed_anywhere_finds_its_request() -> None:
    stores = 0
    for sink in each_failure(lambda _mail: None, lambda mail: mail.submit(REQUEST)):
        stores += 1
        before = box(sink).bell()
        assert box(sink).submit(REQUEST)[0] == ONE
        assert box(sink).contents() == Contents((ONE,), frozenset(), ())
        assert box(sink).bell() != before
    assert stores == 12  # LIST, put, bell; each before and after, in two ways


def test_a_command_that_failed_while_following_does_so_again() -> None:
    for sink in each_failure(
        lambda mail: mail.submit(REQUEST), lambda mail: mail.submit(replace(REQUEST, by="bob"))
    ):
        assert box(sink).submit(REQUEST) == (ONE, False)
        assert box(sink).contents().open == (ONE,)


# -- bell -------------------------------------------------------------------------


def test_a_bell_changes_with_each_ring() -> None:
    mail = box(MemoryStorage())
    rings = [mail.bell()]
    for _ in range(3):
        mail.ring()
        assert mail.bell() == mail.bell()
        rings.append(mail.bell())
    assert rings[0] == ""
    assert len(set(rings)) == 4


def test_of_a_large_bell_the_beginning_counts() -> None:
    sink = MemoryStorage()
    sink.objects[f"{FOLDER}/bell"] = (b"\xff" * (1 << 20), 0.0)
    assert box(sink).bell() == "\ufffd" * 64


def test_a_bell_that_cannot_be_read_is_no_silent_one() -> None:
    sink = MemoryStorage()
    box(sink).ring()
    mail = box(failing(sink, 1, Unavailable("no answer"), after=False))
    with pytest.raises(Unavailable):
        mail.bell()


# -- contents ---------------------------------------------------------------------


def test_a_mailbox_that_nobody_used_is_empty(tmp_path: Path) -> None:
    for sink in (MemoryStorage(), open_storage(str(tmp_path / "none"), {})):
        assert box(sink).contents() == NOTHING
        assert box(sink).bell() == ""
        assert box(sink).prune(1e12) == []
        assert box(sink).end_record(ONE) is None
        assert box(sink).cancellation(ONE) is None
        with pytest.raises(NotFound):
            box(sink).read(ONE)


def test_contents_tell_open_cancelled_and_ended() -> None:
    mail = box(MemoryStorage())
    first, second, third = sorted(
        mail.submit(replace(REQUEST, config=str(number)))[0] for number in range(3)
    )
    mail.cancel(first, "bob", AT, "")
    mail.cancel(third, "bob", AT, "")
    mail.end(third, replace(DONE, state="cancelled"))
    assert mail.contents() == Contents((first, second), frozenset({first}), (third,))


@pytest.mark.parametrize(
    "name",
    [
        "readme.txt",
        f"{ONE}",
        f"{ONE}.json.lock",
        f"{ONE}.json.0123.tmp",
        f"{ONE}.JSON",
        f"{ONE}/000003-00000007.ndjson",
        "7f3a9c2e.0.json",
        "7f3a9c2e.01.json",
        "7F3A9C2E.1.json",
        "7f3a9c2e.json",
        "7f3a9c2e.1\n.json",
        "deeper/7f3a9c2e.1.json",
        "\udcff.1.json",
    ],
)
def test_foreign_objects_are_left_out(name: str) -> None:
    sink = MemoryStorage()
    sink.objects[f"{FOLDER}/{name}"] = (b"x", 0.0)
    assert box(sink).contents() == NOTHING
    assert box(sink).prune(1e12) == []
    assert box(sink).submit(REQUEST) == (ONE, True)


def test_sources_do_not_see_each_others_requests() -> None:
    sink = MemoryStorage()
    for source_id in ("events", "events_main", "events_main2", "events_main~replay"):
        mail = box(sink, source_id)
        assert mail.contents() == NOTHING
        assert mail.submit(REQUEST) == (ONE, True)
        assert mail.contents().open == (ONE,)


BAD_IDS = ["", "7f3a9c2e", "7f3a9c2e.0", "7f3a9c2e.01", "7F3A9C2E.1", "7f3a9c2e.1\n", "../bell"]
BAD_IDS += ["7f3a9c2e.1/../../x", "7f3a9c2e.\u0661", "7f3a9c2e.1.cancel", "\x1b[2J" * 10_000]


@pytest.mark.parametrize("request_id", BAD_IDS)
def test_an_id_that_is_none_is_refused_everywhere(request_id: str) -> None:
    sink = MemoryStorage()
    mail = box(sink)
    for act in (
        lambda: mail.read(request_id),
        lambda: mail.cancel(request_id, "bob", AT, ""),
        lambda: mail.cancellation(request_id),
        lambda: mail.end(request_id, DONE),
        lambda: mail.end_record(request_id),
    ):
        with pytest.raises(RequestInvalid, match="is no id of a request") as caught:
            act()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 3000
    assert not sink.objects


# -- cancel and end ---------------------------------------------------------------


def test_a_cancellation_with_long_texts_can_be_read() -> None:
    mail = box(MemoryStorage())
    mail.submit(REQUEST)
    mail.cancel(ONE, "b" * 1000, AT, "w" * 1000)
    found = mail.cancellation(ONE)
    assert (len(found.by), len(found.why)) == (499, 499)


def test_a_request_that_cannot_be_read_can_be_cancelled() -> None:
    sink = MemoryStorage()
    sink.objects[f"{FOLDER}/{ONE}.json"] = (b"damaged", 0.0)
    box(sink).cancel(ONE, "bob", AT, "")
    assert box(sink).contents().cancelled == {ONE}


def test_a_request_that_is_not_there_is_not_cancelled() -> None:
    sink = MemoryStorage()
    with pytest.raises(NotFound, match="there is no such request"):
        box(sink).cancel(ONE, "bob", AT, "")
    assert not sink.objects


def test_cancel_is_repeated_after_any_failure() -> None:
    def cancel(mail: Mailbox) -> None:
        mail.cancel(ONE, "bob", AT, "wrong day")

    for sink in each_failure(lambda mail: mail.submit(REQUEST), cancel):
        before = box(sink).bell()
        cancel(box(sink))
        assert box(sink).contents() == Contents((ONE,), frozenset({ONE}), ())
        assert box(sink).bell() != before


def test_an_end_that_failed_is_put_again() -> None:
    for sink in each_failure(lambda mail: mail.submit(REQUEST), lambda mail: mail.end(ONE, DONE)):
        assert ONE in (*box(sink).contents().open, *box(sink).contents().ended)
        box(sink).end(ONE, DONE)
        assert box(sink).contents() == Contents((), frozenset(), (ONE,))


# -- prune ------------------------------------------------------------------------


def test_only_ends_of_before_are_pruned() -> None:
    times = iter(range(1, 100))
    sink = MemoryStorage(clock=lambda: float(next(times)))
    mail = box(sink)
    mail.submit(OTHER)
    for _ in range(3):
        mail.end(mail.submit(REQUEST)[0], DONE)
    before = sink.objects[f"{FOLDER}/{TWO}.ended.json"][1]
    assert mail.prune(before) == [ONE]
    left = mail.contents()
    assert left.ended == (TWO, THREE)
    assert left.open == (f"{digest(OTHER)}.1",)
    assert mail.prune(before) == []
    assert mail.submit(REQUEST)[0] == f"{digest(REQUEST)}.4"


def ended(mail: Mailbox) -> None:
    mail.submit(REQUEST)
    mail.cancel(ONE, "bob", AT, "")
    mail.end(ONE, DONE)


def test_all_objects_of_a_request_go() -> None:
    sink = MemoryStorage()
    ended(box(sink))
    for name in (f"{ONE}.json.lock", f"{ONE}/000003-00000007.ndjson"):
        sink.objects[f"{FOLDER}/{name}"] = (b"", 0.0)
    beside = f"{FOLDER}/{ONE}0.json"
    sink.objects[beside] = (b"", 0.0)
    assert box(sink).prune(1.0) == [ONE]
    assert sorted(sink.objects) == [beside, f"{FOLDER}/bell"]


def test_a_prune_that_failed_anywhere_opens_nothing_again() -> None:
    for sink in each_failure(ended, lambda mail: mail.prune(1.0)):
        assert not box(sink).contents().open
        box(sink).prune(1.0)
        assert list(sink.objects) == [f"{FOLDER}/bell"]


def test_submit_during_prune_is_new() -> None:
    for sink in each_failure(ended, lambda mail: mail.prune(1.0)):
        request_id, is_new = box(sink).submit(REQUEST)
        assert is_new
        box(sink).prune(1.0)
        assert box(sink).contents() == Contents((request_id,), frozenset(), ())


# -- any order --------------------------------------------------------------------

_STEP = st.tuples(
    st.sampled_from(["submit", "cancel", "end", "prune"]),
    st.integers(0, 2),
    st.integers(0, 6),
    st.booleans(),
)


@given(st.lists(_STEP, max_size=15))
def test_equal_requests_are_open_once_in_any_order(steps: list[tuple[str, int, int, bool]]) -> None:
    time = 0.0
    sink = MemoryStorage(clock=lambda: time)
    for step, which, at, after in steps:
        time += 1.0
        request = replace(REQUEST, config=str(which))
        mail = box(failing(sink, at, Died(), after=after))
        found = box(sink).contents()
        try:
            match step:
                case "submit":
                    mail.submit(request)
                case "cancel" if which < len(found.open):
                    mail.cancel(found.open[which], "bob", AT, "")
                case "end" if which < len(found.open):
                    mail.end(found.open[which], DONE)
                case "prune":
                    mail.prune(time - 4.0)
        except Died:
            pass
        now = box(sink).contents()
        # What has ended is never open again.
        assert not set(found.ended) & set(now.open)
        live = [inputs(box(sink).read(each)) for each in set(now.open) - now.cancelled]
        assert len(live) == len(set(live))


# -- real stores ------------------------------------------------------------------


@pytest.fixture(params=["local", "s3", "gcs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(str(tmp_path / "table"), {})
    if request.param == "gcs":
        gcs: GcsServer = request.getfixturevalue("gcs")
        return open_storage(f"gs://{gcs.new_bucket()}/table", gcs.options)
    server: S3Server = request.getfixturevalue("s3")
    return open_storage(f"s3://{server.new_bucket()}/table", server.options)


def test_a_request_lives_and_goes_on_a_real_store(store: Storage) -> None:
    mail = box(store)
    assert mail.submit(REQUEST) == (ONE, True)
    assert mail.submit(REQUEST) == (ONE, False)
    mail.cancel(ONE, "bob", AT, "wrong day")
    mail.cancel(ONE, "eve", AT, "other")
    assert mail.contents() == Contents((ONE,), frozenset({ONE}), ())
    assert mail.cancellation(ONE) == Cancel(by="bob", at=AT, why="wrong day")
    mail.end(ONE, DONE)
    assert (mail.read(ONE), mail.end_record(ONE)) == (REQUEST, DONE)
    assert mail.prune(1.0) == []
    assert mail.prune(1e12) == [ONE]
    left = [entry.path for page in store.list_range("", None) for entry in page.entries]
    assert left == [f"{FOLDER}/bell"]


def test_empty_objects_on_a_real_store_stop_nobody(store: Storage) -> None:
    for name in ("bell", f"{ONE}.json"):
        store.put_atomic(f"{FOLDER}/{name}", b"")
    assert box(store).bell() == ""
    with pytest.raises(RequestInvalid, match="is not valid JSON"):
        box(store).read(ONE)


def test_many_commands_at_once_on_disk_make_one_request(tmp_path: Path) -> None:
    found: list[tuple[str, bool]] = []
    table = str(tmp_path / "table")

    def submit() -> None:
        found.append(box(open_storage(table, {})).submit(REQUEST))

    threads = [threading.Thread(target=submit) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(ONE, False)] * 4 + [(ONE, True)]
    assert box(open_storage(table, {})).contents().open == (ONE,)
