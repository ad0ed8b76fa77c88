"""The configuration: everything wrong is told at once, with its place and never its value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.settings.load import load_config
from blizzard_py.app.wiring import ingest_settings
from blizzard_py.job import PartitionRule, SortKey
from penguin_py.settings import tables_of
from tests.support.settings_documents import (
    GOOD,
    cases,
    changed,
    is_reported,
    load,
    problems,
    with_changes,
)


@pytest.mark.parametrize(
    ("field", "columns", "named"),
    [
        ("_SOURCE_file", ["_source_file"], "_source_file"),
        ("id", ["_source_line", "_source_line"], "_source_line"),
    ],
)
def test_metadata_columns_collide_with_nothing(
    tmp_path: Path, field: str, columns: list[str], named: str
) -> None:
    document = changed(
        schema__fields=[{"name": field, "type": "string"}],
        sink__metadata_columns=columns,
    )
    [problem] = problems(tmp_path, document)
    said = f"'{named}' is given twice or is also a field"
    assert is_reported([problem], said, "sink.metadata_columns")


def test_metadata_columns_are_no_partition_keys(tmp_path: Path) -> None:
    document = changed(
        sink__metadata_columns=["_source_file"],
        sink__partition_by={"prefix_template": "_source_file=%Y"},
    )
    [problem] = problems(tmp_path, document)
    assert "must not start with _" in problem


@pytest.mark.parametrize(
    ("setting", "value"),
    [("on_bad_record", "ignore"), ("max_bad_fraction", 1.5), ("max_bad_fraction", -0.1)],
)
def test_invalid_error_handling_settings_are_reported(
    tmp_path: Path, setting: str, value: object
) -> None:
    document = changed(**{f"error_handling__{setting}": value})
    [problem] = problems(tmp_path, document)
    assert f"error_handling.{setting}" in problem


def test_the_shortest_configuration_has_the_documented_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    source = config.pipelines["events"].sources["main"]
    assert source.use_watermark is True
    assert (source.id, source.late_files, source.advanced.max_ahead) == (
        None,
        "quarantine",
        172_800,
    )
    assert (source.advanced.compression, source.poll_interval) == ("auto", 60)
    assert (source.advanced.checkpoint.interval_files, source.advanced.checkpoint.interval) == (
        1000,
        60,
    )
    assert config.spark.master == "local[*]"
    assert config.global_.advanced.total_concurrency == 8
    assert config.pipelines["events"].error_handling.advanced.max_failures == 0


def test_path_is_another_name_for_source_uri(tmp_path: Path) -> None:
    document = changed(sources__main={"path": "/data/raw"})
    assert load(tmp_path, document).pipelines["events"].sources["main"].source_uri == "/data/raw"
    both = changed(sources__main={"path": "/a", "source_uri": "/a"})
    assert any("source_uri or path, not both" in problem for problem in problems(tmp_path, both))


@pytest.mark.promise("G-111")
def test_places_have_one_spelling_behind_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for source, table in (("raw", "lake/t"), ("./raw/", f"file:{tmp_path}/lake//t/")):
        document = changed(
            sources__main={"source_uri": source},
            sink__table_uri=table,
            error_handling__dlq_path="s3a://letters//x/",
            tables__events__table_uri=table,
        )
        config = load(tmp_path, document)
        pipeline = config.pipelines["events"]
        assert pipeline.sources["main"].source_uri == f"{tmp_path}/raw"
        assert pipeline.sink.table_uri == config.tables["events"].table_uri == f"{tmp_path}/lake/t"
        assert pipeline.error_handling.advanced.dlq_path == "s3://letters/x"


def test_all_problems_are_reported_with_their_lines(tmp_path: Path) -> None:
    text = """\
pipelines:
  events:
    sources:
      main:
        source_uri: /data/raw
        poll_interval: soon
        pol_interval: 3
        storage_options: {}
    sink:
      table_uri: ${LAKE}/events
      advanced: {compression: zip}
    schema:
      fields:
        - {name: a, type: text}
tables: {}
surprise: 1
"""
    found = problems(tmp_path, text)
    assert len(found) == 6
    for expected in (
        "pipelines.events.sink.table_uri (line 10): environment variable LAKE is not set",
        "pipelines.events.sources.main.poll_interval (line 6): must be a duration such as",
        "pipelines.events.sources.main.pol_interval (line 7): unknown key",
        "pipelines.events.sink.advanced.compression (line 11): must be 'snappy', ",
        "pipelines.events.schema.fields[0].type (line 14): there is no type 'text'; known: ",
        "surprise (line 16): unknown key",
    ):
        assert any(problem.startswith(expected) for problem in found), (expected, found)


def test_variables_have_defaults_and_can_be_escaped(tmp_path: Path) -> None:
    document = changed(
        sources__main={
            "source_uri": "${BASE}/raw",
            "poll_interval": "${SECS:-15}s",
        },
        sink__table_uri="/lake/$${literal}/${EMPTY:-x}",
    )
    config = load(tmp_path, document, BASE="/base", EMPTY="")
    assert config.pipelines["events"].sources["main"].source_uri == "/base/raw"
    assert config.pipelines["events"].sources["main"].poll_interval == 15
    assert config.pipelines["events"].sink.table_uri == "/lake/${literal}/x"


def test_a_variable_cannot_change_the_structure_of_the_file(tmp_path: Path) -> None:
    document = changed(sources__main__source_uri="${EVIL}")
    config = load(tmp_path, document, EVIL="/a\nsurprise: 1")
    assert config.pipelines["events"].sources["main"].source_uri == "/a\nsurprise: 1"


def test_duplicate_key_is_reported_with_its_line(tmp_path: Path) -> None:
    text = "tables:\n  t: {table_uri: /a}\n  t: {table_uri: /b}\n"
    assert problems(tmp_path, text) == ["tables.t (line 3): key given twice"]


@pytest.mark.parametrize("key", ["sources__main__source_uri", "sink__table_uri"])
def test_an_empty_place_is_not_where_the_daemon_runs(tmp_path: Path, key: str) -> None:
    document = changed(**{key: "${PLACE}"})
    [empty] = problems(tmp_path, document, PLACE="")
    assert empty.endswith(": is empty; name a place")
    [unset] = problems(tmp_path, document)
    assert unset.endswith(": environment variable PLACE is not set")


def test_a_key_may_replace_what_a_merge_brings(tmp_path: Path) -> None:
    text = (
        "tables:\n  a: &a\n    table_uri: /a\n    optimize: {interval: 1m}\n"
        "  b: {<<: *a, table_uri: /b}\n"
    )
    tables = load(tmp_path, text).tables
    assert [tables["a"].table_uri, tables["b"].table_uri] == ["/a", "/b"]
    assert tables["b"].optimize == tables["a"].optimize is not None
    twice = text.replace("<<: *a,", "<<: *a, table_uri: /c,")
    assert problems(tmp_path, twice) == ["tables.b.table_uri (line 5): key given twice"]


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("poll_interval", "must be a number"),
        ("advanced.max_tracked_partitions", "must be a whole number"),
        ("grace_period", "must be a number or 'auto'"),
        ("advanced.partition_depth", "must be a whole number"),
    ],
)
def test_a_truth_is_no_number(tmp_path: Path, place: str, told: str) -> None:
    key = place.replace(".", "__")
    document = changed(**{f"sources__main__{key}": True})
    [problem] = problems(tmp_path, document)
    assert problem.startswith(f"pipelines.events.sources.main.{place} (line")
    assert problem.endswith(f": {told}")


SHARED = r"""
sources.two: {source_uri: "file:///data/./raw/"}
  => is read by pipelines.events.sources.main.source_uri (line @ sources.two.source_uri
sources.two: {source_uri: /data/raw/deeper}
  => is read by pipelines.events.sources.main @ sources.two.source_uri
pipelines.other: {sources: {main: {source_uri: /else}}, sink: {table_uri: /data/lake/events}}
  => is written by pipelines.events.sink.table_uri @ other.sink.table_uri
tables: {a: {table_uri: "s3://b/t"}, b: {table_uri: "s3a://b/t/"}}
  => is the table of tables.a.table_uri @ b.table_uri
sink.table_uri: /data/raw/table
  => overlaps with the table of pipelines.events.sink.table_uri @ sources.main.source_uri
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(SHARED))
def test_shared_places_are_conflicts(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    assert is_reported(problems(tmp_path, with_changes(GOOD, changes)), said, place)


def test_neighbours_with_a_common_beginning_are_no_conflict(tmp_path: Path) -> None:
    load(tmp_path, changed(sources__two={"source_uri": "/data/raw2"}))


WRONG = r"""
sources.main.use_watermark: maybe => must be true or false
sources.main.source_uri: "ftp://x/y" => unknown scheme 'ftp'
sources.main.source_uri: "s3://" => names no bucket
sources.main.source_uri: "s3://[b/x" => is no URI
sources.main.source_uri: "/data/\0x" => has a NUL character
sources.main.poll_interval: .inf => must be a duration
sources.main.source_uri: "s3://k:geheim@b/x" => must not carry credentials
sources.main: {source_uri: "s3://b/x", storage_options: {AWS_REGOIN: x}}
  => storage option 'AWS_REGOIN' is not known for s3; known: AWS_ACCESS_KEY_ID
sources.main.partition_filter: {prefix_template: h=%H} => must contain the year
sources.main.partition_filter: {prefix_template: "%Y/%b"} => has %b, which does not sort
sources.main.partition_filter: {prefix_template: yyyy/MM} => where a date is meant; write '%Y/%m'
sink.partition_by: {prefix_template: date=%Q} => prefix_template 'date=%Q' has %Q, which is unknown
sink.partition_by: {prefix_template: "%Y"} => must be key=value components
sink.partition_by: {prefix_template: d=%d, column: x} => column 'x' must be a timestamp field
sink.partition_by: {prefix_template: TIME=%d} => key 'TIME' is also a field of the schema
schema.fields: [{name: a, type: string}, {name: A, type: string}]
  => field 'A' is given twice or differs only in case
schema.fields: [{name: b, type: string}, {name: c, from: b, type: string}]
  => fields 'b' and 'c' are both filled from 'b'
schema.fields: [{name: a, from: " a ", type: string}], sources.main.format: {type: csv}
  => names in a header are read without blanks around them; write 'a'
schema.fields: [{name: a, from: " a ", type: string}], sources.main.format: {type: excel}
  => names in a header are read without blanks around them; write 'a'
schema.fields: [{name: US Gross, type: string}]
  => name holds ' '; write { name: US_Gross, from: "US Gross", … }
schema.fields: [{name: a, type: list, items: {type: struct, fields: [{name: x=, type: date}]}}]
  => a.'x=': Delta has no column whose name holds '='; write { name: x, from: "x=", … }
schema.fields: [{name: a, type: string}, {name: a, type: string}]
  => field 'a' is given twice or differs only in case
schema: {fields: [{name: a"b, type: int64}], unexpected_fields: fail} => a name with a quote
schema: {fields: [{name: a\b, type: int64}], unexpected_fields: capture} => a name with a quote
schema: {fields: [{name: ab, from: a\b, type: int64}], unexpected_fields: capture} => a backslash
schema.fields: [{name: a\b, type: json}] => a name with a quote, a backslash
schema.fields: [{name: "a\nb", type: string, coerce: true}] => or a control character
schema: {fields: [{name: s, type: struct, fields: [{name: a"b, type: date}]}],
  unexpected_fields: fail} => a name with a quote
schema.fields: [{name: a"b, type: list, items: {type: json}}] => a name with a quote
schema: {} => give `fields`, or `infer: true`, or both
schema: {infer: true}, sink.partition_by: {prefix_template: d=%d, column: time}
  => declared in schema.fields
schema: {fields: [{name: _RESCUED, type: json}], unexpected_fields: capture}
  => field '_rescued' is what unexpected_fields: capture adds
schema.fields: [{name: a, type: blob}] => there is no type 'blob'; known: string, int32
schema.fields: [{name: a, type: decimal}] => 'decimal' is not decimal(p,s)
schema.fields: [{name: a, type: "decimal(39,1)"}] => 'decimal(39,1)' is not decimal(p,s)
schema.fields: [{name: a, type: "decimal(2,3)"}] => 'decimal(2,3)' is not decimal(p,s)
schema.fields: [{name: a, type: "decimal(0,0)"}] => 'decimal(0,0)' is not decimal(p,s)
schema.fields: [{name: a, type: struct}] => type struct needs `fields`
schema.fields: [{name: a, type: struct, fields: []}] => type struct needs `fields`
schema.fields: [{name: a, type: list}] => type list needs `items`
schema.fields: [{name: a, type: map}] => type map needs `values`
schema.fields: [{name: a, type: int64, items: int64}] => `items` belongs to type list
schema.fields: [{name: a, type: int64, unit: ms}] => `unit` belongs to type timestamp
schema.fields: [{name: a, type: int64, coerce: true}] => `coerce` belongs to type string
schema.fields: [{name: a, type: list, items: {type: map}}] => type map needs `values`
schema.fields: [{name: a, type: map, values: blob}] => there is no type 'blob'
schema.fields: [{name: a, type: struct, fields: [{name: x, type: date}, {name: X, type: date}]}]
  => field 'X' is given twice or differs only in case
pipelines.bad name: {} => names consist of letters
tables: {t: {table_uri: /t, file_pattern: (}} => is not a regular expression
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG))
def test_invalid_settings_are_reported_without_secrets(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    found = problems(tmp_path, with_changes(GOOD, changes))
    assert is_reported(found, said, place)
    assert "geheim" not in "\n".join(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "must be a mapping"),
        ("", "must be a mapping"),
        ("pipelines: {}", "give at least one entry under `pipelines` or `tables`"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str, message: str) -> None:
    [found] = problems(tmp_path, text)
    assert message in found


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: 1 problem\n  no such file"):
        load_config(tmp_path / "nowhere.yaml", {})


def test_secrets_are_in_no_representation(tmp_path: Path) -> None:
    options = {"AWS_SECRET_ACCESS_KEY": "geheim"}
    document = changed(
        sources__main={"source_uri": "s3://b/x", "storage_options": options},
    )
    assert "geheim" not in repr(load(tmp_path, document))
    wrong = changed(
        sources__main={"source_uri": "s3://b/x", "storage_options": "geheim"},
    )
    assert "geheim" not in "\n".join(problems(tmp_path, wrong))


def test_messages_hide_values_of_environment_variables(tmp_path: Path) -> None:
    """Values quoted in errors are replaced by the name of their variable."""
    secret = "hR7mQ2z\\K9\n"
    document = changed(
        schema__fields=[{"name": "a", "type": "${PASSWORD}"}],
        metrics={"address": "${PASSWORD}"},
    )
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError) as found:
        load_config(path, {"PASSWORD": secret})
    told = str(found.value)
    assert "no type '${PASSWORD}'" in told
    assert "hR7mQ2z" not in told


def test_partition_columns_have_types(tmp_path: Path) -> None:
    document = changed(
        sink__partition_by={
            "prefix_template": "date=%Y-%m-%d/hour=%H/y=%Y",
            "types": {"y": "int32"},
        }
    )
    by = load(tmp_path, document).pipelines["events"].sink.partition_by
    assert by.column_types({}) == {"date": "date", "hour": "string", "y": "int32"}


FIELDS = [
    {"name": "time", "type": "timestamp", "nullable": False},
    {"name": "country", "type": "string"},
    {"name": "shop", "type": "int32"},
    {"name": "price", "type": "float64"},
]


def with_sink(**settings: Any) -> dict[str, Any]:
    return changed(
        schema__fields=FIELDS,
        sink={"table_uri": "/data/lake/events", **settings},
    )


def test_rows_decide_their_partition_by_columns(tmp_path: Path) -> None:
    document = with_sink(
        partition_by={
            "columns": [
                "country",
                {"column": "shop", "name": "store"},
                {"column": "time", "transform": "date"},
                {"column": "time", "transform": "hour", "name": "h"},
            ],
            "types": {"h": "int32"},
        }
    )
    config = load(tmp_path, document)
    pipeline = config.pipelines["events"]
    rules = ingest_settings(pipeline, pipeline.sources["main"]).layout.partition_rules
    assert rules == (
        PartitionRule("country", key="country"),
        PartitionRule("shop", key="store"),
        PartitionRule("time", "date=%Y-%m-%d"),
        PartitionRule("time", "h=%H"),
    )
    assert [rule.moves for rule in rules] == [True, False, False, False]
    assert tables_of(config)[0].partition_types == {
        "country": "string",
        "store": "int32",
        "date": "date",
        "h": "int32",
    }


def test_table_gets_partition_types_from_the_pipeline_schema(tmp_path: Path) -> None:
    document = with_sink()
    document["tables"] = {
        "t": {"table_uri": "/data/lake/events", "partition_by": {"columns": ["shop"]}},
        "other": {"table_uri": "/data/lake/other", "partition_by": {"columns": ["shop"]}},
    }
    tables = {table.name: table for table in tables_of(load(tmp_path, document))}
    assert tables["t"].partition_types == {"shop": "int32"}
    assert tables["other"].partition_types == {"shop": "string"}


def test_the_sink_settles_how_files_are_made(tmp_path: Path) -> None:
    document = with_sink(
        compression="none",
        file_size_mb=2,
        row_group_size_bytes=1 << 20,
        sort_by=["country", "-time"],
    )
    pipeline = load(tmp_path, document).pipelines["events"]
    layout = ingest_settings(pipeline, pipeline.sources["main"]).layout
    assert layout.compression == "uncompressed"
    assert (layout.file_bytes, layout.row_group_bytes) == (2 << 20, 1 << 20)
    assert layout.sort_by == (SortKey("country"), SortKey("time", descending=True))


WRONG_SINKS = r"""
sink.partition_by: {} => give either prefix_template or columns
sink.partition_by: {columns: [country], prefix_template: d=%d} => give either prefix_template or
sink.partition_by: {columns: [country], column: time} => column belongs to prefix_template
sink.partition_by: {columns: [{column: time, transform: date}, {column: time, transform: date}]}
  => two partition columns have the same name
sink.partition_by: {columns: [{column: shop, name: _shop}]} => '_shop' must not start with _ or .
sink.partition_by: {prefix_template: .d=%d} => '.d' must not start with _ or .
sink.partition_by: {columns: [nowhere]} => column 'nowhere' is not a field of the schema
sink.partition_by: {columns: [price]} => column 'price' is float64; identity takes string, int32
sink.partition_by: {columns: [{column: country, transform: hour}]}
  => column 'country' is string: hour needs a timestamp
sink.partition_by: {columns: [{column: country, transform: week}]} => 'identity', 'date' or 'hour'
sink.partition_by: {columns: [{column: country, name: price}]} => key 'price' is also a field of
sink.partition_by: {columns: [{column: country, name: Country}]} => key 'Country' is also a field
sink.partition_by: {columns: [{column: time, transform: hour, name: a=b}]}
  => name 'a=b' must not hold %, / or =
sink.partition_by: {columns: [shop], types: {shop: string}}
  => types must not differ from the int32 field 'shop'
sink.partition_by: {columns: [shop], types: {x: string}}
  => types names 'x', which is no partition column
sink.sort_by: [-nowhere] => column 'nowhere' is not a field of the schema @ sink.sort_by
sink.sort_by: [shop, -shop] => names 'shop' twice @ sink.sort_by
sink.sort_by: [shop], sink.partition_by: {columns: [shop]}
  => column 'shop' has one value in all rows of a file @ sink.sort_by
sink.row_group_size_bytes: 1000 => must be at least 65536
sink.compression: brotli => 'snappy', 'zstd', 'lz4', 'gzip' or 'uncompressed'
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG_SINKS))
def test_a_sink_that_cannot_work_is_refused(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    assert is_reported(problems(tmp_path, with_changes(with_sink(), changes)), said, place)


@pytest.mark.parametrize("name", ["brotli", "br"])
def test_brotli_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    document = changed(sources__main__advanced={"compression": name})
    [found] = problems(tmp_path, document)
    assert "advanced.compression (line" in found
    assert "it has no checksum, so damage would become rows; store the files as zstd" in found


def test_a_table_needs_a_column_in_its_files(tmp_path: Path) -> None:
    document = changed(
        sink={
            "table_uri": "/data/lake/events",
            "partition_by": {"columns": ["time"]},
        }
    )
    assert any("leaves no column for the files" in p for p in problems(tmp_path, document))


def test_nested_types_load_from_blocks_and_plain_text(tmp_path: Path) -> None:
    document = changed(
        schema__fields=[
            {"name": "price", "type": "decimal(12,2)"},
            {"name": "t", "type": "timestamp", "unit": "ms"},
            {"name": "tags", "type": "list", "items": "string"},
            {
                "name": "attrs",
                "type": "map",
                "values": {
                    "type": "struct",
                    "fields": [{"name": "x", "type": "list", "items": "json", "nullable": False}],
                },
            },
        ]
    )
    schema = load(tmp_path, document).pipelines["events"].schema_
    assert [f.type for f in schema.fields] == ["decimal(12,2)", "timestamp", "list", "map"]
    values = schema.fields[3].values
    assert (values.fields[0].items.type, values.fields[0].nullable) == ("json", False)


EXAMPLES = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_shipped_examples_are_valid(path: Path) -> None:
    demo = {"DEMO_DIR": "/demo", "DEMO_PORT": "5432", "DEMO_PASSWORD": "x"}
    assert load_config(path, {"BUCKET": "s3://example", **demo}).pipelines


def test_deduplication_keys_must_be_fields_of_the_schema(
    tmp_path: Path,
) -> None:
    keyed = changed(deduplicate_by=["time"])
    assert load(tmp_path, keyed).pipelines["events"].deduplicate_by == ["time"]
    for keys, problem in ((["nope"], "is not a field of the schema"), (["time"] * 2, "twice")):
        (found,) = problems(tmp_path, changed(deduplicate_by=keys))
        assert problem in found
    by = {"prefix_template": "date=%Y-%m-%d", "column": "at"}
    renamed = changed(
        sink__partition_by=by,
        transform="SELECT time AS at FROM source",
    )
    assert load(tmp_path, renamed).pipelines["events"].transform is not None
    del renamed["pipelines"]["events"]["transform"]
    assert any("must be a timestamp field" in problem for problem in problems(tmp_path, renamed))


def test_problems_of_all_kinds_are_reported_in_one_round(tmp_path: Path) -> None:
    document = changed(
        sources__main__poll_interval="often",
        sources__main__pol=1,
        sink__metadata_columns=["_source_file"],
        sink__sort_by=["nowhere"],
        deduplicate_by=["gone", "gone"],
        schema={
            "fields": [{"name": "a b", "type": "string"}, {"name": "_source_file", "type": "date"}],
        },
    )
    document["surprise"] = 1
    found = "\n".join(problems(tmp_path, document))
    for expected in (
        "surprise (line",
        "poll_interval (line",
        "main.pol (line",
        ": '_source_file' is given twice",
        ": column 'nowhere' is not a field",
        ": 'gone' is not a field",
        ": names 'gone' twice",
        "Delta has no column whose name holds ' '",
    ):
        assert expected in found, expected


def test_a_faulty_schema_is_no_cause_of_further_problems(tmp_path: Path) -> None:
    document = changed(
        deduplicate_by=["a"],
        schema={"fields": [{"name": "a", "type": "strng"}]},
    )
    [found] = problems(tmp_path, document)
    assert "there is no type 'strng'" in found


def test_a_faulty_pipeline_does_not_hide_those_of_another(tmp_path: Path) -> None:
    document = changed(schema={"fields": [{"name": "a", "type": "strng"}]})
    sink = {"table_uri": "/other", "sort_by": ["nowhere"]}
    fields = [{"name": "a", "type": "string"}]
    document["pipelines"]["other"] = {
        "sources": {"main": {"source_uri": "/in"}},
        "sink": sink,
        "schema": {"fields": fields},
    }
    found = "\n".join(problems(tmp_path, document))
    assert "there is no type 'strng'" in found
    assert "pipelines.other" in found
    assert "sort_by (line 18): column 'nowhere'" in found


def test_a_name_of_the_records_is_answered_with_its_column(tmp_path: Path) -> None:
    column = {"name": "number", "from": "Order No", "type": "int64"}
    given = changed(
        schema__fields=[column],
        deduplicate_by=["Order No"],
        sink__sort_by=["Order No"],
        sink__partition_by={"columns": ["Order No"]},
    )
    found = [each for each in problems(tmp_path, given) if "Order No" in each]
    assert len(found) == 3
    assert all(
        "'Order No' is not a field of the schema; the column from it is 'number'" in each
        for each in found
    )
