"""A query of Spark as a tree of plain values: taken from the JVM's own objects, never from text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_CATALYST = "org.apache.spark.sql.catalyst."
_PREFIXES = ("expressions.", "analysis.", "plans.logical.")
# What its analysis makes of it is Spark's own; `parameters` are what the statement gave.
_STAND_IN = "org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules"
_PLAN = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"


# Deeper than people write, and than Python's stack and the JVM's go.
_MOST_LEVELS = 200
_STACK_ENDED = ("StackOverflowError", "FAILED_TO_PARSE_TOO_COMPLEX")


class TooDeep(Exception):
    """The query is nested deeper than anything here can follow."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator, or an expression of one.

    ``kind`` is its class, as far as that is not one of the engine's usual packages.
    ``names`` are those of a function, a relation or a view; ``type`` what a cast makes, or what an
    analysed expression is; ``value`` and ``text`` what a literal is and how it was written.
    """

    kind: str
    below: tuple[Node, ...] = ()
    is_plan: bool = False
    names: tuple[str, ...] = ()
    type: str = ""
    value: Any = None
    text: str = ""

    def everything(self) -> Iterator[Node]:
        """The node itself and all below it, each before what lies below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.below))


def parsed(spark: SparkSession, statement: str) -> Node:
    """The query as it is written. Nothing is looked up, read or computed for that.

    Raises `ParseException` for what is not exactly one query.
    """
    session = spark._jsparkSession.sessionState()  # noqa: SLF001  # the JVM has no public name
    with _within_the_stack():
        return _Reader(spark, analysed=False).node(session.sqlParser().parseQuery(statement))


def analysed(frame: DataFrame) -> Node:
    """The frame's query with its names resolved."""
    with _within_the_stack():
        plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # the JVM has no public name
        return _Reader(frame.sparkSession, analysed=True).node(plan)


def require_computable(frame: DataFrame) -> None:
    """Raise `PySparkException` for a constant of the query that cannot be computed."""
    frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # the JVM has no public name


@contextlib.contextmanager
def _within_the_stack() -> Iterator[None]:
    try:
        yield
    except (Py4JError, PySparkException) as error:
        if any(sign in str(error) for sign in _STACK_ENDED):
            raise TooDeep from None
        raise


class _Reader:
    def __init__(self, spark: SparkSession, *, analysed: bool) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # no public name
        self._stand_in = jvm.java.lang.Class.forName(_STAND_IN)
        self._plan = jvm.java.lang.Class.forName(_PLAN)
        self._analysed = analysed
        self._kinds: dict[str, tuple[bool, bool]] = {}

    def node(self, found: Any, level: int = 0) -> Node:
        if level > _MOST_LEVELS:
            raise TooDeep
        name = found.getClass().getName()
        if name not in self._kinds:
            self._kinds[name] = (self._plan.isInstance(found), self._stand_in.isInstance(found))
        is_plan, stands_in = self._kinds[name]
        kind = _kind(name)
        detail = _DETAILS.get(kind, _nothing)(found)
        if kind == "View":
            # What a view is made of is its owner's business; whose it is says its name.
            return Node(kind, is_plan=True, **detail)
        if self._analysed and not is_plan:
            detail = {"type": found.dataType().typeName(), **detail}
        if is_plan:
            parts = [found.expressions(), found.innerChildren(), found.children()]
        elif self._analysed and stands_in:
            parts = [found.parameters()]
        else:
            parts = [found.innerChildren(), found.children()]
        below = tuple(self.node(child, level + 1) for part in parts for child in _items(part))
        return Node(kind, below, is_plan, **detail)


def _kind(name: str) -> str:
    short = name.removeprefix(_CATALYST)
    if short == name:
        return name
    for prefix in _PREFIXES:
        if short.startswith(prefix):
            # Scala's objects end in a dollar sign.
            return short.removeprefix(prefix).removesuffix("$")
    return short


def _items(sequence: Any) -> Iterator[Any]:
    for place in range(sequence.size()):
        yield sequence.apply(place)


def _nothing(_: Any) -> dict[str, Any]:
    return {}


def _function(found: Any) -> dict[str, Any]:
    return {"names": tuple(_items(found.nameParts()))}


def _generator(found: Any) -> dict[str, Any]:
    return {"names": tuple(found.name().unquotedString().split("."))}


def _relation(found: Any) -> dict[str, Any]:
    given = () if found.options().isEmpty() else ("WITH (…)",)
    return {"names": (*_items(found.multipartIdentifier()), *given)}


def _with(found: Any) -> dict[str, Any]:
    names = tuple(each._1() for each in _items(found.cteRelations()))  # noqa: SLF001  # Scala's name
    return {"names": names, "text": "RECURSIVE" if found.allowRecursion() else ""}


def _view(found: Any) -> dict[str, Any]:
    return {"names": (found.desc().identifier().unquotedString(),)}


def _literal(found: Any) -> dict[str, Any]:
    value = found.value()
    origin = found.origin()
    text, first, last = origin.sqlText(), origin.startIndex(), origin.stopIndex()
    written = ""
    if text.isDefined() and first.isDefined() and last.isDefined():
        written = text.get()[first.get() : last.get() + 1]
    plain = value if value is None or isinstance(value, int | float | str) else value.toString()
    return {"type": found.dataType().typeName(), "value": plain, "text": written}


def _cast(found: Any) -> dict[str, Any]:
    return {"type": found.dataType().typeName()}


_DETAILS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "UnresolvedFunction": _function,
    "UnresolvedGenerator": _generator,
    "UnresolvedRelation": _relation,
    "UnresolvedWith": _with,
    "View": _view,
    "Literal": _literal,
    "Cast": _cast,
}
