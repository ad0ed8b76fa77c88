"""Penguin's metrics. Declarations only; ``docs/reference/metrics.md`` lists them."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from blizzard_core.observability.metrics import WORK_SECS

POLL_SECS = Histogram(
    "penguin_poll_duration_seconds",
    "How long reading the log and finding new files took.",
    ["target"],
    buckets=WORK_SECS,
)
LIST_REQUESTS = Counter(
    "penguin_list_requests_total", "LIST requests that polls have made.", ["target"]
)
KEYS_LISTED = Counter(
    "penguin_keys_listed_total", "Keys that stores have sent in answer to polls.", ["target"]
)
FILES_DISCOVERED = Counter(
    "penguin_files_discovered_total", "Uncommitted files that polls have found.", ["target"]
)
PENDING_FILES = Gauge(
    "penguin_pending_files",
    "Files that the last poll found and that are neither committed nor quarantined yet.",
    ["target"],
)
LAG_SECS = Gauge(
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
    buckets=WORK_SECS,
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
GROUPS_APPLIED = Counter("penguin_groups_applied_total", "Groups that were committed.", ["target"])
ROWS_REPLACED = Counter(
    "penguin_rows_replaced_total", "Rows that groups removed from the table.", ["target"]
)
BYTES_REWRITTEN = Counter(
    "penguin_bytes_rewritten_total",
    "Bytes of files that were rewritten to keep their other rows when a group replaced some.",
    ["target"],
)
KEYED_ROWS = Counter(
    "penguin_keyed_rows_total",
    "Keys that merges have changed, by outcome; rows of `tied` and `without_key`.",
    ["target", "outcome"],
)
KEYED_LAG_SECS = Gauge(
    "penguin_keyed_lag_seconds",
    "Age of the oldest change that is not merged, 0 if none.",
    ["target"],
)
KEYED_SHARE = Gauge(
    "penguin_keyed_rewritten_share", "Share of the table that the last merge rewrote.", ["target"]
)
COMPLETIONS_WAITING = Gauge(
    "penguin_completions_waiting",
    "Partitions that Blizzard completions to be complete and whose outputs are not all committed.",
    ["target"],
)
BLOCKED_GROUPS = Gauge(
    "penguin_blocked_groups", "Sources whose next group cannot be applied.", ["target"]
)
