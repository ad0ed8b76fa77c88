"""The configuration is held against the table by `validate`, `plan` and `run`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, write_deltalake

from blizzard_core.settings.document import Config
from blizzard_py.__main__ import main
from penguin_py.__main__ import main as penguin
from tests.support.direct_engine import DirectEngine
from tests.support.flat_settings import nested


class TableCheckHarness:
    """A folder of files, a table, and the configuration of both."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = str(root / "table")
        self.fields: list[dict[str, Any]] = [{"name": "id", "type": "int64"}]
        self.tables: dict[str, Any] = {}
        self.sink: dict[str, Any] = {}

    def put(self, name: str, *records: dict[str, Any]) -> None:
        path = self.root / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            gzip.compress("".join(json.dumps(nested(Config, r)) + "\n" for r in records).encode())
        )

    def call(self, *arguments: str) -> Result:
        config = self.root / "config.yaml"
        config.write_text(
            json.dumps(
                nested(
                    Config,
                    {
                        "pipelines": {
                            "p": {
                                "sources": {
                                    "main": {
                                        "source_uri": str(self.root / "raw"),
                                        "grace_period": 0,
                                        "order_guard": "off",
                                    }
                                },
                                "sink": {"table_uri": self.table, **self.sink},
                                "schema": {"fields": self.fields},
                            }
                        },
                        "tables": {"t": {"table_uri": self.table, **self.tables}},
                    },
                )
            )
        )
        return CliRunner().invoke(main, [*arguments, str(config)])

    def commit(self) -> None:
        done = CliRunner().invoke(penguin, ["run", "--once", str(self.root / "config.yaml")])
        assert done.exit_code == 0, done.output


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableCheckHarness:
    monkeypatch.setattr("blizzard_py.app.daemon.spark_engine", lambda *_: DirectEngine())
    found = TableCheckHarness(tmp_path)
    found.put("date=2024-01-28/1.ndjson.gz", {"id": 1})
    return found


def test_a_type_conflict_stops_before_the_first_batch(
    world: TableCheckHarness,
) -> None:
    write_deltalake(world.table, pa.table({"id": ["one"]}))
    told = "column 'id' is int64, not compatible with the table's string"
    for arguments, code in (
        (("validate",), 2),
        (("plan",), 1),
        (("run", "--once"), 2),
    ):
        done = world.call(*arguments)
        assert done.exit_code == code, done.output
        assert told in done.output, arguments
        assert "new table" in done.output
    assert not list(Path(world.table).rglob("date=*"))
    world.fields = [{"name": "id", "type": "string", "coerce": True}]
    assert world.call("validate").exit_code == 0
    assert world.call("run", "--once").exit_code == 0
    world.commit()
    assert sorted(DeltaTable(world.table).to_pyarrow_table()["id"].to_pylist()) == ["1", "one"]


def test_validate_reports_all_table_problems_at_once(world: TableCheckHarness) -> None:
    write_deltalake(world.table, pa.table({"id": ["one"], "day": ["a"]}), partition_by=["day"])
    world.tables = {"schema_evolution": "strict"}
    world.fields = [{"name": "id", "type": "int64"}, {"name": "new", "type": "string"}]
    done = world.call("validate")
    assert done.exit_code == 2
    assert "3 problems" in done.output
    for named in ("'day'", "'id'", "'new'"):
        assert named in done.output


def test_nulls_that_the_table_may_refuse_are_noted(world: TableCheckHarness) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    write_deltalake(world.table, pa.table({"id": [7]}, schema=schema))
    done = world.call("validate")
    assert done.exit_code == 0
    assert "note: " in done.output
    assert "`nullable: false`" in done.output
    assert world.call("run", "--once").exit_code == 0


def test_a_table_that_cannot_be_looked_at_is_noted_by_validate(world: TableCheckHarness) -> None:
    world.table = "s3://bucket/table"
    world.sink = {
        "storage_options": {
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "verysecretthing",
        }
    }
    done = world.call("validate")
    assert done.exit_code == 0, done.output
    assert "could not be looked at" in done.output
    assert "verysecretthing" not in done.output


def test_a_table_penguin_commits_nothing_to_is_refused_by_name(world: TableCheckHarness) -> None:
    write_deltalake(world.table, pa.table({"id": [1]}))
    DeltaTable(world.table).alter.add_constraint({"positive": "id > 0"})
    done = world.call("validate")
    assert done.exit_code == 2
    assert "the constraint 'positive' is not checked here" in done.output


def test_a_column_of_ours_counts_too(world: TableCheckHarness) -> None:
    world.sink = {"metadata_columns": ["_source_line"]}
    write_deltalake(world.table, pa.table({"id": [1], "_source_line": ["one"]}))
    done = world.call("validate")
    assert done.exit_code == 2
    assert "'_source_line' is int64" in done.output


def test_a_partition_column_is_no_column_of_the_file(
    world: TableCheckHarness,
) -> None:
    world.fields.append({"name": "kind", "type": "string"})
    world.sink = {"partition_by": {"columns": ["kind"]}}
    world.put("date=2024-01-28/1.ndjson.gz", {"id": 1, "kind": "a"})
    assert world.call("run", "--once").exit_code == 0
    world.commit()
    done = world.call("validate")
    assert (done.exit_code, done.stderr.count("kind")) == (0, 0), done.output
