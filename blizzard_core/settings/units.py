"""The settings of work units: ranges of time and listed values that a source is read by.

What a range or a list of values means is known to `blizzard_py.slices.units`, with which `blizzard`
checks them before anything runs; here is what each may look like.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from blizzard_core.json_text import json_value
from blizzard_core.settings.base import Options, Settings
from blizzard_core.settings.durations import Seconds

MAX_PARTS = 1000


def _as_written(value: Any) -> Any:
    """YAML makes dates and times of text that looks like them."""
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, dt.date) else value


Instant = Annotated[str, BeforeValidator(_as_written)]


class UnitRangeSettings(Settings):
    """The time that is read, from ``from`` up to ``to`` without it.

    A date, a time (with a zone behind it, if it is another), ``P30D`` for thirty days before
    today, ``P0DT2H`` for two hours before this one; for ``to`` also ``-`` for now. Partitions are
    counted from ``from``.
    """

    from_: Instant = Field(default="2019-01-01", alias="from")
    """Where it begins."""
    to: Instant = "-"
    """Where it ends: now."""
    zone: str = Field(default="UTC", min_length=1)
    """Where days and months are counted."""


class UnitPartSettings(Settings):
    """A stretch of the range with a scheme of its own; parts may not overlap."""

    by: str = Field(examples=["monthly"])
    """As `partition`."""
    from_: Instant = Field(alias="from", examples=["2019-01-01"])
    """Where it begins."""
    to: Instant = Field(examples=["-"])
    """Where it ends."""


class UnitsOfTable(Settings):
    """Values that stand in a Delta table, one for each row that passes all ``filters``.

    A filter is a regular expression that has to match the whole value; null matches none. A table
    that cannot be read, or that gives no value, fails the source: it never means that
    there are no units.
    """

    table: str = Field(min_length=1, examples=["../surveys"])
    """Its place, or its path from the table that is written to."""
    fields: list[str] = Field(min_length=1, examples=[["id"]])
    """The columns that a unit's values are in."""
    filters: dict[str, str] = Field(default_factory=dict, examples=[{"status": "OK|Success"}])
    """Column: regular expression."""
    storage_options: Options = Field(default_factory=dict, repr=False)
    """For its store; by default those of the sink."""


class UnitValuesSettings(Settings):
    """What there is a unit of in each partition: listed, or in a table."""

    name: str | None = Field(default=None, min_length=1, examples=["surveyId"])
    """What a listed value is called: `{unit.surveyId}`."""
    list_: str | list[Any] | None = Field(default=None, alias="list", examples=["id1,id2"])
    """Values, text with commas or JSON, or objects that name their fields."""
    from_: UnitsOfTable | None = Field(default=None, alias="from", examples=[{"table": "../s"}])
    """Instead of `list`."""

    @field_validator("list_")
    @classmethod
    def _from_json(cls, given: str | list[Any] | None) -> str | list[Any] | None:
        """Text that is a list in JSON; other text is judged by whoever takes it apart."""
        if not isinstance(given, str) or not given.lstrip().startswith("["):
            return given
        try:
            found = json_value(given)
        except ValueError:
            return given
        return found if isinstance(found, list) else given

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.list_ is None) == (self.from_ is None):
            raise ValueError("give list or from, one of the two")
        objects = isinstance(self.list_, list) and all(isinstance(one, dict) for one in self.list_)
        if self.list_ is not None and not objects and self.name is None:
            raise ValueError("list needs name: what `{unit.NAME}` calls a value")
        if self.from_ is not None and self.name is not None:
            raise ValueError("name goes with list; with from the fields are the names")
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of a unit's values."""
        if self.from_ is not None:
            return tuple(self.from_.fields)
        first = self.list_[0] if isinstance(self.list_, list) and self.list_ else None
        return tuple(map(str, first)) if isinstance(first, dict) else (self.name or "",)


class UnitSettings(Settings):
    """Work units: each partition of ``range`` with each of ``values`` is read by itself.

    Each has a high watermark of its own, is tried again alone, and may be read again: what it
    published before is then replaced, in one commit. docs/units.md tells what is read when.
    """

    range: UnitRangeSettings = UnitRangeSettings()
    """The time that is read."""
    partition: str | list[UnitPartSettings] = "none"
    """none, hourly, daily, weekly, monthly, yearly; or parts, each with its own."""
    partial: bool = True
    """false: the last partition waits until it is whole."""
    inclusive: bool = False
    """The source counts `{to}` in, so the last value before it is said: the day, second or
    microsecond before, as its format can."""
    values: UnitValuesSettings | None = Field(
        default=None, examples=[{"name": "surveyId", "list": "id1,id2"}]
    )
    """What there is a unit of besides time."""
    grace: Seconds = Field(default=0, ge=0, examples=["3d"])
    """So long before its high watermark a unit is read again."""
    cooldown: Seconds = Field(default=0, ge=0)
    """So long behind its high watermark a unit is not read; for downloads of the same files."""
    max_units_per_run: int = Field(default=0, ge=-1, le=5000)
    """In one poll; 0: 500, -1: no limit."""
    min_units: int = Field(default=0, ge=0)
    """Fewer values are a failure."""
    parallel: int = Field(default=4, ge=1, le=256)
    """Units that are read at the same time."""
    pacing: Seconds = Field(default=0, ge=0)
    """How long each of these waits between two units."""
