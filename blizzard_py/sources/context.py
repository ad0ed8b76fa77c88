"""The context of one source: what it reads, where it writes, and the services it uses."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blizzard_core.errors import BlizzardError
from blizzard_core.settings.document import ErrorSettings
from blizzard_core.settings.event_time import Branch, EventTimeSettings, WatchedColumn
from blizzard_core.settings.sources import CommonSource, SourceSettings
from blizzard_core.storage.clock import elapsed
from blizzard_core.storage.protocol import Entry, Storage, StorageOptions
from blizzard_core.watermark.name_range import NameRange
from blizzard_py.job import Engine, FieldSpec, IngestSettings, UnexpectedField
from blizzard_py.sources.directories import partition_of
from blizzard_py.sources.meter import BatchLimits, Meter
from blizzard_py.state.source_state import Identity

if TYPE_CHECKING:  # sources of files need none of the connections, and who looks none of metrics
    from blizzard_core.notifications.inbox import HintInbox
    from blizzard_py.connections.query_spec import QuerySpec
    from blizzard_py.sources.activity import SourceActivity


@dataclass(frozen=True, slots=True)
class Stores:
    """The storages of one source: where files arrive, the table, the dead letters.

    ``archive`` is where cleaned files go, None if they go nowhere.
    """

    source: Storage
    sink: Storage
    dlq: Storage
    archive: Storage | None = None


@dataclass(frozen=True, slots=True)
class SchemaHooks:
    """Functions that decide about a batch's columns; None where columns are fixed.

    ``infer`` gives the columns that are not declared. It is called with the first files to ingest.
    ``evolve`` gives the settings of later jobs, with columns for fields that rows had and no
    column took. ``check_table`` is called before the first batch and raises if the table could
    not take its rows.
    """

    infer: Callable[[Sequence[Entry]], tuple[FieldSpec, ...]] | None = None
    evolve: Callable[[IngestSettings, Sequence[UnexpectedField]], IngestSettings] | None = None
    check_table: Callable[[IngestSettings], None] | None = None


@dataclass(frozen=True, slots=True)
class EventTimeQuery:
    """The query over event time of a pipeline.

    ``branches`` are the parts of its sources. The ``fingerprint`` tells whether a later
    configuration is still the same query.
    """

    settings: EventTimeSettings
    branches: tuple[Branch, ...]
    fingerprint: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Everything that a source and its batches need from outside of the checkpoint.

    Identity and settings: ``pipeline`` and ``source_name`` as configured, the ``source`` and
    ``errors`` blocks, and ``ingest``, which jobs get. ``concurrency`` is the number of parallel
    requests.

    Services: the ``stores``, the ``engine`` that runs jobs, ``meter`` and ``activity`` for live
    progress. ``clock`` gives times for people. Decisions use the store's clock and ``monotonic``
    (`blizzard_core.storage.clock`).

    Depending on the source: ``schema`` has the hooks of columns that are not fixed. ``query_spec``
    describes a query source, and ``event_time`` a query over event time. ``watch`` is a watermark
    that is only reported. ``members`` are the contexts of all sources if one worker has several of
    them (`blizzard_py.state.composite_state`). With ``once`` every poll scans everything, whatever
    the budget. ``hints`` are what notifications say, in the process that ingests.
    """

    pipeline: str
    source_name: str
    source: CommonSource
    errors: ErrorSettings
    ingest: IngestSettings
    stores: Stores
    engine: Engine
    concurrency: int
    clock: Callable[[], float]
    monotonic: Callable[[], float] = elapsed
    meter: Meter = field(default_factory=Meter)
    activity: SourceActivity | None = None
    schema: SchemaHooks = SchemaHooks()
    query_spec: QuerySpec | None = None
    event_time: EventTimeQuery | None = None
    watch: WatchedColumn | None = None
    members: tuple[SourceContext, ...] = ()
    once: bool = False
    hints: HintInbox | None = None

    @property
    def name(self) -> str:
        """``pipeline/source``, for logs and metrics."""
        return f"{self.pipeline}/{self.source_name}"

    @property
    def has_files(self) -> bool:
        """True for a source of files."""
        return self.source.has_files

    @property
    def can_reingest(self) -> bool:
        """True if a request can ingest a file a second time.

        A query over event time has published its windows, and rows of a query are no files.
        """
        return self.has_files and self.event_time is None

    @property
    def files(self) -> SourceSettings:
        """The settings of a source of files. Raises `BlizzardError` for one of another kind."""
        found = self.source.as_files
        if found is None:
            raise BlizzardError(f"{self.name} is no source of files; only files can do this")
        return found

    @property
    def dlq_options(self) -> StorageOptions:
        """The options of the store of dead letters."""
        return self.errors.dlq_options(dict(self.ingest.sink.options))

    @property
    def limits(self) -> BatchLimits:
        """The limits of a batch; a window of a table or an API is published as one batch."""
        files = self.source.as_files
        if files is None:
            return BatchLimits(sys.maxsize, sys.maxsize, math.inf)
        limits = files.advanced.checkpoint
        return BatchLimits(limits.interval_files, limits.max_bytes_per_batch, limits.interval)

    def folder_of(self, path: str) -> str:
        """Return the table's directory for the rows of a file. Raises `PartitionError`."""
        template = self.ingest.layout.partition_template
        files = self.source.as_files
        names = None if files is None else files.partition_filter
        prefix = None if names is None else names.prefix_template
        return partition_of(path, template, prefix) if template else ""

    @property
    def id(self) -> str:
        """``{pipeline}_{source}`` or the source's own ``id``, for files and folders."""
        return self.home_id if self.members else self.letters_id

    @property
    def home_id(self) -> str:
        """The id of the checkpoint with the source's state: its own, or that of several."""
        return f"{self.pipeline}~sources" if len(self.branches) > 1 else self.letters_id

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The parts of a query over event time, one for each source; none without such a query."""
        return () if self.event_time is None else self.event_time.branches

    @property
    def branch(self) -> Branch:
        """The part of the query over event time that is for this source."""
        return next(each for each in self.branches if each.source == self.source_name)

    @property
    def query_fingerprint(self) -> Mapping[str, Any] | None:
        """The fingerprint of the query over event time; None without such a query."""
        return None if self.event_time is None else self.event_time.fingerprint

    @property
    def letters_id(self) -> str:
        """The name of the dead-letter folder. Sources with one checkpoint have a folder each."""
        return self.source.id or f"{self.pipeline}_{self.source_name}"

    @property
    def identity(self) -> Identity:
        """The identity of the source, as the checkpoint keeps it."""
        lake = None if self.query_spec is None else self.query_spec.lake
        files = self.source.as_files
        bounds = None if files is None else files.advanced.range
        names = None if bounds is None else NameRange(bounds.from_ or "", bounds.to or "")
        return Identity(self.pipeline, self.source_name, self.stores.source.uri, lake, names)
