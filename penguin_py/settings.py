"""The tables that Penguin commits to, resolved from the configuration.

With ``tables`` in the file, those; without it, every pipeline's sink is a table
named like its pipeline. A table at the place of a sink inherits the sink's
partitioning and storage options where it gives none of its own.

Storage options may hold secrets: their ``repr`` is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from blizzard_core.handover.outputs import committer_app
from blizzard_core.settings.checks.tables import keyed_name, sequence_of
from blizzard_core.settings.document import AnySource, Config, PipelineSettings
from blizzard_core.settings.keyed import DeleteCondition, KeyedSettings, parse_condition
from blizzard_core.settings.needed_extras import check_extras, store_extras
from blizzard_core.settings.tables import PartitionType, TableAdvanced, TableSettings
from blizzard_core.storage.opening import normalize_uri, scheme_of
from blizzard_core.storage.protocol import StorageOptions

# The application of merges: its ``txn`` is how far the changes are merged.
KEYED_APP_ID = "keyed"


@dataclass(frozen=True, slots=True)
class Table:
    """One table's settings.

    ``partition_types`` is None if the configuration has none. Then the table's own partitioning
    counts or, for a new table, the first file's path.
    ``source_ids`` name the sources of this configuration that feed the table, in its order.
    ``replacing`` names those of them that replace their published rows without a command, and
    ``certified`` those whose partitions are certified.
    """

    name: str
    settings: TableSettings
    partition_types: Mapping[str, PartitionType] | None
    storage_options: StorageOptions = field(default_factory=dict, repr=False)
    source_ids: tuple[str, ...] = ()
    replacing: tuple[str, ...] = ()
    certified: tuple[str, ...] = ()

    @property
    def uri(self) -> str:
        """The directory, as everything stores it."""
        return self.settings.table_uri

    @property
    def advanced(self) -> TableAdvanced:
        """Return what few set."""
        return self.settings.advanced

    @property
    def app_id(self) -> str:
        """The application id of our ``txn`` actions; it never changes."""
        return self.advanced.app_id or committer_app(self.name)

    @property
    def state_name(self) -> str:
        """Return what files of ours in ``_penguin/`` start with: instances share none of them."""
        return self.advanced.app_id or self.name

    @property
    def is_local(self) -> bool:
        """Return whether the table lies on a local disk."""
        return scheme_of(self.uri) == ""


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """The settings of a keyed table: its place, the change table, and how rows are compared.

    ``deletes`` is ``deletes_text`` parsed. ``every`` is the least time between two merges, and
    ``keep_changes`` how old merged changes leave their table; None: they stay.
    """

    table: Table
    changes: Table
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    deletes_text: str | None = None
    leave_out: tuple[str, ...] = ()
    every: float = 300.0
    keep_changes: float | None = None

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name

    @property
    def deletes(self) -> DeleteCondition | None:
        """The condition that makes a change a delete."""
        return None if self.deletes_text is None else parse_condition(self.deletes_text)


def tables_of(config: Config) -> tuple[Table, ...]:
    """All tables of the configuration, in its order."""
    feeding = {
        normalize_uri(pipeline.sink.table_uri): pipeline for pipeline in config.pipelines.values()
    }
    sources: dict[str, dict[str, AnySource]] = {}
    for pipeline_name, pipeline in config.pipelines.items():
        of_table = sources.setdefault(normalize_uri(pipeline.sink.table_uri), {})
        for source_name, source in pipeline.sources.items():
            of_table[source.id or f"{pipeline_name}_{source_name}"] = source
    chosen = config.tables or {
        name: TableSettings(table_uri=pipeline.sink.table_uri)
        for name, pipeline in config.pipelines.items()
    }
    return tuple(
        replace(
            _table(name, table, feeding.get(uri)),
            source_ids=tuple(known),
            replacing=tuple(name for name, source in known.items() if source.replaces),
            certified=tuple(
                name
                for name, source in known.items()
                if source.as_files is not None and source.as_files.complete_after is not None
            ),
        )
        for name, table in chosen.items()
        for uri in [normalize_uri(table.table_uri)]
        for known in [sources.get(uri, {})]
    )


def keyed_tables_of(config: Config) -> tuple[KeyedTable, ...]:
    """All keyed tables of the configuration, in its order."""
    known = {normalize_uri(table.uri): table for table in tables_of(config)}
    return tuple(
        _keyed(name, pipeline, pipeline.keyed, known.get(normalize_uri(pipeline.sink.table_uri)))
        for name, pipeline in config.pipelines.items()
        if pipeline.keyed is not None
    )


def _keyed(
    name: str, pipeline: PipelineSettings, keyed: KeyedSettings, changes: Table | None
) -> KeyedTable:
    more = keyed.advanced
    place = TableSettings(
        table_uri=keyed.table_uri,
        optimize=more.optimize,
        vacuum=more.vacuum,
        advanced=TableAdvanced(app_id=KEYED_APP_ID, reconcile_interval=0),
    )
    of_sink, own = pipeline.sink.storage_options, more.storage_options
    return KeyedTable(
        Table(keyed_name(name), place, {}, of_sink if own is None else own),
        changes or _table(name, TableSettings(table_uri=pipeline.sink.table_uri), pipeline),
        tuple(keyed.keys),
        tuple(sequence_of(pipeline, keyed)),
        keyed.deletes,
        tuple(keyed.advanced.leave_out),
        keyed.every,
        more.keep_changes,
    )


def check_stores(tables: Iterable[Table]) -> None:
    """Raise `ConfigError` for stores whose clients are not installed."""
    check_extras(store_extras((f"tables.{table.name}", table.uri) for table in tables))


def _table(name: str, table: TableSettings, pipeline: PipelineSettings | None) -> Table:
    """Return a table's settings; ``pipeline`` is the one in this file that feeds it, if any."""
    sink = pipeline.sink if pipeline else None
    partition_by = table.partition_by or (sink.partition_by if sink else None)
    partition_types: Mapping[str, PartitionType] | None = None
    if partition_by is not None:
        partition_types = partition_by.column_types(pipeline.field_types if pipeline else {})
    elif sink is not None:
        partition_types = {}  # Blizzard writes to the root without partition_by
    storage_options = table.storage_options or (sink.storage_options if sink else {})
    return Table(name, table, partition_types, storage_options)
