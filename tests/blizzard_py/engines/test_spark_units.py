"""Work units in Spark: a transform, duplicates, merged outputs, JDBC, and one unit's failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from blizzard_core.errors import ConfigError
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.engines.spark.engine import SparkEngine
from tests.support.postgresql_server import PASSWORD, PostgresqlServer
from tests.support.unit_shop import UnitShop

JAR = Path("/usr/share/java/postgresql.jar")
VALUES = {"name": "survey", "list": "s1,it's"}


def test_transform_and_deduplication_work_per_slice(
    spark_engine: SparkEngine, tmp_path: Path
) -> None:
    shop = UnitShop(tmp_path, values=VALUES, grace="3d", parallel=1)
    shop.engine = spark_engine
    pipeline = shop.document["pipelines"]["p"]
    pipeline["deduplicate_by"] = ["text"]
    pipeline["transform"] = "SELECT day, upper(text) AS text, _unit FROM source"
    shop.put(
        ("2020-01-05", "s1", "a"), ("2020-01-06", "s1", "a"), ("2020-01-05", "it's", "a"),
        ("2020-02-21", "s1", "b"),
    )  # fmt: skip
    shop.run()
    assert shop.texts() == ["A", "A", "B"]
    shop.execute("UPDATE answers SET text = 'c' WHERE text = 'b'")
    shop.run()
    assert shop.texts() == ["A", "A", "C"]


def test_a_transform_has_to_select_the_slice(spark_engine: SparkEngine, tmp_path: Path) -> None:
    shop = UnitShop(tmp_path)
    shop.engine = spark_engine
    shop.document["pipelines"]["p"]["transform"] = "SELECT day, text FROM source"
    shop.put(("2020-01-05", "s1", "a"))
    with pytest.raises(ConfigError, match="must select _unit"):
        shop.run()


@pytest.mark.parametrize("driver", ["postgresql", "jdbc"])
def test_units_of_postgresql(
    spark_engine: SparkEngine, tmp_path: Path, postgresql: PostgresqlServer, driver: str
) -> None:
    if driver == "jdbc" and not JAR.exists():
        pytest.skip("no JDBC driver")
    base = postgresql.new_database()
    postgresql.execute(
        "CREATE TABLE answers (day date, survey text, text text, odd int DEFAULT 0)",
        "INSERT INTO answers VALUES ('2020-01-31', 's1', 'a'), ('2020-02-01', 'it''s', 'b'),"
        " ('2020-02-02', 's1', 'c')",
        database=base,
    )
    shop = UnitShop(tmp_path, values=VALUES)
    shop.engine = spark_engine
    if driver == "jdbc":
        options = {"driver": "org.postgresql.Driver"}
        uri = f"jdbc:postgresql://127.0.0.1:{postgresql.port}/{base}"
        connection = {"driver": "jdbc", "uri": uri, "user": "postgres", "options": options}
        connection["password"] = PASSWORD
        shop.engine = LazyEngine(lambda: spark_engine)
    else:
        connection = {"driver": "postgresql", "uri": postgresql.uri(base)}
    shop.document["connections"] = {"shop": connection}
    # A unit that fails alone: the condition divides by zero for one value.
    shop.source["query"] += " AND 1 / (CASE WHEN {unit.survey} = 'it''s' THEN odd ELSE 1 END) = 1"
    shop.run()
    assert shop.texts() == ["a", "c"]
    postgresql.execute("UPDATE answers SET odd = 1", database=base)
    shop.passes(hours=1)
    shop.run()
    assert shop.texts() == ["a", "b", "c"]
