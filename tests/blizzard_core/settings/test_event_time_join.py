"""An invalid join is refused with its key and line."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_core.settings.event_time import JoinSettings
from blizzard_core.settings.load import load_config
from tests.support.flat_settings import nested

TEXT = """\
spark: {master: "local[2]"}
pipelines:
  sales:
    sources:
      web: {source_uri: /data/web}
      app: {source_uri: /data/app, event_time: {column: seen, delay: 5 minutes}}
    sink: {table_uri: /data/lake/sales}
    schema:
      fields:
        - {name: ts, type: timestamp, nullable: false}
        - {name: seen, type: timestamp, nullable: false}
        - {name: id, type: int64}
        - {name: tags, type: map, values: string}
    event_time:
      column: ts
      delay: 10 minutes
      join:
        left: web
        right: app
        on: [id]
        lower: 0 seconds
        upper: 5 minutes
        columns: {id: web.id, seen: web.ts, done: app.ts}
"""
GOOD: dict[str, Any] = yaml.safe_load(TEXT.replace("on: [id]", '"on": [id]'))


def problems(tmp_path: Path, document: Any) -> list[str]:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(nested(Config, document), sort_keys=False))
    try:
        load_config(path, {})
    except ConfigError as error:
        return list(error.problems)
    return []


def changed(**changes: Any) -> dict[str, Any]:
    """The good document with other values at places below ``event_time``; None: without the key."""
    document = copy.deepcopy(GOOD)
    for place, value in changes.items():
        block = document["pipelines"]["sales"]["event_time"]
        *outer, last = place.split("__")
        for key in outer:
            block = block[key]
        if value is None:
            del block[last]
        else:
            block[last] = value
    return document


def test_a_join_is_read_as_it_is_written(tmp_path: Path) -> None:
    """`on` is a word, although YAML takes it for true."""
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    given = load_config(path, {}).pipelines["sales"].event_time
    assert given is not None
    join = given.join
    assert join is not None
    assert (join.left, join.right, join.type, join.on) == ("web", "app", "inner", ["id"])
    assert (join.lower_us, join.upper_us) == (0, 300_000_000)
    assert join.fields() == {"web": {"id", "ts"}, "app": {"id", "ts"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"join__lower": "-1 hour 30 minutes"},
        {"join__lower": "-2 minutes", "join__upper": "-1 minute"},
        {"join__lower": "5 minutes"},
        {"join__type": "full_outer"},
        {"join__type": "left_semi", "join__columns": {"id": "web.id"}},
        {"policy": "max"},
        {"emit": "next_batch"},
    ],
    ids=str,
)
def test_valid_join_settings_load(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert problems(tmp_path, changed(**changes)) == []


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("left", "left_outer"),
        ("right", "right_outer"),
        ("full", "full_outer"),
        ("outer", "full_outer"),
        ("semi", "left_semi"),
        ("left_outer", "left_outer"),
    ],
)
def test_types_have_short_words(short: str, long: str) -> None:
    block = GOOD["pipelines"]["sales"]["event_time"]["join"]
    assert JoinSettings.model_validate(block | {"type": short}).type == long


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"join__lower": None}, "join.lower", "is required"),
        ({"join__upper": None}, "join.upper", "is required"),
        ({"join__lower": "10 minutes"}, "join.upper", "is less than lower"),
        ({"join__lower": "-1 month"}, "join.lower", "months or years"),
        ({"join__upper": "soon"}, "join.upper", "must be a duration"),
        ({"join__upper": "1 microsecond"}, "join.upper", "whole milliseconds"),
        ({"join__type": "cross"}, "join.type", "'inner', 'left_outer', 'right_outer'"),
        ({"join__left": "bus"}, "join.left", "no source of the pipeline; known: web, app"),
        ({"join__right": "bus"}, "join.right", "no source of the pipeline; known: web, app"),
        ({"join__right": "web"}, "join.right", "is the left source already"),
        ({"join__on": []}, "join.on", "must not be empty"),
        ({"join__on": ["id", "id"]}, "join.on", "names 'id' twice"),
        ({"join__on": ["nobody"]}, "join.on", "'nobody' is not a field"),
        ({"join__on": ["tags"]}, "join.on", "cannot be compared"),
        ({"join__columns": None}, "join.columns", "is required"),
        ({"join__columns": {}}, "join.columns", "must not be empty"),
        ({"join__columns": {"a": "id"}}, "join.columns.a", "such as web.id or app.id"),
        ({"join__columns": {"a": "bus.id"}}, "join.columns.a", "no field of left or right"),
        ({"join__columns": {"a": "web.x"}}, "join.columns.a", "'x' is not a field"),
        (
            {"join__columns": {"a": "web.id", "A": "app.id"}},
            "join.columns.A",
            "is a column already",
        ),
        (
            {"join__columns": {"_emitted_batch": "web.id"}},
            "join.columns._emitted_batch",
            "is a column already",
        ),
        ({"join__type": "semi"}, "join.columns.done", "publishes rows of web alone"),
        ({"mode": "complete"}, "mode", "each pair is published once"),
        ({"mode": "update", "join__type": "left"}, "mode", "type inner only"),
        ({"deduplicate": ["id"]}, "deduplicate", "does not go with join"),
        ({"window": "5 minutes"}, "window", "does not go with join"),
        ({"group_by": ["id"]}, "group_by", "does not go with join"),
        ({"aggregates": {"n": "count(*)"}}, "aggregates", "does not go with join"),
        ({"join__between": "1 day"}, "join.between", "unknown key"),
    ],
    ids=str,
)
def test_invalid_join_settings_are_reported_with_key_and_line(
    tmp_path: Path, changes: dict[str, Any], key: str, said: str
) -> None:
    found = problems(tmp_path, changed(**changes))
    here = rf"pipelines\.sales\.event_time\.{re.escape(key)} \(line \d+\): "
    assert any(re.match(here, text) and said in text for text in found), found


def test_a_join_is_of_two_sources(tmp_path: Path) -> None:
    document = changed()
    document["pipelines"]["sales"]["sources"]["bus"] = {"source_uri": "/data/bus"}
    [text] = problems(tmp_path, document)
    assert text.startswith("pipelines.sales.event_time.join (line")
    assert "bus is neither" in text


def with_own(web: list[dict[str, Any]], app: list[dict[str, Any]], **changes: Any) -> Any:
    """The good document with fields that only one source has."""
    document = changed(**changes)
    sources = document["pipelines"]["sales"]["sources"]
    for name, fields in (("web", web), ("app", app)):
        if fields:
            sources[name]["schema"] = {"fields": fields}
    return document


def test_a_source_may_have_fields_of_its_own(tmp_path: Path) -> None:
    web = [{"name": "user", "type": "string", "nullable": False}, {"name": "n", "type": "int64"}]
    app = [
        {"name": "at", "type": "timestamp", "nullable": False},
        {"name": "n", "type": "int64", "nullable": False},
    ]
    columns = {"id": "web.id", "user": "web.user", "n": "app.n", "done": "app.at"}
    document = with_own(web, app, join__columns=columns)
    sources = document["pipelines"]["sales"]["sources"]
    sources["app"]["event_time"]["column"] = "at"
    assert problems(tmp_path, document) == []
    sales = load_config(tmp_path / "config.yaml", {}).pipelines["sales"]
    shared = ["ts", "seen", "id", "tags"]
    assert [each.name for each in sales.fields_of("web")] == [*shared, "user", "n"]
    assert [each.name for each in sales.fields_of("app")] == [*shared, "at", "n"]
    assert [each.name for each in sales.fields] == [*shared, "at", "n", "user"]
    assert [each.nullable for each in sales.fields[4:]] == [True] * 3


FIELD = {"name": "x", "type": "int64"}


@pytest.mark.parametrize(
    ("web", "app", "changes", "key", "said"),
    [
        ([FIELD | {"name": "ID"}], [], {}, "sources.web.schema.fields[0].name", "schema already"),
        (
            [FIELD],
            [FIELD | {"type": "string"}],
            {},
            "sources.app.schema.fields[0].name",
            "is string here and int64 in sources.web",
        ),
        ([FIELD], [FIELD | {"name": "X"}], {}, "sources.app.schema.fields[0].name", "alike"),
        ([FIELD, FIELD], [], {}, "sources.web.schema", "given twice"),
        (
            [],
            [FIELD],
            {"join__columns": {"x": "web.x"}},
            "event_time.join.columns.x",
            "a field of other sources alone",
        ),
        ([], [FIELD], {"join__on": ["x"]}, "event_time.join.on", "is no field of web"),
        (
            [FIELD | {"name": "seen_at", "type": "timestamp", "nullable": False}],
            [],
            {"column": "seen_at", "join": None, "deduplicate": ["id"]},
            None,
            "",
        ),
        (
            [],
            [FIELD | {"name": "seen_at", "type": "timestamp", "nullable": False}],
            {"column": "seen_at", "join": None, "deduplicate": ["id"]},
            "event_time.column",
            "'seen_at' is not a field of the schema",
        ),
        ([FIELD], [], {"join": None, "deduplicate": ["x", "id"]}, None, ""),
        (
            [FIELD],
            [],
            {"join": None, "deduplicate": ["x"]},
            "event_time.deduplicate",
            "sources.app has none of these fields",
        ),
    ],
)
def test_invalid_fields_of_one_source_are_reported(
    tmp_path: Path, web: Any, app: Any, changes: dict[str, Any], key: str | None, said: str
) -> None:
    found = problems(tmp_path, with_own(web, app, **changes))
    if key is None:  # the other source has its own column, or another key
        assert found == []
        return
    here = rf"pipelines\.sales\.{re.escape(key)} \(line \d+\): "
    assert any(re.match(here, text) and said in text for text in found), found


def test_own_fields_are_for_a_query_over_several_sources(tmp_path: Path) -> None:
    document = with_own([FIELD], [])
    sales = document["pipelines"]["sales"]
    sales["transform"] = "SELECT * FROM source"
    [text] = problems(tmp_path, document)
    assert text.startswith("pipelines.sales.sources.web.schema (line")
    assert "does not go with transform" in text
    del sales["transform"]
    del sales["event_time"]["join"]
    del sales["sources"]["app"]
    sales["event_time"]["deduplicate"] = ["id"]
    [text] = problems(tmp_path, document)
    assert "is for sources that share a query over event_time" in text
    del sales["event_time"]
    [text] = problems(tmp_path, document)
    assert "declare the fields in the pipeline's schema" in text


def test_own_fields_keep_the_rules_of_fields(tmp_path: Path) -> None:
    document = with_own([FIELD | {"name": 'a"b'}, FIELD | {"name": "_rescued"}], [])
    document["pipelines"]["sales"]["schema"]["unexpected_fields"] = "capture"
    found = problems(tmp_path, document)
    assert any("a name with a quote" in text for text in found)
    assert any("capture adds" in text for text in found)


def test_columns_of_one_file_are_not_those_of_a_pair(tmp_path: Path) -> None:
    document = changed()
    document["pipelines"]["sales"]["sink"]["metadata_columns"] = ["_source_file"]
    [text] = problems(tmp_path, document)
    assert "a pair has two; leave it out" in text


def test_the_names_of_sources_may_have_dots() -> None:
    block = GOOD["pipelines"]["sales"]["event_time"]["join"]
    join = JoinSettings.model_validate(block | {"left": "a", "right": "a.b"})
    assert join.split_field_name("a.b.c") == ("a.b", "c")
    assert join.split_field_name("a.c") == ("a", "c")
    assert join.split_field_name("a.") is None
    assert join.split_field_name("a") is None


def with_own_fields(**fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The good document with fields of single sources."""
    document = copy.deepcopy(GOOD)
    for source, own in fields.items():
        document["pipelines"]["sales"]["sources"][source]["schema"] = {"fields": own}
    return document


def test_an_own_field_needs_an_input_of_its_own(tmp_path: Path) -> None:
    own = {"name": "number", "from": "id", "type": "int64"}
    [problem] = problems(tmp_path, with_own_fields(web=[own]))
    assert "'number' and 'id' of the pipeline's schema are both filled from 'id'" in problem
    assert problems(tmp_path, with_own_fields(web=[own | {"from": "No"}])) == []


def test_sources_may_fill_a_column_from_different_names(tmp_path: Path) -> None:
    def own(inner: str, kind: str = "string") -> dict[str, Any]:
        studio = {"name": "office", "from": inner, "type": kind}
        listed = {"type": "struct", "fields": [studio]}
        return {"name": "studio", "from": f"{inner}s", "type": "list", "items": listed}

    found = problems(tmp_path, with_own_fields(web=[own("A B")], app=[own("C")]))
    assert found == []
    [problem] = problems(tmp_path, with_own_fields(web=[own("A B")], app=[own("C", "int64")]))
    assert "differs inside" in problem
