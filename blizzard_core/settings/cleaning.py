"""Settings of the cleaning of source files."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from blizzard_core.settings.base import DAY, Seconds, Settings, Uri, format_seconds
from blizzard_core.storage.environment import AZURE_SCHEMES, GCS_SCHEMES, S3_SCHEMES
from blizzard_core.storage.opening import scheme_of

# The least `after`: a deleted file does not come back, an archived one does.
_LEAST = {"archive": DAY, "delete": 7 * DAY}


class CleanSettings(Settings):
    """Archive or delete source files once their rows have been in the table for some time."""

    mode: Literal["archive", "delete"] = Field(examples=["archive"])
    """Copy files to the archive and remove them, or only remove them."""
    after: Seconds = Field(default=30 * DAY)
    """Time since the rows were seen in the table; at least 7d to delete and 1d to archive."""
    archive_uri: Uri | None = Field(default=None, examples=["s3://archive/events"])
    """Directory for the copies, in the same kind of store, with the source's `storage_options`."""
    dry_run: bool = True
    """Touch no file, and report the number of files that would be cleaned."""
    sole_reader: bool = False
    """Must be true: you confirm that nothing else reads these files, or that it needs none this
    old."""

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        least = _LEAST[self.mode]
        if self.after < least:
            raise ValueError(
                f"after must be at least {format_seconds(least)} with mode: {self.mode}"
            )
        if (self.archive_uri is None) == (self.mode == "archive"):
            raise ValueError("give archive_uri with mode: archive, and only then")
        if not self.sole_reader:
            raise ValueError(
                "sole_reader must be true, by which you confirm that nothing else still needs"
                " these files; otherwise leave clean out"
            )
        return self


def clean_problem(uri: str, clean: CleanSettings) -> str | None:
    """Return why a source at this URI cannot be cleaned so; None if it can."""
    scheme = scheme_of(uri)
    if scheme == "memory":
        return (
            "clean is not for memory://: this store cannot delete a file on condition of its"
            " version; use S3, Google Cloud Storage, Azure or a local disk"
        )
    if clean.archive_uri is not None and _kind(scheme_of(clean.archive_uri)) != _kind(scheme):
        return (
            "clean.archive_uri must be in the same kind of store as the source, whose"
            " storage_options open it"
        )
    return None


def _kind(scheme: str) -> str:
    """Return one name for all spellings of a kind of store."""
    same = (frozenset({"", "file"}), S3_SCHEMES, GCS_SCHEMES, AZURE_SCHEMES)
    return next((min(kind) for kind in same if scheme in kind), scheme)
