"""Settings of event time: a watermark over a column, and the query over it.

This module checks single keys. `blizzard_core.settings.checks` checks them with the rest of a
configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from blizzard_core.settings.base import (
    Delay,
    Duration,
    Length,
    Settings,
    check_milliseconds,
    to_micros,
    to_signed_micros,
)

JoinType = Literal["inner", "left_outer", "right_outer", "full_outer", "left_semi"]
# The shorter words that Spark and SQL have for the same.
_SHORT = {
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "outer": "full_outer",
    "semi": "left_semi",
}


def _spelled_out(text: Any) -> Any:
    return _SHORT.get(text, text) if isinstance(text, str) else text


def _bound(text: str) -> str:
    return check_milliseconds(text, to_signed_micros(text))


Bound = Annotated[str, AfterValidator(_bound)]

# Shown in the example configuration.
_JOIN = {"left": "main", "right": "erp", "on": ["user"]}


class JoinSettings(Settings):
    """A join of two sources on equal keys and near times.

    A row of `right` matches a row of `left` if its time is between `left` time + `lower` and `left`
    time + `upper`, both included. Not with keys that group rows: docs/reference/event-time.md.
    """

    left: str = Field(min_length=1, examples=["main"])
    """Source from whose time `lower` and `upper` count."""
    right: str = Field(min_length=1, examples=["erp"])
    """The other source."""
    type: Annotated[JoinType, BeforeValidator(_spelled_out)] = "inner"
    """As in SQL."""
    on: list[str] = Field(min_length=1, examples=[["user"]])
    """Fields of both sides that must be equal."""
    lower: Bound = Field(examples=["0 seconds"])
    """Earliest time of the right row."""
    upper: Bound = Field(examples=["5 minutes"])
    """Latest time of the right row."""
    columns: dict[str, str] = Field(
        min_length=1, examples=[{"user": "main.user", "seen": "main.time", "done": "erp.time"}]
    )
    """Column of the table: `source.field`."""

    @property
    def lower_us(self) -> int:
        """The lower bound in microseconds."""
        return to_signed_micros(self.lower)

    @property
    def upper_us(self) -> int:
        """The upper bound in microseconds."""
        return to_signed_micros(self.upper)

    def split_field_name(self, place: str) -> tuple[str, str] | None:
        """Return source and field of ``web.id``; None if it begins with neither source."""
        # Names of sources may have dots, so of two that fit the longer one is meant.
        for source in sorted({self.left, self.right}, key=len, reverse=True):
            field = place.removeprefix(f"{source}.")
            if field not in {place, ""}:
                return source, field
        return None

    def fields(self) -> dict[str, set[str]]:
        """Return the fields of each source that are compared or published."""
        found = {self.left: set(self.on), self.right: set(self.on)}
        for source, field in self.placed(self.columns.values()):
            found[source].add(field)
        return found

    def placed(self, places: Iterable[str]) -> list[tuple[str, str]]:
        """Return source and field of each name that has both."""
        return [at for at in map(self.split_field_name, places) if at is not None]


LateRows = Literal["quarantine", "count"]
Emit = Literal["each_batch", "next_batch"]
Mode = Literal["append", "update", "complete"]

# Columns that windows give.
WINDOW_COLUMNS = ("window_start", "window_end")
# The column that says which batch a row came out with.
EMITTED_BATCH = "_emitted_batch"
# The prefix of columns that a query adds for its own use.
OURS = "_blizzard_"


class WindowSettings(Settings):
    """Windows of event time. As plain text it is `size` alone."""

    size: Length | None = Field(default=None, examples=["5m"])
    """Length of a window."""
    slide: Length | None = Field(default=None, examples=["1m"])
    """Time between two window starts; shorter than `size`: they overlap. Default: `size`."""
    offset: Duration = "0"
    """Shift of the starts from 1970-01-01 00:00 UTC."""
    gap: Length | None = Field(default=None, examples=["30m"])
    """Sessions: one ends after this long without a row of its group."""

    text_key: ClassVar[str] = "size"

    @model_validator(mode="after")
    def _one_kind(self) -> WindowSettings:
        if (self.size is None) == (self.gap is None):
            raise ValueError("give size, or gap for sessions, one of the two")
        if self.gap is not None and (self.slide is not None or to_micros(self.offset)):
            raise ValueError("gap makes sessions, which have neither slide nor offset")
        if self.size is not None:
            slide = to_micros(self.slide or self.size)
            if slide > to_micros(self.size):
                raise ValueError("slide is longer than size: rows between would be in no window")
            if to_micros(self.offset) >= slide:
                raise ValueError(f"offset must be shorter than {self.slide or self.size}")
        return self


class SourceEventTime(Settings):
    """A source's own values in a pipeline with `event_time`."""

    column: str | None = Field(default=None, min_length=1, examples=["seen_at"])
    """Event-time column of this source."""
    delay: Delay | None = Field(default=None, examples=["5m"])
    """Delay of this source."""
    idle_after: Length | None = Field(default=None, examples=["1h"])
    """After this long without a file, the watermark follows the other sources only."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One source's part of a query over event time; ``idle_us`` is None if it is never idle."""

    source: str
    column: str
    delay_us: int
    idle_us: int | None = None


def times_of_all(branches: Iterable[Branch]) -> str | None:
    """Return the one event-time column of all sources, None if they differ.

    Sources that differ are watched by a column of ours, so no field is the time.
    """
    columns = {branch.column for branch in branches}
    return columns.pop() if len(columns) == 1 else None


@dataclass(frozen=True, slots=True)
class WatchedColumn:
    """The watermark of a source where nothing is computed; durations in microseconds."""

    column: str
    delay_us: int
    max_ahead_us: int


# Shown in the example configuration.
EXAMPLE = {
    "window": {"size": "5 minutes"},
    "group_by": ["user"],
    "aggregates": {"n": "count(*)", "added": "sum(added)"},
}


class EventTimeAdvanced(Settings):
    """Execution of the query, and rows that it cannot use."""

    policy: Literal["min", "max"] = "min"
    """Follow the slowest or the fastest source."""
    max_ahead: Duration = "1d"
    """Dead-letter rows later than the start of the batch by more than this."""
    emit: Emit = "each_batch"
    """Publish closed windows with the batch that closes them or, cheaper, with the next one."""
    late_rows: LateRows = "quarantine"
    """Dead-letter late rows, or only count them."""
    partitions: int = Field(default=2, ge=1, le=1000)
    """Partitions of the state; fixed at the first batch."""
    state_path: str | None = Field(default=None, examples=["/mnt/shared/blizzard"])
    """With `spark://`: a directory for state that the daemon and all executors share."""


class EventTimeSettings(Settings):
    """A watermark over a column, and a query behind it: docs/reference/event-time.md.

    The watermark is the newest time seen minus `delay`; later rows for closed windows are late.

    Order: `deduplicate`, `window`, `group_by`, `aggregates`. `join` combines two sources instead.
    Modes `update` and `complete` need `_emitted_batch` in `sink.metadata_columns`. With `column`,
    `delay` and `max_ahead` alone each source's watermark is reported, and no row is held back.
    """

    column: str = Field(min_length=1, examples=["time"])
    """Event time: a timestamp field with `nullable: false`."""
    delay: Delay = Field(examples=["10m"])
    """The greatest delay of a row behind the newest row."""
    deduplicate: list[str] = Field(default_factory=list, examples=[["id"]])
    """Keep one row for each value of these fields until the watermark passes it."""
    window: WindowSettings | None = Field(default=None, examples=["5m"])
    """A size; or `size`, `slide` and `offset`; or `gap` for sessions."""
    group_by: list[str] = Field(default_factory=list, examples=[["user"]])
    """Fields whose values have windows of their own."""
    aggregates: dict[str, str] = Field(
        default_factory=dict, examples=[{"n": "count(*)", "added": "sum(added)"}]
    )
    """Column: Spark SQL over the rows of a window."""
    mode: Mode = "append"
    """Publish closed windows, changed ones, or all of them each time."""
    join: JoinSettings | None = Field(default=None, examples=[_JOIN])
    """A join of two sources; not with the keys that group rows."""
    advanced: EventTimeAdvanced = Field(default_factory=EventTimeAdvanced)
    """Rarely needed."""

    @property
    def computes(self) -> bool:
        """True if there is a query over event time, not only a reported watermark."""
        operators = (self.deduplicate, self.window, self.group_by, self.aggregates, self.join)
        return any(operators)

    def groups_by_time(self, branches: Iterable[Branch]) -> bool:
        """Return whether each group has one event time, so that the watermark ends it."""
        return self.window is None and times_of_all(branches) in self.group_by
