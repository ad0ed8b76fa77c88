"""Event time: a watermark over a column, and what is computed behind it.

What one key may be is checked here; what it makes of the rest of a configuration is in
`blizzard_core.settings.checks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

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

# What the example configuration shows.
_JOIN = {"left": "main", "right": "erp", "on": ["user"]}


class JoinSettings(Settings):
    """Rows of two sources that belong together: the same ``on``, and times that are near enough.

    A row of ``right`` matches one of ``left`` if its time lies between that one's plus ``lower``
    and that one's plus ``upper``, both included; either may be below nothing (``-5 minutes``).
    Both are required, or rows would be kept for ever. A null in ``on`` matches nothing. Each pair
    is published once, with the batch that brings the later of the two; a row without a match by
    an outer join, once the watermark says that none will come.
    """

    left: str = Field(min_length=1, examples=["main"])
    """The source whose time `lower` and `upper` count from."""
    right: str = Field(min_length=1, examples=["erp"])
    """The other source of the pipeline."""
    type: Annotated[JoinType, BeforeValidator(_spelled_out)] = "inner"
    """Pairs; with rows of one side or both that have no match; or rows of left that have one."""
    on: list[str] = Field(min_length=1, examples=[["user"]])
    """Fields of both sides that have to be equal."""
    lower: Bound = Field(examples=["0 seconds"])
    """So long after that of the left row the right one's time is at least."""
    upper: Bound = Field(examples=["5 minutes"])
    """So long after that of the left row the right one's time is at most."""
    columns: dict[str, str] = Field(
        min_length=1, examples=[{"user": "main.user", "seen": "main.time", "done": "erp.time"}]
    )
    """Column of the table: source and field."""

    @property
    def lower_us(self) -> int:
        """The lower bound in microseconds."""
        return to_signed_micros(self.lower)

    @property
    def upper_us(self) -> int:
        """The upper bound in microseconds."""
        return to_signed_micros(self.upper)

    def split_field_name(self, place: str) -> tuple[str, str] | None:
        """Source and field of ``web.id``; None if it begins with neither source."""
        # Names of sources may have dots, so of two that fit the longer one is meant.
        for source in sorted({self.left, self.right}, key=len, reverse=True):
            field = place.removeprefix(f"{source}.")
            if field not in {place, ""}:
                return source, field
        return None

    def fields(self) -> dict[str, set[str]]:
        """The fields of each source that are compared or published."""
        found = {self.left: set(self.on), self.right: set(self.on)}
        for source, field in self.placed(self.columns.values()):
            found[source].add(field)
        return found

    def placed(self, places: Iterable[str]) -> list[tuple[str, str]]:
        """Source and field of each that has them."""
        return [at for at in map(self.split_field_name, places) if at is not None]


LateRows = Literal["quarantine", "count"]
Emit = Literal["each_batch", "next_batch"]
Mode = Literal["append", "update", "complete"]

# Columns that windows give.
WINDOW_COLUMNS = ("window_start", "window_end")
# The column that says which batch a row came out with.
EMITTED_BATCH = "_emitted_batch"
# What a query adds to its rows for itself begins so.
OURS = "_blizzard_"


class WindowSettings(Settings):
    """Windows of event time; as plain text it is their ``size``.

    With ``size`` alone they lie side by side; a ``slide`` that is shorter makes them overlap.
    ``gap`` makes sessions instead: rows of a group with less than that between them.
    """

    size: Length | None = Field(default=None, examples=["5m"])
    """How long a window is."""
    slide: Length | None = Field(default=None, examples=["1m"])
    """From the beginning of one to that of the next; by default `size`."""
    offset: Duration = "0"
    """How far behind 1970-01-01 00:00 UTC one begins; windows of a day in another zone."""
    gap: Length | None = Field(default=None, examples=["30m"])
    """Instead of `size`: a session ends when its group is silent for that long."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_a_size(cls, data: Any) -> Any:
        return {"size": data} if isinstance(data, str) else data

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
    """A source's own event time, where a pipeline with ``event_time`` has several.

    ``column`` and ``delay`` replace the pipeline's for rows of this source. A source that has
    brought no file for ``idle_after`` holds nobody back: it follows the newest time of the others
    until it brings one again.
    """

    column: str | None = Field(default=None, min_length=1, examples=["seen_at"])
    """The field that says when something happened, if it is another one here."""
    delay: Delay | None = Field(default=None, examples=["5m"])
    """How much later than the source's newest a row of it may come."""
    idle_after: Length | None = Field(default=None, examples=["1h"])
    """So long without a file, and the watermark waits for this source no more."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One source's part of a query over event time; ``idle_us`` is None if it is never idle."""

    source: str
    column: str
    delay_us: int
    idle_us: int | None = None


def times_of_all(branches: Iterable[Branch]) -> str | None:
    """Give the column that has the event time of every source, None if they differ.

    Rows of sources that differ in it are watched by a column of ours, so no field is the time.
    """
    columns = {branch.column for branch in branches}
    return columns.pop() if len(columns) == 1 else None


@dataclass(frozen=True, slots=True)
class WatchedColumn:
    """The watermark of a source where nothing is computed; lengths in microseconds."""

    column: str
    delay_us: int
    max_ahead_us: int


# What the example configuration shows.
EXAMPLE = {
    "window": {"size": "5 minutes"},
    "group_by": ["user"],
    "aggregates": {"n": "count(*)", "added": "sum(added)"},
}


class EventTimeAdvanced(Settings):
    """Running of a query, and handling of rows that it cannot take."""

    policy: Literal["min", "max"] = "min"
    """Which source the watermark follows, of several: the slowest or the fastest."""
    max_ahead: Duration = "1d"
    """Rows later than the batch's beginning by more than that are dead letters."""
    emit: Emit = "each_batch"
    """Whether what a batch has closed comes with it, or cheaper, with the next."""
    late_rows: LateRows = "quarantine"
    """Whether each is a dead letter, or only their number is told."""
    partitions: int = Field(default=2, ge=1, le=1000)
    """Of the state; fixed with the first batch."""
    state_path: str | None = Field(default=None, examples=["/mnt/shared/blizzard"])
    """With `spark://`: a directory that the daemon and all executors share, for state at work."""


class EventTimeSettings(Settings):
    """A watermark over a column, and what is computed behind it: docs/reference/event-time.md.

    The watermark is the newest time seen, less ``delay``. It is what the pipeline believes to
    be over: what lies behind it is published once and forgotten, and a row that comes for it
    later is late. Late rows become dead letters, and so do rows more than ``max_ahead`` later
    than now, each of which would make all others late.

    ``deduplicate`` comes first, then ``window``, ``group_by`` and ``aggregates``. The table then
    has the columns ``window_start``, ``window_end``, those of ``group_by`` and ``aggregates``. Or
    ``join`` puts rows of two sources together.

    Modes ``update`` and ``complete`` publish results that may still change, as new rows: the table
    is only ever added to. Of ``update`` the newest row of each key is the answer, of ``complete``
    all rows of the highest batch; so both need ``_emitted_batch`` in ``sink.metadata_columns``.

    With ``column`` and ``delay`` alone, and ``max_ahead``, nothing is computed and no row held
    back: the watermark and the rows behind it are only told, of each source its own.
    """

    column: str = Field(min_length=1, examples=["time"])
    """The field that says when something happened: a timestamp with `nullable: false`."""
    delay: Delay = Field(examples=["10m"])
    """How much later than the newest a row may come."""
    deduplicate: list[str] = Field(default_factory=list, examples=[["id"]])
    """One row for these fields, as long as the watermark has not passed it."""
    window: WindowSettings | None = Field(default=None, examples=["5m"])
    """A size, or `size`, `slide` and `offset`, or `gap` for sessions."""
    group_by: list[str] = Field(default_factory=list, examples=[["user"]])
    """Fields; each of their values has windows of its own."""
    aggregates: dict[str, str] = Field(
        default_factory=dict, examples=[{"n": "count(*)", "added": "sum(added)"}]
    )
    """Column: Spark SQL over the rows of a window."""
    mode: Mode = "append"
    """Publish a window once it is over, what a batch has changed, or everything each time."""
    join: JoinSettings | None = Field(default=None, examples=[_JOIN])
    """Rows of two sources that belong together; it goes with none of the keys that group rows."""
    advanced: EventTimeAdvanced = EventTimeAdvanced()
    """What few have to set."""

    @property
    def computes(self) -> bool:
        """Return whether there is a query over event time, or the watermark is only told."""
        asked = (self.deduplicate, self.window, self.group_by, self.aggregates, self.join)
        return any(asked)

    def groups_by_time(self, branches: Iterable[Branch]) -> bool:
        """Return whether each group is of one event time, so that the watermark ends it."""
        return self.window is None and times_of_all(branches) in self.group_by
