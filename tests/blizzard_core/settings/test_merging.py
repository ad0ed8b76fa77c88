"""Configurations of several files, with defaults, `x-` keys and relative paths."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from blizzard_core import redact
from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config

FIELDS = "schema: {fields: [{name: id, type: int64}]}"


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems(path: Path, environment: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, environment or {})
    assert caught.value.source == str(path)
    return caught.value.problems


def pipeline(name: str, more: str = "") -> str:
    return (
        f"  {name}:\n    sources: {{main: {{source_uri: raw/{name}{more}}}}}\n"
        f"    sink: {{table_uri: ./lake/{name}}}\n    {FIELDS}\n"
    )


class TestRelativePaths:
    def test_belong_to_the_folder_of_their_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = written(tmp_path / "conf" / "a.yaml", f"pipelines:\n{pipeline('a')}")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        for named in (path, Path("../conf/a.yaml"), path.parent):
            found = load_config(named, {}).pipelines["a"]
            assert found.sources["main"].as_files.uri == f"{tmp_path}/conf/raw/a"
            assert found.sink.table_uri == f"{tmp_path}/conf/lake/a"

    def test_are_those_of_each_key_that_may_be_local(self, tmp_path: Path) -> None:
        (tmp_path / "key.json").write_text("{}")
        (tmp_path / "order.avsc").write_text('{"type": "record", "name": "r", "fields": []}')
        (tmp_path / "token").write_text("a-secret-token")
        path = written(
            tmp_path / "c.yaml",
            "connections:\n"
            "  shop: {driver: sqlite, uri: shop.db}\n"
            "  old: {driver: sqlite, uri: 'sqlite:old.db'}\n"
            "  lake: {driver: delta, uri: ../lake}\n"
            "  cloud: {driver: parquet, uri: 's3://lake/tables'}\n"
            "  erp: {driver: postgresql, uri: 'postgresql://db/erp', password: '${file:token}'}\n"
            "tables:\n"
            "  t: {table_uri: ./t}\n"
            "  g: {table_uri: 'gs://lake/g', storage_options: {GOOGLE_SERVICE_ACCOUNT: key.json}}\n"
            "pipelines:\n"
            "  a:\n"
            "    sources: {main: {path: '${RAW}', format: {type: avro, avro_schema: order.avsc}}}\n"
            "    sink: {table_uri: 's3://lake/a'}\n"
            "    error_handling: {advanced: {dlq_path: letters/}}\n"
            f"    {FIELDS}\n",
        )
        config = load_config(path, {"RAW": "in/raw"})
        uris = {name: getattr(each, "uri", "") for name, each in config.connections.items()}
        assert uris == {
            "shop": f"{tmp_path}/shop.db",
            "old": f"{tmp_path}/old.db",
            "lake": f"{tmp_path}/../lake",
            "cloud": "s3://lake/tables",
            "erp": "postgresql://db/erp",
        }
        assert config.tables["t"].table_uri == f"{tmp_path}/t"
        account = config.tables["g"].storage_options["GOOGLE_SERVICE_ACCOUNT"]
        assert account == str(tmp_path / "key.json")
        source = config.pipelines["a"].sources["main"].as_files
        assert source.uri == f"{tmp_path}/in/raw"
        assert "record" in source.format.avro_schema  # type: ignore[union-attr]  # it is Avro
        assert config.pipelines["a"].error_handling.advanced.dlq_path == f"{tmp_path}/letters"
        (tmp_path / "token").write_text("another-token")
        (tmp_path / "key.json").write_text("{ }")
        assert sorted(config.secrets.changed()) == [
            str(tmp_path / "key.json"),
            str(tmp_path / "token"),
        ]

    def test_are_those_of_blocks_beside_the_sink(self, tmp_path: Path) -> None:
        """Their options of stores are known as well: key files by place, secrets by value."""
        account = {"storage_options": {"GOOGLE_SERVICE_ACCOUNT": "key.json"}}
        secret = {"storage_options": {"AWS_SECRET_ACCESS_KEY": "not-for-a-log"}}
        key = {"keys": ["id"], "sequence_by": ["id"]}
        pipeline = {
            "sources": {
                "main": {"path": "raw", "clean": {"mode": "archive", "archive_uri": "old"}}
            },
            "sink": {"table_uri": "lake/a"},
            "keyed": {"table_uri": "lake/k", **key, "advanced": account},
            "schema": {"fields": [{"name": "id", "type": "int64", "nullable": False}]},
        }
        replicas = {"uri": "s3://b/leases", "advanced": secret}
        document = {"pipelines": {"a": pipeline}, "global": {"replicas": replicas}}
        path = written(tmp_path / "c.yaml", yaml.safe_dump(document))
        try:
            config = load_config(path, {})
            assert redact.redacted("said not-for-a-log") == "said ***"
        finally:
            redact.forget()
        found = config.pipelines["a"]
        source = found.sources["main"].as_files
        assert source.clean is not None
        places = (source.clean.archive_uri, found.keyed.table_uri)
        assert places == (f"{tmp_path}/old", f"{tmp_path}/lake/k")
        key_file = {"GOOGLE_SERVICE_ACCOUNT": f"{tmp_path}/key.json"}
        assert found.keyed.advanced.storage_options == key_file

    @pytest.mark.parametrize(
        ("uri", "text"), [("~/raw", "begins with ~"), ("s3:/raw", "write s3://bucket/path")]
    )
    def test_mistaken_places_are_still_refused(self, tmp_path: Path, uri: str, text: str) -> None:
        path = written(tmp_path / "c.yaml", f"tables: {{t: {{table_uri: '{uri}'}}}}")
        [told] = problems(path)
        assert text in told


class TestFolder:
    def test_files_are_one_configuration(self, tmp_path: Path) -> None:
        written(tmp_path / "10-a.yaml", f"pipelines:\n{pipeline('a')}")
        written(tmp_path / "team" / "20-b.yaml", f"pipelines:\n{pipeline('b')}")
        written(tmp_path / "20-b.yml", f"pipelines:\n{pipeline('b')}global: {{}}\n")
        written(tmp_path / ".30-c.yaml", "what an editor leaves: [")
        written(tmp_path / "README.md", "# no configuration")
        config = load_config(tmp_path, {})
        assert [*config.pipelines] == ["a", "b"]
        assert config.pipelines["b"].sink.table_uri == f"{tmp_path}/lake/b"

    def test_a_repeated_name_is_one_error_with_both_lines(self, tmp_path: Path) -> None:
        both = f"pipelines:\n{pipeline('a')}spark: {{master: 'local[1]'}}\n"
        written(tmp_path / "1.yaml", both)
        written(tmp_path / "2.yaml", f"# a comment\n{both}x-note: 1\n")
        written(tmp_path / "3.yaml", "x-note: 2\n")
        one, two = tmp_path / "1.yaml", tmp_path / "2.yaml"
        assert problems(tmp_path) == (
            f"pipelines.a ({two}, line 3): is in {one}, line 2, too; give it once",
            f"spark ({two}, line 7): is in {one}, line 6, too; give it once",
        )

    def test_problems_name_their_file(self, tmp_path: Path) -> None:
        written(tmp_path / "1.yaml", f"pipelines:\n{pipeline('a', ', poll_interval: 5')}")
        written(tmp_path / "2.yaml", "tables:\n  t: {table_uri: '${GONE}', a: 1, a: 2}\n")
        told = problems(tmp_path)
        assert (
            f"pipelines.a.sources.main.poll_interval ({tmp_path}/1.yaml, line 3): must" in told[2]
        )
        assert told[:2] == (
            f"tables.t.a ({tmp_path}/2.yaml, line 2): key given twice",
            f"tables.t.table_uri ({tmp_path}/2.yaml, line 2): environment variable GONE is not set",
        )

    def test_files_that_are_no_yaml_are_all_named(self, tmp_path: Path) -> None:
        written(tmp_path / "1.yaml", "[")
        written(tmp_path / "2.yaml", "- 1")
        first, second = problems(tmp_path)
        assert first.startswith(f"{tmp_path}/1.yaml: is not YAML: line 1")
        assert second.startswith(f"{tmp_path}/2.yaml: must be a mapping")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "{}: has no keys; give it some, or delete it"),
            ("# nothing", "{}: has no keys; give it some, or delete it"),
            ("pipelines:", "pipelines ({}, line 1): must be a block of keys"),
            ("pipelines: [a]", "pipelines ({}, line 1): must be a block of keys"),
        ],
    )
    @pytest.mark.parametrize("name", ["a.yaml", "c.yaml"])
    def test_a_file_without_its_blocks_is_named(
        self, tmp_path: Path, name: str, text: str, problem: str
    ) -> None:
        written(tmp_path / "b.yaml", f"pipelines:\n{pipeline('b')}")
        path = written(tmp_path / name, text)
        assert problems(tmp_path) == (problem.format(path),)

    def test_a_link_to_nothing_is_named(self, tmp_path: Path) -> None:
        written(tmp_path / "a.yaml", f"pipelines:\n{pipeline('a')}")
        (tmp_path / "b.yaml").symlink_to("gone.yaml")
        (problem,) = problems(tmp_path)
        assert "b.yaml: is a link to a file that is not there" in problem

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
    def test_what_is_no_file_is_named(self, tmp_path: Path, make: Callable[[Path], object]) -> None:
        written(tmp_path / "a.yaml", f"pipelines:\n{pipeline('a')}")
        make(tmp_path / "b.yaml")
        assert problems(tmp_path) == (
            f"{tmp_path / 'b.yaml'}: is no file (a folder or a pipe); move it elsewhere",
        )

    def test_without_files_is_refused(self, tmp_path: Path) -> None:
        assert problems(tmp_path) == ("has no file whose name ends with .yaml or .yml",)


DEFAULTS = """\
defaults:
  pipeline:
    sink: {advanced: {compression: zstd}, metadata_columns: [_source_file]}
    schema: {fields: [{name: id, type: int64}]}
  source: {poll_interval: 5m, advanced: {min_age: 1m}, storage_options: {}}
  table: {poll_interval: 30s, optimize: {}}
"""


class TestDefaults:
    def test_are_below_each_pipeline_source_and_table(self, tmp_path: Path) -> None:
        written(tmp_path / "defaults.yaml", DEFAULTS)
        written(
            tmp_path / "more.yaml",
            "pipelines:\n"
            "  a: {sources: {m: {source_uri: a}}, sink: {table_uri: l/a}}\n"
            "  b:\n"
            "    sources: {m: {source_uri: b, poll_interval: 1m, advanced: {max_ahead: 1h}}}\n"
            "    sink: {table_uri: l/b, metadata_columns: [_ingested_at],"
            " advanced: {compression: lz4}}\n"
            "tables: {a: {table_uri: l/a, optimize: null}, b: {table_uri: l/b}}\n",
        )
        config = load_config(tmp_path, {})
        a, b = config.pipelines["a"], config.pipelines["b"]
        assert (a.sink.advanced.compression, b.sink.advanced.compression) == ("zstd", "lz4")
        assert (a.sink.metadata_columns, b.sink.metadata_columns) == (
            ("_source_file",),
            ("_ingested_at",),
        )
        one, other = a.file_sources["m"], b.file_sources["m"]
        assert (one.poll_interval, other.poll_interval) == (300, 60)
        assert (one.advanced.min_age, other.advanced.min_age) == (60, 60)
        assert (one.advanced.max_ahead, other.advanced.max_ahead) == (172_800, 3600)
        assert config.tables["a"].optimize is None
        assert config.tables["b"].optimize is not None
        assert config.tables["b"].poll_interval == 30

    def test_problems_name_the_place_of_the_default_once(self, tmp_path: Path) -> None:
        text = "defaults:\n  source:\n    poll_interval: 5\n    late_fies: report\n  sink: {}\n"
        path = written(tmp_path / "c.yaml", f"{text}pipelines:\n{pipeline('a')}{pipeline('b')}")
        unit, unknown, late = sorted(problems(path), key=len, reverse=True)
        assert unit.startswith("defaults.source.poll_interval (line 3): must be a duration")
        assert unknown == (
            "defaults.source.late_fies (line 4): unknown key; did you mean late_files?"
        )
        assert late.startswith("defaults.sink (line 5): unknown key")

    @pytest.mark.parametrize(
        ("default", "own"),
        [
            ("advanced: {min_age: 5s, max_ahead: 3d}", "advanced: {min_age: 7s}"),
            ("path: /raw/else, advanced: {max_ahead: 3d}", "advanced: {min_age: 7s}"),
        ],
    )
    def test_own_values_win_in_any_notation(self, tmp_path: Path, default: str, own: str) -> None:
        path = written(
            tmp_path / "c.yaml",
            f"defaults: {{source: {{{default}}}}}\npipelines:\n{pipeline('a', f', {own}')}",
        )
        source = load_config(path, {}).pipelines["a"].sources["main"].as_files
        assert source.uri == f"{tmp_path}/raw/a"
        assert (source.advanced.min_age, source.advanced.max_ahead) == (7.0, 3 * 86_400.0)

    def test_own_options_win_in_any_case(self, tmp_path: Path) -> None:
        options = ", source_uri: 's3://raw/a', storage_options: {aws_region: eu}"
        path = written(
            tmp_path / "c.yaml",
            "defaults: {source: {storage_options: {AWS_REGION: us, AWS_ALLOW_HTTP: 'true'}}}\n"
            f"pipelines:\n{pipeline('a', options).replace('source_uri: raw/a, ', '')}",
        )
        found = load_config(path, {}).pipelines["a"].sources["main"].storage_options
        assert found == {"aws_region": "eu", "AWS_ALLOW_HTTP": "true"}

    def test_a_key_of_another_kind_is_no_typo(self, tmp_path: Path) -> None:
        text = f"defaults: {{source: {{kind: table, table: t}}}}\npipelines:\n{pipeline('a')}"
        found = problems(written(tmp_path / "c.yaml", text))
        assert any("source_uri (line 4): unknown key: another kind of" in each for each in found)

    def test_relative_paths_belong_to_the_file_of_the_default(self, tmp_path: Path) -> None:
        written(tmp_path / "c.yaml", f"pipelines:\n{pipeline('a')}")
        path = tmp_path / "elsewhere.yaml"
        text = "defaults: {pipeline: {error_handling: {advanced: {dlq_path: dlq}}}}\n"
        written(tmp_path / "conf" / path.name, text)
        path.symlink_to(tmp_path / "conf" / path.name)
        config = load_config(tmp_path, {})
        assert config.pipelines["a"].error_handling.advanced.dlq_path == f"{tmp_path}/dlq"

    @pytest.mark.parametrize("value", ["1", "[1]", "{source: 1}", "{pipeline: []}"])
    def test_must_be_blocks(self, tmp_path: Path, value: str) -> None:
        path = written(tmp_path / "c.yaml", f"defaults: {value}\npipelines:\n{pipeline('a')}")
        [told] = problems(path)
        assert told.endswith("(line 1): must be a block of keys")

    def test_cannot_grow_beyond_the_limit_of_values(self, tmp_path: Path) -> None:
        options = ", ".join(f"k{number}: v" for number in range(3000))
        sources = "".join(f"      s{number}: {{}}\n" for number in range(100))
        path = written(
            tmp_path / "c.yaml",
            f"defaults: {{source: {{storage_options: {{{options}}}}}}}\n"
            f"pipelines:\n  a:\n    sources:\n{sources}",
        )
        assert problems(path) == ("has more than 250,000 values, defaults counted; split it",)


class TestExtensions:
    def test_keys_with_x_hold_anchors_that_keys_replace(self, tmp_path: Path) -> None:
        config = loaded(
            tmp_path,
            "x-every: &every {poll_interval: 5m, late_files: report, source_uri: '${GONE}'}\n"
            "x-often: &often {poll_interval: 1m, use_watermark: false}\n"
            "x-unset: '${GONE_TOO}'\n"
            "pipelines:\n"
            "  a:\n"
            "    x-owner: someone\n"
            "    sources:\n"
            "      one: {<<: *every, source_uri: one}\n"
            "      two: {<<: [*often, *every], source_uri: two, late_files: ingest, x-note: []}\n"
            "    sink: {table_uri: lake, storage_options: {}}\n"
            f"    {FIELDS}\n",
        )
        one, two = config.pipelines["a"].file_sources.values()
        assert (one.poll_interval, one.late_files, one.use_watermark) == (300, "report", True)
        assert (two.poll_interval, two.late_files, two.use_watermark) == (60, "ingest", False)

    def test_names_and_headers_are_no_extensions(self, tmp_path: Path) -> None:
        config = loaded(
            tmp_path,
            "connections: {crm: {driver: http, base_url: 'https://a.b', headers: {x-key: k}}}\n"
            "tables: {x-ray: {table_uri: t}}\n",
        )
        assert config.connections["crm"].headers == {"x-key": "k"}  # type: ignore[union-attr]  # an API
        assert [*config.tables] == ["x-ray"]

    def test_problems_of_merged_keys_name_the_valid_value(self, tmp_path: Path) -> None:
        path = written(
            tmp_path / "c.yaml",
            "x-a: &a\n  partition_by: {columns: [a, b]}\n"
            "x-b: &b\n  compression: gzip\n  file_size_mb: none\n"
            "pipelines:\n  a:\n    sources: {m: {source_uri: raw}}\n"
            f"    {FIELDS}\n"
            "    sink:\n      <<: *a\n      table_uri: lake\n"
            "      advanced:\n        <<: *b\n        compression: of\n"
            "      partition_by: {columns: [1]}\n",
        )
        told = [text.partition(":")[0] for text in problems(path)]
        assert sorted(told) == [
            "pipelines.a.sink.advanced.compression (line 15)",
            "pipelines.a.sink.advanced.file_size_mb (line 5)",
            "pipelines.a.sink.partition_by.columns[0] (line 16)",
        ]

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("a: &a {b: {<<: *a}}", "line 1: holds itself by an alias; write it out"),
            ("a: {<<: 5}", "is not YAML: line 1, column 9: expected a mapping"),
            ("a: {<<: [5]}", "is not YAML: line 1, column 10: expected a mapping"),
        ],
    )
    def test_merges_that_cannot_be_are_refused(self, tmp_path: Path, text: str, told: str) -> None:
        [found] = problems(written(tmp_path / "c.yaml", text))
        assert found.startswith(told)


def loaded(folder: Path, text: str) -> Config:
    return load_config(written(folder / "c.yaml", text), {})
