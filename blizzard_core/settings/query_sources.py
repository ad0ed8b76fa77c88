"""The settings of sources that are asked: tables of databases and lakes, and APIs.

What a single block can get wrong is checked here, what it and its connection or its pipeline
can in `blizzard_core.settings.checks.sources`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self
from zoneinfo import available_timezones

from pydantic import ConfigDict, Field, field_validator, model_validator

from blizzard_core.settings.base import MINUTE, Name, Options, Seconds, Settings, check_kind
from blizzard_core.settings.connections import WithBackward
from blizzard_core.settings.sources import CommonSource, UnitSettings

BoundKind = Literal["settled", "clock", "version", "max", "rows"]
ParamFormat = Literal["iso", "date", "datetime", "datetime_ms", "timestamp", "timestamp_ms"]

# How often a source is polled that reads the same again.
REREAD = "1h"

# Columns are names, or names in names of nested records.
COLUMN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def _checked_columns(names: list[str]) -> list[str]:
    for place, name in enumerate(names):
        if not COLUMN.fullmatch(name):
            raise ValueError(
                f"{name!r} is no column name (letters, digits and _, with dots between names)"
            )
        if name in names[:place]:
            raise ValueError(f"{name!r} is given twice")
    return names


class WatermarkAdvanced(Settings):
    """Time for transactions, and handling of rows without a value."""

    settle: Seconds = Field(default=MINUTE, ge=0)
    """For `clock`: how long a transaction may take."""
    nulls: Literal["first", "never", "fail"] = "first"
    """Rows without a value in any of the columns: with the first window, never, or stop."""


class QueryWatermark(WithBackward):
    """The watermark of tables and APIs, as far as they have it in common."""

    columns: list[str] = Field(default_factory=list, examples=[["updated_at"]])
    """Required but where versions are read."""
    bound: BoundKind | None = Field(default=None, examples=["settled"])
    """By default by driver and type."""
    reread: Literal["replace", "new_only"] | None = Field(default=None, examples=["new_only"])
    """What becomes of rows that a look-back reads again."""
    key: list[str] = Field(default_factory=list, examples=[["id"]])
    """What tells one row from another; by default all columns."""
    advanced: WatermarkAdvanced = WatermarkAdvanced()
    """What few have to set."""

    _columns = field_validator("columns", "key")(_checked_columns)


class QuerySource(CommonSource):
    """Settings that tables and APIs have in common."""

    connection: Name = Field(examples=["shop"])
    """A name of `connections`."""
    units: UnitSettings | None = Field(default=None, examples=[{"partition": "monthly"}])
    """Read work units instead of windows."""
    snapshot: bool = False
    """Instead of a watermark: each poll reads all, and replaces what the one before read."""
    watermark: QueryWatermark | None = None
    """What tells new rows."""

    # What only file sources have.
    event_time: ClassVar[None] = None
    schema_: ClassVar[None] = None
    storage_options: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _polls_less(cls, data: Any) -> Any:
        """What is read again at each poll is read once an hour, where nothing else is said."""
        if not isinstance(data, dict):
            return data
        mark = data.get("watermark")
        again = isinstance(mark, dict) and mark.get("reread") == "replace"
        again = again or data.get("units") or data.get("snapshot") is True
        says = any(str(key).startswith("poll_interval") for key in data)
        return {"poll_interval": REREAD, **data} if again and not says else data

    @model_validator(mode="after")
    def _one_way_to_read(self) -> Self:
        ways = {"watermark": self.watermark, "units": self.units, "snapshot: true": self.snapshot}
        given = [name for name, way in ways.items() if way]
        if len(given) != 1:
            told = " and ".join(given) or "none of them"
            raise ValueError(
                "what tells new rows is required: give watermark, units or snapshot: true, one of"
                f" them ({told} is given)"
            )
        return self

    @property
    def replaces(self) -> bool:
        """Return whether a second reading replaces the first's rows; then rows have `_unit`."""
        return self.units is not None or self.snapshot or self.marks.reread == "replace"

    has_unit_column = replaces

    @property
    def marks(self) -> QueryWatermark:
        """The watermark; one without columns where there is none."""
        return self.watermark or QueryWatermark()


class SplitSettings(Settings):
    """Into how many tasks a window is cut, and by which column."""

    by: str = Field(default="", examples=["id"])
    """A column, best an indexed number; by default the connection chooses."""
    tasks: int = Field(default=0, ge=0, le=1024, examples=[4])
    """0: by size, one unless large."""

    @field_validator("by")
    @classmethod
    def _is_a_column(cls, by: str) -> str:
        return _checked_columns([by])[0] if by else by


class TableWatermark(QueryWatermark):
    """Columns that only grow, by which new rows are told.

    With several columns a row is new if any of them is. ``bound`` is where a window ends,
    fixed before it is read: below the oldest open transaction (``settled``), ``settle``
    before the server's time (``clock``), a version of the table (``version``), the highest
    value there is (``max``) or that was read (``rows``); docs/reference/tables.md says what
    each can miss. With a look-back rows are read again, and ``reread: new_only`` keeps those
    apart by ``key`` that were published before; ``reread: replace`` puts what is read in the
    place of what was published.
    """

    zone: str | None = Field(default=None, examples=["America/Los_Angeles"])
    """Whose wall times the columns hold, where they are times without a zone; by default UTC."""

    @field_validator("zone")
    @classmethod
    def _is_a_zone(cls, zone: str | None) -> str | None:
        if zone is not None and zone not in available_timezones():
            raise ValueError(f"{zone!r} is no time zone; write Europe/Berlin or UTC")
        return zone


class TableSourceSettings(QuerySource):
    """A table, or what a query gives, of a database or a lake.

    ``id`` names its state and its rows for ever, so give one. ``query`` is one SELECT without
    its end, and ``filter`` a condition on its rows; both are the server's own SQL.
    """

    model_config = ConfigDict(
        json_schema_extra={"table": "public.orders", "watermark": {"columns": ["updated_at"]}}
    )

    kind: Literal["table"] = Field(examples=["table"])
    """A table or a query."""
    table: str | None = Field(default=None, min_length=1, examples=["public.orders"])
    """Its name, with its schema; for a lake its path."""
    query: str | None = Field(default=None, min_length=1, examples=["SELECT * FROM orders"])
    """Instead of `table`."""
    filter: str = Field(default="", examples=["status <> 'draft'"])
    """Only rows for which it holds."""
    watermark: TableWatermark | None = Field(default=None, examples=[{"columns": ["updated_at"]}])
    """What tells new rows."""
    split: SplitSettings = SplitSettings()
    """Into how many tasks a window is cut."""

    @property
    def uri(self) -> str:
        """The connection's name and the table's. It holds no address, since a server may move."""
        return f"{self.connection}:{self.table or 'query'}"

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise ValueError("give table or query, one of the two")
        return self


class RequestSettings(Settings):
    """The request to an API."""

    method: Literal["GET", "POST"] = "GET"
    """POST where the parameters are a body."""
    path: str = Field(default="", examples=["/orders"])
    """Below `base_url`."""
    params: dict[str, str | int | float | bool] = Field(
        default_factory=dict, examples=[{"state": "all"}]
    )
    """Sent with each request."""
    headers: Options = Field(default_factory=dict, repr=False, examples=[{"Accept-Language": "en"}])
    """Besides the connection's."""
    body: dict[str, Any] | None = Field(default=None, repr=False, examples=[{"state": "all"}])
    """JSON, for POST."""

    @model_validator(mode="after")
    def _body_is_posted(self) -> Self:
        if self.body is not None and self.method != "POST":
            raise ValueError("body goes with method: POST")
        return self


class PagesAdvanced(Settings):
    """Numbering of pages, and their end."""

    first: int = Field(default=1, ge=0)
    """page: the first one's number."""
    total: str | None = Field(default=None, examples=["meta.total"])
    """Where in the answer the number of records stands; fewer is an error."""
    max: int = Field(default=10_000, ge=1)
    """More pages are an error: it would not end."""
    end_on: list[Literal["repeat", "empty", "short"]] = Field(default=[], examples=[["empty"]])
    """Other ends: a page that came before, one without records, one of fewer than `size`."""


class PagesSettings(Settings):
    """Paging of an API. Nothing of it is guessed.

    ``offset`` and ``page`` count in ``param``; ``cursor`` sends what the answer has at ``next``
    in ``param``; ``next_link`` follows the address there, ``link_header`` the one in the
    header ``Link``.
    """

    kind: Literal["none", "offset", "page", "cursor", "next_link", "link_header"] = "none"
    """none: one answer has all."""
    next: str | None = Field(default=None, examples=["meta.next"])
    """cursor, next_link: where in the answer it stands."""
    param: str | None = Field(default=None, examples=["cursor"])
    """offset, page, cursor: the parameter."""
    limit_param: str | None = Field(default=None, examples=["limit"])
    """The parameter that `size` is sent in."""
    size: int | None = Field(default=None, ge=1, examples=[500])
    """Records in a page."""
    in_: Literal["params", "body"] = Field(default="params", alias="in")
    """Where `param` and `limit_param` are sent."""
    advanced: PagesAdvanced = PagesAdvanced()
    """What few have to set."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        check_kind(self, self.kind, _PAGES, free=("size",))
        if self.limit_param is not None and self.size is None:
            raise ValueError("limit_param needs size")
        end_on = self.advanced.end_on
        if end_on and self.kind == "none":
            raise ValueError("end_on: not used by kind none; leave it out")
        if "short" in end_on and self.size is None:
            raise ValueError("end_on: short needs size, the number of records in a full page")
        return self


_PAGES: dict[str, tuple[str, ...]] = {
    "none": (),
    "offset": ("param", "size"),
    "page": ("param",),
    "cursor": ("next", "param"),
    "next_link": ("next",),
    "link_header": (),
}


class PushParam(Settings):
    """A parameter that one end of a window is sent in."""

    param: str = Field(min_length=1, examples=["since"])
    """Its name."""
    format: ParamFormat = "iso"
    """How a time is written; in UTC where the format has no zone."""


class PushEnd(PushParam):
    """As the lower end's, but for APIs that return what is at the end as well."""

    inclusive: Literal["1ms", "1s", "1day"] | None = Field(default=None, examples=["1ms"])
    """The API counts its end in, so so much less is sent."""


class PushSettings(Settings):
    """The window in the request.

    It has to keep to it: rows outside are dropped only where it cannot be told exactly,
    without ``to`` or with a ``from`` that is coarser.
    """

    from_: PushParam = Field(alias="from", examples=[{"param": "since"}])
    """The lower end; nothing is sent for the first window."""
    to: PushEnd | None = Field(default=None, examples=[{"param": "until"}])
    """The upper end."""
    in_: Literal["params", "body", "headers"] = Field(default="params", alias="in")
    """Where they stand."""

    @model_validator(mode="after")
    def _two_parameters(self) -> Self:
        if self.to is not None and self.to.param == self.from_.param:
            raise ValueError("from and to must be two parameters")
        return self


class RangeSettings(Settings):
    """Windows are asked for in ranges of so long, each a task."""

    unit: Literal["hour", "day", "week", "month", "year"] = "day"
    """Of the calendar."""
    amount: int = Field(default=1, ge=1)
    """How many of them."""
    start: str = Field(examples=["2023-07-01"])
    """Where the first window begins: a date or a time."""

    @field_validator("start", mode="before")
    @classmethod
    def _is_a_time(cls, start: Any) -> Any:
        text = start.isoformat() if isinstance(start, dt.date) else start
        try:
            dt.datetime.fromisoformat(text)
        except (TypeError, ValueError):
            raise ValueError("is no date or time; write 2023-07-01") from None
        return text


class HttpWatermark(QueryWatermark):
    """As a table's; ``push`` tells the API the window, and ``split`` cuts it."""

    push: PushSettings = Field(examples=[{"from": {"param": "since"}}])
    """How the window is said; an API cannot be asked for it otherwise."""
    split: RangeSettings | None = Field(default=None, examples=[{"start": "2023-07-01"}])
    """Needs `push.to`."""

    @field_validator("columns")
    @classmethod
    def _one_column(cls, columns: list[str]) -> list[str]:
        if len(columns) != 1:
            raise ValueError("an API is asked for one window: give one column")
        return columns

    @field_validator("bound")
    @classmethod
    def _bound_is_a_time(cls, bound: str | None) -> str | None:
        if bound not in {None, "clock"}:
            raise ValueError("an API has no other bound than clock")
        return bound

    @model_validator(mode="after")
    def _split_needs_an_end(self) -> Self:
        if self.split is not None and self.push.to is None:
            raise ValueError("split needs push.to: ranges without an end would overlap")
        return self


class HttpSourceSettings(QuerySource):
    """A source that reads an API.

    ``records`` is where in the answer the records stand, ``""`` if it is an array of them.
    """

    model_config = ConfigDict(
        json_schema_extra={"connection": "crm", "watermark": {"columns": ["time"]}}
    )

    kind: Literal["http"] = Field(examples=["http"])
    """An API."""
    request: RequestSettings = RequestSettings()
    """What is asked."""
    records: str = Field(examples=["data.items"])
    """Keys with dots between them; `""` is the root."""
    pages: PagesSettings = PagesSettings()
    """How there is more."""
    watermark: HttpWatermark | None = Field(default=None, examples=[{"columns": ["time"]}])
    """What tells new rows."""

    @property
    def uri(self) -> str:
        """The connection's name and the path of the request."""
        return f"{self.connection}:/{self.request.path.strip('/')}"

    @model_validator(mode="after")
    def _bodies_are_posted(self) -> Self:
        places: dict[str, str] = {"pages": self.pages.in_}
        if self.watermark is not None:
            places["watermark.push"] = self.watermark.push.in_
        for key, place in places.items():
            if place == "body" and self.request.method != "POST":
                raise ValueError(f"{key}.in: body goes with request.method: POST")
        return self
