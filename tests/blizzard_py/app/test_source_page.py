"""Blizzard's page: history, Penguin's state, explanations, commands."""

from __future__ import annotations

import json
import shlex
import threading
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest

from blizzard_core.delta_json import commit_path
from blizzard_core.errors import StateError
from blizzard_core.limits import SHOWN_BATCH_BYTES
from blizzard_core.observability import token_bucket
from blizzard_core.observability.background_cache import BackgroundCache, CachedDocument
from blizzard_core.observability.commits import CommitSummary
from blizzard_core.observability.heartbeat import Life, table_heartbeat
from blizzard_core.observability.status import PageProviders, Panel
from blizzard_core.redact import redacted
from blizzard_core.storage.local import LocalStorage
from blizzard_py.__main__ import main
from blizzard_py.app import page_providers as page
from blizzard_py.app.page_history import (
    BATCHES,
    SourceHistory,
    commit_versions,
    merge,
    shown_partitions,
)
from blizzard_py.app.page_letters import OBJECTS as LETTER_OBJECTS
from blizzard_py.app.page_letters import OpenLetters
from blizzard_py.app.page_providers import (
    BEHIND_SECS,
    FIELDS_TOLD,
    commit_lag_notices,
    letter_commands,
    page_providers,
    source_commands,
    story_commands,
)
from blizzard_py.explain import Explanation
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import FinishedFile, Place
from blizzard_py.sources.context import SourceContext, Stores
from blizzard_py.state.journal import Journal
from blizzard_py.state.state_paths import StatePaths
from tests.support.delta_commits import commit
from tests.support.heartbeat_samples import heartbeat_of
from tests.support.hostile_texts import HOSTILE
from tests.support.pipeline_harness import LineEngine, PipelineHarness

# Commits here are single lines of a log.
pytestmark = pytest.mark.unreadable_tables

CONFIG = "/etc/a b/config.yaml"


class LocalFilesHarness(PipelineHarness):
    """A world on a disk, whose stores anybody can open by their URI."""

    def __init__(self, folder: Path) -> None:
        super().__init__(source_uri=str(folder / "raw"))
        (folder / "raw").mkdir()
        self.folder = folder
        self.raw, self.lake = LocalStorage(str(folder / "raw")), LocalStorage(str(folder / "lake"))

    def put(self, path: str, *rows: str) -> None:
        self.raw.put_atomic(path, "\n".join(rows).encode())

    def parts(self) -> SourceContext:
        found = super().parts()
        return replace(
            found,
            ingest=replace(found.ingest, source=Place(self.raw.uri), sink=Place(self.lake.uri)),
            stores=Stores(self.raw, self.lake, LocalStorage(str(self.folder / "dlq"))),
            engine=LineEngine(self.raw, self.lake),  # type: ignore[arg-type]  # stores alike
        )


@pytest.fixture
def world(tmp_path: Path) -> LocalFilesHarness:
    return LocalFilesHarness(tmp_path)


def answer(lookups: BackgroundCache | None, key: str) -> CachedDocument:
    """Asked, read, asked again."""
    lookups.ask(key)
    lookups.look()
    return lookups.ask(key)


def put_commit(lake: LocalStorage, version: int, *paths: str) -> None:
    lake.put_atomic(commit_path(version), commit(*paths, penguin={"app_id": "penguin-events"}))


def published(world: LocalFilesHarness) -> list[str]:
    pages = world.lake.list_range("", None)
    return [
        e.path
        for each in pages
        for e in each.entries
        if e.path.endswith(".parquet") and not e.path.startswith("_")
    ]


def test_the_history_outlives_the_daemon_and_shows_versions(
    world: LocalFilesHarness,
) -> None:
    world.put("a.json", "1", "2")
    world.put("b.json", "bad")
    world.drain()
    [path] = published(world)
    put_commit(world.lake, 0, path)
    world.put("c.json", "3")
    restarted = world.drain()
    past = SourceHistory(restarted.parts, lambda: world.now).look()
    newest, oldest = past["batches"]
    assert (newest["rows"], newest["versions"], newest["missing"]) == (1, [], 1)
    assert (oldest["rows"], oldest["files"], oldest["failed"]) == (2, 2, 1)
    assert (oldest["versions"], oldest["missing"]) == ([0], 0)
    assert past["failed"] == []
    [letters] = past["letters"]["groups"]
    assert (letters["stage"], letters["count"]) == ("parse", 1)
    assert letters["files"] == [f"{world.raw.uri}/b.json"]
    [folder] = past["partitions"]["list"]
    assert {state: it["files"] for state, it in folder["states"].items()} == {
        "ingested": 2,
        "dead-lettered": 1,
    }
    assert [each["version"] for each in past["commits"]] == [0]


def test_the_past_costs_what_is_new_and_holds_so_many_batches() -> None:
    world = PipelineHarness()
    worker = world.pipeline()
    for number in range(BATCHES + 5):
        world.put(f"{number:04d}.json", "1")
        world.drain(worker)
    past = SourceHistory(worker.parts, lambda: world.now)
    assert len(past.look()["batches"]) == BATCHES
    read: list[str] = []
    plain = world.sink.read

    def counted(path: str) -> bytes:
        read.append(path)
        return plain(path)

    world.sink.read = counted  # type: ignore[method-assign]  # of this store alone
    world.put("9999.json", "1", "2")
    world.drain(worker)
    read.clear()
    assert past.look()["batches"][0]["rows"] == 2
    assert len([path for path in read if "journal" in path]) == 1


def test_letters_are_grouped_by_reason_within_bounds(world: LocalFilesHarness) -> None:
    dlq = LocalStorage(str(world.folder / "dlq"))
    source_id = world.parts().letters_id

    def put(letter_id: str, *errors: str, raw: str = "password=geheim\x1b" + "x" * 999) -> None:
        lines = [
            {
                "path": f"{world.raw.uri}/{number}.json",
                "error": error,
                "stage": "parse",
                "timestamp": "2025-06-15T00:00:00+00:00",
                "line": number,
                "length": 9,
                "raw": raw,
            }
            for number, error in enumerate(errors, 1)
        ]
        text = "\n".join(map(json.dumps, lines))
        dlq.put_atomic(f"{source_id}/{letter_id}.records.ndjson", text.encode())

    for number in range(LETTER_OBJECTS + 2):
        put(f"01{number:04d}", *(f"line {n}: The string 'x{n}' is no date" for n in range(5)))
    put("02", "line 9: no JSON")
    found = OpenLetters(dlq, source_id, samples=True)
    told = found.look()
    assert (told["objects"], told["read"]) == (LETTER_OBJECTS + 3, LETTER_OBJECTS)
    dates, other = told["groups"]
    assert (dates["count"], dates["reason"]) == (5 * (LETTER_OBJECTS - 1), "is no date")
    assert (len(dates["files"]), other["count"]) == (3, 1)
    assert "geheim" not in dates["sample"]["text"]
    assert len(dates["sample"]["text"]) <= 300
    assert OpenLetters(dlq, source_id, samples=False).look()["groups"][0]["sample"] is None
    [_, command] = letter_commands(CONFIG, "events/main", dates)
    assert "--stage parse --reason 'is no date' --dry-run" in command.command
    _parses(main, shlex.split(command.command)[1:])
    read: list[str] = []
    plain = dlq.open_input
    dlq.open_input = lambda path: read.append(path) or plain(path)  # type: ignore[method-assign, func-returns-value]
    dlq.put_atomic(f"{source_id}/03.records.ndjson", b"junk")
    errors = [group["error"] for group in found.look()["groups"]]
    assert len(read) == 1
    assert any("is not a dead letter" in error for error in errors)


def test_files_that_were_brought_later_count_as_ingested() -> None:
    failed: Any = {"d/1": "dead-lettered", "d/2": "late"}
    older: Any = {"d": {"dead-lettered": (1, "d/1"), "late": (1, "d/2"), "ingested": (3, "d/9")}}
    newer: Any = {"d": {"ingested": (1, "d/1")}, "e": {"ingested": (1, "e/1")}}
    found = merge([(newer, {}, {"d/1", "e/1"}, False), (older, failed, (), True)])
    assert found["d"] == {"ingested": (1, "d/1"), "late": (1, "d/2"), "rejected": (3, "d/9")}
    shown = shown_partitions(found, "s3://raw", ["d"])["list"]
    assert [each["complete"] for each in shown] == [True, False]
    assert [each["name"] for each in shown] == ["d", "e"]
    assert shown[0]["states"]["late"] == {"files": 1, "uri": "s3://raw/d/2"}


@pytest.mark.parametrize(
    ("at", "expected"),
    [(50.0, {"versions": [], "missing": None}), (150.0, {"versions": [], "missing": 1})],
)
def test_older_commits_may_have_what_the_newest_have_not(at: float, expected: Any) -> None:
    known = [CommitSummary(9, 100.0, "WRITE", None, 1, 1, 1, 0, whole=True, paths=frozenset({"x"}))]
    assert commit_versions([frozenset({"y"})], at, known) == expected
    assert commit_versions([frozenset({"x", "y"})], at, known) == {"versions": [9], "missing": 0}


def test_penguins_state_is_read_from_the_table(world: LocalFilesHarness) -> None:
    worker = world.drain()
    providers = page_providers([worker], CONFIG)
    assert answer(providers.peer, worker.name).document == []
    mirror = {
        "watermark": {"state": "Idle", "value": "x.parquet"},
        "last_update_ts": 1_750_000_000,
        "txn_version": 3,
        "log": {"version": 12, "own_version": 11},
        "blocked": {"events_main": "waits"},
    }
    world.lake.put_atomic("_penguin/events_checkpoint.json", json.dumps(mirror).encode())
    world.lake.put_atomic("_penguin/events_quarantine.ndjson", b"")
    providers = page_providers([worker], CONFIG)
    [told] = answer(providers.peer, worker.name).document
    assert (told["name"], told["version"], told["commits"]) == ("events", 12, 3)
    assert told["blocked"] == {"events_main": "waits"}


def test_page_warns_when_no_penguin_runs(world: LocalFilesHarness) -> None:
    worker = world.drain()
    for name in ("events", "other"):
        world.lake.put_atomic(f"_penguin/{name}_checkpoint.json", b"{}")
        world.lake.put_atomic(table_heartbeat(name), heartbeat_of(host="etl", ended=True))
    providers = page_providers([worker], CONFIG)
    found = answer(providers.peer, worker.name)
    [notice] = providers.notices({"last": None}, found)
    assert "Penguin does not run" in notice.text
    assert "(host etl, pid 7)" in notice.text
    world.lake.put_atomic(table_heartbeat("other"), heartbeat_of(at=time.time()))
    providers = page_providers([worker], CONFIG)
    assert providers.notices({"last": None}, answer(providers.peer, worker.name)) == []


def brief(at: float, rows: int = 5) -> dict[str, Any]:
    return {"last": {"at": at, "rows": rows}}


@pytest.mark.parametrize(
    ("done", "rows", "committed", "warned"),
    [
        (0.0, 5, None, True),
        (0.0, 5, -100, True),
        (0.0, 5, 0, False),
        (0.0, 0, None, False),
        (BEHIND_SECS, 5, None, False),
    ],
)
def test_page_warns_when_rows_stay_uncommitted(
    done: float, rows: int, committed: float | None, *, warned: bool
) -> None:
    runs = Life("running", 0.0).to_json()
    said = [] if committed is None else [{"updated": committed, "saved": committed, "life": runs}]
    found = commit_lag_notices(brief(done, rows), CachedDocument(BEHIND_SECS + 1, said))
    assert bool(found) == warned
    assert all("nothing was committed" in notice.text for notice in found)
    assert commit_lag_notices(brief(0.0), CachedDocument()) == []
    assert commit_lag_notices({"last": None}, CachedDocument(1e9, [])) == []
    assert (
        commit_lag_notices(brief(0.0), CachedDocument(BEHIND_SECS + 1, [], "503")) == []
    )  # nobody knows any more


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{torn",
        b"[]",
        b'"x"',
        b"[" * 100_000,
        b'{"last_update_ts": -1e300}',
        b'{"last_update_ts": 1e300}',
        b'{"last_update_ts": ' + b"9" * 400 + b"}",
        b'{"last_update_ts": true, "log": {"version": 1e308}, "blocked": {"x": {"y": []}}}',
        b'{"blocked": [], "watermark": "x", "log": 3, "totals": "x", "writer": {"process": 1}}',
    ],
)
def test_whatever_penguins_state_is_the_page_goes_on(world: LocalFilesHarness, raw: bytes) -> None:
    world.put("a.json", "1")
    worker = world.drain()
    world.lake.put_atomic("_penguin/events_checkpoint.json", raw)
    panel = Panel(
        "blizzard", [worker.activity], lambda: world.now, page_providers([worker], CONFIG)
    )
    answer(panel.providers.peer, worker.name)
    [brief] = panel.overview()["targets"]
    [whole] = (panel.target(worker.name) or {})["targets"]
    for document in (brief, whole):
        [said] = document["beside"]["document"]
        assert said["name"] == "events"
        assert isinstance(said["odd"], str)
    assert len(json.dumps(brief)) < 10_000


def test_an_overview_gives_the_reason_of_blocked_groups_once(
    world: LocalFilesHarness,
) -> None:
    worker = world.drain()
    blocked = {f"source_{n}": "waits " * 1_000 for n in range(300)}
    mirror = {"blocked": blocked}
    world.lake.put_atomic("_penguin/events_checkpoint.json", json.dumps(mirror).encode())
    panel = Panel(
        "blizzard", [worker.activity], lambda: world.now, page_providers([worker], CONFIG)
    )
    answer(panel.providers.peer, worker.name)
    [brief] = panel.overview()["targets"]
    assert brief["beside"]["document"][0]["blocked_groups"] == 300
    assert len(json.dumps(brief)) < 10_000
    assert len(json.dumps(panel.target(worker.name))) < 200_000


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"{torn", "is damaged"),
        (b'{"batch": 3}', "is damaged"),
        (b" " * (SHOWN_BATCH_BYTES + 1), "too many to look into"),
    ],
)
def test_damaged_batch_record_spoils_only_its_own_history_row(
    world: LocalFilesHarness, raw: bytes, told: str
) -> None:
    world.put("a.json", "1")
    world.drain()
    world.put("b.json", "2")
    worker = world.drain()
    newest = max(Journal(world.lake, worker.parts.id).batches())
    folder = StatePaths(worker.parts.id).journal
    world.lake.put_atomic(f"{folder}/{newest}.json", raw)
    odd, well = SourceHistory(worker.parts, lambda: world.now).look()["batches"]
    assert odd["batch"] == newest
    assert told in odd["odd"]
    assert (well["odd"], well["rows"]) == ("", 1)


def test_the_last_object_of_a_batch_taken_over_counts(
    world: LocalFilesHarness,
) -> None:
    world.put("a.json", "1")
    worker = world.drain()
    [batch] = Journal(world.lake, worker.parts.id).batches()
    folder = StatePaths(worker.parts.id).journal
    document = json.loads(world.lake.read(f"{folder}/{batch}.json"))
    [output] = document["outputs"]
    document["outputs"] = [{**output, "final": "new.parquet", "earlier": [output["final"]]}]
    world.lake.put_atomic(f"{folder}/{batch}~0001.json", json.dumps(document).encode())
    put_commit(world.lake, 0, "new.parquet")
    [shown] = SourceHistory(worker.parts, lambda: world.now).look()["batches"]
    assert (shown["versions"], shown["missing"]) == ([0], 0)


def story(providers: PageProviders, uri: str) -> dict[str, Any]:
    found = answer(providers.story, uri)
    assert not found.error
    assert isinstance(found.document, dict)
    return found.document


def test_a_files_story_is_what_explain_says_with_commands(world: LocalFilesHarness) -> None:
    world.put("a.json", "1", "2")
    world.put("b.json", "bad")
    worker = world.drain()
    put_commit(world.lake, 4, *published(world))
    providers = page_providers([worker], CONFIG)
    done = story(providers, f"{world.raw.uri}/a.json")
    assert (done["verdict"], done["batch"]["rows"]) == ("ingested", 2)
    assert [output["delta_version"] for output in done["outputs"]] == [4]
    bad = story(providers, f"{world.raw.uri}/b.json")
    assert (bad["verdict"], bad["dead_letter"]["stage"]) == ("quarantined", "parse")
    commands = [each["command"] for each in bad["commands"]]
    here = "'/etc/a b/config.yaml' --pipeline events --source main"
    assert commands[0] == f"blizzard dlq show {here} --letter {bad['batch']['batch']}"
    assert commands[-1] == f"blizzard explain '/etc/a b/config.yaml' {world.raw.uri}/b.json"


def test_a_files_story_names_fields_without_a_column_in_bounds(world: LocalFilesHarness) -> None:
    world.put("a.json", "1")
    worker = world.drain()

    def fields(parts: SourceContext, found: Explanation) -> Explanation:
        assert parts.stores.source is not worker.parts.stores.source  # asked within the allowance
        names = tuple(f"{number:03}" for number in range(FIELDS_TOLD + 9))
        return replace(found, untaken=names, added_since=("price",))

    told = story(page_providers([worker], CONFIG, fields), f"{world.raw.uri}/a.json")
    assert told["untaken"][0] == "000"
    assert (len(told["untaken"]), told["untaken"][-1]) == (FIELDS_TOLD + 1, "and 9 more")
    assert told["added_since"] == ["price"]
    assert story(page_providers([worker], CONFIG), f"{world.raw.uri}/a.json")["untaken"] == []


def test_questions_tell_no_loop_that_a_store_answers(world: LocalFilesHarness) -> None:
    world.put("a.json", "1")
    worker = world.drain()
    before = worker.activity.pulse
    world.now += 50
    story(page_providers([worker], CONFIG), f"{world.raw.uri}/a.json")
    assert worker.activity.pulse == before


@pytest.mark.parametrize(
    "text", [*HOSTILE, "../../etc/passwd", "/etc/passwd", "s3://", "%00", "x" * 2000]
)
def test_hostile_questions_get_a_harmless_answer(world: LocalFilesHarness, text: str) -> None:
    worker = world.drain()
    panel = Panel(
        "blizzard", [worker.activity], lambda: world.now, page_providers([worker], CONFIG)
    )
    for uri in (text, f"{world.raw.uri}/{text}"):
        panel.story(uri)
        panel.providers.story.look()
        told = panel.story(uri)
        assert told["at"] is not None
        assert "root:" not in json.dumps(told)
        assert all(text.isprintable() for text in _texts(told))


def _texts(document: Any) -> list[str]:
    if isinstance(document, str):
        return [document]
    items = document.values() if isinstance(document, dict) else document
    return [t for each in items for t in _texts(each)] if isinstance(document, dict | list) else []


def test_questions_cost_no_more_requests_than_are_allowed(
    world: LocalFilesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = world.pipeline()
    for number in range(12):
        world.put(f"{number:04d}.json", "1")
        world.drain(worker)
    monkeypatch.setattr(
        page,
        "TokenBucket",
        lambda elapsed: token_bucket.TokenBucket(elapsed, burst=8, per_sec=0.001),
    )
    providers = page_providers([worker], CONFIG)
    found = answer(providers.story, f"{world.raw.uri}/0000.json.gone")
    assert "more requests" in found.error
    again = answer(providers.story, f"{world.raw.uri}/another.json")
    assert "more requests" in again.error


def commands(worker: SourcePipeline) -> list[str]:
    return [each.command for each in source_commands(CONFIG, worker.activity.to_json())]


def test_page_shows_a_complete_command_for_each_problem(world: LocalFilesHarness) -> None:
    worker = world.drain()
    usual = commands(worker)
    assert usual[0] == "blizzard status '/etc/a b/config.yaml'"
    worker.activity.gave_up([FinishedFile("x", "quarantined", error="e", stage="parse")])
    worker.activity.refused(1, 9, "x: e", "mend it")
    worker.activity.cycle_failed(StateError("odd"))
    found = commands(worker)
    assert found[-len(usual) :] == usual
    assert "rebuild" in found[0]
    assert "replay" in found[1]
    assert "--refused" in found[1]
    assert "dlq list" in found[2]
    for text in found:
        words = shlex.split(text)
        assert words[0] == "blizzard"
        assert CONFIG in words


@pytest.mark.parametrize("verdict", ["quarantined", "refused", "late", "ignored", "pending"])
def test_every_command_is_one_that_exists(verdict: str, world: LocalFilesHarness) -> None:
    worker = world.drain()
    worker.activity.gave_up([FinishedFile("x", "quarantined", error="e", stage="parse")])
    worker.activity.refused(1, 9, "x: e", "mend it")
    target = worker.activity.to_json()
    for kind in ("StateError", "ConfigError", "FencedError"):
        target["pulse"]["kind"] = kind
        story = {"verdict": verdict, "source": "events/main", "batch": {"batch": "b"}}
        told = source_commands(CONFIG, target), story_commands(CONFIG, "s3://x/y", story)
        for each in chain(*told):
            _parses(main, shlex.split(each.command)[1:])


def _parses(group: Any, words: list[str]) -> None:
    """Click knows the command and its options."""
    at: click.Command = group
    while isinstance(at, click.Group):
        found = at.commands.get(words[0])
        assert found is not None, words
        at, words = found, words[1:]
    known = {option for parameter in at.params for option in parameter.opts}
    given = {word for word in words if word.startswith("--")}
    assert given <= known, (at.name, given - known)


def test_a_secret_is_in_no_command() -> None:
    uri = "https://store.example/raw/x.json?sig=geheimgeheim"
    told = story_commands(CONFIG, uri, {"verdict": "missing", "source": None})
    assert all("geheim" not in each.command for each in told)


@pytest.mark.parametrize(
    "name",
    [
        "password=';touch x;#",
        "password=\"';touch x;#",
        "a=1&token=';x;'",
        "x://a'@b;x;'c",
        "$(x)`x`",
    ],
)
def test_a_name_that_looks_like_a_secret_does_not_leave_its_word(name: str) -> None:
    """Pasted, the rest of it would be run."""
    uri = f"s3://raw/date=2024-01-01/{name}"
    story = {"verdict": "late", "source": None}
    for told in story_commands(CONFIG, uri, story):
        words = shlex.split(told.command)
        assert words[:3] == ["blizzard", words[1], CONFIG]
        assert words[3] == redacted(uri)
        assert words[4:] in ([], ["--dry-run"])


def test_names_that_are_no_text_do_not_end_the_history(world: LocalFilesHarness) -> None:
    world.put("a\udcff.json", "bad")
    past = SourceHistory(world.drain().parts, lambda: world.now).look()
    [letters] = past["letters"]["groups"]
    assert letters["files"] == [f"{world.raw.uri}/a\\udcff.json"]
    json.dumps(past, ensure_ascii=False).encode()


def test_page_threads_start_and_stop_with_the_server(world: LocalFilesHarness) -> None:
    worker = world.drain()
    with page_providers([worker], CONFIG).open():
        assert {"beside", "past", "story"} <= lookups_that_run()
    assert not {"beside", "past", "story"} & lookups_that_run()


def lookups_that_run() -> set[str]:
    return {thread.name.partition("-")[0] for thread in threading.enumerate()}
