"""What a transform may be, judged by its trees. Pure.

A transform is stateless: what a row becomes depends on that row alone, so neither the
way files fall into batches nor a second attempt can change it. And it reads nothing but its
records, runs nothing but Spark's own functions of values, and makes of one record no more
than a machine can hold.

Both trees are held against lists of what is allowed. The written one comes first, because the
analysis itself looks tables up, opens files and computes constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from blizzard_py.engines.spark.plan_tree import Node
from blizzard_py.engines.spark.transform_sizes import size_refusal
from blizzard_py.engines.spark.transform_words import (
    AGGREGATES,
    BARE,
    BARE_REASON,
    EXPRESSIONS,
    FUNCTIONS,
    NO_REASON,
    OPERATORS,
    PATTERN_REASON,
    PATTERNS,
    REASONS,
    ROW_BY_ROW,
    SUBQUERIES,
    UNRESOLVED,
)

SOURCE = "source"

_BATCH_REASON = (
    "its result depends on which files are in one batch; what a row becomes may depend"
    " on that row alone"
)
# `deduplicate_by` is the one thing about a batch as a whole.
_REMEDIES = {"Aggregate": "; aggregate in the table", "Distinct": "; use deduplicate_by"}
_OTHERS = {
    "a hint": "a hint: how rows are spread is decided by the batch",
    "TRANSFORM … USING": "TRANSFORM … USING: it runs a program",
}
_TOLD = frozenset(OPERATORS) | SUBQUERIES | frozenset(BARE) | {"CurrentUser"}
_NAME = re.compile(r"\w+", re.ASCII)

_TIMES = frozenset({"date", "time", "timestamp", "timestamp_ntz"})
# DATE 'today' and its like are read as the time of the query, wherever a text becomes a time.
_DATED = re.compile(r"""\s*\w+\s*r?['"]\s*[+-]?\d""", re.IGNORECASE)
_DATED_TEXT = re.compile(r"\s*([+-]?\d|$)")
_OF_THE_RECORD = frozenset({"AttributeReference", "NamedLambdaVariable"})
# The same as they are written.
_OF_A_NAME = frozenset({"UnresolvedAttribute", "UnresolvedStar", "UnresolvedNamedLambdaVariable"})


def written_refusal(query: Node) -> str | None:
    """Why the query as it is written is unusable; None if it may be analysed."""
    named = {SOURCE}
    for node in query.everything():
        if node.kind == "UnresolvedWith":
            named.update(name.lower() for name in node.names)
    for node in query.everything():
        found = _not_allowed(node, EXPRESSIONS | UNRESOLVED) or _written(node, named)
        found = found or _pattern_refusal(node)
        if found:
            return found
    return size_refusal(query)


def aggregate_refusal(query: Node) -> str | None:
    """Why aggregates as they are written are unusable; None if they may be analysed.

    As `written_refusal`, but that they may aggregate: what holds for a row holds for a window.
    """
    for node in query.everything():
        is_call = node.kind == "UnresolvedFunction" and bool(node.names)
        found = _not_allowed(node, EXPRESSIONS | UNRESOLVED)
        if found is None and not (is_call and node.names[-1].lower() in AGGREGATES):
            found = _written(node, {SOURCE})
        found = found or _pattern_refusal(node)
        if found:
            return found
    return size_refusal(query)


def meant_refusal(plan: Node, view: str) -> str | None:
    """Why the analysed plan is unusable; None if it is not. ``view`` is what `SOURCE` is."""
    for node in plan.everything():
        found = _not_allowed(node, EXPRESSIONS)
        if found is None and node.kind == "View" and node.names != (view,):
            found = _foreign(node.names)
        if found is None and node.type in _TIMES and node.kind.startswith(("Cast", "ParseTo")):
            found = _clock_refusal(node)
        if found:
            return found
    return size_refusal(plan)


def function_refusal(name: str, arguments: int) -> str | None:
    """Why a function must not be called; None if it may."""
    lowered = name.lower()
    if lowered in AGGREGATES:
        return kind_refusal("Aggregate")
    if lowered == "unix_timestamp" and not arguments:
        return f"must not call unix_timestamp() without arguments: {BARE_REASON}"
    if lowered in FUNCTIONS:
        return None
    return f"must not call {shown(lowered)}(): {REASONS.get(lowered, NO_REASON)}"


def shown(name: str) -> str:
    """A name of the statement as a message may hold it."""
    return name if _NAME.fullmatch(name) and len(name) <= 60 else repr(name[:60])


def _not_allowed(node: Node, expressions: frozenset[str]) -> str | None:
    if node.kind in (ROW_BY_ROW if node.is_plan else expressions):
        return None
    if node.is_plan or node.kind in _TOLD:
        return kind_refusal(node.kind)
    return f"must not use {shown(node.kind.rpartition('.')[2])}: {NO_REASON}"


def kind_refusal(kind: str) -> str:
    """Why an operator, or an expression that people know by another name, must not be used."""
    if kind in OPERATORS:
        name = OPERATORS[kind]
        reason = _OTHERS.get(name, f"{name}: {_BATCH_REASON}")
        return f"must not use {reason}{_REMEDIES.get(kind, '')}"
    if kind in SUBQUERIES:
        return f"must not hold a subquery beside FROM: {_BATCH_REASON}"
    if kind in BARE:
        return f"must not use {BARE[kind]}: {BARE_REASON}"
    if kind == "CurrentUser":
        return f"must not use the name of the user: {REASONS['current_user']}"
    return _foreign((kind.removeprefix("Unresolved"),))


def _written(node: Node, named: set[str]) -> str | None:
    if node.kind in {"UnresolvedFunction", "UnresolvedGenerator"}:
        # Of functions with a place, only Spark's own place is known.
        home = [part.lower() for part in node.names[:-1]]
        if home not in ([], ["builtin"], ["system", "builtin"]):
            return f"must not call {shown('.'.join(node.names))}(): {NO_REASON}"
        return function_refusal(node.names[-1], len(node.below))
    if node.kind == "UnresolvedRelation" and (
        len(node.names) != 1 or node.names[0].lower() not in named
    ):
        return _foreign(node.names)
    if node.kind == "UnresolvedWith" and node.text:
        return "must not use WITH RECURSIVE: nobody can say when it ends"
    if node.kind == "Literal" and node.type in _TIMES and not _DATED.match(node.text):
        return f"must not use {shown(node.text)}: {BARE_REASON}"
    return None


def _pattern_refusal(node: Node) -> str | None:
    first = PATTERNS.get(node.names[-1].lower() if node.names else node.kind)
    if first is None:
        return None
    below = (each for argument in node.below[first:] for each in argument.everything())
    return PATTERN_REASON if any(each.kind in _OF_A_NAME for each in below) else None


def _clock_refusal(cast: Node) -> str | None:
    made = cast.below[0] if cast.below else cast
    if made.type != "string" or any(n.kind in _OF_THE_RECORD for n in made.everything()):
        return None
    if made.kind == "Literal" and _DATED_TEXT.match(str(made.value or "")):
        return None
    return (
        f"must not make a time of a constant text that does not begin with a digit: {BARE_REASON}"
    )


def _foreign(names: Sequence[str]) -> str:
    return f"must read `{SOURCE}` and nothing else, not {'.'.join(_parts(names))}"


def _parts(names: Sequence[str]) -> Iterator[str]:
    return (shown(name) for name in names)
