"""Explain: every verdict from a state that the pipeline itself has made."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from blizzard_core.delta_json import commit_path
from blizzard_core.errors import ConfigError, StateError, Unavailable
from blizzard_core.settings.load import load_config
from blizzard_core.settings.sources import SourceAdvanced, SourceCompression, SourceSettings
from blizzard_core.table.committed import (
    LOG_FILES,
    Departure,
    Fate,
    committed_versions,
    delta_fates,
    removed,
)
from blizzard_core.text import iso, printable
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.request_listing import find_requests
from blizzard_py.explain import Explanation, explain, lines, locate
from blizzard_py.explain.location import Located
from blizzard_py.sources.files.file_names import why_ignored
from penguin_py.__main__ import main as penguin
from tests.support.delta_commits import commit as commit_of
from tests.support.direct_engine import DirectEngine
from tests.support.letter_harness import FailedFilesHarness, uri
from tests.support.memory_store import MemoryStorage, each_death
from tests.support.pipeline_harness import PipelineHarness
from tests.support.s3_server import S3Server
from tests.support.scenario import Scenario, scenario_on

DAY = 86_400.0
INTERVAL = 1000.0
KEYS = {
    "untaken",
    "added_since",
    "content",
    "uri",
    "verdict",
    "reason",
    "source",
    "sources",
    "path",
    "file",
    "partition",
    "name",
    "compared_with",
    "batch",
    "outputs",
    "records_replayed",
    "dead_letter",
    "pending",
    "late",
}


def ask(world: PipelineHarness, path: str) -> Explanation:
    place = Located(f"mem://raw/{path}", "events/main", path, "", ())
    pipeline = world.pipeline()
    return explain(pipeline.parts, pipeline.source, place)


def forget_journal(world: PipelineHarness) -> None:
    """As a month does: what was settled is in the ledger alone."""
    world.now += DAY
    world.drain()  # with a sweep, which folds the journal
    for path in [p for p in world.sink.objects if p.startswith("_blizzard/journal/")]:
        del world.sink.objects[path]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(blizzard, arguments)


def answer(scenario: Scenario, uri: str) -> dict[str, Any]:
    done = invoke("explain", str(scenario.config), uri, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    assert set(found) == KEYS
    return found


def commit(scenario: Scenario) -> None:
    done = CliRunner().invoke(penguin, ["run", str(scenario.config), "--once"])
    assert done.exit_code == 0, done.output


# -- where a URI belongs ---------------------------------------------------------

ROOTS = {"a/local": "/raw/events", "b/s3": "s3://raw/events/", "c/az": "abfss://c@acc.dfs.x/in"}


@pytest.mark.parametrize(
    ("uri", "source", "path"),
    [
        ("/raw/events/d=1/x", "a/local", "d=1/x"),
        ("/raw/./other/../events//x", "a/local", "x"),
        ("file:///raw/events/a%20b", "a/local", "a%20b"),
        ("/raw/events/", "a/local", ""),
        ("s3://raw/events/d=1/x?v=1#2 [b]%41ü\n", "b/s3", "d=1/x?v=1#2 [b]%41ü\n"),
        ("s3a://raw/events//x", "b/s3", "/x"),
        ("S3://raw/events", "b/s3", ""),
        ("az://c/in/x", "c/az", "x"),
        ("abfss://c@acc.dfs.x/in/x", "c/az", "x"),
        ("arn:aws:s3:::raw/events/x", "b/s3", "x"),
        ("https://raw.s3.eu-west-1.amazonaws.com/events/d%3D1/x+y?q=1", "b/s3", "d=1/x+y"),
        ("https://s3.eu-west-1.amazonaws.com/raw/events/x", "b/s3", "x"),
        ("https://acc.blob.core.windows.net/c/in/x", "c/az", "x"),
        ("https://storage.googleapis.com/raw/events/x", None, None),
        ("abfss://c@other.dfs.x/in/x", None, None),
        ("s3://raw/events2/x", None, None),
        ("gs://raw/events/x", None, None),
        ("/raw/eventsx", None, None),
    ],
)
def test_a_uri_is_found_below_the_roots(uri: str, source: str | None, path: str | None) -> None:
    place = locate(uri, ROOTS)
    assert (place.source, place.path) == (source, path)
    assert [c.source for c in place.checked if c.matches] == ([source] if source else [])


def test_relative_paths_count_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = locate("raw/d=1/x", {"a/main": str(tmp_path / "raw")})
    assert (place.path, place.uri) == ("d=1/x", str(tmp_path / "raw/d=1/x"))
    assert locate("raw/x", {"a/main": "raw"}).path == "x"


def test_relative_paths_count_from_the_ends_of_roots() -> None:
    one = {"b/s3": "s3://lake/raw"}
    for path in ("raw/d=1/x", "./raw/d=1/x", "lake/raw/d=1/x", "d=1/x"):
        assert locate(path, one).path == "d=1/x", path
    two = {**one, "c/s3": "s3://lake/other"}
    place = locate("other/x", two)
    assert (place.source, place.path, place.uri) == ("c/s3", "x", "s3://lake/other/x")
    assert locate("lake/raw/x", two).source == "b/s3"
    assert locate("d=1/x", two).source is None
    several = locate("raw/x", {**one, "d/s3": "s3://old/raw"})
    assert several.source is None
    assert "s3://lake/raw/x, s3://old/raw/x; give one of these" in several.reason


def test_the_nearest_source_is_named() -> None:
    assert "the nearest is b/s3 at s3://raw/events/" in locate("s3://raw/x", ROOTS).reason
    assert "the nearest is a/local at /raw/events/" in locate("/raw/x", ROOTS).reason
    assert locate("/raw/x", {}).reason == "the configuration has no sources"
    assert locate("/x", {"a/root": "/"}).path == "x"


@pytest.mark.parametrize("uri", ["ftp://x/y", "s3:///key", "s3://user:secret@b/k", "s3://[b/k"])
def test_invalid_uri_is_refused_without_showing_secrets(uri: str) -> None:
    with pytest.raises(ConfigError) as caught:
        locate(uri, ROOTS)
    assert "secret" not in str(caught.value)


def files(compression: SourceCompression) -> SourceSettings:
    return SourceSettings(source_uri="x", advanced=SourceAdvanced(compression=compression))


@pytest.mark.parametrize(
    ("path", "compression", "words"),
    [
        ("", "auto", "root, not a file"),
        ("d=1/_tmp/x.ndjson", "auto", "'_tmp' starts with '_'"),
        ("d=1/.x.ndjson", "auto", "'.x.ndjson' starts with '.'"),
        ("d=1/x.csv", "gzip", "compression: gzip (.ndjson.gz, .jsonl.gz, .json.gz)"),
        ("d=1/x.csv", "auto", "(.ndjson, .jsonl, .json; each also with one of .gz, .zst, .bz2,"),
        ("d=1/x.json.bz2", "gzip", "it would for bzip2 or auto"),
        ("d=1/x.ndjson", "gzip", "it would for none or auto"),
        ("d=1/x.json.zst", "none", "it would for zstd or auto"),
    ],
)
def test_why_a_file_is_not_one_of_its_source(
    path: str, compression: SourceCompression, words: str
) -> None:
    assert words in (why_ignored(path, files(compression)) or "")


def test_a_file_of_its_source_is_not_ignored() -> None:
    assert why_ignored("d=1/x.ndjson", files("auto")) is None
    assert "it would" not in (why_ignored("d=1/x.csv", files("gzip")) or "")


# -- pending -----------------------------------------------------------------------


def test_a_new_file_waits_for_the_next_poll() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r")
    found = ask(world, "d=1/1.ndjson")
    assert (found.verdict, found.partition) == ("pending", None)
    assert found.pending.behind == "poll"
    assert (found.file.size, found.file.modified_ts) == (1, world.now)
    world.drain()
    world.put("d=2/1.ndjson", "r")
    found = ask(world, "d=2/1.ndjson")
    assert (found.verdict, found.partition, found.name) == ("pending", "d=2", "1.ndjson")
    assert found.compared_with.source_watermark == "d=1/1.ndjson"
    assert found.compared_with.watermark is None


def test_a_young_file_waits_for_its_age() -> None:
    world = PipelineHarness(min_age="1m")
    world.put("d=1/1.ndjson", "r")
    found = ask(world, "d=1/1.ndjson")
    assert (found.pending.behind, found.pending.until_ts) == ("min_age", world.now + 60)
    world.now += 60
    found = ask(world, "d=1/1.ndjson")
    assert found.pending.behind == "poll"


def test_a_file_that_failed_waits_for_another_try() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r")
    world.engine.flaky["d=1/1.ndjson"] = 9
    with contextlib.suppress(Unavailable):
        world.drain()
    found = ask(world, "d=1/1.ndjson")
    assert (found.verdict, found.batch) == ("pending", None)
    assert (found.pending.behind, found.pending.tries, found.pending.max_tries) == ("retry", 1, 3)
    world.source.delete("d=1/1.ndjson")
    assert "the file is missing" in ask(world, "d=1/1.ndjson").reason


def test_a_file_in_flight_is_so_until_the_checkpoint_lets_it_go() -> None:
    phases = set()

    def prepared() -> PipelineHarness:
        world = PipelineHarness()
        world.put("d=1/1.ndjson", "r")
        return world

    for _, world, _ in each_death(prepared, PipelineHarness.drain):
        found = ask(world, "d=1/1.ndjson")
        if found.pending is not None and found.pending.behind == "in_flight":
            phases.add(found.pending.phase)
            assert found.pending.batch in found.reason
            assert found.pending.attempt == 1
        else:
            assert found.verdict in {"pending", "ingested"}
    assert phases == {"running", "publishing"}


# -- done --------------------------------------------------------------------------


def test_a_quarantined_file_shows_its_dead_letter() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "bad")
    world.put("d=1/2.ndjson", "r")
    world.drain()
    found = ask(world, "d=1/1.ndjson")
    assert (found.verdict, found.outputs) == ("quarantined", None)
    assert found.batch is not None
    assert (found.dead_letter.stage, found.dead_letter.error) == ("parse", "line 1: bad")
    assert found.dead_letter.object == f"mem://dlq/events_main/{found.batch.batch}.ndjson"
    assert found.dead_letter.object in "\n".join(lines(found))
    world.dlq.objects.clear()
    found = ask(world, "d=1/1.ndjson")
    assert (found.verdict, found.dead_letter and found.dead_letter.stage) == ("quarantined", None)
    assert "its dead letter is missing" in found.reason


def test_the_last_batch_of_a_file_counts() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "a", "b")
    world.put("d=1/2.ndjson", "c")
    world.engine.flaky["d=1/1.ndjson"] = 1
    world.drain()
    found = ask(world, "d=1/1.ndjson")
    assert found.verdict == "ingested"
    assert found.batch.rows == 2
    assert [o.rows for o in found.outputs or ()] == [2]


def test_a_file_without_rows_is_in_no_output() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson")
    world.drain()
    found = ask(world, "d=1/1.ndjson")
    assert (found.verdict, found.outputs) == ("ingested", ())


def test_explain_reports_done_without_a_journal_entry() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r")
    world.drain()
    world.now += DAY
    world.put("d=1/2.ndjson", "r")
    world.drain()
    found = ask(world, "d=1/1.ndjson")
    assert (found.compared_with.watermark, found.compared_with.scan_start) == (
        "2.ndjson",
        "1.ndjson",
    )
    forget_journal(world)
    found = ask(world, "d=1/1.ndjson")
    assert (found.verdict, found.partition, found.name) == ("done", "d=1", "1.ndjson")
    assert "not above '2.ndjson', where scans of 'd=1' start; there is no journal" in found.reason
    world.put("d=1/3.ndjson", "r")
    world.drain()
    assert "the journal, which begins at 20" in ask(world, "d=1/1.ndjson").reason


def test_a_name_in_grace_without_a_journal_entry_is_done() -> None:
    world = PipelineHarness(grace_period="40d")
    world.put("d=1/1.ndjson", "r")
    world.drain()
    forget_journal(world)
    found = ask(world, "d=1/1.ndjson")
    assert found.verdict == "done"
    assert "within the grace period; there is no journal" in found.reason


def test_a_closed_partition_tells_its_floor() -> None:
    world = PipelineHarness(max_tracked_partitions=2)
    for day in range(1, 6):
        world.put(f"y={1970 + day}/1.ndjson", "r")
        world.drain()
        world.now += 400
    world.drain()
    world.put("y=1976/1.ndjson", "r")
    world.drain()
    assert ask(world, "y=1971/1.ndjson").verdict == "ingested"
    forget_journal(world)
    found = ask(world, "y=1971/1.ndjson")
    assert found.verdict == "closed"
    assert found.compared_with.floor == world.checkpoint()["floor"]
    assert "ingested before; there is no journal" in found.reason


def test_a_cold_start_with_a_lookback_leaves_older_files_out() -> None:
    world = PipelineHarness(partition_filter={"prefix_template": "date=%Y-%m-%d", "lookback": 1})
    world.put("date=2025-06-08/1.ndjson", "old")  # the world begins on 2025-06-15
    world.put("date=2025-06-15/1.ndjson", "r")
    found = ask(world, "date=2025-06-08/1.ndjson")
    assert found.verdict == "closed"
    assert "left out by the cold start, which begins at 'date=2025-06-14'" in found.reason
    world.drain()
    world.now += 5 * DAY
    world.put("date=2025-06-20/1.ndjson", "r")
    world.drain()
    found = ask(world, "date=2025-06-08/1.ndjson")
    assert found.verdict == "closed"
    assert "left out by the cold start, which begins at 'date=2025-06-14'" in found.reason
    forget_journal(world)
    found = ask(world, "date=2025-06-15/1.ndjson")
    assert found.verdict == "closed"
    assert "ingested before" in found.reason


def test_a_file_that_never_was_is_missing() -> None:
    world = PipelineHarness()
    assert ask(world, "d=1/1.ndjson").verdict == "missing"
    world.put("d=1/5.ndjson", "r")
    world.drain()
    assert ask(world, "d=1/1.ndjson").verdict == "missing"
    world.source.delete("d=1/5.ndjson")
    found = ask(world, "d=1/5.ndjson")
    assert (found.verdict, found.file) == ("ingested", None)
    assert "the file has been deleted since" in found.reason


def test_a_file_that_was_rewritten_is_still_found_in_the_journal() -> None:
    world = PipelineHarness()
    world.now = time.time()  # batches are named by the real clock
    world.put("d=1/1.ndjson", "r")
    world.drain()
    world.now += 10_000
    world.put("d=1/1.ndjson", "other")
    world.put("d=1/2.ndjson", "r")
    world.drain()
    found = ask(world, "d=1/1.ndjson")
    assert found.verdict == "ingested"
    assert "rewritten at" in found.reason


def test_a_file_that_was_rewritten_with_an_old_time_is_noticed() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r")
    world.drain()
    assert "rewritten" not in ask(world, "d=1/1.ndjson").reason
    world.put("d=1/1.ndjson", "other")  # at the same time of the clock
    assert (
        "rewritten (1 bytes then and 5 now), which is not ingested again by itself"
        in ask(world, "d=1/1.ndjson").reason
    )


def test_a_checkpoint_that_was_set_back_takes_the_file_again() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r")
    world.drain()
    world.sink.delete("_blizzard/events_main_checkpoint.json")
    found = ask(world, "d=1/1.ndjson")
    assert found.verdict == "ingested"
    assert "the next poll ingests it again" in found.reason


def test_explain_uses_the_processed_set_without_a_watermark() -> None:
    world = PipelineHarness(use_watermark=False)
    world.put("b.ndjson", "r")
    world.drain()
    world.put("a.ndjson", "r")
    assert ask(world, "b.ndjson").verdict == "ingested"
    found = ask(world, "a.ndjson")
    assert (found.verdict, found.pending and found.pending.behind) == ("pending", "poll")
    forget_journal(world)
    found = ask(world, "b.ndjson")
    assert (found.verdict, found.reason) == (
        "done",
        "in the set of files done; there is no journal",
    )


# -- late --------------------------------------------------------------------------


def late_world(**source: object) -> PipelineHarness:
    """``d=1/2`` is passed for good, then ``d=1/1`` appears."""
    world = PipelineHarness(late_sweep_interval=f"{INTERVAL}s", grace_period="100s", **source)
    world.put("d=1/2.ndjson", "r2")
    pipeline = world.drain()
    world.now += 101
    world.put("d=1/3.ndjson", "r3")
    world.drain(pipeline)
    world.now += 101
    world.put("d=1/4.ndjson", "r4")
    world.drain(pipeline)
    world.now += 10
    world.put("d=1/1.ndjson", "late")
    return world


@pytest.mark.parametrize(
    ("late_files", "words"),
    [("report", "report it"), ("quarantine", "write a dead letter"), ("ingest", "ingest it")],
)
def test_a_late_file_tells_what_will_be_done_with_it(late_files: str, words: str) -> None:
    world = late_world(late_files=late_files)
    found = ask(world, "d=1/1.ndjson")
    assert found.verdict == "late"
    assert found.late.late_files == late_files
    assert words in found.reason
    began = world.checkpoint()["sweep"]["began"]
    assert f"due {iso(began + INTERVAL)}" in found.reason


def test_a_late_file_that_was_reported_stays_late() -> None:
    world = late_world(late_files="report")
    for _ in range(4):
        world.now += INTERVAL
        world.drain()
        found = ask(world, "d=1/1.ndjson")
        assert (found.verdict, found.outputs) == ("late", None)
        assert f"late; reported in batch {found.batch.batch} and left out" in found.reason
    forget_journal(world)
    found = ask(world, "d=1/1.ndjson")
    assert found.verdict == "late"
    assert "has dealt with it, and its batch has left the journal; it stays out" in found.reason


def test_a_late_file_without_a_sweep_is_left_alone() -> None:
    world = late_world()
    world.settings["late_sweep_interval"] = 0
    assert "late_sweep_interval is 0" in ask(world, "d=1/1.ndjson").reason


def test_a_late_file_that_was_quarantined_shows_its_letter() -> None:
    world = late_world(late_files="quarantine")
    world.now += INTERVAL
    world.drain()
    found = ask(world, "d=1/1.ndjson")
    assert found.verdict == "quarantined"
    assert found.batch is not None
    assert found.dead_letter.stage == "late"
    assert found.dead_letter.object == f"mem://dlq/events_main/{found.batch.batch}.ndjson"


def test_a_late_file_waits_in_the_queue_and_is_ingested() -> None:
    world = late_world(late_files="ingest")
    world.now += INTERVAL
    pipeline = world.pipeline()
    world.engine.flaky["d=1/1.ndjson"] = 1
    stopped = threading.Event()
    stopped.set()  # the sweep's findings are saved before a batch begins
    pipeline.cycle(stopped)
    found = ask(world, "d=1/1.ndjson")
    assert (found.verdict, found.pending and found.pending.behind) == ("pending", "late_queue")
    world.engine.flaky.clear()
    world.drain()
    assert ask(world, "d=1/1.ndjson").verdict == "ingested"


# -- the Delta log -----------------------------------------------------------------


def log_of(*versions: int, modified: float = 0.0) -> MemoryStorage:
    storage = MemoryStorage("mem://lake", lambda: modified)
    storage.page_keys = 1000
    for version in versions:
        actions = [{"commitInfo": {"x": "add"}}, {"add": {"path": f"d%3D1/{version}.parquet"}}]
        text = "\n".join(json.dumps(action) for action in actions)
        storage.put_atomic(f"_delta_log/{version:020d}.json", text.encode())
    storage.put_atomic(f"_delta_log/{0:020d}.checkpoint.parquet", b"PAR1")
    return storage


def test_the_log_tells_versions_and_whether_it_tells_all() -> None:
    first = {"d=1/1.parquet": Fate(1)}
    assert delta_fates(log_of(0, 1, 2), ["d=1/1.parquet"], 0, 2) == (first, True)
    assert delta_fates(log_of(0, 1, 2), ["d=1/9.parquet"], 0, 2) == ({}, True)
    # Cleaned up: version 3 is the first that is left, and younger than the file.
    assert delta_fates(log_of(3, 4), ["d=1/1.parquet"], 0, 2) == ({}, False)
    # It begins before the file, so nothing is missing.
    assert delta_fates(log_of(3, 4), ["d=1/1.parquet"], 10_000, 2) == ({}, True)
    assert delta_fates(MemoryStorage(), ["d=1/1.parquet"], 0, 2) == ({}, True)


PATH = "d=1/1.parquet"
OPTIMIZED = ("OPTIMIZE", [(PATH, False)], ["d=1/o.parquet"])


@pytest.mark.parametrize(
    ("commits", "departure"),
    [
        ([("RESTORE", [(PATH, True)], [])], Departure(2, "RESTORE", "removed")),
        # It brings files of an earlier version back, none of which holds its rows.
        ([("RESTORE", [(PATH, True)], ["d=1/7.parquet"])], Departure(2, "RESTORE", "removed")),
        ([("DELETE", [(PATH, True)], [])], Departure(2, "DELETE", "removed")),
        ([("DELETE", [(PATH, True)], ["d=1/7.parquet"])], Departure(2, "DELETE", "changed")),
        # Only another deletion vector.
        ([("DELETE", [(PATH, True)], [PATH])], None),
        ([OPTIMIZED], Departure(2, "OPTIMIZE", "moved")),
        ([OPTIMIZED, ("VACUUM START", [], [])], Departure(2, "OPTIMIZE", "moved")),
        (
            [OPTIMIZED, ("DELETE", [("d=1/o.parquet", True)], [])],
            Departure(3, "DELETE", "removed"),
        ),
        ([OPTIMIZED, ("RESTORE", [("d=1/o.parquet", True)], [PATH])], None),
        ([("DELETE", [("d=1/0.parquet", True)], [])], None),
        ([(None, [(PATH, True)], [])], Departure(2, "an operation", "removed")),
    ],
)
def test_the_log_tells_what_took_rows_away(commits: list[Any], departure: Departure | None) -> None:
    log = log_of(0, 1)
    for version, (operation, gone, added) in enumerate(commits, 2):
        lines = [
            {"commitInfo": {"operation": operation}},
            *({"remove": {"path": path, "dataChange": changes}} for path, changes in gone),
            *({"add": {"path": path}} for path in added),
        ]
        text = "\n".join(json.dumps(line) for line in lines)
        log.put_atomic(commit_path(version), text.encode())
    [fate] = delta_fates(log, [PATH], 0, 2)[0].values()
    assert fate.departure == departure
    last = len(commits) + 1
    assert fate.version == (last if departure is None and commits[0] == OPTIMIZED else 1)


def test_a_large_rewrite_costs_little_memory() -> None:
    """A thousand files go into two thousand others."""
    log, old = log_of(0), [f"d=1/a{n}.parquet" for n in range(1000)]
    new = [{"add": {"path": f"d=1/b{n}.parquet"}} for n in range(2000)]
    merge = [{"commitInfo": {"operation": "MERGE"}}, *new]
    merge += [{"remove": {"path": path, "dataChange": True}} for path in old]
    for version, actions in enumerate([[{"add": {"path": path}} for path in old], merge], 1):
        text = "\n".join(json.dumps(action) for action in actions)
        log.put_atomic(commit_path(version), text.encode())
    tracemalloc.start()
    try:
        found, _ = delta_fates(log, old, 0, 2)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert {fate.departure for fate in found.values()} == {Departure(2, "MERGE", "changed")}


@pytest.mark.unreadable_tables
def test_explain_says_that_rows_left_the_table() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r", "s")
    world.drain()
    [output] = ask(world, "d=1/1.ndjson").outputs or ()
    world.sink.put_atomic(commit_path(0), commit_of(output.path))
    assert ask(world, "d=1/1.ndjson").verdict == "ingested"
    gone = {"remove": {"path": output.path, "dataChange": True}}
    lines_ = [{"commitInfo": {"operation": "RESTORE"}}, gone]
    world.sink.put_atomic(commit_path(1), "\n".join(map(json.dumps, lines_)).encode())
    found = ask(world, "d=1/1.ndjson")
    assert found.verdict == "removed"
    assert "its rows were removed in version 1 (RESTORE)" in found.reason
    assert "`blizzard backfill --again`" in found.reason
    assert f"{output.path} (2 rows), removed in version 1 (RESTORE)" in "\n".join(lines(found))


def test_explain_names_records_that_are_bad_again() -> None:
    world = FailedFilesHarness()
    path = "date=2024-01-02/9.json"
    world.put(path, "x", "?")
    world.drain()
    batch = (found := world.explained(path)).batch
    assert f"--letter {batch.batch}.records` ingests once mended" in found.reason
    world.put_records({"path": uri(path), "raw": "?"}, batch=batch.batch)
    world.ask({"letters": [f"{batch.batch}.records"]})
    world.drain()
    found = world.explained(path)
    assert f"replayed/{batch.batch}.records.ndjson (replayed), and bad again in " in found.reason
    [again] = [each for each in world.open_ids() if f"--letter {each}`" in found.reason]
    assert batch.batch not in again


def test_the_log_is_read_up_to_a_bound() -> None:
    log = log_of(*range(LOG_FILES + 2))
    last = f"d=1/{LOG_FILES + 1}.parquet"
    assert delta_fates(log, [last], 0, 8) == ({}, False)
    assert delta_fates(log, ["d=1/7.parquet"], 0, 8)[0] == {"d=1/7.parquet": Fate(7)}


def test_newest_commits_are_read_whatever_their_clock() -> None:
    log = log_of(3, 4)  # a clock that was put back made them older than the file
    log.put_atomic(f"_delta_log/{5:020d}.json", b'{"remove":{"path":"d%3D1/4.parquet"}}')
    path = "d=1/4.parquet"
    assert delta_fates(log, [path], 10_000, 2) == ({}, True)
    assert committed_versions(log, [path], 10_000, 2) == ({path: 4}, True)
    assert removed(log, [path], 10_000, 2) == ({path}, True)
    long = log_of(*range(LOG_FILES + 2))
    assert committed_versions(long, ["d=1/1.parquet"], 10_000, 8)[0] == {}
    assert committed_versions(long, ["d=1/2.parquet"], 10_000, 8)[0] == {"d=1/2.parquet": 2}
    last = f"d=1/{LOG_FILES + 1}.parquet"
    assert committed_versions(long, [last], 0, 8) == ({last: LOG_FILES + 1}, False)


@pytest.mark.parametrize("info", ['"text"', r'{"userMetadata": "\ud800"}', '{"rows": 1e400}'])
def test_files_are_found_beside_an_odd_commit_info(info: str) -> None:
    log = log_of(0)
    lines_ = [f'{{"commitInfo": {info}}}', '{"remove": {"path": "d=1/0.parquet"}}']
    log.put_atomic(
        commit_path(1), "\n".join([*lines_, commit_of("d=1/1.parquet").decode()]).encode()
    )
    wanted = ["d=1/0.parquet", "d=1/1.parquet"]
    assert committed_versions(log, wanted, 0, 1)[0] == {wanted[0]: 0, wanted[1]: 1}
    assert removed(log, wanted, 0, 1)[0] == {wanted[0]}


def test_a_log_that_is_not_json_is_an_error() -> None:
    log = log_of(0)
    log.put_atomic(f"_delta_log/{1:020d}.json", b'{"add": oops')
    with pytest.raises(StateError, match=r"00001\.json"):
        delta_fates(log, ["d=1/9.parquet"], 0, 2)


# -- the command -------------------------------------------------------------------


@pytest.mark.promise("G-119")
@pytest.mark.parametrize("store", ["local", "s3"])
def test_the_command_tells_the_way_into_the_table(
    store: str, request: pytest.FixtureRequest
) -> None:
    scenario = scenario_on(store, request)
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1, 2)
    scenario.put_rows("date=2024-01-02/1.ndjson.gz", 3)
    uri = f"{scenario.place}/raw/date=2024-01-01/1.ndjson.gz"
    config = str(scenario.config)
    assert answer(scenario, uri)["pending"]["behind"] == "poll"
    scenario.ingest()
    found = answer(scenario, uri)
    assert (found["verdict"], found["source"]) == ("ingested", "events/main")
    assert found["sources"] == [
        {
            "source": "events/main",
            "root": f"{scenario.place}/raw",
            "matches": True,
            "reason": "lies below its root",
        }
    ]
    assert (found["partition"], found["name"]) == ("date=2024-01-01", "1.ndjson.gz")
    assert set(found["batch"]) == {
        "batch",
        "attempt",
        "started_ts",
        "finished_ts",
        "rows",
        "bad_rows",
        "request",
        "group",
        "row_groups",
    }
    assert found["batch"]["rows"] == 2
    assert found["batch"]["started_ts"] <= found["batch"]["finished_ts"]
    # The batch has an output for either day; the file's rows can only be in one.
    [output] = found["outputs"]
    assert output["path"].startswith("date=2024-01-01/")
    assert (output["delta_status"], output["delta_version"]) == ("not committed yet", None)
    assert scenario.table.stat(output["path"]) is not None

    commit(scenario)
    scenario.put_rows("date=2024-01-02/2.ndjson.gz", 4)
    scenario.ingest()
    commit(scenario)
    [output] = answer(scenario, uri)["outputs"]
    assert (output["delta_status"], output["delta_version"]) == ("committed", 0)
    [output] = answer(scenario, f"{scenario.place}/raw/date=2024-01-02/2.ndjson.gz")["outputs"]
    assert output["delta_version"] == 1
    scenario.source.delete("date=2024-01-01/1.ndjson.gz")
    text = invoke("explain", config, uri).stdout
    assert text.startswith("ingested: 2 rows in batch ")
    assert "the file has been deleted" in text
    assert "committed in version 0" in text
    assert "does not exist" in text


def test_the_command_writes_nothing(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    before = sorted(tmp_path.rglob("*"))
    answer(scenario, f"{tmp_path}/raw/date=2024-01-01/1.ndjson.gz")
    answer(scenario, f"{tmp_path}/raw/date=2024-01-01/2.ndjson.gz")
    assert sorted(tmp_path.rglob("*")) == before
    scenario.ingest()
    before = sorted(tmp_path.rglob("*"))
    answer(scenario, f"{tmp_path}/raw/date=2024-01-01/1.ndjson.gz")
    assert sorted(tmp_path.rglob("*")) == before


ODD = [
    "a b.ndjson.gz",
    "ünïcödé-日本.ndjson.gz",
    "100%25=%2F.ndjson.gz",
    "new\nline\ttab\x1b[31m.ndjson.gz",
    "[bold red]x[/].ndjson.gz",
    "a?b#c.ndjson.gz",
    os.fsdecode(b"latin-\xfc.ndjson.gz"),
]


@pytest.mark.promise("G-187")
@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_found_and_shown_harmlessly(name: str, tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    uri = f"{tmp_path}/raw/date=2024-01-01/{name}"
    scenario.put_rows(f"date=2024-01-01/{name}", 1)
    for verdict in ("pending", "ingested"):
        found = answer(scenario, uri)
        assert (found["verdict"], found["path"]) == (verdict, f"date=2024-01-01/{name}")
        text = invoke("explain", str(scenario.config), uri).stdout
        assert all(c.isprintable() or c == "\n" for c in text)
        assert printable(name) in text
        scenario.ingest()


def test_odd_names_on_s3(tmp_path: Path, s3: S3Server) -> None:
    scenario = Scenario(tmp_path, f"s3://{s3.new_bucket()}/base", s3.options)
    names = ["a b+c.ndjson.gz", "ünï.ndjson.gz", "50%25=%.ndjson.gz", "a?b#c.ndjson.gz"]
    for number, name in enumerate(names):
        scenario.put_rows(f"date=2024-01-01/{name}", number)
    scenario.ingest()
    for name in names:
        found = answer(scenario, f"{scenario.place}/raw/date=2024-01-01/{name}")
        assert (found["verdict"], found["name"]) == ("ingested", name)
        assert found["file"] is not None


def test_files_of_no_source_are_explained_as_well(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put("date=2024-01-01/x.csv", b"")
    found = answer(scenario, f"{tmp_path}/raw/date=2024-01-01/x.csv")
    assert (found["verdict"], found["source"]) == ("ignored", "events/main")
    assert found["file"]["size"] == 0
    found = answer(scenario, f"{tmp_path}/elsewhere/x.ndjson")
    assert (found["verdict"], found["source"], found["path"]) == ("unmatched", None, None)
    text = invoke("explain", str(scenario.config), f"{tmp_path}/elsewhere/x.ndjson").stdout
    assert f"the nearest is events/main at {tmp_path}/raw/" in text


def test_unreadable_state_is_one_line_and_exit_1(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    uri = f"{tmp_path}/raw/date=2024-01-01/1.ndjson.gz"
    scenario.ingest()
    [journal] = tmp_path.glob("lake/events/_blizzard/journal/*/*.json")
    good = journal.read_bytes()
    for bad in (b"{", b"[]", b'{"files": 1}'):
        journal.write_bytes(bad)
        done = invoke("explain", str(scenario.config), uri)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("error: ")
        assert journal.name in done.stderr
        assert len(done.stderr.splitlines()) == 1
    journal.write_bytes(good)
    # What a writer that was killed left behind is no entry.
    journal.with_name(f"{journal.name}.0.tmp").write_bytes(b"{")
    assert answer(scenario, uri)["verdict"] == "ingested"
    checkpoint = tmp_path / "lake/events/_blizzard/events_main_checkpoint.json"
    checkpoint.write_text("junk")
    done = invoke("explain", str(scenario.config), uri)
    assert done.exit_code == 1
    assert "not valid JSON" in done.stderr


def test_usage_errors_exit_with_2(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    assert invoke("explain", str(scenario.config)).exit_code == 2
    assert invoke("explain", str(tmp_path / "nowhere.yaml"), "x").exit_code == 2
    done = invoke("explain", str(scenario.config), "ftp://host/x")
    assert done.exit_code == 2
    assert "unknown scheme 'ftp'" in done.stderr


def test_a_file_that_a_request_brought_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.main_source["partition_filter"] = {
        "prefix_template": "date=%Y-%m-%d",
        "lookback": 1,
    }
    scenario.write_config()
    today = time.strftime("%Y-%m-%d", time.gmtime())
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    scenario.put_rows("date=2024-01-05/1.ndjson.gz", 2)
    scenario.put_rows(f"date={today}/1.ndjson.gz", 3)
    scenario.ingest()
    uri = f"{tmp_path}/raw/date=2024-01-01/1.ndjson.gz"
    assert answer(scenario, uri)["verdict"] == "closed"
    day = "date=2024-01-01"
    where = ("--pipeline", "events", "--source", "main", "--from", day, "--to", day)
    assert invoke("backfill", str(scenario.config), *where).exit_code == 0
    found = answer(scenario, uri)
    [request] = [each.id for each in find_requests(load_config(scenario.config))]
    assert (found["verdict"], found["batch"]["request"]) == ("ingested", request)
    assert found["outputs"][0]["path"].startswith(day)
    other = answer(scenario, f"{tmp_path}/raw/date=2024-01-05/1.ndjson.gz")
    assert other["verdict"] == "closed"


def test_a_source_that_is_not_there_yet_has_no_files(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    found = answer(scenario, f"{tmp_path}/raw/date=2024-01-01/1.ndjson.gz")
    assert (found["verdict"], found["file"]) == ("missing", None)


def test_source_of_a_shared_root_that_takes_a_path_has_it() -> None:
    roots = {"a/main": "s3://raw/x", "b/main": "s3://raw/x", "c/main": "s3://raw/x"}

    def takes(source: str, path: str) -> bool:
        return path.startswith(f"tenant={source[0]}/")

    for path in ("tenant=a/1", "tenant=b/1", "tenant=c/1"):
        assert locate(f"s3://raw/x/{path}", roots, takes).source == f"{path[7]}/main"
    assert locate("s3://raw/x/tenant=d/1", roots, takes).source == "a/main"
