"""What a transform can make of one record, as far as its own numbers decide. Pure.

``repeat('x', 1000000000)`` is one value of a gigabyte, and Spark dies of it. So numbers that say
how large something becomes are constants with a bound, and where they multiply (one inside the
other, in a query upon a query, by several lists beside each other) so does what is counted
here. What a record brings along itself is bounded by the record.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from blizzard_py.engines.spark.plan_tree import Node

# Characters or elements that one value becomes, and rows that one record becomes.
MOST = 1_000_000
_MOST_DIGITS = 1000

# Which argument says how much, by the names of functions and of what they are when analysed.
_SIZES: dict[str, tuple[str, int, int]] = {
    **dict.fromkeys(("repeat", "StringRepeat"), ("repeat", 1, MOST)),
    **dict.fromkeys(("space", "StringSpace"), ("space", 0, MOST)),
    **dict.fromkeys(("lpad", "StringLPad"), ("lpad", 1, MOST)),
    **dict.fromkeys(("rpad", "StringRPad"), ("rpad", 1, MOST)),
    "BinaryPad": ("lpad", 1, MOST),
    **dict.fromkeys(("array_repeat", "ArrayRepeat"), ("array_repeat", 1, MOST)),
    **dict.fromkeys(("array_insert", "ArrayInsert"), ("array_insert", 1, MOST)),
    **dict.fromkeys(("stack", "Stack"), ("stack", 0, MOST)),
    **dict.fromkeys(("format_number", "FormatNumber"), ("format_number", 1, _MOST_DIGITS)),
    **dict.fromkeys(("round", "Round"), ("round", 1, _MOST_DIGITS)),
    **dict.fromkeys(("bround", "BRound"), ("bround", 1, _MOST_DIGITS)),
    **dict.fromkeys(("ceil", "ceiling", "RoundCeil"), ("ceil", 1, _MOST_DIGITS)),
    **dict.fromkeys(("floor", "RoundFloor"), ("floor", 1, _MOST_DIGITS)),
}
_DIGITS_ONLY = frozenset({"round", "bround", "ceil", "floor"})
_SEQUENCE = frozenset({"sequence", "Sequence"})
_FORMAT = frozenset({"format_string", "printf", "FormatString"})
_WIDE = re.compile(r"\d{4}")
# The size of the result is that of one argument times that of another.
_PRODUCTS = frozenset(
    {"array_join", "concat_ws", "replace", "regexp_replace", "str_to_map",
     "ArrayJoin", "ConcatWs", "StringReplace", "RegExpReplace", "StringToMap",
     "ArrayTransform", "ZipWith", "MapZipWith", "TransformKeys", "TransformValues"}
)  # fmt: skip
_OF_ONE_SIZE = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date",
     "time", "timestamp", "timestamp_ntz", "interval", "void"}
)  # fmt: skip
_OF_THE_RECORD = frozenset({"UnresolvedAttribute", "UnresolvedStar", "AttributeReference"})
_GENERATORS = frozenset({"Explode", "PosExplode", "Inline", "Stack", "GeneratorOuter", "JsonTuple"})


class Oversized(Exception):
    """Its text is the reason."""


def size_refusal(query: Node) -> str | None:
    """Why the query could make too much of one record; None if it could not."""
    try:
        _Sizes().of_plan(query)
    except Oversized as refused:
        return str(refused)
    return None


class _Sizes:
    def __init__(self) -> None:
        # Of common table expressions, which come before what refers to them.
        self._defined = (1, 1)

    def of_plan(self, plan: Node) -> tuple[int, int]:
        """The largest value and the number of rows that it makes of one record."""
        below = [self.of_plan(node) for node in plan.below if node.is_plan]
        if plan.kind == "CTERelationRef":
            below = [self._defined]
        largest = max((each[0] for each in below), default=1)
        counts = [each[1] for each in below]
        rows = sum(counts) if plan.kind == "Union" else max(counts, default=1)
        made = [(node, _size(node, largest)) for node in plan.below if not node.is_plan]
        for node, size in made:
            if node.kind in _GENERATORS or (plan.kind == "Generate" and node is made[0][0]):
                rows *= size
        if rows > MOST:
            raise Oversized(f"must not make more than {MOST:,} rows of one record")
        found = max([largest, *(size for _, size in made)]), rows
        if plan.kind == "CTERelationDef":
            self._defined = max(self._defined[0], found[0]), max(self._defined[1], found[1])
        return found


def _size(node: Node, largest: int) -> int:
    """How large a value becomes, in values of the record; ``largest`` is that of its columns."""
    name = node.names[-1].lower() if node.names else node.kind
    arguments = [child for child in node.below if not child.is_plan]
    sizes = [_size(child, largest) for child in arguments]
    _require_no_growing_lambda(node, name)
    if not sizes:
        size = largest if node.kind in _OF_THE_RECORD else 1
    elif name in _PRODUCTS or any(child.kind == "LambdaFunction" for child in arguments):
        size = max(sum(sizes), math.prod(sizes))
    else:
        size = sum(sizes)
    size *= times(name, arguments)
    if node.type in _OF_ONE_SIZE or node.type.startswith("interval"):
        return 1
    if size > MOST:
        raise Oversized(
            f"must not make values of more than {MOST:,} elements or characters by its own"
            " numbers; what grows is multiplied where it is used to grow something else"
        )
    return size


def times(name: str, arguments: Sequence[Node]) -> int:
    """By how much a function makes its arguments longer. Raises `Oversized`."""
    if name in _FORMAT and arguments:
        form = _constant(arguments[0])
        if not isinstance(form, str) or _WIDE.search(form):
            raise Oversized("must give format_string() a constant format with widths below 1000")
        return 1
    if name in _SEQUENCE and len(arguments) > 1:
        return _elements(arguments)
    if name not in _SIZES:
        return 1
    function, place, most = _SIZES[name]
    if place >= len(arguments):
        return 1
    given = _constant(arguments[place])
    if function == "format_number" and isinstance(given, str) and _number(given) is None:
        return 1  # a pattern, which is as long as it is
    number = _number(given)
    if number is None or abs(number) > most:
        raise Oversized(
            f"must give {function}() a constant of at most {most:,} for how much it makes;"
            " a number of the record could make a value that no machine holds"
        )
    return 1 if function in _DIGITS_ONLY else max(1, abs(math.ceil(number)))


def _elements(arguments: Sequence[Node]) -> int:
    first, last = (_number(_constant(argument)) for argument in arguments[:2])
    if first is None or last is None:
        raise Oversized(
            "must give sequence() constants, whole numbers or dates; where the record says"
            " how many, filter: … LATERAL VIEW explode(sequence(0, 365)) AS n WHERE n <= …"
        )
    # Dates are counted in days, and a step between them is one of days at least.
    dates = any(node.type == "date" for argument in arguments[:2] for node in argument.everything())
    step = None if dates or len(arguments) < 3 else _number(_constant(arguments[2]))
    count = int(abs(last - first) // abs(step or 1)) + 1
    if count > MOST:
        raise Oversized(f"must not make a sequence() of more than {MOST:,} elements")
    return count


def _require_no_growing_lambda(node: Node, name: str) -> None:
    if not any(child.kind == "LambdaFunction" for child in node.below):
        return
    if node.names and not any(n.kind in _OF_THE_RECORD for n in node.everything()):
        raise Oversized("must not use a lambda on nothing but constants")
    if name == "ArrayAggregate" and node.below[1].type not in _OF_ONE_SIZE:
        raise Oversized(
            "must not collect anything but a number, a boolean or a time with aggregate();"
            " what it collects could double at every element"
        )


def _constant(node: Node) -> object:
    """What a literal is, and nothing of all else. Looks through what the analysis adds."""
    if node.kind == "Cast" and node.below:
        return _constant(node.below[0])
    if node.kind == "UnaryMinus":
        number = _number(_constant(node.below[0]))
        return None if number is None else -number
    return node.value if node.kind == "Literal" else None


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None
