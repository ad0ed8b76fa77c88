"""The text of a transform: what it may be, and how it becomes a query of ours. Pure.

A transform is stateless: what a row becomes depends on that row alone, so neither the
way files fall into batches nor a second attempt can change it. Three things are looked
at: the functions that the text calls, the operators of the analysed plan, and what the
plan reads. All of them can be had from any Spark, a Connect server included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

VIEW_PREFIX = "blizzard_source_"

_SKIPPED = re.compile(
    r"""
    --[^\n]*                            # a comment to the end of the line
    | /\*.*?\*/                         # a comment
    | \br'[^']*' | \br"[^"]*"           # text in which a backslash is one
    | '(?:[^'\\]|\\.|'')*'              # text
    | "(?:[^"\\]|\\.|"")*"              # text as well
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
# A name in backquotes; that of a function may stand so, too.
_QUOTED_CALL = re.compile(r"`([^`]*)`(?=\s*\()")
_QUOTED_NAME = re.compile(r"`(?:[^`]|``)*`")
_CALL = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(", re.IGNORECASE)

# These are functions without parentheses, too.
_CLOCK = {
    "current_date",
    "current_time",
    "current_timestamp",
    "localtimestamp",
    "curdate",
    "now",
}
_BARE_CLOCK = re.compile(
    r"\b(current_date|current_time|current_timestamp|localtimestamp)\b", re.IGNORECASE
)
# Without arguments it is the time of the query.
_BARE_UNIX = re.compile(r"\bunix_timestamp\s*\(\s*\)", re.IGNORECASE)
_RANDOM = {
    "rand",
    "randn",
    "random",
    "randstr",
    "uniform",
    "uuid",
    "shuffle",
}
_PLACE = {
    "input_file_name",
    "input_file_block_start",
    "input_file_block_length",
    "monotonically_increasing_id",
    "spark_partition_id",
    "current_user",
    "session_user",
    "user",
    "current_database",
    "current_schema",
    "current_catalog",
    "version",
}
_FOREIGN = {"java_method", "reflect", "try_reflect"}

_CLOCK_REASON = "it depends on when the batch runs; use a column of the record"
_REASONS = {
    **dict.fromkeys(_CLOCK, _CLOCK_REASON),
    **dict.fromkeys(_RANDOM, "it gives another value at every attempt"),
    **dict.fromkeys(_PLACE, "it depends on where or by whom the batch is run"),
    **dict.fromkeys(_FOREIGN, "it calls code that nobody can judge here"),
}

# What keeps a row's result a matter of that row.
_ROW_BY_ROW = {
    "Project",
    "Filter",
    "Generate",
    "SubqueryAlias",
    "View",
    "WithCTE",
    "CTERelationDef",
    "CTERelationRef",
    "Union",
}
_OPERATORS = {
    "Aggregate": "an aggregate (GROUP BY, sum, count, …)",
    "Distinct": "DISTINCT",
    "Window": "a window function",
    "Sort": "ORDER BY or SORT BY",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Join": "a join",
    "Sample": "TABLESAMPLE",
    "Intersect": "INTERSECT",
    "Except": "EXCEPT",
}
_BATCH_REASON = (
    "its result depends on which files are in one batch; what a row becomes may depend"
    " on that row alone"
)
# `deduplicate_by` is the one thing about a batch as a whole.
_REMEDIES = {"Aggregate": "; aggregate in the table", "Distinct": "; use deduplicate_by"}

# `user`, `current_user` and `session_user` without parentheses are this unless columns have
# these names, which only the plan knows.
_USER = "current_user()"
_NODE = re.compile(r"^(?P<indent>[ :]*(?:[+:]- )?)(?P<name>[A-Za-z][A-Za-z0-9]*)")
_SUBQUERY = re.compile(r"\b(?:scalar-subquery|exists|list|lateral-subquery)#\d+ \[")
_UNPLANNED = "Error occurred during query planning:"
_POSITION = re.compile(r"\bline (\d+)")


def wrapped(statement: str, view: str) -> str:
    """The query that gives the statement's rows, with ``source`` being ``view``.

    As a subquery the statement cannot be a command, nor two of them: both are syntax
    errors, before anything could run.
    """
    # The statement is the operator's own, and a query is all that it can be.
    return f"WITH source AS (SELECT * FROM {view}) SELECT * FROM (\n{statement}\n)"  # noqa: S608


def call_refusal(statement: str) -> str | None:
    """Why the functions that the statement calls make it unusable; None if they do not."""
    text = _QUOTED_CALL.sub(r"\1", _SKIPPED.sub(" '' ", statement))
    text = _QUOTED_NAME.sub("x", text)
    for name in _CALL.findall(text):
        if reason := _REASONS.get(name.lower()):
            return f"must not call {name.lower()}(): {reason}"
    if found := _BARE_CLOCK.search(text):
        return f"must not use {found[1].lower()}: {_CLOCK_REASON}"
    if _BARE_UNIX.search(text):
        return f"must not call unix_timestamp() without arguments: {_CLOCK_REASON}"
    return None


def plan_refusal(explained: str) -> str | None:
    """Why the analysed plan makes it unusable; None if it does not.

    ``explained`` is what ``EXPLAIN EXTENDED`` says about the `wrapped` statement.
    """
    if explained.startswith(_UNPLANNED):  # a constant among it that cannot be computed
        return spark_said(explained.removeprefix(_UNPLANNED))
    analysed = explained.partition("== Analyzed Logical Plan ==")[2]
    analysed = analysed.partition("\n== ")[0]
    if _USER in analysed:
        return f"must not use the name of the user: {_REASONS['current_user']}"
    if _SUBQUERY.search(analysed):
        return f"must not hold a subquery beside FROM: {_BATCH_REASON}"
    for name, line in _nodes(analysed):
        if name in _OPERATORS:
            return f"must not use {_OPERATORS[name]}: {_BATCH_REASON}{_REMEDIES.get(name, '')}"
        if name not in _ROW_BY_ROW:
            return f"must read `source` and nothing else, not {_shortened(line)}"
    return None


def spark_said(text: str) -> str:
    """Spark's message about a statement without its trace, lines counted as the user does."""
    message = re.split(r"\n\s*\n|\n== SQL|;\n|\nJVM stacktrace", text.strip())[0]
    message = _POSITION.sub(lambda found: f"line {max(1, int(found[1]) - 1)}", message)
    return " ".join(message.split()).removesuffix(";")


def _nodes(analysed: str) -> Iterator[tuple[str, str]]:
    """The operators of the user's statement: what lies below our view is our own."""
    ours: int | None = None
    # The first line has the columns and no operator.
    for line in analysed.strip().splitlines()[1:]:
        found = _NODE.match(line)
        if found is None:
            continue
        depth = len(found["indent"])
        if ours is not None and depth > ours:
            continue
        ours = None
        if found["name"] == "View" and VIEW_PREFIX in line:
            ours = depth
        yield found["name"], line[depth:]


def _shortened(line: str) -> str:
    return line if len(line) <= 60 else f"{line[:59]}…"
