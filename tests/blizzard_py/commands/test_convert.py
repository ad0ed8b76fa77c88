"""Configurations of the original become ours: nothing lost, nothing dropped in silence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main
from blizzard_py.commands.convert_config import converted

# Every key that the original's daemons know, those of its first releases included.
BLIZZARD = """
pipelines:
  events:
    sources:
      asia:
        path: s3://raw/asia
        compression: gzip
        batch_size: 8192
        poll_interval_secs: 30
        use_watermark: true
        partition_filter: { prefix_template: "date=%Y-%m-%d/hour=%H", lookback: 2 }
        checkpoint: { interval_files: 50, interval_secs: 20 }
        storage_options:
          aws_region: us-east-1
          AWS_ENDPOINT: http://localhost:9000
          AWS_ACCESS_KEY_ID: $KEY_ID
          AWS_SECRET_ACCESS_KEY: never-to-be-shown
      europe:
        path: ${RAW:-s3://raw}/europe
        partition_filter: { prefix_template: "date=%Y-%m-%d" }
    sink:
      table_uri: s3://lake/events
      file_size_mb: 64
      row_group_size_bytes: 33554432
      compression: zstd
      partition_by: { prefix_template: "date=%Y-%m-%d" }
      storage_options: { AWS_SECRET_ACCESS_KEY: another-one }
      max_concurrent_uploads: 4
      rollover_timeout_secs: 300
      part_size_mb: 32
      min_multipart_size_mb: 5
      max_concurrent_parts: 8
    schema:
      fields:
        - { name: id, type: string, nullable: false }
        - { name: at, type: timestamp }
        - { name: payload, type: json }
    max_concurrent_files: 16
    sink_parallelism: 4
    error_handling:
      max_failures: 100
      dlq_path: s3://lake/dlq
      dlq_storage_options: { AWS_REGION: us-east-1 }
  logs:
    source: { path: s3://raw/logs, use_watermark: true }
    sink: { table_uri: s3://lake/logs }
    schema: { infer: true }
global: { total_concurrency: 16, connection_pooling: true, poll_jitter_secs: 30 }
metrics: { enabled: true, address: "0.0.0.0:9090" }
"""
PENGUIN = """
tables:
  events:
    table_uri: s3://lake/events
    poll_interval_secs: 20
    partition_by: { prefix_template: "date=%Y-%m-%d" }
    partition_filter: { prefix_template: "date=%Y-%m-%d", lookback: 7 }
    delta_checkpoint_interval: 10
    schema_evolution: merge
    max_concurrent_uploads: 4
    max_concurrent_parts: 8
    part_size_mb: 10
    min_multipart_size_mb: 100
    storage_options: { AWS_REGION: us-east-1 }
  logs: { table_uri: s3://lake/logs }
metrics: { address: "0.0.0.0:9091" }
"""


def convert(place: Path, *texts: str) -> tuple[Result, Path]:
    files = []
    for number, text in enumerate(texts):
        files.append(place / f"old{number}.yaml")
        files[-1].write_text(text)
    output = place / "new.yaml"
    found = CliRunner().invoke(
        main,
        ["convert", *map(str, files), "--output", str(output)],
        env={"KEY_ID": "an-id-of-a-key", "RAW": "s3://raw"},
    )
    return found, output


def test_both_daemons_files_become_one_that_is_valid(tmp_path: Path) -> None:
    found, output = convert(tmp_path, BLIZZARD, PENGUIN)
    assert found.exit_code == 0, found.output
    environment = {"KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SECRET_ACCESS_KEY_2": "t"}
    config = load_config(output, environment)
    asia = config.pipelines["events"].sources["asia"]
    assert asia.kind == "files"
    assert (asia.source_uri, asia.use_watermark, asia.advanced.compression) == (
        "s3://raw/asia",
        True,
        "gzip",
    )
    assert (asia.partition_filter.lookback, asia.advanced.checkpoint.interval_files) == (2, 50)
    assert asia.storage_options == {
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://localhost:9000",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    europe = config.pipelines["events"].sources["europe"]
    assert europe.kind == "files"
    # What the original does where nothing is said is said now.
    assert (europe.source_uri, europe.use_watermark) == ("s3://raw/europe", False)
    assert europe.partition_filter.lookback == 0
    sink = config.pipelines["events"].sink
    assert (sink.advanced.file_size_mb, sink.advanced.compression) == (64, "zstd")
    assert sink.storage_options == {"AWS_SECRET_ACCESS_KEY": "t"}
    handling = config.pipelines["events"].error_handling
    assert (handling.advanced.max_failures, handling.advanced.dlq_path) == (100, "s3://lake/dlq")
    assert handling.advanced.dlq_storage_options == {"AWS_REGION": "us-east-1"}
    logs = config.pipelines["logs"]
    # The state of a pipeline with one source was named after the pipeline.
    assert logs.sources["main"].id == "logs"
    assert logs.schema_.infer
    assert not logs.schema_.advanced.coerce_conflicts_to_utf8
    table = config.tables["events"]
    assert (table.poll_interval, table.advanced.delta_checkpoint_interval) == (20, 10)
    assert config.global_.advanced.total_concurrency == 16
    assert (config.metrics.address, config.metrics.penguin_address) == (
        "0.0.0.0:9090",
        "0.0.0.0:9091",
    )


def test_options_of_letters_without_a_place_are_left_out(tmp_path: Path) -> None:
    found, output = convert(tmp_path, BLIZZARD.replace("dlq_path: s3://lake/dlq\n", "\n"), PENGUIN)
    assert "dlq_storage_options: left out: without dlq_path" in found.stderr
    environment = {"KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SECRET_ACCESS_KEY_2": "t"}
    handling = load_config(output, environment).pipelines["events"].error_handling
    assert (handling.advanced.dlq_path, handling.advanced.dlq_storage_options) == (None, None)


def test_omitted_keys_are_named_in_the_file_and_on_screen(tmp_path: Path) -> None:
    found, output = convert(tmp_path, BLIZZARD, PENGUIN)
    text = output.read_text()
    for key in (
        *("batch_size", "max_concurrent_files", "sink_parallelism", "max_concurrent_uploads"),
        *("rollover_timeout_secs", "part_size_mb", "connection_pooling"),
    ):
        assert re.search(rf"^# [\w.]*{key}: left out: ", text, re.MULTILINE), key
        assert re.search(rf"^note: [\w.]*{key}: left out: ", found.stderr, re.MULTILINE), key
    document = yaml.safe_load(text)
    kept = set(keys(document))
    asked = set(keys(yaml.safe_load(BLIZZARD))) | set(keys(yaml.safe_load(PENGUIN)))
    renamed = {"path", "source", "enabled", "aws_region", "AWS_ENDPOINT", "lookback"}
    renamed |= {"poll_interval_secs", "interval_secs", "poll_jitter_secs"}
    assert {key for key in asked - kept - renamed if f"{key}: " not in found.stderr} == set()


def keys(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for item in value.values() for key in keys(item))]
    if isinstance(value, list):
        return [key for item in value for key in keys(item)]
    return []


def test_secrets_of_the_old_file_are_nowhere_in_the_new_one(tmp_path: Path) -> None:
    found, output = convert(tmp_path, BLIZZARD)
    assert found.exit_code == 0, found.output
    for secret in ("never-to-be-shown", "another-one", "an-id-of-a-key"):
        assert secret not in output.read_text() + found.output + found.stderr
    assert "is read from the environment variable AWS_SECRET_ACCESS_KEY; set it" in found.stderr


def test_unknown_keys_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    odd = BLIZZARD.replace("poll_interval_secs: 30", "poll_interval_sec: 30").replace(
        "global: {", "spark: {}\nglobal: { workers: 3, "
    )
    found, output = convert(tmp_path, odd)
    assert found.exit_code == 2
    unknown = "is no key that is known of the original"
    asia = "pipelines.events.sources.asia.poll_interval_sec"
    assert f"{asia}: {unknown}; did you mean poll_interval_secs?" in found.stderr
    for place in ("spark", "global.workers"):
        assert f"{place}: {unknown}; take it out" in found.stderr
    assert not output.exists()


def test_the_first_releases_had_one_source_and_one_sink(tmp_path: Path) -> None:
    single = """
source: { path: "s3://raw/input/*.ndjson.gz", compression: gzip, max_concurrent_files: 4 }
sink: { path: s3://lake/my table, max_concurrent_parts: 8 }
schema: { fields: [{ name: id, type: string }] }
metrics: { enabled: false }
"""
    found, output = convert(tmp_path, single)
    assert found.exit_code == 0, found.output
    config = load_config(output, {})
    (source,) = config.pipelines["my_table"].sources.values()
    assert source.kind == "files"
    assert source.source_uri == "s3://raw/input"
    assert config.metrics is None
    found, _ = convert(tmp_path / ".", single.replace("/*.ndjson.gz", "/a*/x.gz"))
    assert found.exit_code == 2


def test_a_pattern_in_a_path_is_refused() -> None:
    found = converted([{"source": {"path": "raw/*/a.gz"}, "sink": {"path": "t"}, "schema": {}}])
    assert ["source.path: has a pattern" in text for text in found.problems] == [True]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${A}/x", "${A}/x"),
        ("$A/x", "${A}/x"),
        ("${A:-b}", "${A:-b}"),
        ("${A-b}", "${A:-b}"),
        ("costs $$5", "costs $5"),
        ("$${A}", "$${A}"),
        ("$$AB", "$$AB"),
        ("no $ at all", "no $ at all"),
    ],
)
def test_references_to_the_environment_are_spelled_as_ours(written: str, expected: str) -> None:
    found = converted([{"tables": {"t": {"table_uri": written}}}])
    assert found.document["tables"]["t"]["table_uri"] == expected


def test_double_names_and_existing_files_are_refused(tmp_path: Path) -> None:
    found, output = convert(tmp_path, PENGUIN, PENGUIN)
    assert found.exit_code == 2
    assert "tables.events: is in two of the files" in found.stderr
    output.write_text("mine")
    found, _ = convert(tmp_path, PENGUIN)
    assert (found.exit_code, output.read_text()) == (2, "mine")
    assert "--force" in found.stderr


def test_a_configuration_of_ours_is_refused_with_a_hint(tmp_path: Path) -> None:
    found, output = convert(tmp_path, BLIZZARD)
    ours = output.read_text()
    (tmp_path / "again").mkdir()
    found, output = convert(tmp_path / "again", ours)
    assert found.exit_code == 2
    assert "is a configuration of this Blizzard already" in found.stderr
    assert "`blizzard validate`" in found.stderr
    assert not output.exists()
