"""An invalid event_time block is refused with its key and line."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.settings.base import to_micros
from blizzard_core.settings.checks.event_time import event_time_notes
from blizzard_core.settings.document import Config
from blizzard_core.settings.event_time import WatchedColumn
from blizzard_core.settings.load import load_config
from tests.support.flat_settings import nested

HERE = "pipelines.events.event_time"
GOOD: dict[str, Any] = {
    "spark": {"master": "local[2]"},
    "pipelines": {
        "events": {
            "sources": {"main": {"source_uri": "/data/raw"}},
            "sink": {"table_uri": "/data/lake/events"},
            "schema": {
                "fields": [
                    {"name": "ts", "type": "timestamp", "nullable": False},
                    {"name": "maybe", "type": "timestamp"},
                    {"name": "page", "type": "string"},
                    {"name": "bytes", "type": "int64"},
                    {"name": "tags", "type": "map", "values": "string"},
                ]
            },
            "event_time": {
                "column": "ts",
                "delay": "10 minutes",
                "window": "5 minutes",
                "group_by": ["page"],
                "aggregates": {"n": "count(*)"},
            },
        }
    },
}


def changed(place: str, value: Any) -> dict[str, Any]:
    """The good document with a value at a dotted place below the pipeline, or at the top."""
    document = copy.deepcopy(GOOD)
    block = document if place.startswith("spark") else document["pipelines"]["events"]
    *outer, last = place.split(".")
    for key in outer:
        block = block.setdefault(key, {})
    if value is None:
        del block[last]
    else:
        block[last] = value
    return document


def problems(tmp_path: Path, document: Any) -> list[str]:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(nested(Config, document)))
    try:
        load_config(path, {})
    except ConfigError as error:
        return list(error.problems)
    return []


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


@pytest.mark.parametrize(
    ("place", "value", "key", "said"),
    [
        ("event_time.delay", None, "event_time.delay", "is required"),
        ("event_time.delay", "-1 minute", "event_time.delay", "must be at least 0"),
        ("event_time.delay", "1 month", "event_time.delay", "months or years"),
        ("event_time.delay", "2 years", "event_time.delay", "months or years"),
        ("event_time.delay", "soon", "event_time.delay", "must be a duration"),
        ("event_time.delay", "5 fortnights", "event_time.delay", "no unit 'fortnights'"),
        ("event_time.delay", "1 microsecond", "event_time.delay", "whole milliseconds"),
        ("event_time.delay", "40000 days", "event_time.delay", "more than 100 years"),
        ("event_time.column", "maybe", "event_time.column", "may be null"),
        ("event_time.column", "bytes", "event_time.column", "must be a timestamp"),
        ("event_time.column", "none", "event_time.column", "not a field of the schema"),
        ("event_time.policy", "avg", "event_time.advanced.policy", "'min' or 'max'"),
        ("event_time.mode", "update", "event_time.mode", "add _emitted_batch to"),
        ("event_time.mode", "complete", "event_time.mode", "add _emitted_batch to"),
        ("event_time.mode", "other", "event_time.mode", "append"),
        ("event_time.window", "0 seconds", "event_time.window.size", "longer than nothing"),
        ("event_time.window", {"slide": "1 minute"}, "event_time.window", "give size, or gap"),
        (
            "event_time.window",
            {"size": "1 minute", "gap": "1 minute"},
            "event_time.window",
            "one of the two",
        ),
        (
            "event_time.window",
            {"gap": "1 minute", "slide": "1 minute"},
            "event_time.window",
            "neither slide nor offset",
        ),
        (
            "event_time.window",
            {"size": "1 minute", "slide": "2 minutes"},
            "event_time.window",
            "slide is longer",
        ),
        (
            "event_time.window",
            {"size": "1 minute", "offset": "1 minute"},
            "event_time.window",
            "offset must be shorter",
        ),
        ("event_time.window", None, "event_time.aggregates", "needs window"),
        ("event_time.aggregates", None, "event_time.aggregates", "is required with window"),
        ("event_time.group_by", ["nobody"], "event_time.group_by", "not a field"),
        ("event_time.group_by", ["tags"], "event_time.group_by", "cannot be compared"),
        ("event_time.group_by", ["page", "page"], "event_time.group_by", "twice"),
        ("event_time.deduplicate", ["tags"], "event_time.deduplicate", "cannot be compared"),
        (
            "event_time.aggregates",
            {"Window_Start": "count(*)"},
            "event_time.aggregates",
            "a column of windows already",
        ),
        (
            "event_time.aggregates",
            {"PAGE": "count(*)"},
            "event_time.aggregates",
            "given in group_by already",
        ),
        ("deduplicate_by", ["page"], "deduplicate_by", "event_time.deduplicate"),
        ("schema.infer", True, "schema.infer", "needs declared columns"),
        (
            "sources.main.units",
            {"cooldown": "1d"},
            "sources.main",
            "units needs use_watermark: false",
        ),
        (
            "sources.main.event_time",
            {"idle_after": "1 hour"},
            "sources.main.event_time.idle_after",
            "goes with several sources",
        ),
        (
            "sources.main.event_time",
            {"column": "maybe"},
            "sources.main.event_time.column",
            "may be null",
        ),
        (
            "sources.main.event_time",
            {"column": "none"},
            "sources.main.event_time.column",
            "not a field of the schema",
        ),
        (
            "sources.main.event_time",
            {"delay": "-1 hour"},
            "sources.main.event_time.delay",
            "must be at least 0",
        ),
        (
            "sources.main.event_time",
            {"idle_after": "0 seconds"},
            "sources.main.event_time.idle_after",
            "longer than nothing",
        ),
        (
            "sources.main.event_time",
            {"policy": "max"},
            "sources.main.event_time.policy",
            "unknown key",
        ),
        (
            "event_time.state_path",
            "/mnt/x",
            "event_time.advanced.state_path",
            "with local[2] leave it out",
        ),
        ("event_time.idle_after", "1 hour", "event_time.idle_after", "belongs to a source"),
        ("event_time.windows", "1 hour", "event_time.windows", "did you mean window?"),
        (
            "sink.partition_by",
            {"prefix_template": "date=%Y-%m-%d"},
            "sink.partition_by.prefix_template",
            "may come from many files",
        ),
        (
            "sink.metadata_columns",
            ["_source_file"],
            "sink.metadata_columns",
            "_source_file describes one row",
        ),
    ],
)
def test_invalid_settings_are_reported_with_key_and_line(
    tmp_path: Path, place: str, value: Any, key: str, said: str
) -> None:
    found = problems(tmp_path, changed(place, value))
    named = [text for text in found if re.match(rf"pipelines\.events\.{re.escape(key)}\b", text)]
    assert any(said in text for text in named), found
    assert all(re.search(r"\(line \d+\):", text) for text in named)


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


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({"mode": "update", "window": {"gap": "1 minute"}}, "mode", "update does not go with"),
        ({"mode": "update", "deduplicate": ["page"]}, "deduplicate", "mode append only"),
        ({"mode": "complete", "deduplicate": ["page"]}, "deduplicate", "mode append only"),
        ({"mode": "complete", "group_by": []}, "aggregates", "needs window or group_by"),
        ({"mode": "update", "aggregates": {}}, "aggregates", "is required with group_by"),
        ({"mode": "complete", "aggregates": {}, "group_by": []}, "mode", "is for a query"),
    ],
    ids=str,
)
def test_unsupported_settings_of_a_mode_are_reported(
    tmp_path: Path, change: dict[str, Any], key: str, said: str
) -> None:
    document = changed("event_time", PAGES | change)
    document["pipelines"]["events"]["sink"]["metadata_columns"] = ["_emitted_batch"]
    found = [text for text in problems(tmp_path, document) if text.startswith(f"{HERE}.{key} ")]
    assert any(said in text for text in found), problems(tmp_path, document)


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
    assert problems(tmp_path, document) == []
    config = load_config(tmp_path / "config.yaml", {})
    events = config.pipelines["events"]
    assert events.query is None
    assert events.branches == ()
    hour = to_micros("1 hour")
    assert events.watch_of("main") == WatchedColumn("ts", hour, hour)
    [note] = event_time_notes(config)
    assert note.startswith(f"{HERE}: without window, deduplicate or join nothing is computed")


@pytest.mark.parametrize(
    ("place", "value", "key", "said"),
    [
        ("event_time.mode", "update", "event_time.mode", "is for a query"),
        ("event_time.policy", "max", "event_time.advanced.policy", "is for a query"),
        ("event_time.emit", "next_batch", "event_time.advanced.emit", "is for a query"),
        ("event_time.late_rows", "count", "event_time.advanced.late_rows", "is for a query"),
        ("event_time.partitions", 4, "event_time.advanced.partitions", "is for a query"),
        ("event_time.state_path", "/mnt/x", "event_time.advanced.state_path", "is for a query"),
        ("event_time.column", "maybe", "event_time.column", "may be null"),
        ("event_time.column", "none", "event_time.column", "not a field of the schema"),
        ("schema.infer", True, "schema.infer", "needs declared columns"),
        ("sink.metadata_columns", ["_emitted_batch"], "sink.metadata_columns", "with a query over"),
        (
            "sources.app",
            {"source_uri": "/data/app", "event_time": {"idle_after": "1 hour"}},
            "sources.app.event_time.idle_after",
            "these sources have a watermark each",
        ),
        (
            "sources.main.event_time",
            {"idle_after": "1 hour"},
            "sources.main.event_time.idle_after",
            "goes with several sources",
        ),
        (
            "sink.partition_by",
            {"columns": [{"column": "ts", "transform": "identity"}]},
            "sink.partition_by",
            "would only be in directory names",
        ),
    ],
)
def test_settings_that_need_a_query_are_reported_without_one(
    tmp_path: Path, place: str, value: Any, key: str, said: str
) -> None:
    document = changed("event_time", dict(WATCHED))
    block = document["pipelines"]["events"]
    *outer, last = place.split(".")
    for part in outer:
        block = block.setdefault(part, {})
    block[last] = value
    found = problems(tmp_path, document)
    named = [
        text for text in found if re.match(rf"pipelines\.events\.{re.escape(key)} \(line", text)
    ]
    assert any(said in text for text in named), found


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
    assert problems(tmp_path, document) == []
    path = tmp_path / "config.yaml"
    app, main = load_config(path, {}).pipelines["events"].branches
    assert (app.source, app.column, app.delay_us) == ("app", "seen", to_micros("1 hour"))
    assert app.idle_us == to_micros("1 day")
    assert (main.source, main.column, main.delay_us) == ("main", "ts", to_micros("10 minutes"))
    assert main.idle_us is None
    own["delay"] = "0 seconds"
    path.write_text(yaml.safe_dump(nested(Config, document)))
    [note] = event_time_notes(load_config(path, {}))
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
    path = tmp_path / "config.yaml"
    for delay, notes in (("0 seconds", 1), ("1 second", 0)):
        path.write_text(yaml.safe_dump(nested(Config, changed("event_time.delay", delay))))
        assert len(list(event_time_notes(load_config(path, {})))) == notes
