"""A transform from its text to its verdict, on a driver of ours and on a Connect server.

A driver of ours has Spark's own trees of it, and they are judged (`transform_rules`). A client of
Spark Connect is given text only, and text can be made to look like any plan. So there a
statement has to be plain: made of words, numbers and signs that can be told apart without
Spark, so that what it calls and reads stands in it as it is, and no line of the plan is its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from blizzard_py.engines.spark.plain_statement import plain_refusal
from blizzard_py.engines.spark.plan_tree import TooDeep, analysed, parsed, require_computable
from blizzard_py.engines.spark.transform_rules import (
    SOURCE,
    kind_refusal,
    meant_refusal,
    written_refusal,
)
from blizzard_py.engines.spark.transform_words import ROW_BY_ROW

VIEW_PREFIX = "blizzard_source_"

_TOO_DEEP = "is nested too deeply to be judged; take it apart WITH … AS"
# `user`, `current_user` and `session_user` without parentheses are this unless columns have
# these names, which only the plan knows.
_BARE = {
    "current_user()": "CurrentUser",
    "current_date(": "CurrentDate",
    "current_time(": "CurrentTime",
    "current_timestamp()": "CurrentTimestamp",
    "localtimestamp()": "LocalTimestamp",
}
_NODE = re.compile(r"^(?P<indent>[ :]*(?:[+:]- )?)(?P<name>[A-Za-z][A-Za-z0-9]*)")
_SUBQUERY = re.compile(r"\b(?:scalar-subquery|exists|list|lateral-subquery)#\d+ \[")
_UNPLANNED = "Error occurred during query planning:"
_POSITION = re.compile(r"\bline (\d+)")


def wrapped(statement: str, view: str) -> str:
    """The query that gives the statement's rows, with ``source`` being ``view``."""
    # The statement is the operator's own, and has been judged.
    return f"WITH {SOURCE} AS (SELECT * FROM {view}) SELECT * FROM (\n{statement}\n)"  # noqa: S608


def refusal_of(
    spark: SparkSession, statement: str, view: str, columns: Sequence[str]
) -> str | None:
    """Why the statement is unusable; None if it is not. ``columns`` are those of the records.

    Raises `PySparkException` for what Spark itself refuses.
    """
    # A Connect session is of another class, which has the same methods.
    if isinstance(spark, SparkSession):
        return _refusal_by_trees(spark, statement, view)
    return _refusal_by_text(spark, statement, view, columns)


def written_refusal_of(spark: SparkSession, statement: str) -> str | None:
    """Why the statement is unusable whatever the records' columns are; None if nothing tells.

    Raises as `refusal_of`.
    """
    if not isinstance(spark, SparkSession):
        return plain_refusal(statement, ())
    try:
        return written_refusal(parsed(spark, f"\n{statement}"))
    except TooDeep:
        return _TOO_DEEP


def _refusal_by_trees(spark: SparkSession, statement: str, view: str) -> str | None:
    # Alone it has to be a query: what closes our parenthesis and opens another is none. Its
    # lines are counted as in what is analysed.
    refusal = written_refusal_of(spark, statement)
    if refusal is not None:
        return refusal
    try:
        frame = spark.sql(wrapped(statement, view))
        refusal = meant_refusal(analysed(frame), view)
    except TooDeep:
        return _TOO_DEEP
    if refusal is None:
        require_computable(frame)
    return refusal


def _refusal_by_text(
    spark: SparkSession, statement: str, view: str, columns: Sequence[str]
) -> str | None:
    refusal = plain_refusal(statement, columns)
    if refusal is not None:
        return refusal
    _ = spark.sql(wrapped(statement, view)).schema  # analyses it, and says what is wrong with it
    explained = spark.sql(f"EXPLAIN EXTENDED {wrapped(statement, view)}").collect()
    return _plan_refusal("\n".join(line[0] for line in explained), view)


def spark_said(text: str) -> str:
    """Spark's message about a statement without its trace, lines counted as the user does."""
    message = re.split(r"\n\s*\n|\n== SQL|;\n|\nJVM stacktrace", text.strip())[0]
    message = _POSITION.sub(lambda found: f"line {max(1, int(found[1]) - 1)}", message)
    return " ".join(message.split()).removesuffix(";")


def _plan_refusal(explained: str, view: str) -> str | None:
    if explained.startswith(_UNPLANNED):  # a constant among it that cannot be computed
        return spark_said(explained.removeprefix(_UNPLANNED))
    analysed_plan = explained.partition("== Analyzed Logical Plan ==")[2]
    analysed_plan = analysed_plan.partition("\n== ")[0]
    for call, kind in _BARE.items():
        if call in analysed_plan:
            return kind_refusal(kind)
    if _SUBQUERY.search(analysed_plan):
        return kind_refusal("ScalarSubquery")
    for name in _operators(analysed_plan, view):
        if name not in ROW_BY_ROW:
            return kind_refusal(name)
    return None


def _operators(analysed_plan: str, view: str) -> Iterator[str]:
    """The operators of the user's statement: what lies below our view is our own."""
    ours: int | None = None
    # The first line has the columns and no operator.
    for line in analysed_plan.strip().splitlines()[1:]:
        found = _NODE.match(line)
        if found is None:
            continue
        depth = len(found["indent"])
        if ours is not None and depth > ours:
            continue
        ours = None
        if found["name"] == "View" and f"`{view}`" in line:
            ours = depth
        yield found["name"] if found["name"] != "View" or ours is not None else "AnotherView"
