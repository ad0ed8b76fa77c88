"""Transforms and duplicates on real Spark: which rows come out, and which statements may run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import ConfigError, EngineError
from blizzard_py.__main__ import main
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.failures import is_data_failure
from blizzard_py.job import FileLimits, PartitionRule, SortKey
from tests.support.ingest_job_harness import PREFIX, STAGING, IngestJobHarness, by_path, specs

FIELDS = specs(id="int64", name="string", time="timestamp", tags="string")


@pytest.fixture
def world(tmp_path: Path) -> IngestJobHarness:
    return IngestJobHarness(tmp_path, fields=FIELDS)


def refusal(engine: SparkEngine, world: IngestJobHarness, statement: str) -> str:
    world.transform = statement
    with pytest.raises(ConfigError) as caught:
        engine.columns("p", world.job().settings)
    (problem,) = caught.value.problems
    assert caught.value.source == "pipelines.p.transform"
    assert "\n" not in problem
    return problem


REFUSED = [
    ("SELEC id FROM source", "PARSE_SYNTAX_ERROR"),
    ("SELECT nope FROM source", "`nope` cannot be resolved"),
    ("SELECT id, cast('x' AS int) AS n FROM source", "The value 'x'"),
    ("SELECT id FROM other", "TABLE_OR_VIEW_NOT_FOUND"),
    ("SELECT id FROM source; SELECT 2", "PARSE_SYNTAX_ERROR"),
    ("INSERT INTO source VALUES (1)", "PARSE_SYNTAX_ERROR"),
    ("CREATE TABLE t AS SELECT * FROM source", "PARSE_SYNTAX_ERROR"),
    ("DROP TABLE source", "PARSE_SYNTAX_ERROR"),
    ("SET spark.x = 1", "PARSE_SYNTAX_ERROR"),
    ("SELECT count(*) AS n FROM source", "an aggregate"),
    ("SELECT id, count(*) AS n FROM source GROUP BY id", "an aggregate"),
    ("SELECT DISTINCT id FROM source", "DISTINCT"),
    ("SELECT id FROM source UNION SELECT id FROM source", "DISTINCT"),
    ("SELECT id, row_number() OVER (ORDER BY id) AS n FROM source", "a window function"),
    ("SELECT id FROM source ORDER BY id", "ORDER BY"),
    ("SELECT id FROM source LIMIT 1", "LIMIT"),
    ("SELECT id FROM source OFFSET 1", "OFFSET"),
    ("SELECT a.id FROM source a JOIN source b ON a.id = b.id", "a join"),
    ("SELECT * FROM source TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT id FROM source WHERE id = (SELECT max(id) FROM source)", "a subquery"),
    ("SELECT id FROM source WHERE id IN (SELECT 1)", "a subquery"),
    ("SELECT id FROM source WHERE EXISTS (SELECT 1)", "a subquery"),
    ("SELECT 1 AS one", "must read only `source`"),
    ("SELECT id FROM range(5)", "must read only `source`"),
    ("SELECT id FROM source UNION ALL VALUES (1L)", "must read only `source`"),
    ("SELECT rand() AS r FROM source", "must not call rand()"),
    ("SELECT RANDOM () AS r FROM source", "must not call random()"),
    ("SELECT uuid() AS r FROM source", "must not call uuid()"),
    ("SELECT current_timestamp() AS r FROM source", "must not call current_timestamp()"),
    ("SELECT current_date AS r FROM source", "must not call current_date()"),
    ("SELECT unix_timestamp() AS r FROM source", "must not call current_timestamp()"),
    (r"SELECT r'it\' AS a, rand() AS b, 'x' AS c FROM source", "must not call rand()"),
    (r'SELECT R"it\" AS a, now() AS b, "x" AS c FROM source', "must not call now()"),
    ("SELECT `rand` () AS r FROM source", "must not call rand()"),
    ("SELECT `system`.`builtin`.`UUID`() AS r FROM source", "must not call uuid()"),
    ("SELECT current_user AS r FROM source", "must not call current_user()"),
    ("SELECT user AS r FROM source", "must not call current_user()"),
    ("SELECT input_file_name() AS r FROM source", "must not call input_file_name()"),
    ("SELECT monotonically_increasing_id() AS r FROM source", "must not call monotonically"),
    ("SELECT reflect('java.util.UUID', 'randomUUID') AS r FROM source", "must not call reflect()"),
    ("SELECT id, ID FROM source", "gives column 'id' twice"),
    ("SELECT NULL AS x FROM source", "column 'x' has type void"),
    ("SELECT timestamp_ntz'2024-01-01' AS x FROM source", "column 'x' has type timestamp_ntz"),
    ("SELECT array(interval 1 day) AS x FROM source", "column 'x' has type interval day"),
    ("SELECT parse_json(name) AS x FROM source", "column 'x' has type variant"),
]


@pytest.mark.parametrize(("statement", "reason"), REFUSED)
def test_other_statements_are_refused_with_their_reason(
    world: IngestJobHarness, spark_engine: SparkEngine, statement: str, reason: str
) -> None:
    assert reason in refusal(spark_engine, world, statement)


def records_of(*rows: tuple[int, str]) -> bytes:
    return b"".join(b'{"id":%d,"name":"%s"}\n' % (i, name.encode()) for i, name in rows)


def test_rows_go_through_the_statement_and_our_writer(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", records_of((1, "one"), (2, "two"), (3, "three")))
    world.put("b.ndjson", b"")
    world.put("c.gz", gzip.compress(b"{}\n")[:-6])
    world.transform = (
        "SELECT id * 10 AS ten, upper(name) AS `na.me`, cast(id AS decimal(9,2)) AS d,"
        " timestamp'2024-01-02 03:04:05Z' AS at FROM source WHERE id <> 2"
    )
    result = world.ingest(engine=spark_engine)
    at = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert sorted(world.rows(result), key=lambda row: row["ten"]) == [
        {"ten": 10, "na.me": "ONE", "d": Decimal("1.00"), "at": at},
        {"ten": 30, "na.me": "THREE", "d": Decimal("3.00"), "at": at},
    ]
    assert result.rows_dropped == 1
    assert {path: (f.outcome, f.rows) for path, f in by_path(result).items()} == {
        "a.ndjson": ("ingested", 3),
        "b.ndjson": ("ingested", 0),
        "c.gz": ("quarantined", 0),
    }
    (output,) = result.outputs
    assert output.staged.startswith(f"{STAGING}/00000-")
    assert output.output_id.startswith(f"{PREFIX}/00000-")
    file = pq.ParquetFile(world.table / output.staged)
    assert file.metadata.metadata[b"blizzard.output_id"] == output.output_id.encode()
    assert file.schema_arrow.field("at").type == pa.timestamp("us", tz="UTC")
    assert file.schema_arrow.field("at").nullable is False
    assert file.metadata.row_group(0).column(0).statistics.has_min_max


def test_a_batch_without_a_row_left_has_no_outputs(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", records_of((1, "one")))
    world.transform = "SELECT id FROM source WHERE id > 1"
    result = world.ingest(engine=spark_engine)
    assert (result.outputs, result.rows_dropped) == ((), 1)
    assert by_path(result)["a.ndjson"].outcome == "ingested"


def test_deduplication_selects_the_first_row_by_path_and_line(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    """Large files come first in their tasks, so the order must not be that of the tasks."""
    many = [(i, f"b{i}") for i in range(1000)]
    world.put("b.ndjson", records_of(*many))
    world.put("a.ndjson", records_of((7, "a7"), (1, "a1"), (7, "later")))
    world.put("c.ndjson", records_of((7, "c7"), (2000, "c2000")))
    world.put("d.ndjson", b'{"name":"x"}\n{"name":"x"}\n')
    world.deduplicate_by = ("id",)
    job = world.job()
    # Sizes decide about tasks: this makes two of them, with `b` read by its own.
    sizes = {"b.ndjson": 3 << 20, "a.ndjson": 1 << 20, "c.ndjson": 1 << 20, "d.ndjson": 1}
    job = dataclasses.replace(
        job, files=tuple(dataclasses.replace(f, size=sizes[f.path]) for f in reversed(job.files))
    )
    result = spark_engine.ingest(job)
    expected = {**dict(many), 7: "a7", 1: "a1", 2000: "c2000"}
    rows = world.rows(result)
    assert all(set(row) == {"id", "name", "time", "tags"} for row in rows)
    assert {row["id"]: row["name"] for row in rows if row["id"] is not None} == expected
    assert len(rows) == len(expected) + 2  # a record without a key is never a duplicate
    assert result.rows_dropped == 4


def test_duplicates_by_several_fields_go_before_the_statement(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", records_of((1, "x"), (1, "y"), (1, "x"), (2, "x")))
    world.deduplicate_by = ("id", "name")
    world.transform = "SELECT concat(name, id) AS both FROM source"
    result = world.ingest(engine=spark_engine)
    assert sorted(row["both"] for row in world.rows(result)) == ["x1", "x2", "y1"]


def test_a_key_that_is_no_field_is_refused(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", records_of((1, "x")))
    world.deduplicate_by = ("renamed",)
    with pytest.raises(ConfigError, match="'renamed' is not a field of the schema"):
        world.ingest(engine=spark_engine)


def test_rows_are_partitioned_by_a_column_of_the_result(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put(
        "a.ndjson",
        b'{"id":1,"time":"2024-01-01T10:00:00Z"}\n'
        b'{"id":2,"time":"2024-01-02T10:00:00Z"}\n'
        b'{"id":3}\n',
    )
    world.rules = (PartitionRule("later", template="date=%Y-%m-%d"),)
    world.transform = "SELECT id, time + interval 1 day AS later FROM source"
    result = world.ingest(engine=spark_engine)
    assert {output.partition: output.rows for output in result.outputs} == {
        "date=2024-01-02": 1,
        "date=2024-01-03": 1,
        "date=__HIVE_DEFAULT_PARTITION__": 1,
    }
    world.rules = (PartitionRule("time", template="date=%Y-%m-%d"),)
    assert "must give the column 'time'" in refusal(spark_engine, world, world.transform)
    as_text = "SELECT id, string(time) AS time FROM source"
    assert "'time' as a timestamp" in refusal(spark_engine, world, as_text)
    world.rules = (PartitionRule("later", template="date=%Y-%m-%d"),)
    clash = "SELECT id AS Date, time AS later FROM source"
    assert "key of sink.partition_by" in refusal(spark_engine, world, clash)


def test_a_result_value_moves_into_the_path_and_files_are_sorted(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", records_of((1, "b"), (2, "a"), (3, "b"), (4, "c")))
    world.rules, world.sort_by = (PartitionRule("kind", key="kind"),), (SortKey("id", True),)
    world.transform = "SELECT id, CASE name WHEN 'c' THEN 'b' ELSE name END AS kind FROM source"
    result = world.ingest(engine=spark_engine)
    assert {output.partition: output.rows for output in result.outputs} == {
        "kind=a": 1,
        "kind=b": 3,
    }
    [sorted_file] = [
        [row["id"] for row in pq.read_table(world.table / output.staged).to_pylist()]
        for output in result.outputs
        if output.partition == "kind=b"
    ]
    assert sorted_file == [4, 3, 1]
    assert all(set(row) == {"id"} for row in world.rows(result))
    without = "SELECT id, array(name) AS kind FROM source"
    assert "CAST it to STRING" in refusal(spark_engine, world, without)
    unordered = "SELECT name AS kind, array(id) AS id FROM source"
    assert "sink.sort_by" in refusal(spark_engine, world, unordered)


def test_the_directory_of_a_path_passes_through_the_statement(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("x/a.ndjson", records_of((1, "one"), (2, "two")))
    world.put("y/b.ndjson", records_of((3, "three")))
    world.template = "date=%Y-%m-%d"
    world.partitions = {"x/a.ndjson": "date=2024-01-01", "y/b.ndjson": "date=2024-01-02"}
    world.transform = "SELECT *, id + 1 AS next FROM source"
    result = world.ingest(engine=spark_engine)
    assert {output.partition: output.rows for output in result.outputs} == {
        "date=2024-01-01": 2,
        "date=2024-01-02": 1,
    }
    assert all(set(row) == {"id", "name", "time", "tags", "next"} for row in world.rows(result))
    assert "must select _partition" in refusal(spark_engine, world, "SELECT id FROM source")
    world.transform = "SELECT id, concat('../', _partition) AS _partition FROM source"
    with pytest.raises(EngineError, match="the transform changes _partition"):
        world.ingest(engine=spark_engine)
    assert not list(world.root.glob("date=*"))
    world.transform = ""
    world.deduplicate_by = ("id",)
    result = world.ingest(engine=spark_engine)
    assert {output.partition for output in result.outputs} == {"date=2024-01-01", "date=2024-01-02"}


def test_a_row_too_deep_for_a_regular_expression_costs_its_file(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    """It ended the JVM with all that ran there, and did so again at every attempt."""
    session = spark_engine.session()
    world.transform = "SELECT id, regexp_replace(name, '^(a|b)*$', '') AS name FROM source"
    world.put("a.ndjson", b'{"id":1,"name":"ab"}\n')
    world.put("b.ndjson", b'{"id":2,"name":"%s"}\n' % (b"ab" * 50_000))
    result = world.ingest(engine=spark_engine)
    assert world.rows(result) == [{"id": 1, "name": ""}]
    lost = by_path(result)["b.ndjson"]
    assert lost.stage == "transform"
    assert lost.error.startswith("java.lang.StackOverflowError; a regular expression repeats")
    assert spark_engine.session() is session
    assert session.range(3).count() == 3


@pytest.mark.parametrize(
    ("said", "of_the_data"),
    [
        ("java.lang.StackOverflowError", True),
        ("java.util.regex.PatternSyntaxException: Unclosed group near index 2", True),
        ("java.util.MissingFormatArgumentException: Format specifier '%s'", True),
        ("org.apache.spark.SparkRuntimeException: [X] Too many. SQLSTATE: 54000", True),
        ("java.lang.OutOfMemoryError: Java heap space", False),
        ("java.lang.InterruptedException", False),
        ("java.io.IOException: No space left on device", False),
        ("org.apache.spark.SparkException: java.lang.NullPointerException", False),
    ],
)
def test_failures_of_values_and_of_machines_are_distinguished(said: str, of_the_data: bool) -> None:
    text = (
        "An error occurred.\n: org.apache.spark.SparkException: Job aborted due to stage failure:"
        " Task 1 in stage 0.0 failed 3 times, most recent failure: Lost task 1.2 in stage 0.0 (TID"
        f" 3) (localhost executor driver): {said}\n\tat java.base/java.util.regex.Pattern"
    )
    assert is_data_failure(RuntimeError(text)) is of_the_data


def test_only_a_file_that_the_statement_fails_on_is_quarantined(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("1.ndjson", records_of((1, "1")))
    world.put("3.ndjson", records_of((3, "three")))
    world.deduplicate_by = ("id",)
    world.transform = "SELECT cast(name AS int) AS n FROM source"
    result = world.ingest(engine=spark_engine)
    assert [row["n"] for row in world.rows(result)] == [1]
    files = by_path(result)
    assert {path: (file.outcome, file.stage) for path, file in files.items()} == {
        "1.ndjson": ("ingested", ""),
        "3.ndjson": ("quarantined", "transform"),
    }
    assert "'three'" in files["3.ndjson"].error
    assert "try_cast" in files["3.ndjson"].error


def test_a_result_with_too_many_directories_costs_its_file(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    for number in range(4):
        world.put(f"{number}.ndjson", records_of((number, f"n{number}")))
    world.put("2-many.ndjson", records_of(*((number, f"m{number}") for number in range(30))))
    world.transform = "SELECT id, name FROM source"
    world.rules = (PartitionRule("name", key="name"),)
    world.limits = FileLimits(directories=5)
    result = world.ingest(engine=spark_engine)
    files = by_path(result)
    assert {path for path, file in files.items() if file.outcome == "ingested"} == {
        f"{number}.ndjson" for number in range(4)
    }
    assert files["2-many.ndjson"].stage == "transform"
    assert "more than 5 directories" in files["2-many.ndjson"].error
    assert {output.partition for output in result.outputs} == {
        f"name=n{number}" for number in range(4)
    }


@pytest.fixture
def started(spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The masters that `validate` asked; it gets the session of this run, since there is one."""
    masters: list[str] = []

    def engine(master: str, _conf: dict[str, str]) -> SparkEngine:
        masters.append(master)
        monkeypatch.setattr(spark_engine, "stop", lambda: None)
        return spark_engine

    monkeypatch.setattr("blizzard_py.engines.spark.engine.checking_engine", engine)
    return masters


def test_validate_asks_spark_about_every_transform_and_only_then(
    tmp_path: Path, started: list[str]
) -> None:
    config = tmp_path / "config.yaml"

    def validate(*statements: str | None) -> Result:
        pipelines = {
            f"p{number}": {
                "sources": {"main": {"source_uri": str(tmp_path / f"raw{number}")}},
                "sink": {"table_uri": str(tmp_path / f"table{number}")},
                "schema": {"fields": [{"name": "id", "type": "int64"}]},
                **({} if statement is None else {"transform": statement}),
            }
            for number, statement in enumerate(statements)
        }
        config.write_text(json.dumps({"pipelines": pipelines}))
        return CliRunner().invoke(main, ["validate", str(config)])

    assert validate("SELECT id FROM source", None).exit_code == 0
    assert started == ["local[*]"]
    done = validate("SELECT nope FROM source", "SELECT max(id) AS id FROM source")
    assert done.exit_code == 2
    assert "configuration: 2 problems" in done.stderr
    assert "pipelines.p0.transform: [UNRESOLVED_COLUMN" in done.stderr
    assert "line 1" in done.stderr
    assert "pipelines.p1.transform: must not use an aggregate" in done.stderr
    assert validate(None).exit_code == 0
    assert len(started) == 2  # without a transform nobody is asked


def test_validate_checks_a_transform_over_undeclared_columns(
    tmp_path: Path, started: list[str]
) -> None:
    config, raw = tmp_path / "config.yaml", tmp_path / "raw"
    raw.mkdir()

    def validate(statement: str) -> Result:
        pipeline = {
            "sources": {"main": {"source_uri": str(raw)}},
            "sink": {"table_uri": str(tmp_path / "table")},
            "schema": {"infer": True},
            "transform": statement,
        }
        config.write_text(json.dumps({"pipelines": {"p": pipeline}}))
        return CliRunner().invoke(main, ["validate", str(config)])

    # Nothing is there to infer from: its form is all that can be judged.
    assert "[PARSE_SYNTAX_ERROR]" in validate("SELEC time FROM source").stderr
    assert validate("SELECT tme FROM source").exit_code == 0
    raw.joinpath("1.ndjson").write_text('{"time": "2026-11-01T00:00:00Z"}\n')
    assert "[PARSE_SYNTAX_ERROR]" in validate("SELEC time FROM source").stderr
    assert (
        "Did you mean one of the following? [`time`]" in validate("SELECT tme FROM source").stderr
    )
    assert validate("SELECT time FROM source").exit_code == 0
    assert not tmp_path.joinpath("table").exists()  # it keeps nothing
    assert len(started) == 5
