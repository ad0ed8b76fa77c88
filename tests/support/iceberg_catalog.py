"""A catalog of Iceberg tables in a directory: a file for each table names its metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER


class FolderCatalog(NoopCatalog, MetastoreCatalog):  # type: ignore[misc]  # two ways to say no
    """Tables below the directory that the property ``warehouse`` names."""

    def _pointer(self, identifier: Any) -> Path:
        name = ".".join(self.identifier_to_tuple(identifier))
        return Path(self.properties["warehouse"]) / f"{name}.current"

    def create_table(self, identifier: Any, schema: Any, **options: Any) -> Table:
        properties = options.get("properties") or {}
        schema = self._convert_schema_if_needed(schema, int(properties.get("format-version", 2)))
        place = f"file://{self._pointer(identifier).with_suffix('')}"
        provider = load_location_provider(table_location=place, table_properties=properties)
        location = provider.new_table_metadata_file_location()
        metadata = new_table_metadata(
            location=place,
            schema=schema,
            partition_spec=options.get("partition_spec", UNPARTITIONED_PARTITION_SPEC),
            sort_order=UNSORTED_SORT_ORDER,
            properties=properties,
        )
        self._write_metadata(metadata, load_file_io({}, location), location)
        self._pointer(identifier).write_text(location)
        return self.load_table(identifier)

    def load_table(self, identifier: Any) -> Table:
        pointer = self._pointer(identifier)
        if not pointer.exists():
            raise NoSuchTableError(f"Table does not exist: {identifier}")
        location = pointer.read_text()
        io = load_file_io(self.properties, location)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        files = self._load_file_io(metadata.properties, location)  # as all catalogs do
        return Table(self.identifier_to_tuple(identifier), metadata, location, files, self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        current = self.load_table(table.name())
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._pointer(table.name()).write_text(staged.metadata_location)
        return CommitTableResponse(
            metadata=staged.metadata, metadata_location=staged.metadata_location
        )
