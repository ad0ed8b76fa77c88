"""Sources of files, and work units.

What a range or a list of values means is known to `blizzard_py.slices.units`, with which
`blizzard` checks them before anything runs; here is what each may look like.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from blizzard_core.json_text import json_value
from blizzard_core.settings.base import DAY, MINUTE, Name, Options, Seconds, Settings, Uri
from blizzard_core.settings.event_time import SourceEventTime
from blizzard_core.settings.schema import OwnSchema
from blizzard_core.storage.protocol import order_key

SourceCompression = Literal["auto", "gzip", "zstd", "none"]
OnBadRecord = Literal["quarantine_record", "quarantine_file", "fail"]
MetadataColumn = Literal["_source_file", "_source_line", "_ingested_at"]

# strftime codes of fixed width whose text sorts in time.
_SORTABLE_CODES = frozenset({"%Y", "%m", "%d", "%j", "%F", "%H", "%%"})


class PartitionFilter(Settings):
    """Partitions that a cold start looks at.

    ``prefix_template`` is a strftime template such as ``date=%Y-%m-%d/hour=%H``;
    ``lookback`` counts back from now in the template's finest unit: hours, days,
    months or years. Without ``lookback`` everything is read. The floor moves
    with time, but never over a file that was found and is not done.
    """

    prefix_template: str = Field(examples=["date=%Y-%m-%d/hour=%H"])
    """A strftime template of fixed width, as the folders are named."""
    lookback: int | None = Field(default=None, ge=0, examples=[48])
    """How far back, in the finest unit of the template; without it: everything."""

    @model_validator(mode="after")
    def _sorts_in_time(self) -> Self:
        codes = re.findall(r"%-?[A-Za-z%]", self.prefix_template)
        odd = [code for code in codes if code not in _SORTABLE_CODES]
        if odd:
            known = " ".join(sorted(_SORTABLE_CODES))
            raise ValueError(f"prefix_template has {odd[0]}, which does not sort; use {known}")
        if not {"%Y", "%F"} & set(codes):
            raise ValueError("prefix_template must contain the year (%Y or %F)")
        if "" in self.prefix_template.split("/"):
            raise ValueError("prefix_template must not begin or end with / or have two in a row")
        return self

    @property
    def depth(self) -> int:
        """Return how many components a partition has."""
        return self.prefix_template.count("/") + 1


class CheckpointSettings(Settings):
    """Limits of a batch, between two saves; it never exceeds any of the three.

    ``interval`` bounds a batch by the throughput of the one before it; not of the first one
    of a process, for which Spark is started.
    """

    interval_files: int = Field(default=100, ge=1)
    """Files in a batch."""
    interval: Seconds = Field(default=MINUTE, gt=0)
    """How long a batch may take, by the throughput of the one before it."""
    max_bytes_per_batch: int = Field(default=1 << 30, ge=1)
    """Stored bytes of a batch's files."""


class FileUnits(Settings):
    """Each file is a unit that may come again under its name, and then replaces what it had.

    For servers that offer the same files again and again, and now and then a corrected one. A
    file is taken again if its size or modification time is another one than when it was taken;
    within ``cooldown`` of that it is left alone, however often it is put there. The journal
    tells when that was, and keeps thirty days. Needs ``use_watermark: false``, since names of such
    files do not sort, and ``_source_file`` among the sink's ``metadata_columns``, by which rows
    are found.
    """

    cooldown: Seconds = Field(default=0, ge=0, examples=["7d"])
    """How long a file is left alone after it was taken; 28d at most, as journals are kept."""

    @field_validator("cooldown")
    @classmethod
    def _within_the_journal(cls, cooldown: float) -> float:
        if cooldown > 28 * DAY:
            raise ValueError("must be at most 28d: the journal, which tells when, keeps 30")
        return cooldown


def _as_written(value: Any) -> Any:
    """YAML makes dates and times of text that looks like them."""
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, dt.date) else value


AsWritten = Annotated[str, BeforeValidator(_as_written)]


class SourceRangeSettings(Settings):
    """The names below the source's path that it reads, and no others.

    Both ends are included. Each is a partition or a file, and stands for all names that begin
    with it. One of the two may be left out. They stay as they were at the first start.
    """

    from_: AsWritten | None = Field(default=None, alias="from", examples=["date=2023-01-01"])
    """Where it begins; without it: at the first name."""
    to: AsWritten | None = Field(default=None, examples=["date=2023-12-31"])
    """Where it ends; without it: nowhere."""

    @field_validator("from_", "to")
    @classmethod
    def _is_below_the_path(cls, end: str | None) -> str | None:
        if end is None:
            return None
        name = end.strip("/")
        odd = "://" in end or not {".", ".."}.isdisjoint(name.split("/"))
        if odd or any("\ud800" <= character <= "\udfff" for character in name):
            raise ValueError("is a name below the source's path, without what comes before it")
        return name

    @model_validator(mode="after")
    def _has_names(self) -> Self:
        first, last = self.from_ or "", self.to or ""
        if not (first or last):
            raise ValueError("give from, to or both; leave range out to read everything")
        # An end stands for all that begins with it.
        if last and order_key(first) > order_key(last) and not first.startswith(last):
            raise ValueError(f"from {first!r} sorts above to {last!r}; exchange them")
        return self


class CommonSource(Settings):
    """Settings that every source has, whatever it reads."""

    id: Name | None = Field(default=None, examples=["events_main"])
    """Names its state; by default `{pipeline}_{source}`."""
    poll_interval: Seconds = Field(default=MINUTE, gt=0)
    """From one look for what is new to the next."""


class SourceAdvanced(Settings):
    """Listing of directories, and handling of odd names."""

    compression: SourceCompression = "auto"
    """Which endings of names are taken; a file's first bytes decide how it is read."""
    partition_depth: int | None = Field(default=None, ge=0, le=16, examples=[2])
    """Leading folders that make a partition; by default as in the template, or the first file."""
    max_tracked_partitions: int = Field(default=64, ge=1)
    """Those with a date, of each key before it; older ones are closed. A poll costs a LIST each."""
    min_age: Seconds = Field(default=0, ge=0)
    """Leave younger files alone."""
    max_ahead: Seconds = Field(default=2 * DAY, ge=0)
    """Leave partitions alone that are named for a later time than this ahead."""
    late_sweep_interval: Seconds = Field(default=DAY, ge=0)
    """From one full listing for later files to the next; 0: never."""
    order_guard: Literal["warn", "fail", "off"] = "warn"
    """What to do about names that do not sort in time."""


class SourceSettings(CommonSource):
    """One directory that NDJSON files arrive in.

    ``id`` names its state instead of ``{pipeline}_{source}``, so that state survives a
    rename. Give it before the rename, with the name that the state has.
    ``late_files`` is what becomes of files that appear below the
    watermark after the grace period: ``quarantine`` writes each a dead letter, from which
    it can be replayed, ``ingest`` takes it, ``report`` only tells of it. On a local disk
    links to directories below ``source_uri`` are not followed.
    """

    kind: Literal["files"] = "files"
    """Files that arrive in a directory."""
    source_uri: Uri = Field(validation_alias="source_uri", examples=["${BUCKET:-s3://raw}/events/"])
    """Where the files arrive; `path` is accepted too."""
    use_watermark: bool = True
    """false: keep the set of names done, for names that do not sort."""
    partition_filter: PartitionFilter | None = Field(default=None, examples=[{"lookback": 48}])
    """Where a cold start begins, and how deep partitions are."""
    range: SourceRangeSettings | None = Field(
        default=None, examples=[{"from": "date=2023-01-01", "to": "date=2023-12-31"}]
    )
    """The names that it reads, beside a source that does not read these; without it: all."""
    grace_period: Annotated[Seconds, Field(ge=0)] | Literal["auto"] = Field(default=5 * MINUTE)
    """How long a file may appear below one that was seen; auto: as measured."""
    late_files: Literal["report", "quarantine", "ingest"] = "quarantine"
    """What becomes of files that come after the grace period."""
    units: FileUnits | None = Field(default=None, examples=[{"cooldown": "7d"}])
    """Files that are put there again under their names take the place of what they had."""
    event_time: SourceEventTime | None = Field(default=None, examples=[{"delay": "5 minutes"}])
    """Of a pipeline with `event_time`: what is this source's own."""
    schema_: OwnSchema | None = Field(
        default=None,
        alias="schema",
        examples=[{"fields": [{"name": "amount", "type": "decimal(10,2)"}]}],
    )
    """Of several sources of a query over `event_time`: fields that only this one has."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    """No batch exceeds any of these."""
    storage_options: Options = Field(
        default_factory=dict, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """For the store; what is not given comes from its standard credential chain."""
    advanced: SourceAdvanced = SourceAdvanced()
    """What few have to set."""

    has_unit_column: ClassVar[bool] = False

    @property
    def uri(self) -> str:
        """The directory that the files arrive in."""
        return self.source_uri

    @property
    def replaces(self) -> bool:
        """Return whether what is read again replaces what was published, without a command."""
        return self.units is not None

    @model_validator(mode="before")
    @classmethod
    def _path_is_an_alias(cls, data: Any) -> Any:
        if isinstance(data, dict) and "path" in data:
            if "source_uri" in data:
                raise ValueError("give source_uri or path, not both")
            data = {**data, "source_uri": data["path"]}
            del data["path"]
        return data

    @model_validator(mode="after")
    def _units_have_no_order(self) -> Self:
        if self.units is not None and self.use_watermark:
            raise ValueError(
                "units needs use_watermark: false: below a watermark nobody looks whether a file"
                " has changed"
            )
        return self

    @model_validator(mode="after")
    def _begins_once(self) -> Self:
        known = self.partition_filter
        if self.range is not None and known is not None and known.lookback is not None:
            raise ValueError(
                "range and partition_filter.lookback both say where a cold start begins; leave one"
                " of them out"
            )
        return self

    @model_validator(mode="after")
    def _depth_is_the_templates(self) -> Self:
        """A floor that is deeper than what it closes would close only a part of it."""
        depth, known = self.advanced.partition_depth, self.partition_filter
        if depth is not None and known is not None and depth != known.depth:
            raise ValueError(
                f"advanced.partition_depth must be {known.depth}, the number of components of"
                " partition_filter.prefix_template; leave it out, or give the template as many"
                " components as a partition has"
            )
        return self


MAX_PARTS = 1000


class UnitRangeSettings(Settings):
    """The time that is read, from ``from`` up to ``to`` without it.

    A date, a time (with a zone behind it, if it is another), ``P30D`` for thirty days before
    today, ``P0DT2H`` for two hours before this one; for ``to`` also ``-`` for now. Partitions are
    counted from ``from``.
    """

    from_: AsWritten = Field(default="2019-01-01", alias="from")
    """Where it begins."""
    to: AsWritten = "-"
    """Where it ends: now."""
    zone: str = Field(default="UTC", min_length=1)
    """Where days and months are counted."""


class UnitPartSettings(Settings):
    """A stretch of the range with a scheme of its own; parts may not overlap."""

    by: str = Field(examples=["monthly"])
    """As `partition`."""
    from_: AsWritten = Field(alias="from", examples=["2019-01-01"])
    """Where it begins."""
    to: AsWritten = Field(examples=["-"])
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
    """Values with a unit each in every partition: listed, or in a table."""

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


class UnitAdvanced(Settings):
    """Number and pace of units that are read."""

    inclusive: bool = False
    """The source counts `{to}` in, so the last value before it is said: the day, second or
    microsecond before, as its format can."""
    partial: bool = True
    """false: the last partition waits until it is whole."""
    max_units_per_run: int = Field(default=0, ge=-1, le=5000)
    """In one poll; 0: 500, -1: no limit."""
    min_units: int = Field(default=0, ge=0)
    """Fewer values are a failure."""
    parallel: int = Field(default=4, ge=1, le=256)
    """Units that are read at the same time."""
    pacing: Seconds = Field(default=0, ge=0)
    """How long each of these waits between two units."""


class UnitSettings(Settings):
    """Work units: each partition of ``range`` with each of ``values`` is read by itself.

    Each has a high watermark of its own, is tried again alone, and may be read again: what it
    published before is then replaced, in one commit. docs/reference/units.md tells what is read
    when.
    """

    range: UnitRangeSettings = UnitRangeSettings()
    """The time that is read."""
    partition: str | list[UnitPartSettings] = "none"
    """none, hourly, daily, weekly, monthly, yearly; or parts, each with its own."""
    values: UnitValuesSettings | None = Field(
        default=None, examples=[{"name": "surveyId", "list": "id1,id2"}]
    )
    """What there is a unit of besides time."""
    grace: Seconds = Field(default=0, ge=0, examples=["3d"])
    """So long before its high watermark a unit is read again."""
    cooldown: Seconds = Field(default=0, ge=0)
    """So long behind its high watermark a unit is not read; for downloads of the same files."""
    advanced: UnitAdvanced = UnitAdvanced()
    """What few have to set."""
