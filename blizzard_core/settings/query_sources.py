"""Settings of query sources: tables of databases and lakes, and APIs.

This module checks each block by itself. `blizzard_core.settings.checks.sources` checks it together
with its connection and pipeline.
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
    """Open transactions and rows without a value."""

    settle: Seconds = Field(default=MINUTE, ge=0)
    """For `clock`: the longest duration of a transaction."""
    nulls: Literal["first", "never", "fail"] = "first"
    """Rows with null in all watermark columns: read with the first window, never, or stop."""


class QueryWatermark(WithBackward):
    """The common part of the watermarks of tables and APIs."""

    columns: list[str] = Field(default_factory=list, examples=[["updated_at"]])
    """Required, except with bound `version`."""
    bound: BoundKind | None = Field(default=None, examples=["settled"])
    """End of a window; default by driver and type."""
    reread: Literal["replace", "new_only"] | None = Field(default=None, examples=["new_only"])
    """For rows that the look-back reads again: replace the published rows, or skip those already
    published."""
    key: list[str] = Field(default_factory=list, examples=[["id"]])
    """Columns that identify a row for `new_only`; default: all."""
    advanced: WatermarkAdvanced = WatermarkAdvanced()
    """Rarely needed."""

    _columns = field_validator("columns", "key")(_checked_columns)


class QuerySource(CommonSource):
    """Common settings of tables and APIs."""

    connection: Name = Field(examples=["shop"])
    """A name from `connections`."""
    units: UnitSettings | None = Field(default=None, examples=[{"partition": "monthly"}])
    """Work units instead of a watermark."""
    snapshot: bool = False
    """true, instead of a watermark: each poll reads everything and replaces the previous result."""
    watermark: QueryWatermark | None = None
    """The way to find new rows."""

    # What only file sources have.
    event_time: ClassVar[None] = None
    schema_: ClassVar[None] = None
    storage_options: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _polls_less(cls, data: Any) -> Any:
        """Poll a source that reads the same again once an hour by default."""
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
        """True if a second reading replaces the rows of the first; then rows have `_unit`."""
        return self.units is not None or self.snapshot or self.marks.reread == "replace"

    has_unit_column = replaces

    @property
    def marks(self) -> QueryWatermark:
        """The watermark; one without columns where there is none."""
        return self.watermark or QueryWatermark()


class SplitSettings(Settings):
    """Parallel tasks of a window."""

    by: str = Field(default="", examples=["id"])
    """Column to split by, best an indexed number; default: chosen by the connection."""
    tasks: int = Field(default=0, ge=0, le=1024, examples=[4])
    """Number of tasks; 0: by size, one unless large."""

    @field_validator("by")
    @classmethod
    def _is_a_column(cls, by: str) -> str:
        return _checked_columns([by])[0] if by else by


class TableWatermark(QueryWatermark):
    """Columns whose values only grow. A row is new if any of them is.

    `bound` fixes the end of a window before it is read: below the oldest open transaction
    (`settled`), `settle` before the server's time (`clock`), a table version (`version`), the
    highest value present (`max`) or read (`rows`). docs/reference/tables.md says what each can
    miss.
    """

    zone: str | None = Field(default=None, examples=["America/Los_Angeles"])
    """Time zone of columns without one; default UTC."""

    @field_validator("zone")
    @classmethod
    def _is_a_zone(cls, zone: str | None) -> str | None:
        if zone is not None and zone not in available_timezones():
            raise ValueError(f"{zone!r} is no time zone; write Europe/Berlin or UTC")
        return zone


class TableSourceSettings(QuerySource):
    """A table or a query of a database or a lake.

    Set `id`: it names the state and the rows permanently.
    """

    model_config = ConfigDict(
        json_schema_extra={"table": "public.orders", "watermark": {"columns": ["updated_at"]}}
    )

    kind: Literal["table"] = Field(examples=["table"])
    """A table or a query."""
    table: str | None = Field(default=None, min_length=1, examples=["public.orders"])
    """Name with schema; for a lake its path."""
    query: str | None = Field(default=None, min_length=1, examples=["SELECT * FROM orders"])
    """One SELECT in the server's SQL, without `;`; instead of `table`."""
    filter: str = Field(default="", examples=["status <> 'draft'"])
    """Condition on the rows, in the server's SQL."""
    watermark: TableWatermark | None = Field(default=None, examples=[{"columns": ["updated_at"]}])
    """The way to find new rows."""
    split: SplitSettings = SplitSettings()
    """Parallel tasks of a window."""

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
    """POST sends parameters in the body."""
    path: str = Field(default="", examples=["/orders"])
    """Below `base_url`."""
    params: dict[str, str | int | float | bool] = Field(
        default_factory=dict, examples=[{"state": "all"}]
    )
    """Sent with each request."""
    headers: Options = Field(default_factory=dict, repr=False, examples=[{"Accept-Language": "en"}])
    """Added to the connection's."""
    body: dict[str, Any] | None = Field(default=None, repr=False, examples=[{"state": "all"}])
    """JSON, for POST."""

    @model_validator(mode="after")
    def _body_is_posted(self) -> Self:
        if self.body is not None and self.method != "POST":
            raise ValueError("body goes with method: POST")
        return self


class PagesAdvanced(Settings):
    """Page numbers and the last page."""

    first: int = Field(default=1, ge=0)
    """For `page`: number of the first page."""
    total: str | None = Field(default=None, examples=["meta.total"])
    """Path to the number of records in the response; fewer records are an error."""
    max: int = Field(default=10_000, ge=1)
    """More pages are an error."""
    end_on: list[Literal["repeat", "empty", "short"]] = Field(default=[], examples=[["empty"]])
    """Further ends: a repeated page, an empty one, or one with fewer than `size` records."""


class PagesSettings(Settings):
    """Paging of an API. Nothing is guessed.

    `offset` and `page` count in `param`. `cursor` sends the value at `next` in `param`. `next_link`
    follows the link at `next`, `link_header` the one in the `Link` header.
    """

    kind: Literal["none", "offset", "page", "cursor", "next_link", "link_header"] = "none"
    """`none`: one response has everything."""
    next: str | None = Field(default=None, examples=["meta.next"])
    """For `cursor` and `next_link`: path in the response."""
    param: str | None = Field(default=None, examples=["cursor"])
    """For `offset`, `page` and `cursor`: the parameter."""
    limit_param: str | None = Field(default=None, examples=["limit"])
    """Parameter for `size`."""
    size: int | None = Field(default=None, ge=1, examples=[500])
    """Records per page."""
    in_: Literal["params", "body"] = Field(default="params", alias="in")
    """The part of the request that carries `param` and `limit_param`."""
    advanced: PagesAdvanced = PagesAdvanced()
    """Rarely needed."""

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
    """A parameter for one end of a window."""

    param: str = Field(min_length=1, examples=["since"])
    """Its name."""
    format: ParamFormat = "iso"
    """Time format; UTC if it has no zone."""


class PushEnd(PushParam):
    """The upper end of a window."""

    inclusive: Literal["1ms", "1s", "1day"] | None = Field(default=None, examples=["1ms"])
    """The API includes the end, so this much less is sent."""


class PushSettings(Settings):
    """The window in the request.

    The API must respect it. Rows outside the window are dropped, except where `to` is missing or
    `from` is coarser.
    """

    from_: PushParam = Field(alias="from", examples=[{"param": "since"}])
    """Lower end; not sent for the first window."""
    to: PushEnd | None = Field(default=None, examples=[{"param": "until"}])
    """Upper end."""
    in_: Literal["params", "body", "headers"] = Field(default="params", alias="in")
    """The part of the request that carries them."""

    @model_validator(mode="after")
    def _two_parameters(self) -> Self:
        if self.to is not None and self.to.param == self.from_.param:
            raise ValueError("from and to must be two parameters")
        return self


class RangeSettings(Settings):
    """Split windows into calendar ranges, one task each."""

    unit: Literal["hour", "day", "week", "month", "year"] = "day"
    """Calendar unit."""
    amount: int = Field(default=1, ge=1)
    """Units per range."""
    start: str = Field(examples=["2023-07-01"])
    """Start of the first window: a date or a time."""

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
    """A time column by which an API is read in windows."""

    push: PushSettings = Field(examples=[{"from": {"param": "since"}}])
    """The parameters that carry the window to the API."""
    split: RangeSettings | None = Field(default=None, examples=[{"start": "2023-07-01"}])
    """Split windows; needs `push.to`."""

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
    """An API."""

    model_config = ConfigDict(
        json_schema_extra={"connection": "crm", "watermark": {"columns": ["time"]}}
    )

    kind: Literal["http"] = Field(examples=["http"])
    """An API."""
    request: RequestSettings = RequestSettings()
    """The request."""
    records: str = Field(examples=["data.items"])
    """Path to the records in the response, with dots; `""` is the root."""
    pages: PagesSettings = PagesSettings()
    """The way to read further pages."""
    watermark: HttpWatermark | None = Field(default=None, examples=[{"columns": ["time"]}])
    """The way to find new rows."""

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
