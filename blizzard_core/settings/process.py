"""Settings of a process: Spark, limits, replicas, the web server."""

from __future__ import annotations

from pydantic import Field

from blizzard_core.settings.base import Options, Seconds, Settings, Uri

SESSION_ZONE = "spark.sql.session.timeZone"


class SparkSettings(Settings):
    """The Spark session."""

    master: str = "local[*]"
    """`local[N]`, `spark://host:7077`, `k8s://https://host:443` or, for Spark Connect,
    `sc://host:15002`; docs/design/engine.md."""
    conf: dict[str, str] = Field(default_factory=dict, repr=False)
    """Spark's configuration; it overrides Blizzard's."""
    idle_stop: Seconds | None = Field(default=None, gt=0, examples=["15m"])
    """Time without a job after which a daemon ends Spark, for its memory; the next job starts it
    again. Not with `event_time`, which keeps Spark."""

    @property
    def zone(self) -> str:
        """The configured time zone of sessions."""
        return self.conf.get(SESSION_ZONE, "UTC")


class ReplicaAdvanced(Settings):
    """Pace and store of replicas."""

    storage_options: Options = Field(default_factory=dict, repr=False)
    """Credentials of `uri`."""
    lease: Seconds = Field(default=30, ge=5)
    """Time without a renewal after which a replica counts as dead. Each renews three times as
    often."""


class ReplicaSettings(Settings):
    """Several `blizzard run` that share the sources; docs/guides/replicas.md."""

    uri: Uri = Field(examples=["s3://lake/tables/events/_blizzard/replicas"])
    """Folder of their leases, one object for each replica; another folder is another group."""
    advanced: ReplicaAdvanced = Field(default_factory=ReplicaAdvanced)
    """Rarely needed."""


class GlobalAdvanced(Settings):
    """Shutdown, concurrency and polling."""

    shutdown_grace: Seconds = Field(default=25, ge=0)
    """Time for a batch to end after SIGTERM; keep it below the container's grace period."""
    total_concurrency: int = Field(default=8, ge=1, le=256)
    """Concurrent storage requests per source."""
    poll_jitter: Seconds = Field(default=5, ge=0)
    """Random delay of polls, so that sources do not poll together."""


class GlobalSettings(Settings):
    """Limits that all pipelines of a process share."""

    replicas: ReplicaSettings | None = None
    """Share the sources among several Blizzards; default: one Blizzard has them all."""
    advanced: GlobalAdvanced = Field(default_factory=GlobalAdvanced)
    """Rarely needed."""


# Host and port; port 0 is any free one. An IPv6 address stands in brackets.
ADDRESS = (
    r"^(?:[^:\s\[\]]+|\[[0-9A-Fa-f:.]+\]):"
    r"(?:\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$"
)


class MetricsSettings(Settings):
    """HTTP address of the status page, `/metrics`, `/health` and `/ready`."""

    address: str = Field(pattern=ADDRESS, examples=["0.0.0.0:9090"])
    """`host:port`; `[::]:9090` for IPv6 as well."""
    penguin_address: str | None = Field(default=None, pattern=ADDRESS, examples=["0.0.0.0:9091"])
    """Penguin's address if both daemons run on one machine; default: `address`."""
