"""The parts of one source, handed to whatever runs or looks at it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blizzard_core.errors import BlizzardError
from blizzard_core.settings.document import ErrorSettings
from blizzard_core.settings.event_time import Branch, EventTimeSettings, WatchedColumn
from blizzard_core.settings.sources import CommonSource, SourceSettings
from blizzard_core.storage.clock import elapsed
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.watermark.name_range import NameRange
from blizzard_py.connections.asking import Asking
from blizzard_py.job import Engine, FieldSpec, IngestSettings, UnexpectedField
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.meter import BatchLimits, Meter
from blizzard_py.state.source_state import Identity


@dataclass(frozen=True, slots=True)
class Stores:
    """The storages of one source: where files arrive, the table, the dead letters."""

    source: Storage
    sink: Storage
    dlq: Storage


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The parts of a source.

    ``infer`` gives the fields for ``ingest`` where they are not all declared; it is
    called with the first files to do. ``evolve`` gives what jobs are told from now on, with columns
    for fields that rows had and no column took. ``check_table`` is called before
    the first batch with what its job is told, and raises what speaks against its rows ever
    coming into the table. ``clock`` is for what people read; what decides
    goes by the store's clock and ``monotonic`` (`blizzard_core.storage.clock`). ``asked`` is what a
    source is asked that has no files. ``event_time`` are the settings of a query that remembers,
    ``branches`` what of it is each source's of the pipeline, and ``query`` its fingerprint;
    ``watch`` is what a watermark is told by where there is no such query.
    ``members`` are the parts of all, where these are of the one worker of several sources
    (`blizzard_py.state.members`).
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
    infer: Callable[[Sequence[Entry]], tuple[FieldSpec, ...]] | None = None
    evolve: Callable[[IngestSettings, Sequence[UnexpectedField]], IngestSettings] | None = None
    check_table: Callable[[IngestSettings], None] | None = None
    asked: Asking | None = None
    event_time: EventTimeSettings | None = None
    branches: tuple[Branch, ...] = ()
    query: Mapping[str, Any] | None = None
    watch: WatchedColumn | None = None
    members: tuple[SourceContext, ...] = ()

    @property
    def name(self) -> str:
        """``pipeline/source``, for logs and metrics."""
        return f"{self.pipeline}/{self.source_name}"

    @property
    def has_files(self) -> bool:
        """Return whether it is a source of files."""
        return isinstance(self.source, SourceSettings)

    @property
    def files(self) -> SourceSettings:
        """The settings of a source of files. Raises `BlizzardError` for one of another kind."""
        if not isinstance(self.source, SourceSettings):
            raise BlizzardError(f"{self.name} is no source of files; this is for such only")
        return self.source

    @property
    def limits(self) -> BatchLimits:
        """Return how much a batch may hold; a window of a table or an API is published whole."""
        if not isinstance(self.source, SourceSettings):
            return BatchLimits(sys.maxsize, sys.maxsize, math.inf)
        limits = self.source.checkpoint
        return BatchLimits(limits.interval_files, limits.max_bytes_per_batch, limits.interval)

    @property
    def id(self) -> str:
        """``{pipeline}_{source}`` or the source's own ``id``, for files and folders."""
        return self.home_id if self.members else self.letters_id

    @property
    def home_id(self) -> str:
        """The id of the checkpoint with the source's state: its own, or that of several."""
        return f"{self.pipeline}~sources" if len(self.branches) > 1 else self.letters_id

    @property
    def branch(self) -> Branch:
        """Return what of a query over event time is this source's."""
        return next(each for each in self.branches if each.source == self.source_name)

    @property
    def letters_id(self) -> str:
        """The folder of the source's dead letters, of several that share a checkpoint its own."""
        return self.source.id or f"{self.pipeline}_{self.source_name}"

    @property
    def identity(self) -> Identity:
        """The identity of the source, as the checkpoint keeps it."""
        lake = None if self.asked is None else self.asked.lake
        bounds = self.source.range if isinstance(self.source, SourceSettings) else None
        names = None if bounds is None else NameRange(bounds.from_ or "", bounds.to or "")
        return Identity(self.pipeline, self.source_name, self.stores.source.uri, lake, names)
