"""Settings of query sources: the common part of tables and APIs, and tables.

This module checks each block by itself. `blizzard_core.settings.checks.sources` checks it together
with its connection and pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self
from zoneinfo import available_timezones

from pydantic import (
    ConfigDict,
    Field,
    TypeAdapter,
    field_validator,
    model_validator,
)

from blizzard_core.settings.base import MINUTE, Name, Seconds, Settings
from blizzard_core.settings.connections import BoundKind, ConnectionSettings, WithBackward
from blizzard_core.settings.formats import FormatSettings, ParquetOptions
from blizzard_core.settings.schema import FieldSettings
from blizzard_core.settings.sources import CommonSource
from blizzard_core.settings.units import UnitSettings

# How often a source is polled that reads the same again.
REREAD = "1h"

_FORMATS: TypeAdapter[FormatSettings] = TypeAdapter(FormatSettings)

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
    """For rows that the look-back reads again: replace the published ones, or skip them."""
    key: list[str] = Field(default_factory=list, examples=[["id"]])
    """Columns that identify a row for `new_only`; default: all."""
    advanced: WatermarkAdvanced = Field(default_factory=WatermarkAdvanced)
    """Rarely needed."""

    _columns = field_validator("columns", "key")(_checked_columns)


class QuerySource(CommonSource):
    """Common settings of tables and APIs."""

    connection: Name = Field(examples=["shop"])
    """A name from `connections`."""
    units: UnitSettings | None = Field(default=None, examples=[{"partition": "monthly"}])
    """Work units instead of a watermark."""
    snapshot: bool = False
    """true: each poll reads everything and replaces the previous result."""
    watermark: QueryWatermark | None = None
    """The way to find new rows."""

    # Only file sources have these.
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
        return {"poll_interval": REREAD, **data} if again else data

    @model_validator(mode="after")
    def _one_way_to_read(self) -> Self:
        ways = {"watermark": self.watermark, "units": self.units, "snapshot: true": self.snapshot}
        given = [name for name, way in ways.items() if way]
        if len(given) != 1:
            names = " and ".join(given) or "none of them"
            raise ValueError(
                "a way to find new rows is required: give one of watermark, units and snapshot:"
                f" true ({names} is given)"
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

    @property
    def is_by_units(self) -> bool:
        """True if it is read in work units."""
        return self.units is not None

    def look_back(self, connection: ConnectionSettings) -> dict[str, int]:
        """Return the look-back in force: the source's, else the connection's; empty: none."""
        if self.watermark is None:
            return {}
        chosen = self.marks.backward
        return (connection.backward if chosen is None else chosen) or {}

    def column_problems(self, _fields: Sequence[FieldSettings]) -> Iterator[str]:
        """Yield why the watermark column does not fit this kind of source."""
        yield from ()

    def connection_problems(self, _connection: ConnectionSettings) -> Iterator[tuple[str, str]]:
        """Yield what the connection cannot do, each with its key, as in ``split.by``."""
        yield from ()


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


class TableWatermarkAdvanced(WatermarkAdvanced):
    """Open transactions, rows without a value, and times without a zone."""

    zone: str | None = Field(default=None, examples=["America/Los_Angeles"])
    """Time zone of columns without one; default UTC."""

    @field_validator("zone")
    @classmethod
    def _is_a_zone(cls, zone: str | None) -> str | None:
        if zone is not None and zone not in available_timezones():
            raise ValueError(f"{zone!r} is no time zone; write Europe/Berlin or UTC")
        return zone


class TableWatermark(QueryWatermark):
    """Columns whose values only grow. A row is new if any of them is.

    `bound` fixes the end of a window before it is read: below the oldest open transaction
    (`settled`), `settle` before the server's time (`clock`), a table version (`version`), the
    highest value present (`max`) or read (`rows`). docs/reference/tables.md says what each can
    miss.
    """

    advanced: TableWatermarkAdvanced = Field(default_factory=TableWatermarkAdvanced)
    """Rarely needed."""


class TableSourceAdvanced(Settings):
    """Tasks of a window."""

    split: SplitSettings = Field(default_factory=SplitSettings)
    """Parallel tasks of a window."""


class TableSourceSettings(QuerySource):
    """A table or a query of a database or a lake. Set `id`: it names state and rows for good."""

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
    format: FormatSettings | None = Field(default=None, examples=["csv"])
    """Format of the files in a folder, with options; default: by the driver."""
    watermark: TableWatermark | None = Field(default=None, examples=[{"columns": ["updated_at"]}])
    """The way to find new rows."""
    advanced: TableSourceAdvanced = Field(default_factory=TableSourceAdvanced)
    """Rarely needed."""

    @property
    def uri(self) -> str:
        """The connection's name and the table's. It holds no address, since a server may move."""
        return f"{self.connection}:{self.table or 'query'}"

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise ValueError("give table or query, one of the two")
        if self.units is not None and self.advanced != TableSourceAdvanced():
            raise ValueError("advanced.split cuts windows, and units are read whole; leave it out")
        return self

    def connection_problems(self, connection: ConnectionSettings) -> Iterator[tuple[str, str]]:
        """Yield a query that it cannot run, and tasks that it cannot split by itself."""
        if self.query is not None and not connection.has_queries:
            yield "query", "a lake has no queries; give table, and filter"
        split = self.advanced.split
        if split.tasks > 1 and not split.by and connection.needs_split_column:
            yield "advanced.split.by", "is required where tasks is above 1"
        yield from self._format_problems(connection)

    def _format_problems(self, connection: ConnectionSettings) -> Iterator[tuple[str, str]]:
        known, driver = connection.formats, connection.driver
        if self.format is not None and self.format.type not in known:
            yield (
                "format",
                f"connection {self.connection!r} of driver {driver} has no files of the format"
                f" {self.format.type}; use {' or '.join(known)}"
                if known
                else f"is for files of a folder, not for driver {driver}; leave it out",
            )
            return
        if self.format is None and driver == "xml":
            yield "format", "is required with driver xml: give its type and row_tag"
        if isinstance(self.format, ParquetOptions) and self.format.row_groups == "copy":
            yield (
                "format.row_groups",
                "copy is for sources of kind files, since a table's rows are chosen by value",
            )

    def files_of(self, connection: ConnectionSettings) -> FormatSettings | None:
        """Return the format of the files, if the connection reads files of a folder."""
        if not connection.formats:
            return None
        return self.format or _FORMATS.validate_python({"type": connection.formats[0]})
