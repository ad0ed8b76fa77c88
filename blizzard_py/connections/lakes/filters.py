"""The user's ``filter`` on lakes: SQL conditions on single columns, over Arrow arrays. Pure.

``a = 1``, ``<> != < <= > >=``, ``IS [NOT] NULL``, ``[NOT] IN (…)``, ``[NOT] BETWEEN x AND y``,
``[NOT] LIKE 'x%'``, joined by ``AND``, ``OR``, ``NOT`` and parentheses. Literals are numbers,
``'text'`` (also for times and dates), ``TRUE``, ``FALSE``, ``DATE '…'`` and ``TIMESTAMP '…'``.
Names may be in double quotes. As in SQL, a comparison with null is neither true nor false, and only
true rows are kept. Anything else is refused at planning: the pipeline's transform can do more.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import SourceError

Columns: TypeAlias = Mapping[str, pa.Array]
# A condition over a batch: true, false or null for each row.
Condition: TypeAlias = Callable[[Columns], pa.Array]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|'(?P<text>(?:[^']|'')*)'"""
    r"""|"(?P<quoted>[^"]+)"|(?P<word>[^\W\d]\w*(?:\.\w+)*)|(?P<sign><>|!=|<=|>=|[=<>(),]))"""
)
_COMPARED = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_KEYWORDS = {"and", "or", "not", "is", "null", "in", "between", "like", "true", "false"}
_LITERALS: Mapping[str, Callable[[str], Any]] = {
    "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
}


@dataclass(frozen=True, slots=True)
class Need:
    """A condition that every kept row meets: ``column <sign> value``, the signs ``= < <= > >=``."""

    column: str
    sign: str
    value: Any


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed condition, its columns, and the conditions that every kept row meets."""

    columns: tuple[str, ...]
    condition: Condition
    needs: tuple[Need, ...] = ()

    def keeps(self, columns: Columns) -> pa.Array:
        """Return for each row whether it is kept; never null.

        Raises `SourceError` if the types cannot be compared.
        """
        try:
            return pc.fill_null(self.condition(columns), False)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
            kinds = ", ".join(f"{name} is {columns[name].type}" for name in self.columns)
            raise SourceError(
                f"the filter does not fit these column types ({kinds}); write literals of the"
                " columns' types, such as DATE '2026-01-28'"
            ) from error


_Parsed: TypeAlias = tuple[Condition, tuple[Need, ...]]


def parse(text: str) -> Filter | None:
    """Return the filter; None for an empty one. Raises `SourceError` if it is not understood."""
    if not text.strip():
        return None
    parser = _Parser(list(_tokens(text)), text)
    condition, needs = parser.either()
    if parser.peek() != ("end", ""):
        raise parser.error()
    return Filter(tuple(dict.fromkeys(parser.columns)), condition, needs)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None or found.lastgroup is None:
            raise _refused(text, text[place:].strip()[:20])
        yield found.lastgroup, found[found.lastgroup]
        place = found.end()
    yield "end", ""


def _refused(text: str, at: str) -> SourceError:
    return SourceError(
        f"filter: {text!r} is not understood at {at!r}; lakes take comparisons, IN, BETWEEN, LIKE"
        " and IS NULL on columns, joined by AND, OR and NOT; a transform can do more"
    )


class _Parser:
    """A recursive-descent parser over the tokens."""

    def __init__(self, tokens: list[tuple[str, str]], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._at = 0
        self.columns: list[str] = []

    def peek(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def error(self) -> SourceError:
        return _refused(self._text, self.peek()[1] or "its end")

    def either(self) -> _Parsed:
        """Parse ``… OR …``."""
        parts = [self._both()]
        while self._takes("or"):
            parts.append(self._both())
        conditions = [condition for condition, _ in parts]
        needs = parts[0][1] if len(parts) == 1 else ()
        return lambda columns: reduce(pc.or_kleene, [one(columns) for one in conditions]), needs

    def _both(self) -> _Parsed:
        parts = [self._maybe_not()]
        while self._takes("and"):
            parts.append(self._maybe_not())
        conditions = [condition for condition, _ in parts]
        needs = tuple(need for _, some in parts for need in some)
        return lambda columns: reduce(pc.and_kleene, [one(columns) for one in conditions]), needs

    def _maybe_not(self) -> _Parsed:
        if self._takes("not"):
            return _negated(self._maybe_not()[0]), ()
        if self._takes("("):
            inner = self.either()
            self._expect(")")
            return inner
        return self._compared()

    def _compared(self) -> _Parsed:
        kind, name = self.peek()
        if kind not in {"word", "quoted"} or (kind == "word" and name.lower() in _KEYWORDS):
            raise self.error()
        self._at += 1
        self.columns.append(name)
        if self._takes("is"):
            negated = self._takes("not")
            self._expect("null")
            return _negated(_null(name)) if negated else _null(name), ()
        negated = self._takes("not")
        if not negated and self.peek()[0] != "word":
            return self._plain(name)
        condition, needs = self._ranged(name)
        return (_negated(condition), ()) if negated else (condition, needs)

    def _plain(self, name: str) -> _Parsed:
        kind, sign = self.peek()
        compare = _COMPARED.get(sign) if kind == "sign" else None
        if compare is None:
            raise self.error()
        self._at += 1
        value = self._literal()
        needs = () if sign in {"<>", "!="} else (Need(name, sign, value),)
        return lambda columns: compare(*_alike(columns[name], value)), needs

    def _ranged(self, name: str) -> _Parsed:
        """Parse what may follow ``NOT``: IN, BETWEEN, LIKE."""
        if self._takes("in"):
            self._expect("(")
            values = [self._literal()]
            while self._takes(","):
                values.append(self._literal())
            self._expect(")")
            return lambda columns: reduce(
                pc.or_kleene, [pc.equal(*_alike(columns[name], value)) for value in values]
            ), ()
        if self._takes("between"):
            low = self._literal()
            self._expect("and")
            high = self._literal()
            return lambda columns: pc.and_kleene(
                pc.greater_equal(*_alike(columns[name], low)),
                pc.less_equal(*_alike(columns[name], high)),
            ), (Need(name, ">=", low), Need(name, "<=", high))
        self._expect("like")
        pattern = self._literal()
        if not isinstance(pattern, str):
            raise self.error()
        return lambda columns: pc.match_like(_alike(columns[name], pattern)[0], pattern), ()

    def _literal(self) -> Any:
        kind, text = self.peek()
        self._at += 1
        if kind == "number":
            return int(text) if re.fullmatch(r"-?\d+", text) else Decimal(text)
        if kind == "text":
            return text.replace("''", "'")
        word = text.lower()
        if kind == "word" and word in {"true", "false"}:
            return word == "true"
        make = _LITERALS.get(word) if kind == "word" else None
        if make is not None and self.peek()[0] == "text":
            try:
                value = make(self.peek()[1])
            except ValueError:
                raise self.error() from None
            self._at += 1
            return value
        self._at -= 1
        raise self.error()

    def _takes(self, wanted: str) -> bool:
        kind, text = self.peek()
        found = kind in {"word", "sign"} and text.lower() == wanted
        self._at += found
        return found

    def _expect(self, wanted: str) -> None:
        if not self._takes(wanted):
            raise self.error()


def _negated(condition: Condition) -> Condition:
    return lambda columns: pc.invert(condition(columns))


def _null(name: str) -> Condition:
    return lambda columns: pc.is_null(columns[name])


def _alike(column: pa.Array, value: Any) -> tuple[pa.Array, pa.Scalar]:
    """Return column and literal in one type. Raises if the column's type is quite another."""
    kind = column.type
    if pa.types.is_null(kind):  # the file lacks the column
        return column.cast(pa.scalar(value).type), pa.scalar(value)
    if pa.types.is_dictionary(kind):
        return _alike(column.cast(kind.value_type), value)
    if pa.types.is_timestamp(kind):
        return column, _moment(value, zone=bool(kind.tz))
    if pa.types.is_date(kind) and isinstance(value, str):
        return column, pa.scalar(dt.date.fromisoformat(value))
    if pa.types.is_floating(kind) and isinstance(value, Decimal | int):
        return column, pa.scalar(float(value))
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if numbers and isinstance(value, str):
        value = Decimal(value) if value.strip() else value  # as in SQL '17' may be a number
    numeric = isinstance(value, Decimal | int) and not isinstance(value, bool)
    if numbers != numeric:
        raise TypeError
    # A decimal holds integers of any length.
    return column, pa.scalar(Decimal(value) if numeric else value)


def _moment(value: Any, *, zone: bool) -> pa.Scalar:
    """Return a literal for a column of times; without a zone it is UTC."""
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if not isinstance(value, dt.date):
        raise TypeError
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    aware = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return pa.scalar(aware if zone else aware.replace(tzinfo=None))
