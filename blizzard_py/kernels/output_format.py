"""How the files of a job are made, whatever kind of task writes them."""

from __future__ import annotations

import pyarrow as pa

from blizzard_py.job import IngestSettings
from blizzard_py.kernels.write.parquet import ParquetFormat


def output_format(settings: IngestSettings, schema: pa.Schema) -> ParquetFormat:
    """How files of such rows are made: without the columns that stand in the directory."""
    moved = {rule.column for rule in settings.partition_rules if rule.moves}
    return ParquetFormat(
        pa.schema([field for field in schema if field.name not in moved]),
        settings.parquet_compression,
        settings.file_bytes,
        settings.row_group_bytes,
        settings.sort_by,
    )
