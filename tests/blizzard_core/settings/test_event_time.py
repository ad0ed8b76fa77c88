"""An invalid event_time block is refused with its key and line."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.settings.base import to_micros
from blizzard_core.settings.checks.event_time import event_time_notes
from blizzard_core.settings.event_time import WatchedColumn
from tests.support.settings_documents import cases, is_reported, load, problems, with_changes

HERE = "pipelines.events.event_time"
GOOD: dict[str, Any] = yaml.safe_load("""
spark: {master: "local[2]"}
pipelines:
  events:
    sources: {main: {source_uri: /data/raw}}
    sink: {table_uri: /data/lake/events}
    schema:
      fields:
        - {name: ts, type: timestamp, nullable: false}
        - {name: maybe, type: timestamp}
        - {name: page, type: string}
        - {name: bytes, type: int64}
        - {name: tags, type: map, values: string}
    event_time:
      column: ts
      delay: 10 minutes
      window: 5 minutes
      group_by: [page]
      aggregates: {n: count(*)}
""")


def changed(place: str, value: Any) -> dict[str, Any]:
    return with_changes(GOOD, {place: value})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("event_time.delay", "0 seconds"),
        ("event_time.delay", "1 hour 30 minutes"),
        ("event_time.window", {"size": "1 hour", "slide": "5 minutes", "offset": "1 minute"}),
        ("event_time.window", {"gap": "30 minutes"}),
        ("event_time.deduplicate", ["page"]),
        ("event_time.policy", "max"),
        ("event_time.emit", "next_batch"),
        ("event_time.late_rows", "count"),
        ("event_time.partitions", 8),
        ("sink.metadata_columns", ["_emitted_batch"]),
        ("sink.partition_by", {"columns": [{"column": "window_start", "transform": "date"}]}),
        ("sink.sort_by", ["-n"]),
    ],
)
def test_valid_event_time_settings_load(tmp_path: Path, place: str, value: Any) -> None:
    assert problems(tmp_path, changed(place, value)) == []


def test_duplicates_alone_keep_the_columns_of_the_source(tmp_path: Path) -> None:
    document = changed("event_time", {"column": "ts", "delay": "1 hour", "deduplicate": ["page"]})
    document["pipelines"]["events"]["sink"]["metadata_columns"] = ["_source_file", "_emitted_batch"]
    assert problems(tmp_path, document) == []


WRONG = """
event_time.delay: ~ => is required
event_time.delay: -1 minute => must be at least 0
event_time.delay: 1 month => months or years
event_time.delay: 2 years => months or years
event_time.delay: soon => must be a duration
event_time.delay: 5 fortnights => no unit 'fortnights'
event_time.delay: 1 microsecond => whole milliseconds
event_time.delay: 40000 days => more than 100 years
event_time.column: maybe => may be null
event_time.column: bytes => must be a timestamp
event_time.column: none => not a field of the schema
event_time.policy: avg => 'min' or 'max' @ event_time.advanced.policy
event_time.mode: update => add _emitted_batch to
event_time.mode: complete => add _emitted_batch to
event_time.mode: other => append
event_time.window: 0 seconds => longer than nothing @ event_time.window.size
event_time.window: {slide: 1 minute} => give size, or gap
event_time.window: {size: 1 minute, gap: 1 minute} => one of the two
event_time.window: {gap: 1 minute, slide: 1 minute} => neither slide nor offset
event_time.window: {size: 1 minute, slide: 2 minutes} => slide is longer
event_time.window: {size: 1 minute, offset: 1 minute} => offset must be shorter
event_time.window: ~ => needs window @ event_time.aggregates
event_time.aggregates: ~ => is required with window
event_time.group_by: [nobody] => not a field
event_time.group_by: [tags] => cannot be compared
event_time.group_by: [page, page] => twice
event_time.deduplicate: [tags] => cannot be compared
event_time.aggregates: {Window_Start: count(*)} => a column of windows already
event_time.aggregates: {PAGE: count(*)} => given in group_by already
deduplicate_by: [page] => event_time.deduplicate
schema.infer: true => needs declared columns
sources.main.units: {cooldown: 1d} => units needs use_watermark: false @ sources.main
sources.main.event_time: {idle_after: 1 hour}
  => goes with several sources @ sources.main.event_time.idle_after
sources.main.event_time: {column: maybe} => may be null @ sources.main.event_time.column
sources.main.event_time: {column: none}
  => not a field of the schema @ sources.main.event_time.column
sources.main.event_time: {delay: -1 hour} => must be at least 0 @ sources.main.event_time.delay
sources.main.event_time: {idle_after: 0 seconds}
  => longer than nothing @ sources.main.event_time.idle_after
sources.main.event_time: {policy: max} => unknown key @ sources.main.event_time.policy
event_time.state_path: /mnt/x => with local[2] leave it out @ event_time.advanced.state_path
event_time.idle_after: 1 hour => give it in the event_time of the source
event_time.windows: 1 hour => did you mean window?
sink.partition_by: {prefix_template: date=%Y-%m-%d}
  => may come from many files @ sink.partition_by.prefix_template
sink.metadata_columns: [_source_file] => _source_file describes one row
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG))
def test_invalid_settings_are_reported_with_key_and_line(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    assert is_reported(
        problems(tmp_path, with_changes(GOOD, changes)), said, place or next(iter(changes))
    )


@pytest.mark.parametrize("master", ["sc://host", "k8s://https://host"])
def test_event_time_stays_where_its_state_can_be_seen(tmp_path: Path, master: str) -> None:
    [text] = problems(tmp_path, changed("spark.master", master))
    assert text.startswith("spark.master (line")
    assert "local[N], or spark:// and a shared advanced.state_path" in text
    assert f"not with {master.partition('://')[0]}://" in text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (None, "is required with spark://"),
        ("state", "'state' is no absolute path"),
        ("/mnt/state", None),
    ],
)
def test_a_cluster_shares_a_directory(tmp_path: Path, path: str | None, said: str | None) -> None:
    document = changed("event_time.advanced", {"state_path": path} if path else {"partitions": 2})
    document["spark"] = {"master": "spark://host:7077"}
    found = problems(tmp_path, document)
    assert [text.startswith(f"{HERE}.advanced.state_path") for text in found] == [True] * (
        said is not None
    )
    assert said is None or said in found[0]


PAGES = {"column": "ts", "delay": "1 hour", "group_by": ["page"], "aggregates": {"n": "count(*)"}}


@pytest.mark.parametrize(
    "block",
    [
        PAGES | {"mode": "update"},
        PAGES | {"mode": "complete"},
        PAGES | {"mode": "update", "window": "5 minutes"},
        PAGES | {"mode": "complete", "window": {"gap": "5 minutes"}},
        {"column": "ts", "delay": "1 hour", "deduplicate": ["page"], "mode": "update"},
    ],
    ids=str,
)
def test_results_that_may_change_come_in_versions(tmp_path: Path, block: dict[str, Any]) -> None:
    document = changed("event_time", block)
    document["pipelines"]["events"]["sink"]["metadata_columns"] = ["_emitted_batch"]
    assert problems(tmp_path, document) == []
    del document["pipelines"]["events"]["sink"]["metadata_columns"]
    [text] = problems(tmp_path, document)
    assert text.startswith(f"{HERE}.mode (line")
    assert "_emitted_batch" in text


def test_groups_by_the_event_time_need_no_window(tmp_path: Path) -> None:
    document = changed("event_time", PAGES | {"mode": "append", "group_by": ["ts", "page"]})
    assert problems(tmp_path, document) == []
    windows = changed("event_time", PAGES | {"window": "5 minutes", "group_by": ["ts"]})
    [text] = problems(tmp_path, windows)
    assert "all rows of one time are in one window; leave window out" in text
    sources = document["pipelines"]["events"]["sources"]
    sources["other"] = {
        "source_uri": "s3://raw/other",
        "event_time": {"column": "seen"},
        "schema": {"fields": [{"name": "seen", "type": "timestamp", "nullable": False}]},
    }
    [text] = problems(tmp_path, document)
    assert "needs window, since sources differ in their columns" in text


WRONG_MODES = """
event_time.mode: update, event_time.window: {gap: 1 minute} => update does not go with
event_time.mode: update, event_time.deduplicate: [page] => mode append only @ event_time.deduplicate
event_time.mode: complete, event_time.deduplicate: [page]
  => mode append only @ event_time.deduplicate
event_time.mode: complete, event_time.group_by: []
  => needs window or group_by @ event_time.aggregates
event_time.mode: update, event_time.aggregates: {}
  => is required with group_by @ event_time.aggregates
event_time.mode: complete, event_time.aggregates: {}, event_time.group_by: [] => is for a query
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG_MODES))
def test_unsupported_settings_of_a_mode_are_reported(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    document = changed("event_time", PAGES)
    document["pipelines"]["events"]["sink"]["metadata_columns"] = ["_emitted_batch"]
    assert is_reported(
        problems(tmp_path, with_changes(document, changes)), said, place or next(iter(changes))
    )


def test_sessions_need_a_group(tmp_path: Path) -> None:
    document = changed("event_time.window", {"gap": "1 minute"})
    del document["pipelines"]["events"]["event_time"]["group_by"]
    [text] = problems(tmp_path, document)
    assert text.startswith(f"{HERE}.group_by")


WATCHED = {"column": "ts", "delay": "1 hour"}


def test_a_watermark_may_only_be_watched(tmp_path: Path) -> None:
    document = changed("event_time", WATCHED | {"max_ahead": "1 hour"})
    document["spark"]["master"] = "sc://host"  # no state that anybody would have to see
    document["pipelines"]["events"]["deduplicate_by"] = ["page"]
    config = load(tmp_path, document)
    events = config.pipelines["events"]
    assert events.query is None
    assert events.branches == ()
    hour = to_micros("1 hour")
    assert events.watch_of("main") == WatchedColumn("ts", hour, hour)
    [note] = event_time_notes(config)
    assert note.startswith(f"{HERE}: without window, deduplicate or join nothing is computed")


WRONG_WITHOUT_QUERY = """
event_time.mode: update => is for a query
event_time.policy: max => is for a query @ event_time.advanced.policy
event_time.emit: next_batch => is for a query @ event_time.advanced.emit
event_time.late_rows: count => is for a query @ event_time.advanced.late_rows
event_time.partitions: 4 => is for a query @ event_time.advanced.partitions
event_time.state_path: /mnt/x => is for a query @ event_time.advanced.state_path
event_time.column: maybe => may be null
event_time.column: none => not a field of the schema
schema.infer: true => needs declared columns
sink.metadata_columns: [_emitted_batch] => with a query over
sources.app: {source_uri: /data/app, event_time: {idle_after: 1 hour}}
  => these sources have a watermark each @ sources.app.event_time.idle_after
sources.main.event_time: {idle_after: 1 hour}
  => goes with several sources @ sources.main.event_time.idle_after
sink.partition_by: {columns: [{column: ts, transform: identity}]}
  => would only be in directory names
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG_WITHOUT_QUERY))
def test_settings_that_need_a_query_are_reported_without_one(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    document = with_changes(changed("event_time", WATCHED), changes)
    found = problems(tmp_path, document)
    assert is_reported(found, said, place or next(iter(changes)))


def test_names_that_a_query_adds_to_rows_are_not_for_fields(tmp_path: Path) -> None:
    document = copy.deepcopy(GOOD)
    fields = document["pipelines"]["events"]["schema"]["fields"]
    fields.append({"name": "_Blizzard_mark", "type": "int64"})
    [text] = problems(tmp_path, document)
    assert "schema.fields" in text
    assert "'_Blizzard_mark': names that begin with _blizzard_ are ours" in text
    fields[-1]["name"] = "_source_line"
    [text] = problems(tmp_path, document)
    assert "schema.fields" in text
    assert "'_source_line' says in a query over event_time where a row is from" in text


def test_files_that_come_again_cannot_be_counted_in_windows(tmp_path: Path) -> None:
    source = {"source_uri": "/r", "use_watermark": False, "units": {"cooldown": "1d"}}
    document = changed("sources.main", source)
    document["pipelines"]["events"]["sink"]["metadata_columns"] = ["_source_file"]
    assert any("would count twice" in text for text in problems(tmp_path, document))


def test_a_source_may_have_a_column_and_a_delay_of_its_own(tmp_path: Path) -> None:
    document = changed("sources.app", {"source_uri": "/data/app"})
    events = document["pipelines"]["events"]
    events["schema"]["fields"].append({"name": "seen", "type": "timestamp", "nullable": False})
    own = {"column": "seen", "delay": "1 hour", "idle_after": "1 day"}
    events["sources"]["app"]["event_time"] = own
    app, main = load(tmp_path, document).pipelines["events"].branches
    assert (app.source, app.column, app.delay_us) == ("app", "seen", to_micros("1 hour"))
    assert app.idle_us == to_micros("1 day")
    assert (main.source, main.column, main.delay_us) == ("main", "ts", to_micros("10 minutes"))
    assert main.idle_us is None
    own["delay"] = "0 seconds"
    [note] = event_time_notes(load(tmp_path, document))
    assert note.startswith("pipelines.events.sources.app.event_time.delay: with 0")
    del events["event_time"]
    found = problems(tmp_path, document)
    assert any("this pipeline has none" in text for text in found), found


def test_emitted_batch_is_of_queries_over_event_time(tmp_path: Path) -> None:
    document = changed("event_time", None)
    document["pipelines"]["events"]["sink"]["metadata_columns"] = ["_emitted_batch"]
    [text] = problems(tmp_path, document)
    assert text.startswith("pipelines.events.sink.metadata_columns (line")


def test_a_delay_of_nothing_is_warned_of(tmp_path: Path) -> None:
    for delay, notes in (("0 seconds", 1), ("1 second", 0)):
        config = load(tmp_path, changed("event_time.delay", delay))
        assert len(list(event_time_notes(config))) == notes
