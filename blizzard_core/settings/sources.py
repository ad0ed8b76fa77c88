"""The settings of a source: where its files are, which are taken, and what a bad one costs."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from blizzard_core.bounds import DIRECTORIES, EXPANSION, LETTERS
from blizzard_core.settings.base import Name, Options, Settings, Uri
from blizzard_core.settings.durations import DAY, MINUTE, Seconds
from blizzard_core.settings.event_time import SourceEventTime
from blizzard_core.settings.schema import OwnSchema

SourceCompression = Literal["auto", "gzip", "zstd", "none"]
OnBadRecord = Literal["quarantine_record", "quarantine_file", "fail"]
MetadataColumn = Literal["_source_file", "_source_line", "_ingested_at"]


# strftime codes of fixed width whose text sorts in time.
_SORTABLE_CODES = frozenset({"%Y", "%m", "%d", "%j", "%F", "%H", "%%"})


class PartitionFilter(Settings):
    """Which partitions a cold start looks at.

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
        """How many components a partition has."""
        return self.prefix_template.count("/") + 1


class CheckpointSettings(Settings):
    """How much work may lie between two saves; a batch never exceeds any of the three.

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


class CommonSource(Settings):
    """What every source has, whatever it reads."""

    id: Name | None = Field(default=None, examples=["events_main"])
    """Names its state; by default `{pipeline}_{source}`."""
    poll_interval: Seconds = Field(default=MINUTE, gt=0)
    """From one look for what is new to the next."""


class SourceSettings(CommonSource):
    """One directory that NDJSON files arrive in.

    ``id`` names its state instead of ``{pipeline}_{source}``, so that state survives a
    rename. Give it before the rename, with the name that the state has.
    A name of a state with `_backfill_` in it is refused: it means a backfill of another
    source.
    ``partition_depth`` is how many leading folders make a partition; where there is a
    ``partition_filter``, it is the number of components of its template. Files in
    partitions whose name says a time more than ``max_ahead`` ahead of now are left
    alone until then. ``late_files`` is what becomes of files that appear below the
    watermark after the grace period: ``quarantine`` writes each a dead letter, from which
    it can be replayed, ``ingest`` takes it, ``report`` only tells of it. On a local disk
    links to directories below ``source_uri`` are not followed.
    """

    poll_interval: Seconds = Field(default=MINUTE, gt=0)
    """From one look for new files to the next."""
    kind: Literal["files"] = "files"
    """Files that arrive in a directory."""
    source_uri: Uri = Field(validation_alias="source_uri", examples=["${BUCKET:-s3://raw}/events/"])
    """Where the files arrive; `path` is accepted too."""
    use_watermark: bool = True
    """false: keep the set of names done, for names that do not sort."""
    compression: SourceCompression = "auto"
    """Which endings of names are taken; a file's first bytes decide how it is read."""
    partition_filter: PartitionFilter | None = Field(default=None, examples=[{"lookback": 48}])
    """Where a cold start begins, and how deep partitions are."""
    partition_depth: int | None = Field(default=None, ge=0, le=16, examples=[2])
    """By default from the template, else from the first file in a folder."""
    max_tracked_partitions: int = Field(default=64, ge=1)
    """Those with a date, of each key before it; older ones are closed. A poll costs a LIST each."""
    grace_period: Annotated[Seconds, Field(ge=0)] | Literal["auto"] = Field(default=5 * MINUTE)
    """How long a file may appear below one that was seen; auto: as measured."""
    min_age: Seconds = Field(default=0, ge=0)
    """Leave younger files alone."""
    max_ahead: Seconds = Field(default=2 * DAY, ge=0)
    """Leave partitions alone that are named for a later time than this ahead."""
    late_sweep_interval: Seconds = Field(default=DAY, ge=0)
    """From one full listing for later files to the next; 0: never."""
    late_files: Literal["report", "quarantine", "ingest"] = "quarantine"
    """What becomes of files that come after the grace period."""
    order_guard: Literal["warn", "fail", "off"] = "warn"
    """What to do about names that do not sort in time."""
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

    @property
    def replaces(self) -> bool:
        """Whether what is read again replaces what was published, without a command."""
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

    @field_validator("partition_depth")
    @classmethod
    def _depth_is_the_templates(cls, depth: int | None, info: ValidationInfo) -> int | None:
        """A floor that is deeper than what it closes would close only a part of it."""
        known = info.data.get("partition_filter")
        if depth is not None and known is not None and depth != known.depth:
            raise ValueError(
                f"must be {known.depth}, the number of components of"
                " partition_filter.prefix_template; leave it out, or give the template as many"
                " components as a partition has"
            )
        return depth


class ErrorSettings(Settings):
    """What happens to a record and to a file that fails.

    ``on_bad_record``: a line that is not a record of the schema goes to the
    dead-letter queue alone (``quarantine_record``), takes its file along
    (``quarantine_file``) or stops the pipeline before anything of its batch is
    passed over (``fail``). A file of which more than ``max_bad_fraction`` (of the
    lines that are not blank) is bad is quarantined whole: one in ten, because
    that is no slip any more but a wrong file or a wrong schema. 1 sets no limit.

    ``max_retries`` counts further tries after a failure that may pass (a
    time-out, a 5xx); then the file is quarantined. ``max_failures`` stops the
    pipeline before that many files have been quarantined since its start; 0
    sets no limit, and files that were deleted do not count. ``dlq_path`` defaults
    to ``_blizzard/dlq`` in the table.

    What a file may cost is bounded: a file that becomes more than ``max_expansion`` times
    its stored size is quarantined, unless that is still little, and so is one whose rows go to
    more than ``max_directories_per_file`` directories. Of its bad records
    ``max_letters_per_file`` get a letter, and the rest is counted; a file of which more than
    ``max_bad_fraction`` is bad up to there is not read to its end. `docs/limits.md` has
    all bounds.
    """

    on_bad_record: OnBadRecord = "quarantine_record"
    """The line alone, its whole file, or stop the pipeline."""
    max_bad_fraction: float = Field(default=0.1, ge=0, le=1)
    """A file with more bad lines is quarantined whole; 1: no limit."""
    max_failures: int = Field(default=0, ge=0)
    """Stop the pipeline at so many bad files; 0: never."""
    max_retries: int = Field(default=3, ge=0)
    """Further tries for a file that cannot be read."""
    dlq_path: Uri | None = Field(default=None, examples=["s3://lake/dlq"])
    """Where dead letters go; by default `_blizzard/dlq` in the table."""
    max_expansion: int = Field(default=EXPANSION, ge=1)
    """Bytes that a stored byte of a file may become, beyond the first 16 MiB."""
    max_letters_per_file: int = Field(default=LETTERS, ge=1)
    """Bad records of a file that get a letter each."""
    max_directories_per_file: int = Field(default=DIRECTORIES, ge=1)
    """Directories of the table that a file's rows may go to."""
