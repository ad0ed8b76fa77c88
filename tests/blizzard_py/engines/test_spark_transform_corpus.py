"""The judge of transforms on real Spark: what people write is run, what must not run is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.plain_statement import plain_refusal
from blizzard_py.engines.spark.transform_guard import refusal_of, wrapped
from blizzard_py.engines.spark.transform_words import (
    AGGREGATES,
    EXPRESSIONS,
    FUNCTIONS,
    PATTERN_REASON,
)
from tests.support.transform_corpus import ATTACKS, HONEST, SUBSTITUTED

VIEW = "blizzard_source_corpus"


@pytest.fixture
def spark(spark_engine: SparkEngine) -> Iterator[SparkSession]:
    spark = spark_engine.session()
    text = "'1', 'a,b', timestamp'2024-01-02 03:04:05Z', 1.5D, array(struct('s', 2)), map('k', 'v')"
    rows = spark.sql(f"SELECT * FROM VALUES (1L, {text}), (2L, {text})")
    names = ("id", "name", "tags", "time", "amount", "items", "props")
    shaped = "array(named_struct('sku', 's', 'n', 2)) AS items"
    rows.toDF(*names).selectExpr(*names[:5], shaped, "props").createOrReplaceTempView(VIEW)
    yield spark
    spark.catalog.dropTempView(VIEW)


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len(set(HONEST)) >= 100
    assert len(set(ATTACKS)) >= 100


def test_what_people_write_is_accepted_and_runs(spark: SparkSession) -> None:
    refused = {}
    for statement in HONEST:
        try:
            found = refusal_of(spark, statement, VIEW, ())
            spark.sql(wrapped(statement, VIEW)).collect()
        except PySparkException as error:
            found = str(error)[:300]
        if found:
            refused[statement] = found
    assert refused == {}


@pytest.mark.timeout(900)
def test_what_must_not_run_is_refused_in_one_line(spark: SparkSession) -> None:
    accepted: list[str] = []
    for statement in ATTACKS:
        try:
            found = refusal_of(spark, statement, VIEW, ())
        except PySparkException as error:
            found = said(error)
        if not found:
            accepted.append(statement)
        else:
            assert "\n" not in found, statement
    assert accepted == []


def said(error: PySparkException) -> str:
    """A refusal by Spark itself counts where it is one of the statement's form or names."""
    condition = error.getCondition() or ""
    refused = ("PARSE_SYNTAX_ERROR", "UNRESOLVED_COLUMN", "UNCLOSED_BRACKETED_COMMENT")
    return condition if condition.startswith(refused) else ""


def test_a_statement_is_what_it_says_and_not_what_the_environment_is(spark: SparkSession) -> None:
    assert refusal_of(spark, SUBSTITUTED, VIEW, ()) is None
    row = spark.sql(wrapped(SUBSTITUTED, VIEW)).first()
    assert row is not None
    assert (row["a"], row["b"]) == ("${env:PATH}", "${system:java.home}")


def registered(spark: SparkSession) -> Iterator[tuple[str, str, bool, bool]]:
    """Spark's own functions: name, class, whether nondeterministic, whether of several rows."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # no public name
    registry = spark._jsparkSession.sessionState().functionRegistry()  # noqa: SLF001  # no public name
    expressions = "org.apache.spark.sql.catalyst.expressions."
    load = jvm.java.lang.Class.forName
    unstable = load(f"{expressions}Nondeterministic")
    several = load(f"{expressions}aggregate.AggregateFunction")
    known = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.functionSet().iterator()
    while known.hasNext():
        function = known.next()
        kind = registry.lookupFunction(function).get().getClassName()
        found = load(kind)
        yield (
            function.funcName(),
            kind.removeprefix(expressions),
            unstable.isAssignableFrom(found),
            several.isAssignableFrom(found) or ".aggregate." in kind,
        )


def test_the_lists_agree_with_sparks_own_registry(spark: SparkSession) -> None:
    names = set()
    for name, kind, unstable, several in registered(spark):
        names.add(name)
        if name in FUNCTIONS:
            assert not unstable, name
            assert not several, name
            assert kind in EXPRESSIONS or kind.endswith("Builder"), (name, kind)
        elif not unstable and not several and name[0].isalpha():
            assert kind not in EXPRESSIONS, (name, kind)
        if several:
            assert name in AGGREGATES, name
    assert names >= FUNCTIONS


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM source WHERE name LIKE tags",
        "SELECT id FROM source WHERE name RLIKE 'a' || tags",
        "SELECT id FROM source WHERE name NOT ILIKE (tags)",
        "SELECT split(name, tags) AS x FROM source",
        "SELECT regexp_replace(name, concat('(', tags), '') AS x FROM source",
    ],
)
def test_where_there_is_only_text_patterns_stand_in_it(statement: str) -> None:
    assert plain_refusal(statement, ()) == PATTERN_REASON
    constant = statement.replace("|| tags", "").replace("concat('(', tags)", "tags")
    constant = constant.replace("(tags)", "tags").replace("tags", "'b'")
    assert plain_refusal(constant, ()) is None
