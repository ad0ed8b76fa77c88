"""Settings of keyed tables: the current row of each key, derived from a table of changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from blizzard_core.settings.base import DAY, MINUTE, Options, Seconds, Settings
from blizzard_core.settings.tables import OptimizeSettings, TableUri, VacuumSettings

_VALUE = r"(?:'(?:[^']|'')*'|-?\d+)"
_CONDITION = re.compile(
    r"(?P<column>[^\W\d]\w*|`[^`]+`)"
    rf"(?:\s*=\s*(?P<one>{_VALUE})|\s+IN\s*\(\s*(?P<many>{_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)"
    r"|\s+IS\s+(?P<negated>NOT\s+)?(?P<null>NULL))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class DeleteCondition:
    """The condition that makes a change a delete: one column, and what it must be.

    ``values`` are those of the kind ``in``; the others have none.
    """

    column: str
    kind: Literal["in", "null", "not_null", "true"]
    values: tuple[str, ...] | tuple[int, ...] = ()


def parse_condition(text: str) -> DeleteCondition:
    """Parse `op = 'd'`, `op IN ('d', 't')`, `x IS NULL`, `x IS NOT NULL` or a boolean column.

    Raises `ValueError`.
    """
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        forms = "op = 'd', op IN ('d', 't'), x IS NULL, x IS NOT NULL, or a boolean column's name"
        raise ValueError(f"must be a condition on one column: {forms}")
    column = found["column"].strip("`")
    if found["null"]:
        return DeleteCondition(column, "not_null" if found["negated"] else "null")
    values = re.findall(_VALUE, found["one"] or found["many"] or "")
    texts = tuple(each[1:-1].replace("''", "'") for each in values if each.startswith("'"))
    numbers = tuple(int(each) for each in values if not each.startswith("'"))
    if texts and numbers:
        raise ValueError("compares one column with text and with numbers")
    return DeleteCondition(column, "in" if values else "true", texts or numbers)


class KeyedAdvanced(Settings):
    """Maintenance, columns and store of the keyed table."""

    optimize: OptimizeSettings | None = Field(default_factory=OptimizeSettings)
    """Compaction of small files, hourly by default, since each merge adds some; null: off."""
    vacuum: VacuumSettings | None = Field(default=None, examples=[{"retention": "7d"}])
    """Deletion of unused files; default: off."""
    keep_changes: Seconds | None = Field(default=None, ge=DAY, examples=["90d"])
    """Merged files of the sink's table leave it when they are so old; default: all stay."""
    leave_out: list[str] = Field(default_factory=list, examples=[["op"]])
    """Columns that the keyed table lacks."""
    storage_options: Options | None = Field(
        default=None, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """Options of the store; default: those of the sink."""


class KeyedSettings(Settings):
    """A second Delta table with the current row of each key; docs/guides/current-row.md.

    Penguin derives it from the table of the sink, which has all versions.
    """

    table_uri: TableUri = Field(examples=["${BUCKET:-s3://lake}/tables/users"])
    """The directory of the keyed table."""
    keys: list[str] = Field(min_length=1, max_length=8, examples=[["user"]])
    """The columns that identify a row."""
    sequence_by: list[str] = Field(default_factory=list, max_length=8, examples=[["time"]])
    """Of two rows of a key the one with the higher values stays, compared from left to right.
    Default for one table or API: the watermark's columns, `_ingested_at`; else required."""
    deletes: str | None = Field(default=None, examples=["op = 'd'"])
    """Changes that remove their key: `op = 'd'`, `op IN ('d', 't')`, `x IS NULL`, `x IS NOT NULL`,
    or a boolean column."""
    every: Seconds = Field(default=5 * MINUTE, gt=0)
    """Least time between two merges; longer after one that rewrote much of the table."""
    advanced: KeyedAdvanced = Field(default_factory=KeyedAdvanced)
    """Rarely needed."""

    @field_validator("deletes")
    @classmethod
    def _is_a_condition(cls, deletes: str | None) -> str | None:
        if deletes is not None:
            parse_condition(deletes)
        return deletes

    @model_validator(mode="after")
    def _columns_are_used_once(self) -> Self:
        left_out = self.advanced.leave_out
        lists = {"keys": self.keys, "sequence_by": self.sequence_by, "advanced.leave_out": left_out}
        for key, names in lists.items():
            if len({*names}) < len(names):
                raise ValueError(f"{key} names a column twice")
        if needed := sorted({*self.keys, *self.sequence_by} & {*left_out}):
            raise ValueError(f"advanced.leave_out names {needed[0]!r}, which the keyed table needs")
        return self

    @property
    def condition(self) -> DeleteCondition | None:
        """The parsed condition of ``deletes``."""
        return None if self.deletes is None else parse_condition(self.deletes)
