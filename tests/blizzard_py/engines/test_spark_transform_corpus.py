"""The judge of transforms on real Spark: what people write is run, what must not run is refused."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.transform_guard import refusal_of, spark_message, wrapped
from tests.support.transform_corpus import ATTACKS, HONEST, SUBSTITUTED

VIEW = "blizzard_source_corpus"


@pytest.fixture(scope="module")
def spark(spark_engine: SparkEngine) -> SparkSession:
    spark = spark_engine.session().newSession()
    # Code that is compiled for two rows, and tasks without any, are most of what statements cost.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    text = "'1', 'a,b', timestamp'2024-01-02 03:04:05Z', 1.5D, array(struct('s', 2)), map('k', 'v')"
    rows = spark.sql(f"SELECT * FROM VALUES (1L, {text}), (2L, {text})")
    names = ("id", "name", "tags", "time", "amount", "items", "props")
    shaped = "array(named_struct('sku', 's', 'n', 2)) AS items"
    rows.toDF(*names).selectExpr(*names[:5], shaped, "props").createOrReplaceTempView(VIEW)
    return spark


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len(set(HONEST)) >= 100
    assert len(set(ATTACKS)) >= 100


def test_ordinary_transforms_are_accepted_and_run(spark: SparkSession) -> None:
    refused = {}
    for statement in HONEST:
        try:
            found = refusal_of(spark, statement, VIEW)
            spark.sql(wrapped(statement, VIEW)).collect()
        except PySparkException as error:
            found = str(error)[:300]
        if found:
            refused[statement] = found
    assert refused == {}


@pytest.mark.timeout(900)
def test_unsafe_transforms_are_rejected_in_one_line(spark: SparkSession) -> None:
    accepted: list[str] = []
    for statement in ATTACKS:
        try:
            found = refusal_of(spark, statement, VIEW)
        except AnalysisException as error:
            found = spark_message(str(error))
        if not found:
            accepted.append(statement)
        else:
            assert "\n" not in found, statement
    assert accepted == []


def test_a_statement_does_not_use_the_environment(spark: SparkSession) -> None:
    assert refusal_of(spark, SUBSTITUTED, VIEW) is None
    row = spark.sql(wrapped(SUBSTITUTED, VIEW)).first()
    assert (row["a"], row["b"]) == ("${env:PATH}", "${system:java.home}")
