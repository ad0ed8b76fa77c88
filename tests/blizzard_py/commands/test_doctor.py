"""`doctor` of both commands, and `validate --online`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from blizzard_core.doctor.store_probe import PREFIX
from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
from tests.support.s3_server import S3Server


class Config:
    def __init__(
        self, place: Path, lake: str, options: dict[str, str], source: str = "raw"
    ) -> None:
        self.path = place / "config.yaml"
        self.document = {
            "pipelines": {
                "events": {
                    "sources": {"main": {"source_uri": str(place / source)}},
                    "sink": {"table_uri": f"{lake}/events", "storage_options": options},
                    "schema": {"fields": [{"name": "id", "type": "int64"}]},
                }
            }
        }
        self.save()

    def save(self) -> None:
        self.path.write_text(json.dumps(self.document))

    def call(self, *words: str, program: click.Group = blizzard) -> Result:
        command, *options = words
        return CliRunner().invoke(program, [command, str(self.path), *options])


@pytest.fixture
def config(tmp_path: Path, s3: S3Server) -> Iterator[Config]:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "1.ndjson").write_text('{"id": 1}\n')
    return Config(tmp_path, f"s3://{s3.new_bucket()}", s3.options)


def test_doctor_prints_a_line_for_each_check(config: Config) -> None:
    done = config.call("validate", "--online")
    assert done.exit_code == 0, done.output
    *lines, last = done.stdout.splitlines()
    assert {line.split()[0] for line in lines if "this machine" not in line} == {"ok"}
    assert any(
        line.endswith("race: of two writers at the same moment never both won, 4 times")
        for line in lines
    )
    assert "nothing failed" in last
    assert "test-secret" not in done.output


def test_json_has_every_check(config: Config) -> None:
    document = json.loads(config.call("doctor", "--json").stdout)
    assert document["exit_code"] == 0
    assert {check["check"] for check in document["checks"]} >= {"list", "race", "clock", "tables"}
    assert {check["subject"] for check in document["checks"]} >= {"this machine", "configuration"}
    assert {*document["checks"][0]} == {"subject", "check", "result", "text"}


def test_a_missing_bucket_ends_every_check_with_10(tmp_path: Path, s3: S3Server) -> None:
    (tmp_path / "raw").mkdir()
    config = Config(tmp_path, "s3://no-such-bucket", s3.options)
    for program in (blizzard, penguin):
        done = config.call("doctor", program=program)
        assert done.exit_code == 10
        assert "the bucket does not exist; create it" in done.stdout
    done = config.call("validate")
    assert done.exit_code == 10
    assert "error: s3://no-such-bucket/events" in done.stderr


def test_penguins_doctor_reads_the_log(config: Config) -> None:
    done = config.call("doctor", program=penguin)
    assert done.exit_code == 0, done.output
    assert "log: no table yet; the first commit makes it" in done.stdout
    assert config.call("validate", "--online", program=penguin).exit_code == 0


def test_a_missing_package_does_not_hide_other_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.setitem(sys.modules, "blizzard_core.storage.gcs", None)
    path = tmp_path / "config.yaml"
    uris = {"far": "gs://bucket/far", "near": str(tmp_path / "near")}
    path.write_text(json.dumps({"tables": {k: {"table_uri": v} for k, v in uris.items()}}))
    done = CliRunner().invoke(penguin, ["doctor", str(path), "--json"])
    checks = {(c["subject"], c["check"]): c["result"] for c in json.loads(done.stdout)["checks"]}
    assert done.exit_code == 2
    assert checks["table gs://bucket/far", "store"] == "failed"
    assert checks[f"table {tmp_path / 'near'}", "log"] == "ok"


def test_a_table_that_takes_no_commit_fails_both(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    log = tmp_path / "lake" / "events" / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": "id", "type": "string", "nullable": True, "metadata": {}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {"id": "a", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**metadata, "partitionColumns": [], "configuration": {}, "createdTime": 1}},
    ]
    text = "\n".join(map(json.dumps, actions))
    (log / f"{0:020}.json").write_text(text)
    config = Config(tmp_path, str(tmp_path / "lake"), {})
    done = config.call("doctor")
    assert done.exit_code == 2, done.output
    assert "failed  configuration: tables: pipelines.events" in done.stdout
    (log / f"{0:020}.json").write_text(
        text.replace('"minWriterVersion": 2', '"minWriterVersion": 99')
    )
    done = config.call("doctor", program=penguin)
    assert done.exit_code == 1
    assert "log: " in done.stdout
    assert not list((tmp_path / "lake").rglob(f"{PREFIX}*"))


def test_a_source_that_is_not_there_fails(tmp_path: Path) -> None:
    done = Config(tmp_path, str(tmp_path / "lake"), {}, source="no").call("doctor")
    assert done.exit_code == 1
    assert "list: no such directory; create it, or correct the path" in done.stdout


def test_doctor_reads_the_columns_of_a_table_or_api(tmp_path: Path) -> None:
    config = Config(tmp_path, str(tmp_path / "lake"), {})
    config.document["connections"] = {  # type: ignore[assignment]  # another block
        "shop": {"driver": "sqlite", "uri": str(tmp_path / "shop.db")}
    }
    table = {"kind": "table", "connection": "shop", "table": "orders"}
    config.document["pipelines"]["events"]["sources"] = {  # type: ignore[assignment]  # as above
        "main": {**table, "watermark": {"columns": ["id"], "bound": "max"}}
    }
    config.save()
    done = config.call("doctor")
    assert done.exit_code == 1, done.output
    assert "failed  source events/main: query: " in done.stdout
