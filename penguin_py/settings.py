"""Which tables Penguin commits to, resolved from the configuration.

With ``tables`` in the file, those; without it, every pipeline's sink is a table
named like its pipeline. A table at the place of a sink inherits the sink's
partitioning and storage options where it gives none of its own.

Storage options may hold secrets: their ``repr`` is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from blizzard_core.bounds import NEW_COLUMNS
from blizzard_core.handover import committer_app
from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.partitioning import PartitionType
from blizzard_core.settings.sources import PartitionFilter
from blizzard_core.settings.tables import OptimizeSettings, TableSettings, VacuumSettings
from blizzard_core.storage.opening import normalize_uri, scheme_of
from blizzard_core.storage.protocol import StorageOptions


@dataclass(frozen=True, slots=True)
class Table:
    """One table's settings.

    ``partition_types`` is None where the configuration does not say: then the
    table's own partitioning counts or, for a new table, the first file's path.
    ``source_ids`` name the sources of this configuration that feed the table, in its order, and
    ``replacing`` those of them that replace by themselves what they published before.
    """

    name: str
    uri: str
    poll_interval_secs: float
    schema_evolution: Literal["merge", "strict", "overwrite"]
    file_pattern: str
    grace_period_secs: float
    max_files_per_commit: int
    max_tracked_partitions: int
    reconcile_interval_secs: float
    reconcile_horizon_secs: float
    partition_types: Mapping[str, PartitionType] | None
    partition_filter: PartitionFilter | None = None
    app_id_override: str | None = None
    delta_checkpoint_interval: int | None = None
    delta_log_cleanup: bool | None = None
    optimize: OptimizeSettings | None = None
    vacuum: VacuumSettings | None = None
    own_prefixes: tuple[str, ...] = ()
    foreign_min_age_secs: float | None = 3600
    strict_types: bool = False
    max_new_columns: int = NEW_COLUMNS
    source_ids: tuple[str, ...] = ()
    replacing: tuple[str, ...] = ()
    storage_options: StorageOptions = field(default_factory=dict, repr=False)

    @property
    def live_app_id(self) -> str:
        """The application id of the instance that has the table's name to itself."""
        return committer_app(self.name)

    @property
    def app_id(self) -> str:
        """The application id of our ``txn`` actions; it never changes."""
        return self.app_id_override or self.live_app_id

    @property
    def state_name(self) -> str:
        """What files of ours in ``_penguin/`` start with: instances share none of them."""
        return self.app_id_override or self.name

    @property
    def is_local(self) -> bool:
        """Whether the table lies on a local disk."""
        return scheme_of(self.uri) == ""


def tables_of(config: Config) -> tuple[Table, ...]:
    """All tables of the configuration, in its order."""
    feeding = {
        normalize_uri(pipeline.sink.table_uri): pipeline for pipeline in config.pipelines.values()
    }
    sources: dict[str, dict[str, bool]] = {}
    for pipeline_name, pipeline in config.pipelines.items():
        of_table = sources.setdefault(normalize_uri(pipeline.sink.table_uri), {})
        for source_name, source in pipeline.sources.items():
            of_table[source.id or f"{pipeline_name}_{source_name}"] = source.replaces
    chosen = config.tables or {
        name: TableSettings(table_uri=pipeline.sink.table_uri)
        for name, pipeline in config.pipelines.items()
    }
    return tuple(
        replace(
            _table(name, table, feeding.get(uri)),
            source_ids=tuple(known),
            replacing=tuple(source_id for source_id, replaces in known.items() if replaces),
        )
        for name, table in chosen.items()
        for uri in [normalize_uri(table.table_uri)]
        for known in [sources.get(uri, {})]
    )


def _table(name: str, table: TableSettings, pipeline: PipelineSettings | None) -> Table:
    """A table's settings; ``pipeline`` is the one that feeds it, if this file has one."""
    sink = pipeline.sink if pipeline else None
    partition_by = table.partition_by or (sink.partition_by if sink else None)
    partition_types: Mapping[str, PartitionType] | None = None
    if partition_by is not None:
        partition_types = partition_by.column_types(pipeline.field_types if pipeline else {})
    elif sink is not None:
        partition_types = {}  # Blizzard writes to the root without partition_by
    return Table(
        name=name,
        uri=normalize_uri(table.table_uri),
        poll_interval_secs=table.poll_interval,
        schema_evolution=table.schema_evolution,
        file_pattern=table.file_pattern,
        grace_period_secs=table.grace_period,
        max_files_per_commit=table.max_files_per_commit,
        max_tracked_partitions=table.max_tracked_partitions,
        reconcile_interval_secs=table.reconcile_interval,
        reconcile_horizon_secs=table.reconcile_horizon,
        partition_types=partition_types,
        own_prefixes=tuple(table.own_prefixes),
        foreign_min_age_secs=table.foreign_min_age,
        strict_types=table.strict_types,
        max_new_columns=table.max_new_columns,
        partition_filter=table.partition_filter,
        app_id_override=table.app_id,
        delta_checkpoint_interval=table.delta_checkpoint_interval,
        delta_log_cleanup=table.delta_log_cleanup,
        optimize=table.optimize,
        vacuum=table.vacuum,
        storage_options=table.storage_options or (sink.storage_options if sink else {}),
    )
