"""The settings of the one YAML file that both daemons read.

Every default stands beside its field. `blizzard_core.settings.load` reads the file. This module
checks single settings and blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self, TypeAlias

from pydantic import Discriminator, Field, PrivateAttr, Tag, model_validator

from blizzard_core.limits import DIRECTORIES, EXPANSION
from blizzard_core.settings.base import Name, Options, Seconds, Settings, Uri, to_micros
from blizzard_core.settings.connections import ConnectionSettings
from blizzard_core.settings.event_time import EXAMPLE as EVENT_TIME
from blizzard_core.settings.event_time import (
    Branch,
    EventTimeSettings,
    SourceEventTime,
    WatchedColumn,
)
from blizzard_core.settings.globs import PathColumnType
from blizzard_core.settings.http_sources import HttpSourceSettings
from blizzard_core.settings.keyed import KeyedSettings
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.schema import COLUMNS, FieldSettings, SchemaSettings
from blizzard_core.settings.secret_files import SecretFiles
from blizzard_core.settings.sources import OnBadRecord, SourceSettings
from blizzard_core.settings.tables import SinkSettings, TableSettings

SESSION_ZONE = "spark.sql.session.timeZone"


class SparkSettings(Settings):
    """The Spark session."""

    master: str = "local[*]"
    """`local[N]`, `spark://host:7077`, `k8s://https://host:443` or, for Spark Connect,
    `sc://host:15002`; docs/design/engine.md."""
    conf: dict[str, str] = Field(default_factory=dict, repr=False)
    """Spark's configuration; it overrides Blizzard's."""
    idle_stop: Seconds | None = Field(default=None, gt=0, examples=["15m"])
    """Time without a job after which a daemon ends Spark, for its memory; the next job starts it
    again. Not with `event_time`, which keeps Spark."""

    @property
    def zone(self) -> str:
        """The configured time zone of sessions."""
        return self.conf.get(SESSION_ZONE, "UTC")


class ReplicaAdvanced(Settings):
    """Pace and store of replicas."""

    storage_options: Options = Field(default_factory=dict, repr=False)
    """Credentials of `uri`."""
    lease: Seconds = Field(default=30, ge=5)
    """Time without a renewal after which a replica counts as dead. Each renews three times as
    often."""


class ReplicaSettings(Settings):
    """Several `blizzard run` that share the sources; docs/guides/replicas.md."""

    uri: Uri = Field(examples=["s3://lake/tables/events/_blizzard/replicas"])
    """Folder of their leases, one object for each replica; another folder is another group."""
    advanced: ReplicaAdvanced = Field(default_factory=ReplicaAdvanced)
    """Rarely needed."""


class GlobalAdvanced(Settings):
    """Shutdown, concurrency and polling."""

    shutdown_grace: Seconds = Field(default=25, ge=0)
    """Time for a batch to end after SIGTERM; keep it below the container's grace period."""
    total_concurrency: int = Field(default=8, ge=1, le=256)
    """Concurrent storage requests per source."""
    poll_jitter: Seconds = Field(default=5, ge=0)
    """Random delay of polls, so that sources do not poll together."""


class GlobalSettings(Settings):
    """Limits that all pipelines of a process share."""

    replicas: ReplicaSettings | None = None
    """Share the sources among several Blizzards; default: one Blizzard has them all."""
    advanced: GlobalAdvanced = Field(default_factory=GlobalAdvanced)
    """Rarely needed."""


# Host and port; port 0 is any free one. An IPv6 address stands in brackets.
ADDRESS = (
    r"^(?:[^:\s\[\]]+|\[[0-9A-Fa-f:.]+\]):"
    r"(?:\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$"
)


class MetricsSettings(Settings):
    """HTTP address of the status page, `/metrics`, `/health` and `/ready`."""

    address: str = Field(pattern=ADDRESS, examples=["0.0.0.0:9090"])
    """`host:port`; `[::]:9090` for IPv6 as well."""
    penguin_address: str | None = Field(default=None, pattern=ADDRESS, examples=["0.0.0.0:9091"])
    """Penguin's address if both daemons run on one machine; default: `address`."""


def _kind_of(data: Any) -> str:
    kind = data.get("kind", "files") if isinstance(data, dict) else getattr(data, "kind", "files")
    return str(kind)


QuerySettings: TypeAlias = TableSourceSettings | HttpSourceSettings
# `pipelines`, a pipeline's name, `sources`, a source's name.
SourcePlace: TypeAlias = tuple[str, str, str, str]

# `kind` decides which one it is; the default is `files`.
AnySource: TypeAlias = Annotated[
    Annotated[SourceSettings, Tag("files")]
    | Annotated[TableSourceSettings, Tag("table")]
    | Annotated[HttpSourceSettings, Tag("http")],
    Discriminator(_kind_of),
]


class ErrorAdvanced(Settings):
    """Dead letters, and limits of failing files: docs/reference/limits.md."""

    max_failures: int = Field(default=0, ge=0)
    """Stop the pipeline before this many files are dead-lettered since its start; 0: no limit.
    Deleted files do not count."""
    max_retries: int = Field(default=3, ge=0)
    """Retries after a temporary failure (a timeout, a 5xx)."""
    max_expansion: int = Field(default=EXPANSION, ge=1)
    """Decompressed bytes per stored byte, beyond the first 16 MiB."""
    max_directories_per_file: int = Field(default=DIRECTORIES, ge=1)
    """Table directories that the rows of one file may go to."""
    dlq_path: Uri | None = Field(default=None, examples=["s3://lake/dlq"])
    """Directory of dead letters; default: `_blizzard/dlq` in the table."""
    dlq_storage_options: Options | None = Field(
        default=None, repr=False, examples=[{"AWS_REGION": "us-east-1"}]
    )
    """Credentials of `dlq_path`; default: those of the sink."""

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.dlq_storage_options is not None and self.dlq_path is None:
            raise ValueError(
                "dlq_storage_options needs dlq_path; letters in the table have its own"
            )
        return self


class ErrorSettings(Settings):
    """Handling of bad records and files."""

    on_bad_record: OnBadRecord = "quarantine_record"
    """Dead-letter the record, dead-letter its whole file, or stop the pipeline."""
    max_bad_fraction: float = Field(default=0.1, ge=0, le=1)
    """Dead-letter a whole file with more bad lines than this (blank ones excluded); 1: no limit."""
    advanced: ErrorAdvanced = Field(default_factory=ErrorAdvanced)
    """Rarely needed."""

    def dlq_options(self, sink: Options) -> Options:
        """Return the options of the store of dead letters, beside those of the table's."""
        own = self.advanced.dlq_storage_options
        return sink if own is None else own


class PipelineSettings(Settings):
    """Sources that feed one table."""

    sources: dict[Name, AnySource] = Field(min_length=1, examples=["main", "erp", "crm"])
    """Sources by name, each with its own checkpoint."""
    sink: SinkSettings
    """The table."""
    schema_: SchemaSettings = Field(alias="schema", examples=[{"fields": COLUMNS}])
    """The columns; docs/reference/schema.md."""
    deduplicate_by: list[str] = Field(default_factory=list)
    """Within a batch, keep the first record (by path and line) for each value of these fields;
    records with a null stay."""
    transform: str | None = Field(
        default=None, min_length=1, examples=["SELECT time, upper(user) AS user, added FROM source"]
    )
    """Spark SQL over `source`, after deduplication. Each result row may depend on one record only;
    docs/design/engine.md."""
    event_time: EventTimeSettings | None = Field(default=None, examples=[EVENT_TIME])
    """Windows, deduplication and joins by event time, or only its watermark;
    docs/reference/event-time.md."""
    keyed: KeyedSettings | None = None
    """A second table with the current row of each key; default: none."""
    error_handling: ErrorSettings = Field(default_factory=ErrorSettings)
    """Handling of bad records and files."""

    @property
    def file_sources(self) -> dict[str, SourceSettings]:
        """The sources that read files, by name."""
        return {n: each for n, each in self.sources.items() if each.kind == "files"}

    @property
    def query_sources(self) -> dict[str, QuerySettings]:
        """The sources that read a table or an API, by name."""
        found = self.sources.items()
        return {n: each for n, each in found if each.kind != "files"}

    @property
    def query(self) -> EventTimeSettings | None:
        """The query over event time; None without one, and where only a watermark is reported."""
        given = self.event_time
        return given if given is not None and given.computes else None

    def watch_of(self, source_name: str) -> WatchedColumn | None:
        """Return a source's watermark column where nothing is computed, else None."""
        given = self.event_time
        if given is None or given.computes:
            return None
        own = self._own_event_time(source_name)
        delay = to_micros(own.delay or given.delay)
        return WatchedColumn(own.column or given.column, delay, to_micros(given.advanced.max_ahead))

    def _own_event_time(self, source_name: str) -> SourceEventTime:
        return self.sources[source_name].event_time or SourceEventTime()

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Each source's part of a query over event time, by source name; empty without a query.

        A source's own ``event_time`` replaces the pipeline's column and delay.
        """
        given = self.query
        if given is None:
            return ()
        found = []
        for name in sorted(self.sources):
            own = self._own_event_time(name)
            idle = own.idle_after
            found.append(
                Branch(
                    name,
                    own.column or given.column,
                    to_micros(own.delay or given.delay),
                    None if idle is None else to_micros(idle),
                )
            )
        return tuple(found)

    @property
    def path_types(self) -> dict[str, PathColumnType]:
        """The columns that come from paths, of all sources, with their types."""
        sources = self.file_sources.values()
        return {name: kind for each in sources for name, kind in each.path_columns.items()}

    @property
    def field_types(self) -> dict[str, str]:
        """The declared fields and the columns from paths of all sources, with their types."""
        return {**self.path_types, **{field.name: field.type for field in self.fields}}

    @property
    def input_types(self) -> dict[str, str]:
        """The declared fields of the pipeline by their names in the records, with their types."""
        return {field.input_name: field.type for field in self.schema_.fields}

    def no_field(self, name: str) -> str:
        """Return that no column has the name, and which one is filled from it, if any."""
        columns = (field.name for field in self.fields if field.input_name == name)
        column = next(columns, None)
        remedy = "declare it" if column is None else f"the column from it is {column!r}"
        return f"{name!r} is not a field of the schema; {remedy}"

    def fields_of(self, source_name: str) -> list[FieldSettings]:
        """Return the declared fields of a source: the pipeline's, then its own."""
        own = self.sources[source_name].schema_
        return [*self.schema_.fields, *([] if own is None else own.fields)]

    @property
    def fields(self) -> list[FieldSettings]:
        """The declared fields of all sources; fields that not all have are nullable."""
        found = {field.name: field for field in self.schema_.fields}
        for name in sorted(self.sources):
            for field in self.fields_of(name):
                found.setdefault(field.name, field.model_copy(update={"nullable": True}))
        return [*found.values()]


class Config(Settings):
    """The whole file."""

    connections: dict[Name, ConnectionSettings] = Field(
        default_factory=dict, examples=["shop", "lake", "crm"]
    )
    """Databases, lakes and APIs, by names of your choice."""
    pipelines: dict[Name, PipelineSettings] = Field(default_factory=dict, examples=["events"])
    """Pipelines, by names of your choice."""
    tables: dict[Name, TableSettings] = Field(default_factory=dict, examples=["events"])
    """Tables that Penguin commits to; default: every sink."""
    spark: SparkSettings = Field(default_factory=SparkSettings)
    """The Spark session; docs/design/engine.md."""
    global_: GlobalSettings = Field(default=GlobalSettings(), alias="global")
    """Limits that all pipelines of a process share."""
    metrics: MetricsSettings | None = None
    """Status page, /metrics, /health and /ready; default: off."""
    traces: str | None = Field(
        default=None, pattern=r"^https?://[^\s]+$", examples=["http://otel-collector:4318"]
    )
    """URL of a collector that gets traces of batches by OTLP; default: off."""
    lineage: str | None = Field(
        default=None, min_length=1, examples=["http://marquez:5000", "lineage.ndjson"]
    )
    """URL or file that gets events of OpenLineage; default: off."""
    _secrets: SecretFiles = PrivateAttr(default_factory=SecretFiles)

    def file_sources(self) -> Iterator[tuple[SourcePlace, PipelineSettings, SourceSettings]]:
        """Yield the sources of files, each with its place in the file and its pipeline."""
        for name, pipeline in self.pipelines.items():
            for source_name, source in pipeline.file_sources.items():
                yield ("pipelines", name, "sources", source_name), pipeline, source

    @property
    def secrets(self) -> SecretFiles:
        """The files from which secrets were read."""
        return self._secrets

    def filled_from(self, secrets: SecretFiles) -> Self:
        """Return the configuration, which now knows the files from which secrets were read."""
        self._secrets = secrets
        return self
