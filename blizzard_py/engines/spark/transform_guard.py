"""The check of forbidden transforms, by Spark's own analysis.

A transform is stateless: a row's result depends on that row alone. So neither the division of files
into batches nor a second attempt can change it. It reads its records and nothing else, has
operators on single rows only, and uses nothing that Spark calls nondeterministic or dependent on
the time. The author of the configuration is trusted, the author of records is not. No pattern, no
size and no document that may refer to other resources comes from a record.

A client of Spark Connect gets only the text of a plan. In that case operators and names of
functions are read from the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

SOURCE = "source"
VIEW_PREFIX = "blizzard_source_"

_BATCH = (
    "its result depends on which files are in one batch; the result of a row may depend on that"
    " row alone"
)
_MOMENT = "it depends on time, place or user of the run; use a column of the record"
_CHANCE = "it gives another value at every attempt"
_REASONS = {
    "chance": _CHANCE,
    "moment": _MOMENT,
    "document": "its reader may open what the record names",
}
_PATTERN = (
    "must not take a pattern from the record: a malicious record could make it run for years; write"
    " the pattern as a constant"
)
_ROW_BY_ROW = frozenset(
    {"CTERelationDef", "CTERelationRef", "Expand", "Filter", "Generate", "PipeOperator", "Project",
     "SubqueryAlias", "Union", "View", "WithCTE"}
)  # fmt: skip
_OPERATORS = {
    "Aggregate": "an aggregate (GROUP BY, sum, count, …)",
    "Distinct": "DISTINCT",
    "Window": "a window function",
    "Sort": "ORDER BY or SORT BY",
    **dict.fromkeys(("GlobalLimit", "LocalLimit"), "LIMIT"),
    "Offset": "OFFSET",
    **dict.fromkeys(("Join", "LateralJoin"), "a join"),
    "Sample": "TABLESAMPLE",
    "Intersect": "INTERSECT",
    "Except": "EXCEPT",
    **dict.fromkeys(("ResolvedHint", "Repartition", "RepartitionByExpression"), "a hint"),
    "ScriptTransformation": "TRANSFORM … USING",
    "UnionLoop": "WITH RECURSIVE",
}
# `deduplicate_by` is the only operation on a batch as a whole.
_REMEDIES = {"Aggregate": "; aggregate in the table", "Distinct": "; use deduplicate_by"}
# Positions of arguments that must not come from the record: patterns and sizes.
_PATTERNS = {
    **dict.fromkeys(("ILike", "Like", "RLike", "RegExpExtract", "RegExpExtractAll"), 1),
    **dict.fromkeys(("RegExpInStr", "RegExpReplace", "StringSplit", "StringToMap"), 1),
    "ParseUrl": 2,
}
_SIZES = {
    **dict.fromkeys(("ArrayInsert", "ArrayRepeat", "BinaryPad", "FormatNumber"), (1,)),
    **dict.fromkeys(("StringLPad", "StringRPad", "StringRepeat"), (1,)),
    **dict.fromkeys(("FormatString", "StringSpace"), (0,)),
    "Sequence": (0, 1, 2),
}
_TIMES = frozenset({"date", "time", "timestamp", "timestamp_ntz"})
# DATE 'today' and similar constants are read as the time of the query.
_UNDATED = "must not convert a constant text to a time unless it begins with a digit"
_DATED = re.compile(r"""\s*\w+\s*r?['"]\s*[+-]?\d""", re.IGNORECASE)
_DATED_TEXT = re.compile(r"\s*([+-]?\d|$)")
_TOO_MUCH = re.compile(r"StackOverflowError|OutOfMemoryError|size limit")
_TOO_LARGE = "is nested too deeply, or has constants too large, for Spark; split it with WITH … AS"
_UNPLANNED = "Error occurred during query planning:"
_POSITION = re.compile(r"\bline (\d+)")
# For a plan as text.
_NODE = re.compile(r"^(?P<indent>[ :]*(?:[+:]- )?)(?P<name>[A-Za-z][A-Za-z0-9]*)")
_SUBQUERY = re.compile(r"\b(?:scalar-subquery|exists|list|lateral-subquery)#\d+ \[")
_CALLS = re.compile(
    r"\b(?:(?P<chance>aes_encrypt|java_method|rand|randn|randstr|reflect|shuffle|uniform|uuid"
    r"|monotonically_increasing_id|spark_partition_id|input_file_\w+)"
    r"|(?P<moment>current_\w+|localtimestamp|now)|(?P<document>from_xml|xpath\w*))\(",
    re.IGNORECASE,
)


def wrapped(statement: str, view: str) -> str:
    """Return the query for the statement's rows, with ``source`` being ``view``."""
    # The statement is the operator's.
    return f"WITH {SOURCE} AS (SELECT * FROM {view}) SELECT * FROM (\n{statement}\n)"  # noqa: S608


def refusal_of(spark: SparkSession, statement: str, view: str) -> str | None:
    """Return why the statement cannot be used; None if it can.

    Raises `PySparkException` if Spark itself refuses it.
    """
    if found := query_refusal(spark, statement):
        return found
    # A Connect session is of another class with the same methods.
    if not isinstance(spark, SparkSession):
        explained = spark.sql(f"EXPLAIN EXTENDED {wrapped(statement, view)}").collect()
        return _refusal_by_text("\n".join(line[0] for line in explained), view)
    try:
        frame = spark.sql(wrapped(statement, view))
        plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # the JVM has no public name
        refusal = _plan_refusal(plan, view, _Patterns(spark))
        if refusal is None:
            # A constant of the query cannot be computed.
            frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # the same
    except Py4JError as error:
        return _too_large(error)
    return refusal


def query_refusal(spark: SparkSession, statement: str) -> str | None:
    """Return why the statement is not exactly one query; a Connect server reports it later.

    The statement must be a query by itself: text that closes our parenthesis and opens another is
    not one. Its lines are counted as in the analysed query.
    """
    if not isinstance(spark, SparkSession):
        return None
    state = spark._jsparkSession.sessionState()  # noqa: SLF001  # the JVM has no public name
    try:
        state.sqlParser().parseQuery(f"\n{statement}")
    except ParseException as error:
        return spark_message(str(error))
    except Py4JError as error:
        return _too_large(error)
    return None


def _too_large(error: Py4JError) -> str:
    if not _TOO_MUCH.search(str(error)):
        raise error
    return _TOO_LARGE


def aggregate_refusal(frame: DataFrame, names: set[str]) -> tuple[str, str] | None:
    """Return the first unusable aggregate of a query, and why; None if all can be used."""
    patterns = _Patterns(frame.sparkSession)
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # the JVM has no public name
    for node in _below(plan, lambda _: True):
        for each in _items(node.aggregateExpressions()) if _kind(node) == "Aggregate" else ():
            if each.name() in names and (why := _expression_refusal(each, patterns)):
                return each.name(), why
    return None


def spark_message(text: str) -> str:
    """Return Spark's message about a statement without its trace, with the user's line numbers."""
    message = re.split(r"\n\s*\n|\n== SQL|;\n|\nJVM stacktrace", text.strip())[0]
    message = _POSITION.sub(lambda found: f"line {max(1, int(found[1]) - 1)}", message)
    return " ".join(message.split()).removesuffix(";")


class _Patterns:
    """Kinds of expression by which Spark marks its trees."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # no public name
        known = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.trees.TreePattern$")
        patterns = known.getField("MODULE$").get(None)
        self.moment, self.subquery = patterns.CURRENT_LIKE(), patterns.PLAN_EXPRESSION()
        replaceable = "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
        self.replaceable = jvm.java.lang.Class.forName(replaceable)


def _plan_refusal(plan: Any, view: str, patterns: _Patterns) -> str | None:
    def is_own_view(node: Any) -> bool:
        return _kind(node) == "View" and node.desc().identifier().unquotedString() == view

    for node in _below(plan, lambda node: not is_own_view(node)):
        kind = _kind(node)
        if is_own_view(node):
            continue
        if kind == "View" or kind not in _ROW_BY_ROW:
            return _operator_refusal(kind)
        for expression in _items(node.expressions()):
            if found := _expression_refusal(expression, patterns):
                return found
    return None


def _expression_refusal(expression: Any, patterns: _Patterns) -> str | None:
    if expression.containsPattern(patterns.subquery):
        return f"must not hold a subquery beside FROM: {_BATCH}"
    if not expression.deterministic():
        return _call_refusal(_deepest(expression, lambda e: not e.deterministic()), _CHANCE)
    if expression.containsPattern(patterns.moment):
        found = _deepest(expression, lambda e: e.containsPattern(patterns.moment))
        return _call_refusal(found, _MOMENT)
    for node in _below(expression, lambda _: True):
        refusal = _node_refusal(node)
        # The expression that Spark runs instead may not be among its children.
        if refusal is None and patterns.replaceable.isInstance(node):
            refusal = _expression_refusal(node.replacement(), patterns)
        if refusal is not None:
            return refusal
    return None


def _node_refusal(node: Any) -> str | None:
    kind = _kind(node)
    below = list(_items(node.children()))
    if kind == "AesEncrypt":  # Spark does not mark its random part
        return _call_refusal("aes_encrypt", _CHANCE)
    if kind.startswith("xml.") or kind == "XmlToStructs":
        return _call_refusal(node.prettyName(), _REASONS["document"])
    if kind in _PATTERNS and not all(each.foldable() for each in below[_PATTERNS[kind] :]):
        return _PATTERN
    if not all(below[at].foldable() for at in _SIZES.get(kind, ()) if at < len(below)):
        return (
            f"must not take the size of {node.prettyName()}() from the record: a malicious record"
            " could end Spark; write a constant, and filter by the record"
        )
    if kind.startswith(("Cast", "Literal", "ParseTo")) and node.dataType().typeName() in _TIMES:
        return None if _is_dated(node, below) else f"{_UNDATED}: {_MOMENT}"
    return None


def _is_dated(node: Any, below: list[Any]) -> bool:
    """Return whether a time is not made from a constant text like ``now``."""
    if not below:
        written = _written(node)
        return not written or bool(_DATED.match(written))
    made = below[0]
    if made.dataType().typeName() != "string" or not made.foldable():
        return True
    return _kind(made) == "Literal" and bool(_DATED_TEXT.match(str(made.value() or "")))


def _written(literal: Any) -> str:
    origin = literal.origin()
    text, first, last = origin.sqlText(), origin.startIndex(), origin.stopIndex()
    if not (text.isDefined() and first.isDefined() and last.isDefined()):
        return ""
    return str(text.get()[first.get() : last.get() + 1])


def _operator_refusal(kind: str) -> str:
    if kind not in _OPERATORS:
        return f"must read only `{SOURCE}`, not {kind}"
    return f"must not use {_OPERATORS[kind]}: {_BATCH}{_REMEDIES.get(kind, '')}"


def _call_refusal(name: str, reason: str) -> str:
    return f"must not call {name}(): {reason}"


def _deepest(expression: Any, holds: Callable[[Any], bool]) -> str:
    """Return the name of the innermost call for which ``holds`` is true."""
    while True:
        inner = next((each for each in _items(expression.children()) if holds(each)), None)
        if inner is None:
            return str(expression.prettyName())
        expression = inner


def _below(tree: Any, goes_on: Callable[[Any], bool]) -> Iterator[Any]:
    """Yield a tree's nodes, parents first, without nodes below those where ``goes_on`` is false."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if goes_on(node):
            waiting.extend(reversed(list(_items(node.children()))))


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(place) for place in range(sequence.size()))


def _kind(node: Any) -> str:
    """Return the class name, without the engine's usual packages."""
    name = str(node.getClass().getName()).removeprefix("org.apache.spark.sql.catalyst.")
    return re.sub(r"^(expressions|plans\.logical)\.", "", name).removesuffix("$")


def _refusal_by_text(explained: str, view: str) -> str | None:
    if explained.startswith(_UNPLANNED):  # a constant in it cannot be computed
        return spark_message(explained.removeprefix(_UNPLANNED))
    plan = explained.partition("== Analyzed Logical Plan ==")[2].partition("\n== ")[0]
    if _SUBQUERY.search(plan):
        return f"must not hold a subquery beside FROM: {_BATCH}"
    for kind, line in _operators(plan, view):
        if kind not in _ROW_BY_ROW:
            return _operator_refusal(kind)
        if found := _CALLS.search(line):
            group = str(found.lastgroup)
            return _call_refusal(found[group].lower(), _REASONS[group])
    return None


def _operators(plan: str, view: str) -> Iterator[tuple[str, str]]:
    """Yield the operators of the user's statement: operators below our view are our own."""
    ours: int | None = None
    # The first line has the columns, not an operator.
    for line in plan.strip().splitlines()[1:]:
        found = _NODE.match(line)
        if found is None or (ours is not None and len(found["indent"]) > ours):
            continue
        ours = None
        if found["name"] == "View" and f"`{view}`" in line:
            ours = len(found["indent"])
        yield found["name"] if found["name"] != "View" or ours is not None else "AnotherView", line
