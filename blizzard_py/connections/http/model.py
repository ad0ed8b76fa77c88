"""The part of an API's configuration that its tasks need, as blocks of the settings.

The values travel to Spark executors. Fields that may hold a secret have no ``repr``. `checks`
reports contradictions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blizzard_core.settings.connections import HttpConnectionSettings
from blizzard_core.settings.http_sources import (
    HttpWatermark,
    PagesSettings,
    PushEnd,
    PushParam,
    PushSettings,
    RequestSettings,
)
from blizzard_py.connections.placeholders import Values, in_path, in_text
from blizzard_py.connections.sent_values import FORMAT_TICKS, INCLUSIVE_TICKS


@dataclass(frozen=True, slots=True)
class HttpSource:
    """The configuration of one source: its connection, its request and its watermark.

    ``records`` is the path of the list of records, ``""`` for the answer itself. Without a
    watermark everything is read each time.
    """

    api: HttpConnectionSettings
    request: RequestSettings
    records: str
    pages: PagesSettings
    watermark: HttpWatermark | None = None

    @property
    def column(self) -> str:
        """The watermark's column (an API takes one window); ``""`` without one."""
        return "" if self.watermark is None else self.watermark.columns[0]

    @property
    def push(self) -> PushSettings | None:
        """The parameters that carry a window."""
        return None if self.watermark is None else self.watermark.push


_FINEST = dt.timedelta(microseconds=1)


def tick(sent: PushParam) -> dt.timedelta:
    """Return the smallest distance of two values that the parameter can express."""
    inclusive = sent.inclusive if isinstance(sent, PushEnd) else None
    return max(FORMAT_TICKS.get(sent.format, _FINEST), INCLUSIVE_TICKS.get(inclusive, _FINEST))


def filled(request: RequestSettings, values: Values) -> RequestSettings:
    """Return a unit's request.

    Raises `SourceError` for a value that cannot be put in its place.
    """
    return request.model_copy(
        update={
            "path": in_path(request.path, values),
            "params": in_text(request.params, values),
            "body": in_text(request.body, values),
        }
    )


def packed(request: RequestSettings) -> dict[str, Any]:
    """Return the parts that differ from unit to unit, for a task's spec."""
    return {"path": request.path, "params": dict(request.params), "body": request.body}


def unpacked(request: RequestSettings, spec: Mapping[str, Any]) -> RequestSettings:
    """Return the inverse of `packed`, given the request as configured."""
    return request.model_copy(update=dict(spec))
