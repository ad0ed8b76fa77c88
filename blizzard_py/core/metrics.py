"""What the daemons count, as Prometheus metrics on ``metrics.address``.

Names follow the original where it has them; the label ``target`` is
``pipeline/source``, or the table. Counters live in the default registry of the process.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram, start_http_server

from blizzard_py.core.errors import ConfigError

FILES_DISCOVERED = Counter(
    "blizzard_files_discovered_total", "New files that polls have found.", ["target"]
)
FILES_PROCESSED = Counter(
    "blizzard_files_processed_total", "Files that were done, by outcome.", ["target", "status"]
)
FILES_FAILED = Counter(
    "blizzard_files_failed_total", "Files that failed, by stage.", ["target", "stage"]
)
RECORDS_PROCESSED = Counter(
    "blizzard_records_processed_total", "Rows that were published.", ["target"]
)
BAD_RECORDS = Counter(
    "blizzard_bad_records_total", "Lines that went to the dead-letter queue alone.", ["target"]
)
LATE_FILES = Counter(
    "blizzard_late_files_total", "Files that appeared where no poll looks any more.", ["target"]
)
LATE_SECS = Histogram(
    "blizzard_late_seconds",
    "How long after its name was passed a late file appeared.",
    ["target"],
    buckets=(60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400),
)
LATE_PARTITIONS = Histogram(
    "blizzard_late_partitions_behind",
    "How many tracked partitions sort above that of a late file.",
    ["target"],
    buckets=(0, 1, 2, 5, 10, 24, 48, 100),
)

FILES_COMMITTED = Counter(
    "penguin_files_committed_total", "Parquet files that were committed.", ["target"]
)


def serve(address: str) -> None:
    """Serve ``/metrics`` at ``host:port`` from a background thread. Raises `ConfigError`."""
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host)
    except (OSError, OverflowError) as error:
        raise ConfigError("metrics.address", [f"cannot listen on {address}: {error}"]) from error
