"""Single values from an answer, in the form of `blizzard_py.slices.notation`."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.protocol import ColumnKind, SourceColumn
from blizzard_py.connections.sql.batches import pieces

_FITS: dict[ColumnKind, tuple[type, ...]] = {
    "time": (datetime, date, str),
    "date": (date, str),
    "number": (int, float, Decimal),
    "text": (str,),
    "other": (),
}


def rows(answer: pa.Table) -> list[dict[str, Any]]:
    """Return the answer's rows; values that are text in a task's batches are text here too."""
    found: list[dict[str, Any]] = []
    for batch in answer.to_batches():
        for piece in pieces(batch):
            found += piece.to_pylist()
    return found


def number(column: SourceColumn, value: Any) -> Any:
    """Return a number, exact if it came as text. Raises `SourceError` for NaN and infinity."""
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except InvalidOperation:
            raise endless(column, "what is no number") from None
    if not isinstance(value, int) and not Decimal(value).is_finite():
        raise endless(column, "NaN or infinity")
    return value


def endless(column: SourceColumn, what: str) -> SourceError:
    """Return the error for a highest value with nothing above it."""
    return SourceError(
        f"column {column.name} ({column.type}) holds {what}, above which nothing can be read;"
        " leave such rows out with a filter"
    )


def without_index(column: SourceColumn, cost: str) -> str:
    """Return the warning for a column whose order no index gives; ``cost`` is by EXPLAIN."""
    return (
        f"no index gives the order of {column.name}: each window reads the whole table"
        f" (EXPLAIN: {cost}); create an index on it"
    )


def without_zone(column: SourceColumn, kind: str) -> str:
    """Return the warning for times without a zone, of writers in an unknown one."""
    return (
        f"{column.name} is a {kind}, which has no zone, and its values are treated as UTC: rows of"
        " writers in zones west of UTC would be missed; set watermark.advanced.zone to their zone"
    )


def check_fits(column: SourceColumn, value: Any) -> None:
    """Raise `SourceError` if a stored value has another type than the column has now."""
    if value is None or (isinstance(value, _FITS[column.kind]) and not isinstance(value, bool)):
        return
    raise SourceError(
        f"column {column.name} is {column.type} now, and the stored watermark is"
        f" {_named(value)}: its type was changed. Set the watermark again with"
        f" `blizzard checkpoint set --column {column.name}=…`, or change the column back"
    )


def _named(value: Any) -> str:
    return {"datetime": "a time", "date": "a date", "str": "text"}.get(
        type(value).__name__, "a number"
    )
