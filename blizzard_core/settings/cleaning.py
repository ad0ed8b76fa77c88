"""Settings of the cleaning of source files."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from blizzard_core.settings.base import DAY, Seconds, Settings, Uri, format_seconds
from blizzard_core.storage.environment import AZURE_SCHEMES, GCS_SCHEMES, S3_SCHEMES
from blizzard_core.storage.opening import scheme_of

# The least `after`: a deleted file does not come back, an archived one does. A tagged file has to
# wait for the lifecycle rule as well.
_LEAST = {"archive": DAY, "delete": 7 * DAY, "tag": DAY}
# One tag is enough: a rule of a bucket can name a prefix and an age beside it.
_TAG = "blizzard=ingested"
_DISK = ""


class CleanSettings(Settings):
    """Archive, delete or tag source files once their rows have been in the table for some time."""

    mode: Literal["archive", "delete", "tag"] = Field(examples=["archive"])
    """Copy files to the archive and remove them, only remove them, or tag them
    `blizzard=ingested` for a rule of the bucket (Google Cloud Storage: `customTime`)."""
    after: Seconds = Field(default=30 * DAY)
    """Time since the rows were seen in the table; at least 7d to delete, 1d to archive or tag."""
    archive_uri: Uri | None = Field(default=None, examples=["s3://archive/events"])
    """Directory for the copies, in the same kind of store, with the source's `storage_options`."""
    dry_run: bool = True
    """Touch no file, and report the number of files that would be cleaned. By false you confirm
    that nothing else reads these files, or that it needs none this old."""

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        least = _LEAST[self.mode]
        if self.after < least:
            raise ValueError(
                f"after must be at least {format_seconds(least)} with mode: {self.mode}"
            )
        if (self.archive_uri is None) == (self.mode == "archive"):
            raise ValueError("give archive_uri with mode: archive, and only then")
        return self

    @property
    def put_tag(self) -> str:
        """The tag that files get; empty if they are removed."""
        return _TAG if self.mode == "tag" else ""


def clean_problem(uri: str, clean: CleanSettings) -> str | None:
    """Return why a source at this URI cannot be cleaned so; None if it can."""
    scheme = scheme_of(uri)
    if scheme == "memory":
        return (
            "clean is not for memory://: this store cannot delete a file on condition of its"
            " version; use S3, Google Cloud Storage, Azure or a local disk"
        )
    if clean.put_tag and _kind(scheme) == _DISK:
        return (
            "clean.mode: tag is not for local disks, whose files have no tags; use archive or"
            " delete"
        )
    if clean.archive_uri is not None and _kind(scheme_of(clean.archive_uri)) != _kind(scheme):
        return (
            "clean.archive_uri must be in the same kind of store as the source, whose"
            " storage_options open it"
        )
    return None


def _kind(scheme: str) -> str:
    """Return one name for all spellings of a kind of store."""
    same = (frozenset({_DISK, "file"}), S3_SCHEMES, GCS_SCHEMES, AZURE_SCHEMES)
    return next((min(kind) for kind in same if scheme in kind), scheme)
