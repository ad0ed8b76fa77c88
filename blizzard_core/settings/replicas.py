"""Settings of replicas: several Blizzards that share the sources of one configuration."""

from __future__ import annotations

from pydantic import Field

from blizzard_core.settings.base import Options, Seconds, Settings, Uri


class ReplicaSettings(Settings):
    """Several `blizzard run` that share the sources; docs/guides/replicas.md."""

    uri: Uri = Field(examples=["s3://lake/tables/events/_blizzard/replicas"])
    """Folder of their leases, one object for each replica; another folder is another group."""
    lease: Seconds = Field(default=30, ge=5)
    """Time without a renewal after which a replica counts as dead. Each renews three times as
    often."""
    storage_options: Options = Field(default_factory=dict, repr=False)
    """Credentials of `uri`."""
