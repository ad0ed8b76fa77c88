"""A transform that can be judged without Spark: words, numbers and signs in a row. Pure.

What is refused here is refused for its form, on a Spark Connect server only. A driver of ours
judges the trees that Spark's own parser makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from blizzard_py.engines.spark.plan_tree import Node
from blizzard_py.engines.spark.transform_rules import function_refusal, shown
from blizzard_py.engines.spark.transform_sizes import MOST, Oversized, times
from blizzard_py.engines.spark.transform_words import BARE_REASON, PATTERN_REASON, PATTERNS

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
    | (?P<text>'[^'\\\x00-\x1f\x7f-\x9f\u2028\u2029]*')
    | (?P<quoted>`[A-Za-z0-9_ ()%-]+`)
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?:[lsydfLSYDF]|[bB][dD])?(?![A-Za-z0-9_])
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign><=>|<>|<=|>=|!=|==|\|\||::|[-+*/%=<>!(),.\[\]|&^~])
    """,
    re.VERBOSE,
)
_BRACKET_FOLLOWS = frozenset(
    {"all", "and", "as", "between", "by", "case", "else", "except", "from", "in", "is", "like",
     "not", "on", "or", "select", "then", "timestampadd", "timestampdiff", "try_cast", "union",
     "when", "where"}
)  # fmt: skip
_PATTERN_FOLLOWS = frozenset({"ilike", "like", "regexp", "rlike"})
_PADS = frozenset({"lpad", "rpad"})
_MOST_PADDING = 1000
_MOST_TOKENS, _MOST_LEVELS = 4000, 200
# What is as long as its arguments together. Used on each other's results they double.
_GROWING = frozenset(
    {"array", "array_append", "array_insert", "array_join", "array_prepend", "array_union",
     "arrays_zip", "concat", "concat_ws", "format_string", "map", "map_concat", "named_struct",
     "overlay", "printf", "regexp_replace", "replace", "struct", "to_json", "zip_with"}
)  # fmt: skip
# What is the time of the query wherever a text becomes a time.
_CLOCK = frozenset({"now", "today", "tomorrow", "yesterday"})
_REMEDY = "; a Connect server shows no more than text of a statement, so it has to be plain there"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def plain_refusal(statement: str, columns: Sequence[str]) -> str | None:
    """Why the statement is not plain, or calls what it must not; None if Spark may be asked.

    ``columns`` are those of the records: their names stand in the plan as well.
    """
    for name in columns:
        if not name.isprintable():
            return f"must not be used with the column {name!r}{_REMEDY}"
    tokens: list[_Token] = []
    place = 0
    while place < len(statement):
        found = _TOKEN.match(statement, place)
        text = statement[place : place + 2]
        if found is None or text in {"--", "/*", "->"}:
            return f"must not hold {text!r}{_REMEDY}"
        kind = str(found.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, found[kind]))
        place = found.end()
    return _form_refusal(tokens) or _calls_refusal(tokens) or _pattern_refusal(tokens)


def _form_refusal(tokens: Sequence[_Token]) -> str | None:
    level = deepest = 0
    for token in tokens:
        if token.kind == "text" and token.text.strip("' ").lower() in _CLOCK:
            return f"must not hold {token.text}: {BARE_REASON}"
        level += {"(": 1, ")": -1}.get(token.text, 0)
        deepest = max(deepest, level)
        if level < 0:
            return f"must not close what it has not opened{_REMEDY}"
    if deepest > _MOST_LEVELS or len(tokens) > _MOST_TOKENS:
        return f"is too long, or nested too deeply, to be judged{_REMEDY}"
    return None


def _pattern_refusal(tokens: Sequence[_Token]) -> str | None:
    """Why an operator's pattern is none that stands in the statement."""
    for place, token in enumerate(tokens):
        if token.kind != "word" or token.text.lower() not in _PATTERN_FOLLOWS:
            continue
        rest = list(tokens[place + 1 : place + 3])
        if not rest or rest[0].kind != "text" or (len(rest) > 1 and rest[1].text == "||"):
            return PATTERN_REASON
    return None


def _calls_refusal(tokens: Sequence[_Token]) -> str | None:
    much = 2 ** sum(token.text == "||" for token in tokens)
    for place in _calls(tokens):
        name = tokens[place].text.strip("`").lower()
        if place and tokens[place - 1].text == ".":
            return f"must not call {shown(name)}() with a place before its name{_REMEDY}"
        arguments = list(_arguments(tokens, place + 2))
        if refusal := function_refusal(name, len(arguments)):
            return refusal
        patterns = arguments[PATTERNS.get(name, len(arguments)) :]
        if any(pattern.kind != "Literal" for pattern in patterns):
            return PATTERN_REASON
        try:
            much *= _growth(name, arguments)
        except Oversized as error:
            return str(error)
    if much > MOST:
        return f"might make more than {MOST:,} elements or characters of one value{_REMEDY}"
    return None


def _calls(tokens: Sequence[_Token]) -> Iterator[int]:
    """Where the names of functions are."""
    for place, (token, following) in enumerate(pairwise(tokens)):
        if following.text != "(" or token.kind not in {"word", "quoted"}:
            continue
        if token.kind == "quoted" or token.text.lower() not in _BRACKET_FOLLOWS:
            yield place


def _growth(name: str, arguments: Sequence[Node]) -> int:
    """By how much a call can make what there is larger. Raises `Oversized`."""
    count = times(name, arguments)
    if name in _PADS:
        if count > _MOST_PADDING:
            raise Oversized(f"must not pad to more than {_MOST_PADDING} characters{_REMEDY}")
        return 1
    if name in _GROWING:
        count *= max(1, sum(argument.kind != "Literal" for argument in arguments))
    return count


def _arguments(tokens: Sequence[_Token], place: int) -> Iterator[Node]:
    """What stands between the commas of a call: a literal, or something else."""
    depth, held = 0, list[_Token]()
    for token in tokens[place:]:
        if depth == 0 and token.text in {",", ")"} and token.kind == "sign":
            if held:
                yield _argument(held)
            held = []
            if token.text == ")":
                return
            continue
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        held.append(token)


def _argument(held: Sequence[_Token]) -> Node:
    sign = -1 if held[0].text == "-" else 1
    rest = held[1:] if sign < 0 else held
    if len(rest) == 1 and rest[0].kind == "number":
        return Node("Literal", type="double", value=sign * float(rest[0].text))
    if len(rest) == 1 and rest[0].kind == "text":
        return Node("Literal", type="string", value=rest[0].text[1:-1])
    return Node("Other")
