"""An invalid join is refused with its key and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.settings.event_time import JoinSettings
from tests.support.settings_documents import cases, is_reported, load, problems, with_changes

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


BELOW = "pipelines.sales"


def test_a_join_is_read_as_it_is_written(tmp_path: Path) -> None:
    """`on` is a word, although YAML takes it for true."""
    given = load(tmp_path, TEXT).pipelines["sales"].event_time
    join = given.join
    assert (join.left, join.right, join.type, join.on) == ("web", "app", "inner", ["id"])
    assert (join.lower_us, join.upper_us) == (0, 300_000_000)
    assert join.fields() == {"web": {"id", "ts"}, "app": {"id", "ts"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"join.lower": "-1 hour 30 minutes"},
        {"join.lower": "-2 minutes", "join.upper": "-1 minute"},
        {"join.lower": "5 minutes"},
        {"join.type": "full_outer"},
        {"join.type": "left_semi", "join.columns": {"id": "web.id"}},
        {"policy": "max"},
        {"emit": "next_batch"},
    ],
    ids=str,
)
def test_valid_join_settings_load(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert problems(tmp_path, with_changes(GOOD, changes, f"{BELOW}.event_time")) == []


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


WRONG = """
join.lower: ~ => is required
join.upper: ~ => is required
join.lower: 10 minutes => is less than lower @ join.upper
join.lower: -1 month => months or years
join.upper: soon => must be a duration
join.upper: 1 microsecond => whole milliseconds
join.type: cross => 'inner', 'left_outer', 'right_outer'
join.left: bus => no source of the pipeline; known: web, app
join.right: bus => no source of the pipeline; known: web, app
join.right: web => is the left source already
join.on: [] => must not be empty
join.on: [id, id] => names 'id' twice
join.on: [nobody] => 'nobody' is not a field
join.on: [tags] => cannot be compared
join.columns: ~ => is required
join.columns: {} => must not be empty
join.columns: {a: id} => such as web.id or app.id @ join.columns.a
join.columns: {a: bus.id} => no field of left or right @ join.columns.a
join.columns: {a: web.x} => 'x' is not a field @ join.columns.a
join.columns: {a: web.id, A: app.id} => is a column already @ join.columns.A
join.columns: {_emitted_batch: web.id} => is a column already @ join.columns._emitted_batch
join.type: semi => publishes rows of web alone @ join.columns.done
mode: complete => each pair is published once
mode: update, join.type: left => type inner only
deduplicate: [id] => does not go with join
window: 5 minutes => does not go with join
group_by: [id] => does not go with join
aggregates: {n: count(*)} => does not go with join
join.between: 1 day => unknown key
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG))
def test_invalid_join_settings_are_reported_with_key_and_line(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    found = problems(tmp_path, with_changes(GOOD, changes, f"{BELOW}.event_time"))
    assert is_reported(found, said, f"event_time.{place or next(iter(changes))}")


def test_a_join_is_of_two_sources(tmp_path: Path) -> None:
    bus = {"sources.bus": {"source_uri": "/data/bus"}}
    [text] = problems(tmp_path, with_changes(GOOD, bus, BELOW))
    assert text.startswith("pipelines.sales.event_time.join (line")
    assert "bus is neither" in text


def with_own(
    web: list[dict[str, Any]], app: list[dict[str, Any]], **changes: Any
) -> dict[str, Any]:
    """Return the good document with fields that only one source has."""
    own = {"sources.web.schema": web, "sources.app.schema": app}
    fields = {place: {"fields": own[place]} for place in own if own[place]}
    return with_changes(GOOD, {**fields, **changes}, BELOW)


def test_a_source_may_have_fields_of_its_own(tmp_path: Path) -> None:
    web = [{"name": "user", "type": "string", "nullable": False}, {"name": "n", "type": "int64"}]
    app = [
        {"name": "at", "type": "timestamp", "nullable": False},
        {"name": "n", "type": "int64", "nullable": False},
    ]
    columns = {"id": "web.id", "user": "web.user", "n": "app.n", "done": "app.at"}
    changes = {"event_time.join.columns": columns, "sources.app.event_time.column": "at"}
    sales = load(tmp_path, with_own(web, app, **changes)).pipelines["sales"]
    shared = ["ts", "seen", "id", "tags"]
    assert [each.name for each in sales.fields_of("web")] == [*shared, "user", "n"]
    assert [each.name for each in sales.fields_of("app")] == [*shared, "at", "n"]
    assert [each.name for each in sales.fields] == [*shared, "at", "n", "user"]
    assert [each.nullable for each in sales.fields[4:]] == [True] * 3


FIELD = {"name": "x", "type": "int64"}


WRONG_FIELDS = """
sources.web.schema: {fields: [{name: ID, type: int64}]}
  => schema already @ sources.web.schema.fields[0].name
sources.web.schema: {fields: [{name: x, type: int64}]},
  sources.app.schema: {fields: [{name: x, type: string}]}
  => is string here and int64 in sources.web @ sources.app.schema.fields[0].name
sources.web.schema: {fields: [{name: x, type: int64}]},
  sources.app.schema: {fields: [{name: X, type: int64}]}
  => alike @ sources.app.schema.fields[0].name
sources.web.schema: {fields: [{name: x, type: int64}, {name: x, type: int64}]} => given twice
sources.app.schema: {fields: [{name: x, type: int64}]}, event_time.join.columns: {x: web.x}
  => a field of other sources alone @ event_time.join.columns.x
sources.app.schema: {fields: [{name: x, type: int64}]}, event_time.join.on: [x]
  => is no field of web @ event_time.join.on
sources.app.schema: {fields: [{name: t, type: timestamp, nullable: false}]},
  event_time.column: t, event_time.join: ~, event_time.deduplicate: [id]
  => 't' is not a field of the schema @ event_time.column
sources.web.schema: {fields: [{name: x, type: int64}]},
  event_time.join: ~, event_time.deduplicate: [x]
  => sources.app has none of these fields @ event_time.deduplicate
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG_FIELDS))
def test_invalid_fields_of_one_source_are_reported(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    assert is_reported(
        problems(tmp_path, with_changes(GOOD, changes, BELOW)), said, place or next(iter(changes))
    )


@pytest.mark.parametrize("keys", [{"column": "x"}, {"deduplicate": ["x", "id"]}])
def test_another_source_has_its_own_column_or_another_key(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    field = {"name": "x", "type": "timestamp", "nullable": False}
    query = {"join": None, "deduplicate": ["id"], **keys}
    changes = {f"event_time.{key}": value for key, value in query.items()}
    assert problems(tmp_path, with_own([field], [], **changes)) == []


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
    columns = {"sink.metadata_columns": ["_source_file"]}
    [text] = problems(tmp_path, with_changes(GOOD, columns, BELOW))
    assert "a pair has two; leave it out" in text


def test_the_names_of_sources_may_have_dots() -> None:
    block = GOOD["pipelines"]["sales"]["event_time"]["join"]
    join = JoinSettings.model_validate(block | {"left": "a", "right": "a.b"})
    assert join.split_field_name("a.b.c") == ("a.b", "c")
    assert join.split_field_name("a.c") == ("a", "c")
    assert join.split_field_name("a.") is None
    assert join.split_field_name("a") is None


def test_an_own_field_needs_an_input_of_its_own(tmp_path: Path) -> None:
    own = {"name": "number", "from": "id", "type": "int64"}
    [problem] = problems(tmp_path, with_own([own], []))
    assert "'number' and 'id' of the pipeline's schema are both filled from 'id'" in problem
    assert problems(tmp_path, with_own([own | {"from": "No"}], [])) == []


def test_sources_may_fill_a_column_from_different_names(tmp_path: Path) -> None:
    def own(inner: str, kind: str = "string") -> dict[str, Any]:
        studio = {"name": "office", "from": inner, "type": kind}
        listed = {"type": "struct", "fields": [studio]}
        return {"name": "studio", "from": f"{inner}s", "type": "list", "items": listed}

    found = problems(tmp_path, with_own([own("A B")], [own("C")]))
    assert found == []
    [problem] = problems(tmp_path, with_own([own("A B")], [own("C", "int64")]))
    assert "differs inside" in problem
