"""The planning that all databases share. See `blizzard_py.connections.protocol`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.placeholders import Values, in_sql, is_of_one
from blizzard_py.connections.protocol import (
    ReadBound,
    ReadSelection,
    SourceColumn,
    SourceConnection,
    WindowSplit,
    without_values,
)
from blizzard_py.connections.sql.statements import (
    TRUE,
    all_null,
    between,
    check_filter,
    for_people,
    identifier,
    relation,
    select,
    within,
)
from blizzard_py.connections.sql.values import check_fits, endless, number, rows
from blizzard_py.connections.unit_comparisons import check_instants
from blizzard_py.job import FieldSpec
from blizzard_py.reading import BoundKind, ReadTask, Window
from blizzard_py.slices.calendars import lowest_wall
from blizzard_py.slices.windows import last_full_tick

_DIVISIBLE: tuple[Any, ...] = (int, Decimal, datetime, date)


def cuts(low: Any, high: Any, parts: int) -> Sequence[Any]:
    """Return at most ``parts - 1`` ascending values above ``low`` and up to ``high``.

    Fewer if the values are too close together. Raises `SourceError` for values that cannot be
    divided (text).
    """
    if low is None or high is None or parts < 2:
        return ()
    if isinstance(low, float):
        low, high = Decimal(repr(low)), Decimal(repr(high))
    if isinstance(low, Decimal) and not (low.is_finite() and high.is_finite()):
        return ()
    if not isinstance(low, _DIVISIBLE) or type(low) is not type(high):
        raise SourceError("advanced.split.by needs a column of numbers or times")
    width: Any = high - low
    found = [
        low + (width * i // parts if isinstance(low, int) else width * i / parts)
        for i in range(1, parts)
    ]
    return sorted({cut for cut in found if low < cut <= high})


_MAX_TASKS = 64


class _Refused(SourceError):
    """The server refuses the statement of a unit."""


class SqlConnection(SourceConnection):
    """One table or query of one database.

    A dialect defines how it is queried, its columns and how each is selected. Columns are read when
    first needed, and again with each window that has rows. So a poll that finds nothing costs two
    statements, and no task uses columns that have changed.
    """

    dialect: str = ""

    def __init__(self, selection: ReadSelection) -> None:
        # With the placeholders of work units, if any.
        self._template = selection
        self._selection = selection
        self._source = relation(selection)
        check_filter(selection.filter, self.dialect)
        self._known: Sequence[SourceColumn] = ()

    @abstractmethod
    def _ask(self, statement: str) -> pa.Table:
        """Return the complete result of a short query."""

    @abstractmethod
    def _described(self) -> Sequence[SourceColumn]:
        """Return the columns, read again."""

    @abstractmethod
    def _expression(self, column: SourceColumn, field: FieldSpec) -> str:
        """Return the expression that selects the column for the field, without its name."""

    @abstractmethod
    def _now(self) -> datetime:
        """Return the server's time, with a zone."""

    @property
    def default_bound(self) -> BoundKind | None:
        kinds = {column.kind for column in self._watermark_columns()}
        if kinds and kinds <= {"time", "date"}:
            return "clock"
        return "max" if kinds and kinds <= {"number", "text"} else None

    def columns(self) -> Sequence[SourceColumn]:
        self._known = self._described()
        return self._known

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        return self._highest() if kind == "max" else self._clock(settle_secs)

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        inside, found, refused = TRUE, False, None
        try:
            inside, found = self._found(window)
        except SourceError as error:
            refused = error
        if refused is not None:
            # If a column was changed, the window's own error would say less.
            self._check(window)
            raise refused
        if not found:
            return ()
        self._check(window)
        return self._cut(inside, window, split)

    def _found(self, window: Window) -> tuple[str, bool]:
        """Return the window's condition, and whether any row meets it. One statement."""
        inside = within(window, self._selection, self.dialect)
        expressions = [_whether(select(["1"], self._source, inside), "found")]
        columns = self._selection.columns
        if columns and self._selection.nulls == "fail":
            nulls = select(["1"], self._source, all_null(columns, self.dialect), *self._filter())
            expressions.append(_whether(nulls, "nulls"))
        answer = self._one(f"SELECT {', '.join(expressions)}{self._from_nothing}")
        if answer.get("nulls"):
            raise SourceError(f"a row has no value in {' and '.join(columns)} (nulls: fail)")
        return inside, bool(answer["found"])

    def _check(self, window: Window) -> None:
        """Read the columns again. Raises `SourceError` if the window does not fit them."""
        self.columns()
        for column in self._watermark_columns():
            for values in (window.after, window.low, window.up_to):
                check_fits(column, values.get(column.name))

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        """Return a statement for each unit. Columns are read with the first one not refused.

        Refused statements are errors of their units, unless the server refuses all of them.
        """
        self._known = ()
        found = [self._unit_task(values) for values in units]
        refused = [each for each in found if isinstance(each, _Refused)]
        is_known = any(isinstance(each, ReadTask) for each in found)
        if refused and not is_known and not is_of_one(units):
            raise refused[0]
        if is_known:
            texts = (self._template.query, self._template.filter)
            check_instants(texts, units, self._is_instant)
        return found

    def _is_instant(self, name: str) -> bool:
        """Return whether a column of that name has times with a zone."""
        found = [each for each in self._columns_known() if each.name.lower() == name.lower()]
        return len(found) == 1 and found[0].kind == "time" and self._zoned(found[0])

    def _unit_task(self, values: Values) -> ReadTask | SourceError:
        description, before = self._template, (self._selection, self._source)
        try:
            query, condition = (
                in_sql(t, values, self.dialect) for t in (description.query, description.filter)
            )
            check_filter(condition, self.dialect)
        except SourceError as error:
            return error
        self._selection = replace(description, query=query, filter=condition)
        self._source = relation(self._selection)
        try:
            self._columns_known()
            inside = "".join(self._filter()) or TRUE
            return self._named(inside, [TRUE], 0)[0]
        except SourceError as error:
            self._selection, self._source = before
            return _Refused(str(error))

    def key(self) -> Sequence[str]:
        """Return the primary key's columns, in its order; () if unknown."""
        return ()

    def indexed(self, name: str) -> bool:
        """Return whether an index is known to give the order of the column."""
        return self._is_indexed(self._column(name))

    # --- for dialects ---------------------------------------------------------------

    def _is_indexed(self, column: SourceColumn) -> bool:  # noqa: ARG002  # for dialects
        return False

    _from_nothing = ""  # the end of a SELECT without a table (Oracle)

    def _filter(self) -> Sequence[str]:
        return [f"(\n{self._selection.filter}\n)"] if self._selection.filter else []

    def _one(self, statement: str) -> dict[str, Any]:
        """Return the only row of an answer, with names in lower case."""
        (row,) = rows(self._ask(statement))
        return {name.lower(): value for name, value in row.items()}

    def _columns_known(self) -> Sequence[SourceColumn]:
        return self._known or self.columns()

    def _column(self, name: str) -> SourceColumn:
        for column in self._columns_known():
            if column.name == name:
                return column
        there = ", ".join(column.name for column in self._columns_known())
        raise SourceError(f"there is no column {name!r}; there are: {there}")

    def _watermark_columns(self) -> Sequence[SourceColumn]:
        found = [self._column(name) for name in self._selection.columns]
        for column in found:
            if column.kind == "other":
                usable = ", ".join(c.name for c in self._columns_known() if c.kind != "other")
                raise SourceError(
                    f"column {column.name} is {column.type}, which has no order to read by;"
                    f" there are: {usable}"
                )
        return found

    def _list(self) -> Sequence[str]:
        """Return the select list: declared fields or all columns, then the watermark's columns."""
        fields = {field.name: field for field in self._selection.fields}
        names = list(fields) or [column.name for column in self._columns_known()]
        names += [name for name in self._selection.columns if name not in names]
        found = []
        for name in names:
            column = self._column(name)
            expression = self._expression(column, fields.get(name, column.field))
            found.append(f"{expression} AS {identifier(name, self.dialect)}")
        return found

    # --- bounds ---------------------------------------------------------------------

    def _highest(self) -> ReadBound:
        columns = self._watermark_columns()
        expressions = [
            f"{self._only('MAX', column)} AS m{place}" for place, column in enumerate(columns)
        ]
        answer = self._one(f"SELECT {', '.join(expressions)}{self._from_nothing}")
        value = {
            column.name: self._value(column, answer[f"m{place}"])
            for place, column in enumerate(columns)
            if answer[f"m{place}"] is not None
        }
        odd = () if value else self._valueless()
        return ReadBound("max", value, warnings=odd, skipped=odd)

    def _valueless(self) -> tuple[str, ...]:
        """Return why there is no highest value although there are rows."""
        there = _whether(select(["1"], self._source, *self._filter()), "found")
        is_odd = self._one(f"SELECT {there}{self._from_nothing}")["found"]
        return (without_values(self._selection.columns),) if is_odd else ()

    def _only(self, function: str, column: SourceColumn) -> str:
        """Return a subquery for the lowest or highest value alone.

        Servers take one such value from an index without reading rows, but not always two.
        """
        extreme = f"{function}({identifier(column.name, self.dialect)})"
        return f"({select([self._exact(column, extreme)], self._source, *self._filter())})"

    def _value(self, column: SourceColumn, value: Any) -> Any:
        """Return a result of `_exact` in the form of watermarks."""
        if column.kind == "number":
            return number(column, value)
        if column.kind in ("time", "date") and isinstance(value, str):
            raise endless(column, value)
        return value

    def _exact(self, column: SourceColumn, expression: str) -> str:  # noqa: ARG002  # for dialects
        """Return the expression in the column's type, so that no driver loses digits."""
        return expression

    def _clock(self, settle_secs: float) -> ReadBound:
        columns = self._times("clock")
        instant = self._now() - timedelta(seconds=settle_secs)
        return ReadBound("clock", {column.name: self._until(column, instant) for column in columns})

    def _times(self, kind: BoundKind) -> Sequence[SourceColumn]:
        columns = self._watermark_columns()
        for column in columns:
            if column.kind not in ("time", "date"):
                raise SourceError(
                    f"bound: {kind} needs a column of times; {column.name} is {column.type}:"
                    " use bound: max"
                )
        return columns

    def _until(self, column: SourceColumn, instant: datetime) -> Any:
        """Return the last value of the column certainly below ``instant``, in its own type."""
        own = instant.astimezone(UTC) if self._zoned(column) else self._wall(instant)
        return last_full_tick(own - timedelta(microseconds=1), self._tick(column))

    def _wall(self, instant: datetime) -> datetime:
        """Return the wall time before ``instant`` for all writers of times without a zone."""
        return lowest_wall(instant, self._selection.walls)

    def _tick(self, column: SourceColumn) -> str:
        """Return the column's type by the names of `last_full_tick`."""
        return column.type

    def _zoned(self, column: SourceColumn) -> bool:  # noqa: ARG002  # for dialects
        """Return whether the column's times are instants; otherwise they are treated as UTC."""
        return False

    # --- tasks ----------------------------------------------------------------------

    def _cut(self, inside: str, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        count = min(split.tasks or 1, _MAX_TASKS)
        by = split.by or next(iter(self._selection.columns), "")
        if count == 1 or not by:
            return self._named(inside, [TRUE], 0)
        return self._named(inside, self._ranges(inside, window, by, count), 0)

    def _ranges(self, inside: str, window: Window, by: str, count: int) -> Sequence[str]:
        column = self._column(by)
        low, high = window.low.get(by), window.up_to.get(by)
        if low is None or high is None:
            name = identifier(by, self.dialect)
            expressions = [
                f"{self._exact(column, f'{f}({name})')} AS {f.lower()}_" for f in ("MIN", "MAX")
            ]
            answer = self._one(select(expressions, self._source, inside))
            if answer["min_"] is None:
                return [TRUE]
            low, high = (self._value(column, answer[key]) for key in ("min_", "max_"))
        found = cuts(low, high, count)
        return [
            between(by, low, high, self.dialect)
            for low, high in zip([None, *found], [*found, None], strict=True)
        ]

    def _named(self, inside: str, ranges: Sequence[str], size: int) -> Sequence[ReadTask]:
        listed = self._list()
        return [
            ReadTask(
                str(place),
                for_people(listed, self._source, inside, within_range),
                self._spec(listed, inside, within_range),
                size // len(ranges),
            )
            for place, within_range in enumerate(ranges)
        ]

    def _spec(self, listed: Sequence[str], *conditions: str) -> dict[str, Any]:
        return {"statement": select(listed, self._source, *conditions)}


def _whether(statement: str, name: str) -> str:
    return f"CASE WHEN EXISTS ({statement}) THEN 1 ELSE 0 END AS {name}"
