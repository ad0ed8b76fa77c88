"""Settings of APIs: the request, its pages, and the watermark as parameters."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from blizzard_core.settings.base import Settings, check_kind
from blizzard_core.settings.query_sources import QuerySource, QueryWatermark
from blizzard_core.settings.schema import FieldSettings

ParamFormat = Literal["iso", "date", "datetime", "datetime_ms", "timestamp", "timestamp_ms"]

# The types of a watermark column of an API.
_TIME_TYPES = frozenset({"timestamp", "date"})


class RequestSettings(Settings):
    """The request to an API."""

    path: str = Field(default="", examples=["/orders"])
    """Below `base_url`."""
    params: dict[str, str | int | float | bool] = Field(
        default_factory=dict, repr=False, examples=[{"state": "all"}]
    )
    """Sent with each request."""
    body: dict[str, Any] | None = Field(default=None, repr=False, examples=[{"state": "all"}])
    """JSON, also `{}`, makes the request a POST."""


class PagesAdvanced(Settings):
    """Page numbers and the last page."""

    in_: Literal["params", "body"] = Field(default="params", alias="in")
    """The part of the request that carries `param` and `limit_param`."""
    first: int = Field(default=1, ge=0)
    """For `page`: number of the first page."""
    total: str | None = Field(default=None, examples=["meta.total"])
    """Path to the number of records in the response; fewer records are an error."""
    max: int = Field(default=10_000, ge=1)
    """More pages are an error."""
    end_on: list[Literal["repeat", "empty", "short"]] = Field(default=[], examples=[["empty"]])
    """Further ends: a repeated page, an empty one, or one with fewer than `size` records."""


class PagesSettings(Settings):
    """Paging of an API; docs/reference/apis.md describes each kind. Nothing is guessed."""

    kind: Literal["none", "offset", "page", "cursor", "next_link", "link_header"] = "none"
    """`none`: one response has everything."""
    next: str | None = Field(default=None, min_length=1, examples=["meta.next"])
    """For `cursor` and `next_link`: path in the response."""
    param: str | None = Field(default=None, min_length=1, examples=["cursor"])
    """For `offset`, `page` and `cursor`: the parameter."""
    limit_param: str | None = Field(default=None, examples=["limit"])
    """Parameter for `size`."""
    size: int | None = Field(default=None, ge=1, examples=[500])
    """Records per page."""
    advanced: PagesAdvanced = Field(default_factory=PagesAdvanced)
    """Rarely needed."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        check_kind(self, self.kind, _PAGES, free=("size",))
        if self.limit_param is not None and self.size is None:
            raise ValueError("limit_param needs size")
        end_on = self.advanced.end_on
        if end_on and self.kind == "none":
            raise ValueError("advanced.end_on: not used by kind none; leave it out")
        if "short" in end_on and self.size is None:
            raise ValueError(
                "advanced.end_on: short needs size, the number of records in a full page"
            )
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


class PushAdvanced(Settings):
    """The window's place."""

    in_: Literal["params", "body", "headers"] = Field(default="params", alias="in")
    """The part of the request that carries `from` and `to`."""


class PushSettings(Settings):
    """The window in the request.

    The API must respect it. Rows outside the window are dropped, except where `to` is missing or
    `from` is coarser.
    """

    from_: PushParam = Field(alias="from", examples=[{"param": "since"}])
    """Lower end; not sent for the first window."""
    to: PushEnd | None = Field(default=None, examples=[{"param": "until"}])
    """Upper end."""
    advanced: PushAdvanced = Field(default_factory=PushAdvanced)
    """Rarely needed."""

    @model_validator(mode="after")
    def _two_parameters(self) -> Self:
        if self.to is not None and self.to.param == self.from_.param:
            raise ValueError("from and to must be two parameters")
        return self


class RangeSettings(Settings):
    """Split windows into calendar ranges, one task each. Needs `push.to`."""

    unit: Literal["hour", "day", "week", "month", "year"] = "day"
    """Length of a range."""
    start: str = Field(examples=["2023-07-01"])
    """Start of the first window: a date or a time."""

    @field_validator("start")
    @classmethod
    def _is_a_time(cls, start: str) -> str:
        try:
            dt.datetime.fromisoformat(start)
        except ValueError:
            raise ValueError("is no date or time; write 2023-07-01") from None
        return start

    @property
    def first(self) -> dt.date:
        """The date or the time."""
        moment = dt.datetime.fromisoformat(self.start)
        return moment.date() if len(self.start) == len("2023-07-01") else moment


class HttpWatermark(QueryWatermark):
    """A time column by which an API is read in windows."""

    columns: list[str] = Field(default_factory=list, max_length=1, examples=[["updated_at"]])
    """Required, except with bound `version`."""
    bound: Literal["clock"] | None = Field(default=None, examples=["clock"])
    """End of a window."""
    push: PushSettings = Field(examples=[{"from": {"param": "since"}}])
    """The parameters that carry the window to the API."""
    split: RangeSettings | None = Field(default=None, examples=[{"start": "2023-07-01"}])
    """Split windows; needs `push.to`."""

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
    request: RequestSettings = Field(default_factory=RequestSettings)
    """The request."""
    records: str = Field(examples=["data.items"])
    """Path to the records in the response, with dots; `""` is the root."""
    pages: PagesSettings = Field(default_factory=PagesSettings)
    """The way to read further pages."""
    watermark: HttpWatermark | None = Field(default=None, examples=[{"columns": ["time"]}])
    """The way to find new rows."""

    @property
    def uri(self) -> str:
        """The connection's name and the path of the request."""
        return f"{self.connection}:/{self.request.path.strip('/')}"

    @model_validator(mode="after")
    def _bodies_are_posted(self) -> Self:
        places: dict[str, str] = {"pages": self.pages.advanced.in_}
        if self.watermark is not None:
            places["watermark.push"] = self.watermark.push.advanced.in_
        for key, place in places.items():
            if place == "body" and self.request.body is None:
                raise ValueError(
                    f"{key}.advanced.in: body needs request.body; give {{}} if it has nothing else"
                )
        return self

    def column_problems(self, fields: Sequence[FieldSettings]) -> Iterator[str]:
        """Yield why the watermark column is no time: an API is read in windows of time.

        The parts of a dotted name are names of nested fields.
        """
        if self.watermark is None or not self.watermark.columns:  # another check wants them
            return
        [column] = self.watermark.columns
        kind, inner = "", fields
        for name in column.split("."):
            found = next((field for field in inner if field.input_name == name), None)
            kind, inner = ("", ()) if found is None else (found.type, found.fields or ())
        if kind not in _TIME_TYPES:
            there = f"is {kind}" if kind else "is not a field of the schema"
            yield (
                f"{column!r} {there}, and an API is read in windows of time: name a field of type"
                " timestamp or date (ISO 8601 text is a timestamp, a number since 1970 one with"
                " unit); where records have no time, use units, or snapshot: true"
            )
