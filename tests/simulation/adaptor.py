"""Adaptor: builds the product's pipelines from a run's settings, the only place that does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from blizzard_core.notifications.inbox import HintInbox
from blizzard_core.settings.document import ErrorSettings
from blizzard_core.settings.sources import CheckpointSettings, SourceSettings
from blizzard_core.settings.store_use import CleanSettings
from blizzard_core.settings.tables import TableAdvanced, TableSettings
from blizzard_core.settings.time_formats import PartitionFilter
from blizzard_core.storage.clock import StoreClock
from blizzard_py.app import workers
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import Engine, FieldSpec, IngestSettings, OutputLayout, Place, RowSchema
from blizzard_py.sources.context import SourceContext, Stores
from penguin_py.app import probe_store
from penguin_py.pipeline import TablePipeline
from penguin_py.settings import Table
from tests.simulation.deltalog import SimulatedLog
from tests.simulation.plan import TEMPLATES, Settings, source_uri
from tests.simulation.scheduler import Executor
from tests.simulation.store import Client
from tests.simulation.world import DLQ, SINK
from tests.support.flat_settings import settings_of

PIPELINE = "events"
# What a source is called whose state was taken to another name.
CARRIED = "u"
NOTIFICATIONS = {"uri": "webhook:", "token": "sesame-sesame-sesame", "advanced": {"pause": "5s"}}
MIRROR = "_penguin/events_checkpoint.json"


class Clocks(Protocol):
    """Clocks of a process."""

    def clock(self) -> float: ...
    def monotonic(self) -> float: ...


def source_name(settings: Settings, number: int) -> str:
    """Return the source's name in the configuration."""
    return f"{CARRIED if number in settings.carried else settings.called}{number}"


def source_id(settings: Settings, number: int) -> str:
    """Return the id of the source's state, which a rename does not change."""
    return f"{PIPELINE}_{CARRIED if number in settings.carried else 's'}{number}"


def checkpoint_path(settings: Settings, number: int) -> str:
    """Return the path of the source's checkpoint in the table's bucket."""
    return f"_blizzard/{source_id(settings, number)}_checkpoint.json"


def queued(document: dict[str, Any]) -> list[str]:
    """Return the late files in a checkpoint's queue."""
    return [entry["path"] for entry in document.get("queue", [])]


def source_settings(settings: Settings, number: int) -> SourceSettings:
    """Return a source's block in the configuration."""
    template = TEMPLATES.get(settings.layout)
    partition_filter = None
    if template is not None and settings.lookback is not None:
        partition_filter = PartitionFilter(prefix_template=template, lookback=settings.lookback)
    found = settings_of(
        SourceSettings,
        source_uri=source_uri(number, moved=settings.moved),
        id=source_id(settings, number) if settings.has_id else None,
        compression="none",
        use_watermark=settings.watermark,
        poll_interval=f"{settings.poll}s",
        full_scan_interval=None if settings.full_scan is None else f"{settings.full_scan}s",
        max_list_cost=None if settings.budget is None else f"{settings.budget} requests/hour",
        notifications=NOTIFICATIONS if settings.hints else None,
        partition_filter=partition_filter,
        partition_depth=settings.depth,
        max_tracked_partitions=settings.tracked,
        grace_period=f"{settings.grace}s",
        min_age=f"{settings.min_age}s",
        late_sweep_interval=f"{settings.sweep}s",
        late_files=settings.late_files,
        complete_after=None if settings.complete is None else f"{settings.complete}s",
        order_guard="off",
        checkpoint=CheckpointSettings(interval_files=settings.batch_files),
    )
    # Runs are shorter than the least time that a configuration may have.
    return found.model_copy(update={"clean": _clean_settings(settings, number)})


def archive_uri(number: int) -> str:
    """Return the URI of the archive of a source's files."""
    return f"s3://archive-{number}"


def _clean_settings(settings: Settings, number: int) -> CleanSettings | None:
    if settings.clean is None:
        return None
    return CleanSettings.model_construct(
        mode="archive" if settings.archives else "delete",
        after=settings.clean,
        archive_uri=archive_uri(number) if settings.archives else None,
        dry_run=False,
    )


def source_parts(
    settings: Settings,
    number: int,
    client: Callable[[str], Client],
    engine: Engine,
    clocks: Clocks,
    activity: Any,
    hints: HintInbox | None = None,
) -> SourceContext:
    """Build the product's parts of one source in a process."""
    uri = source_uri(number, moved=settings.moved)
    template = TEMPLATES.get(settings.layout, "") if settings.partitioned else ""
    is_archived = settings.clean is not None and settings.archives
    archive = client(archive_uri(number)) if is_archived else None
    ingest = IngestSettings(
        source=Place(uri),
        sink=Place(SINK),
        schema=RowSchema((FieldSpec("row", "string", nullable=True),)),
        layout=OutputLayout("snappy", file_bytes=1 << 20, partition_template=template),
    )
    return SourceContext(
        PIPELINE,
        source_name(settings, number),
        source_settings(settings, number),
        settings_of(ErrorSettings, max_retries=settings.max_retries),
        ingest,
        Stores(client(uri), client(SINK), client(DLQ), archive),
        engine,
        2,
        clocks.clock,
        clocks.monotonic,
        activity=activity,
        hints=hints,
    )


def source_pipeline(
    parts: SourceContext, *, fresh: bool = False, requests_only: bool = False, **replica: Any
) -> SourcePipeline:
    """Build a source's worker of the poll loop, which also serves requests.

    ``fresh`` insists on a cold start. ``replica`` is what makes it one of several that share it.
    """
    return workers.source_pipeline(parts, fresh=fresh, requests_only=requests_only, **replica)


def table_settings(settings: Settings) -> Table:
    """Return the table's block in the configuration."""
    template = TEMPLATES.get(settings.layout, "")
    columns = [part.partition("=")[0] for part in template.split("/")]
    # Penguin is not started again for a new name, and some plans have no sweep.
    names = tuple(
        f"{PIPELINE}_{name}{number}"
        for name in ("s", CARRIED)
        for number in range(settings.sources)
    )
    return Table(
        name="events",
        settings=TableSettings(
            table_uri=SINK,
            poll_interval=f"{settings.poll}s",
            advanced=TableAdvanced(
                grace_period=f"{settings.grace}s",
                max_files_per_commit=settings.commit_files,
                max_tracked_partitions=settings.penguin_tracked,
                reconcile_interval=f"{settings.reconcile}s",
                foreign_min_age=None,
                max_new_columns=100,
                delta_checkpoint_interval=settings.log_interval,
                delta_log_cleanup=settings.log_clean_up,
            ),
        ),
        partition_types=dict.fromkeys(columns, "string") if settings.partitioned else {},
        source_ids=names,
        certified=() if settings.complete is None else names,
    )


def table_pipeline(
    settings: Settings, sink: Client, pool: Executor, clocks: Clocks, activity: Any
) -> TablePipeline:
    """Build a table's worker of the poll loop."""
    table = table_settings(settings)
    log = SimulatedLog(table, sink, pool, clocks.clock, settings.log_kept)
    clock = StoreClock(clocks.clock, clocks.monotonic)
    prepare = partial(probe_store, sink, table.state_name, clock)
    return TablePipeline(table, sink, log, pool, clock, activity, prepare)  # type: ignore[arg-type]
