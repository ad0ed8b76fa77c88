"""Prometheus metrics of both daemons. Declarations only.

``docs/reference/metrics.md`` lists them all; metrics of a single daemon are in its own
``metrics``.

Names follow the original where it has them. The label ``target`` is ``pipeline/source``, or the
table. Every label has few values, whatever arrives. Metrics of shared code are called
``blizzard_…`` in both daemons.

Ages and lags are computed at scrape time from the last known moment
(`blizzard_core.observability.activity`), so they grow while a daemon hangs. NaN means "not known
yet", which triggers no alert.
"""

from __future__ import annotations

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram, Info

# A second series per counter, for its creation time, would double the cost of a scrape.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # left untyped

REQUEST_SECS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WORK_SECS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)

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
    buckets=REQUEST_SECS,
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
