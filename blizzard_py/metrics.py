"""Blizzard's metrics. Declarations only; ``docs/reference/metrics.md`` lists them."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, Summary

from blizzard_core.observability.metrics import WORK_SECS

# Finding files.

POLL_SECS = Histogram(
    "blizzard_poll_duration_seconds",
    "How long finding new files took.",
    ["target"],
    buckets=WORK_SECS,
)
LIST_REQUESTS = Counter(
    "blizzard_list_requests_total", "LIST requests that polls have made.", ["target"]
)
KEYS_LISTED = Counter(
    "blizzard_keys_listed_total", "Keys that stores have sent in answer to polls.", ["target"]
)
LIST_BUDGET = Gauge(
    "blizzard_list_budget_per_hour",
    "LIST requests that the budget allows in an hour, 0 without a budget.",
    ["target"],
)
LIST_BUDGET_USED = Gauge(
    "blizzard_list_budget_used_ratio",
    "LIST requests of the last hour, as a share of the budget.",
    ["target"],
)
SCAN_INTERVAL = Gauge(
    "blizzard_scan_interval_seconds",
    "Time between scans, by part: of hot ranges, and of all.",
    ["target", "part"],
)
HINTS = Counter(
    "blizzard_hints_total",
    "Hints of notifications and other messages, by kind.",
    ["target", "kind"],
)
HINT_LAG = Gauge(
    "blizzard_hint_lag_seconds",
    "Age of the oldest message that no scan or save has acknowledged, 0 without any.",
    ["target"],
)
UNHINTED_FILES = Counter(
    "blizzard_unhinted_files_total",
    "Files that complete scans have found though no message had named them.",
    ["target"],
)
NOTIFICATIONS_UP = Gauge(
    "blizzard_notifications_up",
    "1 while notifications decide about scans, 0 while a source polls instead.",
    ["target"],
)
QUEUE_MESSAGES = Gauge(
    "blizzard_queue_messages", "Messages in the queue, as it counts them.", ["target"]
)
FILES_DISCOVERED = Counter(
    "blizzard_files_discovered_total", "New files that polls have found.", ["target"]
)
TRACKED_PARTITIONS = Gauge(
    "blizzard_tracked_partitions",
    "Partitions that a poll looks into; each costs at most one LIST request.",
    ["target"],
)
REFUSED_OUTPUTS = Gauge(
    "blizzard_refused_outputs",
    "Published Parquet files that a committer has refused, and that were not redone.",
    ["target"],
)
REQUESTS = Gauge(
    "blizzard_requests",
    "Open requests of operators; one that waits was made with another configuration.",
    ["target", "state"],
)
REQUEST_FILES = Counter(
    "blizzard_request_files_total",
    "Files that requests of operators have brought.",
    ["target", "outcome"],
)
CERTIFIED_PARTITIONS = Gauge(
    "blizzard_certified_partitions",
    "Partitions of the checkpoint that are complete, or that a late file has revoked.",
    ["target", "state"],
)
FILES_APART = Gauge(
    "blizzard_files_apart",
    "Files that the last poll left alone: their partitions lie ahead of time, or are odd and many.",
    ["target"],
)
LATE_FILES = Counter(
    "blizzard_late_files_total", "Files that appeared where no poll looks any more.", ["target"]
)
CHANGED_FILES = Counter(
    "blizzard_changed_files_total", "Files that were changed after they were settled.", ["target"]
)
CLEANED_FILES = Counter(
    "blizzard_cleaned_files_total",
    "Source files that were archived or deleted, or left, by outcome.",
    ["target", "outcome"],
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

UNITS = Gauge(
    "blizzard_units",
    "Work units as of the last look, by what the plan says of them.",
    ["target", "state"],
)

# Batches.

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
    buckets=WORK_SECS,
)
# Buckets of each step of each source were more than half of a scrape.
STEP_SECS = Summary(
    "blizzard_batch_step_duration_seconds", "How long a step of a batch took.", ["target", "step"]
)
UTILIZATION = Gauge(
    "blizzard_utilization_ratio", "Share of the last five minutes spent in batches.", ["target"]
)

UNEXPECTED_FIELDS = Gauge(
    "blizzard_unexpected_fields",
    "Fields of records that no column takes, as far as they were told.",
    ["target"],
)

# Event time.

EVENT_WATERMARK = Gauge(
    "blizzard_event_time_watermark_seconds",
    "Event time up to which windows are closed, in seconds since 1970.",
    ["target"],
)
EVENT_WATERMARK_LAG = Gauge(
    "blizzard_event_time_watermark_lag_seconds",
    "How far the watermark over event time is behind now.",
    ["target"],
)
LATE_ROWS = Counter(
    "blizzard_late_rows_total", "Rows that came behind the watermark over event time.", ["target"]
)
PARTLY_LATE_ROWS = Counter(
    "blizzard_partly_late_rows_total",
    "Rows that were late for some of their windows and not for the last.",
    ["target"],
)
AHEAD_ROWS = Counter(
    "blizzard_ahead_rows_total", "Rows with a time too far in the future.", ["target"]
)
UNACCOUNTED_ROWS = Counter(
    "blizzard_unaccounted_rows_total",
    "Rows that Spark has dropped as late and we have not found; always 0.",
    ["target"],
)
EVENT_ROWS = Counter(
    "blizzard_event_time_rows_total",
    "Rows by how far they lie behind the newest time of the batches before.",
    ["target", "behind"],
)
EVENT_TIMES = Gauge(
    "blizzard_event_time_batch_seconds",
    "Event times of the rows of the last batch, in seconds since 1970.",
    ["target", "statistic"],
)
OPERATOR_ROWS = Gauge(
    "blizzard_operator_state_rows", "Rows that an operator remembers.", ["target", "operator"]
)
OPERATOR_BYTES = Gauge(
    "blizzard_operator_state_bytes",
    "Memory of what an operator remembers, as Spark tells it.",
    ["target", "operator"],
)
OPERATOR_CHANGES = Counter(
    "blizzard_operator_rows_total",
    "Rows of state that an operator has updated and removed, and rows that it dropped as late.",
    ["target", "operator", "change"],
)
STATE_ROWS = Gauge("blizzard_state_rows", "Rows that a query remembers.", ["target"])
STATE_BYTES = Gauge(
    "blizzard_state_bytes", "Memory of what a query remembers, as Spark tells it.", ["target"]
)
MICRO_BATCH_SECS = Histogram(
    "blizzard_micro_batch_duration_seconds",
    "How long a micro-batch took: with rows, or empty to close windows.",
    ["target", "kind"],
    buckets=WORK_SECS,
)
RESTORE_SECS = Histogram(
    "blizzard_state_restore_seconds",
    "How long it took to restore a query's state and start it.",
    ["target"],
    buckets=WORK_SECS,
)

# Replicas.

REPLICAS_ALIVE = Gauge(
    "blizzard_replicas_alive",
    "Replicas that this one sees alive, itself included; 0 without replicas.",
)
SOURCE_HELD = Gauge(
    "blizzard_source_held", "1 while this replica has the source, 0 while it stands by.", ["target"]
)
HANDOVERS = Counter(
    "blizzard_handovers_total",
    "Sources that this replica took, gave up, or lost to another one.",
    ["reason"],
)

# The checkpoint.

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

# Series of every source that exist from its start: so a rule sees the first event.
COUNTED_FROM_START = (
    FILES_DISCOVERED,
    LIST_REQUESTS,
    LIST_BUDGET,
    KEYS_LISTED,
    FILES_APART,
    LATE_FILES,
    RECORDS_PROCESSED,
    BAD_RECORDS,
    BYTES_READ,
    BYTES_DECOMPRESSED,
    FILES_WRITTEN,
    BYTES_WRITTEN,
    CHECKPOINTS_SAVED,
    CHECKPOINT_FAILURES,
    POLL_SECS,
    BATCH_SECS,
    LATE_ROWS,
    PARTLY_LATE_ROWS,
    AHEAD_ROWS,
    UNACCOUNTED_ROWS,
    REFUSED_OUTPUTS,
    UNEXPECTED_FIELDS,
)
