"""The job before the query: it decides about files and records, and keeps each row's position."""

from __future__ import annotations

from dataclasses import replace

from blizzard_core.settings.sources import MetadataColumn
from blizzard_core.storage.protocol import join
from blizzard_py.job import IngestJob, IngestSettings

# The columns with a row's position, by which late rows become dead letters.
PLACE: tuple[MetadataColumn, ...] = ("_source_file", "_source_line")

_FILE_BYTES = 32 << 20
_FOLDER = "accepted"


def decode_settings(settings: IngestSettings) -> IngestSettings:
    """Return the settings of that job: as declared and transformed, into unpublished files."""
    wanted = settings.metadata_columns
    return replace(
        settings,
        parquet_compression="lz4",
        file_bytes=_FILE_BYTES,
        partition_template="",
        partition_rules=(),
        sort_by=(),
        metadata_columns=(*wanted, *(name for name in PLACE if name not in wanted)),
    )


def make_decode_job(job: IngestJob) -> IngestJob:
    """Return the job with these settings, into its own folder; rows of all partitions together."""
    return replace(
        job,
        settings=decode_settings(job.settings),
        staging=join(job.staging, _FOLDER),
        files=tuple(replace(file, partition="") for file in job.files),
    )
