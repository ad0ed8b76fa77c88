"""What the daemons count, as Prometheus metrics. Declarations only; ``docs/metrics.md`` lists them.

Names follow the original where it has them. The label ``target`` is
``pipeline/source``, or the table; every label has few values, whatever arrives.
Metrics of code that both daemons run are called ``blizzard_…`` in both.

Ages and lags are computed when they are scraped, from the last instant that is
known (`blizzard_py.core.activity`), so they grow while a daemon hangs. NaN stands
for "not known yet", which no alert fires on.
"""

from __future__ import annotations

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram, Info

# A second series per counter that tells when it was created doubles what a scrape costs.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # left untyped

_REQUEST_SECS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WORK_SECS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)

# Both daemons.

BUILD = Info("blizzard_build", "Which daemon of which release this is.")
STORAGE_REQUESTS = Counter(
    "blizzard_storage_requests_total",
    "Requests to stores, by operation and how they ended.",
    ["operation", "status"],
)
STORAGE_SECS = Histogram(
    "blizzard_storage_request_duration_seconds",
    "How long a request to a store took, retries of the client included.",
    ["operation"],
    buckets=_REQUEST_SECS,
)
WORKER_UP = Gauge(
    "blizzard_worker_up", "1 while the target's loop turns, 0 once an error ended it.", ["target"]
)
CYCLE_FAILURES = Counter(
    "blizzard_cycle_failures_total", "Cycles that an error ended, by its kind.", ["target", "kind"]
)
POLL_AGE = Gauge(
    "blizzard_last_poll_age_seconds",
    "Seconds since the last poll that succeeded, or the last batch or commit after it.",
    ["target"],
)

# Blizzard: finding files.

POLL_SECS = Histogram(
    "blizzard_poll_duration_seconds",
    "How long finding new files took.",
    ["target"],
    buckets=_WORK_SECS,
)
LIST_REQUESTS = Counter(
    "blizzard_list_requests_total", "LIST requests that polls have made.", ["target"]
)
KEYS_LISTED = Counter(
    "blizzard_keys_listed_total", "Keys that stores have sent in answer to polls.", ["target"]
)
FILES_DISCOVERED = Counter(
    "blizzard_files_discovered_total", "New files that polls have found.", ["target"]
)
TRACKED_PARTITIONS = Gauge(
    "blizzard_tracked_partitions",
    "Partitions that a poll looks into; each costs a LIST request.",
    ["target"],
)
FILES_APART = Gauge(
    "blizzard_files_apart",
    "Files that the last poll left alone: their partitions lie ahead of time, or are odd and many.",
    ["target"],
)
LATE_FILES = Counter(
    "blizzard_late_files_total", "Files that appeared where no poll looks any more.", ["target"]
)
LATE_PARTITIONS = Histogram(
    "blizzard_late_partitions_behind",
    "How many tracked partitions sort above that of a late file.",
    ["target"],
    buckets=(0, 1, 2, 5, 10, 24, 48, 100),
)
PENDING_FILES = Gauge(
    "blizzard_pending_files",
    "Files that the last poll found and that are not done yet.",
    ["target"],
)
LAG_SECS = Gauge(
    "blizzard_lag_seconds",
    "Age of the oldest file that is not ingested yet, 0 if none.",
    ["target"],
)

# Blizzard: batches.

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
    "blizzard_bad_records_total",
    "Records of ingested files that were left out because they are bad.",
    ["target"],
)
BYTES_READ = Counter(
    "blizzard_bytes_read_total", "Bytes of source files that were done, as stored.", ["target"]
)
BYTES_DECOMPRESSED = Counter(
    "blizzard_bytes_decompressed_total",
    "Bytes of source files that were ingested, decompressed.",
    ["target"],
)
FILES_WRITTEN = Counter(
    "blizzard_files_written_total", "Parquet files that were published.", ["target"]
)
BYTES_WRITTEN = Counter(
    "blizzard_bytes_written_total", "Bytes of Parquet files that were published.", ["target"]
)
BATCH_SECS = Histogram(
    "blizzard_batch_duration_seconds",
    "How long a batch took, from its plan to its watermark.",
    ["target"],
    buckets=_WORK_SECS,
)
STEP_SECS = Histogram(
    "blizzard_batch_step_duration_seconds",
    "How long a step of a batch took.",
    ["target", "step"],
    buckets=_WORK_SECS,
)
UTILIZATION = Gauge(
    "blizzard_utilization_ratio", "Share of the last five minutes spent in batches.", ["target"]
)

# Blizzard: the checkpoint.

CHECKPOINTS_SAVED = Counter(
    "blizzard_checkpoints_saved_total", "Saves of the checkpoint.", ["target"]
)
CHECKPOINT_FAILURES = Counter(
    "blizzard_checkpoint_failures_total", "Saves of the checkpoint that failed.", ["target"]
)
CHECKPOINT_AGE = Gauge(
    "blizzard_checkpoint_age_seconds",
    "Seconds since the checkpoint was saved; it is saved when something changes.",
    ["target"],
)

# Penguin.

PENGUIN_POLL_SECS = Histogram(
    "penguin_poll_duration_seconds",
    "How long reading the log and finding new files took.",
    ["target"],
    buckets=_WORK_SECS,
)
PENGUIN_LIST_REQUESTS = Counter(
    "penguin_list_requests_total", "LIST requests that polls have made.", ["target"]
)
PENGUIN_KEYS_LISTED = Counter(
    "penguin_keys_listed_total", "Keys that stores have sent in answer to polls.", ["target"]
)
PENGUIN_FILES_DISCOVERED = Counter(
    "penguin_files_discovered_total", "Uncommitted files that polls have found.", ["target"]
)
PENGUIN_PENDING_FILES = Gauge(
    "penguin_pending_files",
    "Files that the last poll found and that are neither committed nor quarantined yet.",
    ["target"],
)
PENGUIN_LAG_SECS = Gauge(
    "penguin_lag_seconds",
    "Age of the oldest file that is not committed yet, 0 if none.",
    ["target"],
)
COMMITS = Counter(
    "penguin_commits_total",
    "Delta commits that were tried, by how they ended.",
    ["target", "status"],
)
CONFLICTS = Counter(
    "penguin_commit_conflicts_total",
    "Commits that did not land because another writer's came first.",
    ["target"],
)
COMMIT_SECS = Histogram(
    "penguin_delta_commit_duration_seconds",
    "How long a Delta commit took, failed ones included.",
    ["target"],
    buckets=_WORK_SECS,
)
COMMIT_AGE = Gauge(
    "penguin_commit_age_seconds", "Seconds since the last commit of ours.", ["target"]
)
TABLE_VERSION = Gauge("penguin_delta_table_version", "The Delta table's version.", ["target"])
FILES_COMMITTED = Counter(
    "penguin_files_committed_total", "Parquet files that were committed.", ["target"]
)
RECORDS_COMMITTED = Counter(
    "penguin_records_committed_total", "Rows of the files that were committed.", ["target"]
)
BYTES_COMMITTED = Counter(
    "penguin_bytes_committed_total", "Bytes of the files that were committed.", ["target"]
)
FILES_QUARANTINED = Counter(
    "penguin_files_quarantined_total", "Files that were refused, by stage.", ["target", "stage"]
)
SCHEMA_EVOLUTIONS = Counter(
    "penguin_schema_evolutions_total", "Commits that changed the table's schema.", ["target"]
)
ORPHAN_FILES = Gauge(
    "penguin_orphan_files", "Files too old to commit that the last sweep has found.", ["target"]
)
CHORES = Counter(
    "penguin_chores_total", "Chores of the table, by how they ended.", ["target", "chore", "status"]
)
