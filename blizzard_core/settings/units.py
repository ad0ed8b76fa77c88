"""Settings of work units, and of files that are read again.

The meaning of a range or a list of values is in `blizzard_py.slices.units`; `blizzard` checks them
with it before anything runs. This module checks their form.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from blizzard_core.settings.base import DAY, Options, Seconds, Settings
from blizzard_core.text import json_value


class UnitRangeSettings(Settings):
    """The time range that is read, from `from` up to and excluding `to`.

    Values: a date, a time (optionally with a zone), `P30D` (30 days before today), `P0DT2H` (two
    hours before this hour); for `to` also `-` (now). Partitions count from `from`.
    """

    from_: str = Field(default="2019-01-01", alias="from")
    """Start."""
    to: str = "-"
    """End."""
    zone: str = Field(default="UTC", min_length=1)
    """Time zone of days and months."""


class UnitsOfTable(Settings):
    """Values from a Delta table: one unit for each row that passes all filters.

    A table without values, or an unreadable one, fails the source; it never means "no units".
    """

    table: str = Field(min_length=1, examples=["../surveys"])
    """URI, or path relative to the sink's table."""
    fields: list[str] = Field(min_length=1, examples=[["id"]])
    """Columns with a unit's values."""
    filters: dict[str, str] = Field(default_factory=dict, examples=[{"status": "OK|Success"}])
    """Column: regular expression for the whole value; null never matches."""
    storage_options: Options = Field(default_factory=dict, repr=False)
    """Options of its store; default: those of the sink."""


class UnitValuesSettings(Settings):
    """Values that get a unit each in every partition: a list, or a table."""

    name: str | None = Field(default=None, min_length=1, examples=["surveyId"])
    """Name of a listed value: `{unit.surveyId}`."""
    list_: str | list[Any] | None = Field(default=None, alias="list", examples=["id1,id2"])
    """Values: text with commas, JSON, or objects with named fields."""
    from_: UnitsOfTable | None = Field(default=None, alias="from", examples=[{"table": "../s"}])
    """A table instead of `list`."""

    @field_validator("list_")
    @classmethod
    def _from_json(cls, given: str | list[Any] | None) -> str | list[Any] | None:
        """Parse text that is a JSON list; other text is split later."""
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


class UnitAdvanced(Settings):
    """Number and pace of units."""

    inclusive: bool = False
    """true: the source includes `{to}`, so the value before it is sent (a day, second or
    microsecond less, by format)."""
    partial: bool = True
    """false: wait until the last partition is complete."""
    max_units_per_run: int = Field(default=0, ge=-1, le=5000)
    """Units per poll; 0: 500, -1: no limit."""
    min_units: int = Field(default=0, ge=0)
    """Fewer values are an error."""
    parallel: int = Field(default=4, ge=1, le=256)
    """Units read at the same time."""
    pacing: Seconds = Field(default=0, ge=0)
    """Pause of each reader between two units."""


class UnitSettings(Settings):
    """Work units: each partition of `range`, for each of `values`, is read by itself.

    Each unit has its own high watermark and is retried alone. A second reading replaces the unit's
    rows in one commit. docs/reference/units.md says when units are read.
    """

    range: UnitRangeSettings = Field(default_factory=UnitRangeSettings)
    """The time range."""
    partition: str | dict[str, str] = "none"
    """none, hourly, daily, weekly, monthly, yearly; or several, each with its start."""
    values: UnitValuesSettings | None = Field(
        default=None, examples=[{"name": "surveyId", "list": "id1,id2"}]
    )
    """Values besides time that get a unit each."""
    grace: Seconds = Field(default=0, ge=0, examples=["3d"])
    """Re-read a unit from this long before its high watermark."""
    cooldown: Seconds = Field(default=0, ge=0)
    """Do not read a unit within this time after its high watermark."""
    advanced: UnitAdvanced = Field(default_factory=UnitAdvanced)
    """Rarely needed."""


class FileUnits(Settings):
    """Re-read a file if its size or modification time has changed, and replace its rows.

    Requires `use_watermark: false`, since such names do not sort, and `_source_file` in
    `sink.metadata_columns`, which identifies the rows.
    """

    cooldown: Seconds = Field(default=0, ge=0, examples=["7d"])
    """Time after a reading without another; at most 28d, because journals are kept for 30 days."""

    @field_validator("cooldown")
    @classmethod
    def _within_the_journal(cls, cooldown: float) -> float:
        if cooldown > 28 * DAY:
            raise ValueError("must be at most 28d: the journal, which tells when, keeps 30")
        return cooldown
