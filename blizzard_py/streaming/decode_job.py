"""The job before the query: it decides about files and records, and keeps each row's position."""

from __future__ import annotations

from dataclasses import replace

from blizzard_core.settings.sources import MetadataColumn
from blizzard_core.storage.protocol import join
from blizzard_py.job import IngestJob, IngestSettings

# The columns with a row's position, by which late rows become dead letters.
PLACE: tuple[MetadataColumn, ...] = ("_source_file", "_source_line")

_FOLDER = "accepted"


def decode_settings(settings: IngestSettings) -> IngestSettings:
    """Return the settings of that job: as declared and transformed, into unpublished files."""
    return replace(
        settings,
        layout=settings.layout.for_staging(),
        added_columns=settings.added_columns.with_metadata(PLACE),
    )


def make_decode_job(job: IngestJob) -> IngestJob:
    """Return the job with these settings, into its own folder; rows of all partitions together."""
    return replace(
        job,
        settings=decode_settings(job.settings),
        staging=join(job.staging, _FOLDER),
        files=tuple(replace(file, partition="") for file in job.files),
    )
