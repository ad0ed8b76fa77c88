"""Requests are done once, by whoever owns the source, and live work goes on beside them."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.errors import AccessDenied, ColdStartRefused, FencedError
from blizzard_core.settings.load import load_config
from blizzard_core.storage.local import LocalStorage
from blizzard_py.__main__ import main
from blizzard_py.app import submit as wired
from blizzard_py.app.request_effects import fingerprint_of
from blizzard_py.app.request_listing import cancel_request, find_requests
from blizzard_py.app.submit import RequestOrder, Waits, submit_and_follow
from blizzard_py.app.wiring import owner_context
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestResult
from tests.support.memory_store import Died
from tests.support.mortal_disk import Mortal
from tests.support.unit_shop import ID, WHERE, UnitShop

JANUARY = "2020-01-01T00:00:00.000Z"


@pytest.fixture
def shop(tmp_path: Path) -> UnitShop:
    shop = UnitShop(tmp_path)
    shop.put(("2020-01-05", "s1", "a"), ("2020-02-05", "s1", "b"))
    shop.run()
    shop.execute("UPDATE answers SET text = upper(text)")
    return shop


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is a daemon of which nobody here can see whether it runs."""

    def unseen(writer: Writer) -> bool | None:
        return False if writer.released else None

    monkeypatch.setattr(wired, "is_running", unseen)


def january(shop: UnitShop) -> str:
    return next(key for key in shop.checkpoint()["units"]["open"] if key.startswith("2020-01"))


def mark(
    shop: UnitShop,
    between: Callable[[], Any] = lambda: None,
    *,
    wait: bool = True,
    take_over: bool = False,
    units: list[str] | None = None,
) -> RequestResult:
    """A command that has January read again; ``between`` is what happens while it waits."""
    turns = iter(range(1000))
    waits = Waits(
        lambda _secs: between(),
        lambda: shop.now.timestamp() + 10 * next(turns),
        lambda _line: None,
        wait=wait,
        take_over=take_over,
    )
    select = {"units": units or [january(shop)]}
    return submit_and_follow(
        shop.config(), WHERE, RequestOrder("mark_units", select, why="a test"), waits
    )


def polls(worker: SourcePipeline) -> None:
    while worker.cycle(threading.Event()):
        pass


def mailbox(shop: UnitShop) -> Mailbox:
    return Mailbox(LocalStorage(shop.lake), ID)


def test_a_request_is_done_by_the_command_where_nobody_runs(shop: UnitShop) -> None:
    assert mark(shop).state == "done"
    shop.run()
    assert shop.texts() == ["A", "b"]
    assert shop.checkpoint().get("requests") is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("backfill", "--from=2020-01-01", "--to=2020-02-01", "--assume-missing"), "units"),
        (("backfill", "--from=2020-01-01", "--to=2020-02-01", "--once-more"), "units"),
        (("replay", "--stage=late"), "units"),
        (("replay", "--since=2020-01-01"), "units"),
        (("replay", "--all", "--from-source"), "source of files"),
    ],
)
def test_options_that_units_do_not_have_are_refused(
    shop: UnitShop, words: tuple[str, ...], says: str
) -> None:
    shop.run()
    before = shop.checkpoint()
    name, *options = words
    where = ("--pipeline", WHERE[0], "--source", WHERE[1])
    done = CliRunner().invoke(main, [name, str(shop.path()), *where, *options])
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert shop.checkpoint() == before
    assert not list(find_requests(shop.config()))


def test_backfills_of_units_preview_explain_and_answer_json(shop: UnitShop) -> None:
    shop.run()
    before = shop.checkpoint()
    where = [str(shop.path()), "--pipeline", WHERE[0], "--source", WHERE[1]]
    asked = ["backfill", *where, "--from=2020-01-01", "--to=2020-02-01"]
    done = CliRunner().invoke(main, [*asked, "--dry-run"])
    assert "1 units would be read again" in done.stdout
    assert shop.checkpoint() == before
    done = CliRunner().invoke(main, [*asked, "--json", "--why=a test"])
    told = json.loads(done.stdout)
    [found] = find_requests(shop.config())
    assert told == {"units": told["units"], "request": found.id, "dry_run": False}
    assert found.request.why == "a test"


@pytest.mark.promise("G-214")
@pytest.mark.usefixtures("elsewhere")
def test_a_daemon_does_a_request_and_is_not_fenced(shop: UnitShop) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        assert not daemon.is_called()
        result = mark(shop, lambda: polls(daemon))
        assert (result.state, result.counts) == ("done", {"units": 1})
        assert shop.texts() == ["A", "b"]
        polls(daemon)
        [found] = find_requests(shop.config())
        assert (found.state, found.id) == ("done", result.id)


@pytest.mark.promise("G-214")
@pytest.mark.usefixtures("elsewhere")
def test_an_unaccepted_request_is_found_by_the_same_command(shop: UnitShop) -> None:
    shop.worker().cycle(threading.Event())
    first, second = mark(shop), mark(shop, wait=False)
    assert first == second == RequestResult(first.id, "open")
    assert [found.id for found in find_requests(shop.config())] == [first.id]
    shop.run()
    assert shop.texts() == ["A", "b"]
    third = mark(shop, wait=False)  # it has ended: this is a request of its own
    assert third.id == first.id.replace(".1", ".2")


@pytest.mark.usefixtures("elsewhere")
def test_a_command_may_take_over(shop: UnitShop) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        assert mark(shop, take_over=True).state == "done"
        assert shop.checkpoint()["writer"]["released"] is True  # the next command need not ask
        path = shop.lake / "_blizzard" / "requests" / ID / "00c0ffee.1.json"
        path.write_text("{}")
        mailbox(shop).ring()
        with pytest.raises(FencedError):  # to refuse it is a save
            polls(daemon)


@pytest.mark.usefixtures("elsewhere")
def test_a_source_that_was_released_is_anybodys(shop: UnitShop) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        daemon.release()
    assert shop.checkpoint()["writer"]["released"] is True
    assert mark(shop).state == "done"
    shop.run()
    assert "released" not in shop.checkpoint()["writer"]


@pytest.mark.usefixtures("elsewhere")
def test_replaced_worker_releases_nothing(shop: UnitShop) -> None:
    with contextlib.closing(shop.worker()) as first, contextlib.closing(shop.worker()) as second:
        polls(first)
        polls(second)
        before = shop.checkpoint()
        first.release()
        assert shop.checkpoint() == before


@pytest.mark.promise("G-215")
@pytest.mark.usefixtures("elsewhere")
def test_a_request_of_another_configuration_waits_for_it(shop: UnitShop) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        shop.document["pipelines"]["p"]["error_handling"] = {"on_bad_record": "fail"}
        result = mark(shop, lambda: polls(daemon))
        assert result.state == "waiting"
        assert "restart the daemon" in result.reason
        assert shop.texts() == ["a", "b"]
        [notice] = daemon.activity.to_json()["notices"]
        assert (notice["level"], result.id in notice["text"]) == ("warn", True)
    shop.run()  # with the new configuration
    assert shop.texts() == ["A", "b"]


@pytest.mark.promise("G-215")
@pytest.mark.usefixtures("elsewhere")
def test_a_cancelled_request_is_not_done(shop: UnitShop) -> None:
    result = mark(shop, wait=False)
    cancel_request(shop.config(), result.id, "a typo", 0.0)
    cancel_request(shop.config(), result.id, "a typo", 0.0)
    shop.run()
    [found] = find_requests(shop.config())
    assert (found.state, shop.texts()) == ("cancelled", ["a", "b"])
    with pytest.raises(EditRefused, match="is over already: cancelled"):
        cancel_request(shop.config(), result.id, "", 0.0)
    with pytest.raises(EditRefused, match=r"there is no request 00000000\.1"):
        cancel_request(shop.config(), "00000000.1", "", 0.0)


@pytest.mark.promise("G-215")
@pytest.mark.usefixtures("elsewhere")
def test_an_invalid_request_is_refused_and_live_work_goes_on(shop: UnitShop) -> None:
    odd = mark(shop, wait=False, units=["2020-13-01"])
    path = shop.lake / "_blizzard" / "requests" / ID / "00c0ffee.1.json"
    path.write_text(json.dumps({"v": 2, "kind": "dance", "release": "9.9.9"}))
    shop.put(("2020-02-22T10:00:00", "s1", "C"))
    shop.passes(days=1)
    shop.run()
    found = {each.id: each for each in find_requests(shop.config())}
    assert found[odd.id].state == "rejected"
    assert "2020-13-01" in found[odd.id].reason
    assert "9.9.9" in found["00c0ffee.1"].reason
    assert shop.texts() == ["C", "a", "b"]


@pytest.mark.promise("G-215")
@pytest.mark.usefixtures("elsewhere")
def test_a_command_that_follows_does_nothing_that_was_cancelled(shop: UnitShop) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)

        def cancels_and_ends() -> None:
            [found] = find_requests(shop.config())
            cancel_request(shop.config(), found.id, "a typo", 0.0)
            daemon.release()

        assert mark(shop, cancels_and_ends).state == "cancelled"
    shop.run()
    assert shop.texts() == ["a", "b"]


@pytest.mark.promise("G-214")
@pytest.mark.usefixtures("elsewhere")
def test_a_command_that_was_paused_does_nothing_twice(
    shop: UnitShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Mailbox.end_record
    pauses = iter([True])

    def pausing(box: Mailbox, request_id: str) -> Any:
        found = ask(box, request_id)
        if next(pauses, False):  # the daemon does all of it, forgets it, and ends
            polls(daemon)
            box.ring()
            polls(daemon)
            daemon.release()
        return found

    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        monkeypatch.setattr(Mailbox, "end_record", pausing)
        assert mark(shop).state == "done"
    assert shop.checkpoint()["units"]["redo"] == []
    assert shop.texts() == ["A", "b"]


@pytest.mark.promise("G-214")
@pytest.mark.usefixtures("elsewhere")
def test_a_command_makes_no_checkpoint_of_one_that_was_lost(shop: UnitShop) -> None:
    path = shop.lake / "_blizzard" / f"{ID}_checkpoint.json"
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        with pytest.raises(ColdStartRefused, match="is missing, but"):
            mark(shop, path.unlink)
    assert not path.exists()


@pytest.mark.promise("G-214")
@pytest.mark.usefixtures("elsewhere")
def test_a_request_is_new_where_the_mailbox_was_emptied(shop: UnitShop) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        first = mark(shop, lambda: polls(daemon))
        daemon.release()
    shutil.rmtree(shop.lake / "_blizzard" / "requests")
    shop.execute("UPDATE answers SET text = text || '2'")
    assert mark(shop).id != first.id
    shop.run()
    assert shop.texts() == ["A2", "b"]


@pytest.mark.promise("G-216")
@pytest.mark.parametrize("operation", ["read_range", "list_range", "put_atomic"])
@pytest.mark.usefixtures("elsewhere")
def test_live_work_goes_on_without_access_to_the_mailbox(
    shop: UnitShop, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        mark(shop, wait=False)
        given = getattr(LocalStorage, operation)

        def refuses(store: LocalStorage, path: str, *rest: Any) -> Any:
            if "_blizzard/requests" in path:
                raise AccessDenied(path)
            return given(store, path, *rest)

        shop.put(("2020-02-22T10:00:00", "s1", "C"))
        shop.passes(days=1)
        with monkeypatch.context() as patched:
            patched.setattr(LocalStorage, operation, refuses)
            shop.run()
            assert "C" in shop.texts()
    shop.run()
    assert shop.texts() == ["A", "C", "b"]
    assert {each.state for each in find_requests(shop.config())} == {"done"}


@pytest.mark.usefixtures("elsewhere")
def test_a_waiting_request_that_is_removed_is_forgotten(shop: UnitShop) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        shop.document["pipelines"]["p"]["error_handling"] = {"on_bad_record": "fail"}
        result = mark(shop, lambda: polls(daemon))
        (shop.lake / "_blizzard" / "requests" / ID / f"{result.id}.json").unlink()
        mailbox(shop).ring()
        polls(daemon)
    assert shop.checkpoint().get("requests") is None


@pytest.mark.usefixtures("elsewhere")
def test_cancel_refuses_a_request_that_is_done(
    shop: UnitShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(shop.worker()) as daemon:
        polls(daemon)
        result = mark(shop, wait=False)
        with monkeypatch.context() as patched:  # it is not recorded yet
            patched.setattr(Mailbox, "end", lambda *_: None)
            polls(daemon)
        with pytest.raises(EditRefused, match="is over already: done"):
            cancel_request(shop.config(), result.id, "", 0.0)


@pytest.mark.promise("G-216")
@pytest.mark.usefixtures("elsewhere")
def test_a_damaged_record_costs_itself_alone(shop: UnitShop) -> None:
    result = mark(shop, wait=False)
    folder = shop.lake / "_blizzard" / "requests" / ID
    (folder / "0badbeef.1.ended.json").write_text("{nope")
    (folder / f"0badbeef.{'9' * 200}.json").write_text("{}")
    shop.run()
    found = {each.id: each.state for each in find_requests(shop.config())}
    assert found == {"0badbeef.1": "ended", result.id: "done"}


@pytest.mark.promise("G-216")
@pytest.mark.parametrize(
    "unit",
    [
        "2020-01-07T00:00:00.000Z/{}",
        "2050-01-01T00:00:00.000Z/{}",
        "2020-01-01T00:00:00.000Z/other",
    ],
)
def test_a_unit_that_there_is_not_is_not_marked(shop: UnitShop, unit: str) -> None:
    result = mark(shop, units=[unit])
    assert (result.state, "is no unit of p/answers" in result.reason) == ("rejected", True)
    assert shop.checkpoint()["units"]["redo"] == []


@pytest.mark.promise("G-215")
def test_the_fingerprint_is_of_what_decides_rows(shop: UnitShop) -> None:
    def fingerprint() -> str:
        return fingerprint_of(owner_context(shop.config(), WHERE))

    before = fingerprint()
    shop.units["advanced"] = {"parallel": 2, "max_units_per_run": 7}
    assert fingerprint() == before
    shop.source["filter"] = "survey = 's1'"
    assert fingerprint() != before


# Each job setting of the digest differs from its default.
ALL_SETTINGS = """
pipelines:
  p:
    sources: {main: {source_uri: /nowhere/raw}}
    schema:
      unexpected_fields: capture
      fields:
        - {name: n, type: int64, nullable: false}
        - {name: d, type: "decimal(10,2)"}
        - {name: t, type: timestamp}
        - {name: s, type: struct, fields: [{name: x, type: string}]}
        - {name: l, type: list, items: int64}
    deduplicate_by: [n]
    transform: SELECT *, 1 AS y FROM source
    error_handling: {on_bad_record: fail, max_bad_fraction: 0.25}
    sink:
      table_uri: /nowhere/lake
      metadata_columns: [_source_file, _ingested_at]
      sort_by: [n]
      partition_by: {columns: [n, {column: t, transform: date}]}
"""


@pytest.mark.promise("G-215")
def test_the_fingerprint_of_a_stored_request_stays(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(ALL_SETTINGS)
    parts = owner_context(load_config(file), ("p", "main"))
    # Requests wait with this digest while Blizzard is upgraded.
    assert fingerprint_of(parts) == "sha256:5a1894ee15d96fdc9fe10c979a4916d9"


@pytest.mark.parametrize("unit", [JANUARY, "2020-13-01"])
def test_a_command_changes_nothing_else_of_a_source_that_begins(shop: UnitShop, unit: str) -> None:
    place = [str(shop.path()), "--pipeline", WHERE[0], "--source", WHERE[1]]
    done = CliRunner().invoke(main, ["checkpoint", "reset", *place, "--units", "--yes"])
    assert done.exit_code == 0, done.output
    before = shop.checkpoint()
    mark(shop, units=[unit])
    after = shop.checkpoint()
    assert before["watermark"] == {"state": "Initial"}
    for key in ("reset_ts", "ledger", "unfolded", "last_batch", "committed"):
        assert after.get(key) == before.get(key)


def test_a_source_without_units_refuses_to_mark_them(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path)
    del shop.source["units"]
    shop.source.update(watermark={"columns": ["day"]}, query="SELECT * FROM answers")
    shop.run()
    result = mark(shop, units=[JANUARY], wait=False)
    assert (result.state, "not read by work units" in result.reason) == ("rejected", True)


def test_a_source_that_never_ran_takes_no_request(tmp_path: Path) -> None:
    with pytest.raises(EditRefused, match="has no checkpoint"):
        mark(UnitShop(tmp_path), units=["2020-01-01"])


@pytest.mark.usefixtures("elsewhere")
def test_of_many_requests_some_are_done_at_a_time(
    shop: UnitShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.ingest.request_runner._AT_ONCE", 2)
    keys = list(shop.checkpoint()["units"]["open"])
    for number in range(5):
        mark(shop, wait=False, units=keys[: 1 + number % 2] * (1 + number))
    with contextlib.closing(shop.worker()) as daemon:
        done = []
        for _ in range(4):
            daemon.cycle(threading.Event())
            done.append([each.state for each in find_requests(shop.config())].count("done"))
        assert done[:3] == [2, 4, 5]
        assert not daemon.is_called()


@pytest.mark.promise("G-214")
@pytest.mark.parametrize("by", ["the command", "the daemon"])
def test_a_request_is_done_once_over_deaths_at_every_change(
    shop: UnitShop, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    mortal = Mortal()
    for at in range(200):
        shop.execute(f"UPDATE answers SET text = '{at}' WHERE day < '2020-02'")
        with monkeypatch.context() as patched:
            mortal.patch(patched)
            if by == "the daemon":
                patched.setattr(wired, "is_running", lambda _writer: None)
                mark(shop, wait=False)
            mortal.left, mortal.deaths = at, 0
            with contextlib.suppress(Died):
                if by == "the command":
                    mark(shop)
                shop.run()
            mortal.left = -1
        if by == "the command":
            mark(shop)
        shop.run()
        assert shop.texts() == [str(at), "b"]
        assert {each.state for each in find_requests(shop.config())} == {"done"}
        shop.run()
        assert shop.checkpoint().get("requests") is None
        if not mortal.deaths:
            break
    assert 10 < at < 199
