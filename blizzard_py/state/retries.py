"""Temporary failures of items, and the times until which they wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from blizzard_py.job import FinishedFile, IngestResult
from blizzard_py.state.batch import Batch
from blizzard_py.state.source_state import Retry

# The wait in seconds before the first further try, and the longest one. Each wait is four times
# the one before.
RETRY_SECS = (15.0, 900.0)


def tries_of(retries: Mapping[str, Retry], path: str) -> int:
    """Return how often a file has failed with a temporary error."""
    known = retries.get(path)
    return 0 if known is None else known.count


def judge_outcomes(
    result: IngestResult, retries: Mapping[str, Retry], max_retries: int
) -> tuple[FinishedFile, ...]:
    """Return the files' outcomes: ``retry`` becomes ``quarantined`` once tries are used up."""
    return tuple(
        replace(file, outcome="quarantined")
        if file.outcome == "retry" and tries_of(retries, file.path) >= max_retries
        else file
        for file in result.files
    )


def waiting(retries: Mapping[str, Retry], now: float) -> set[str]:
    """Return the items whose next try is in the future."""
    return {path for path, retry in retries.items() if retry.after > now}


def retries_after(retries: Mapping[str, Retry], batch: Batch, now: float) -> dict[str, Retry]:
    """Return the files that wait for another try after the batch, with their times."""
    outcome = {file.path: file.outcome for file in batch.results.finished}
    waiting = {path: retry for path, retry in retries.items() if path not in outcome}
    first, longest = RETRY_SECS
    for path, found in outcome.items():
        if found == "retry":
            count = tries_of(retries, path) + 1
            waiting[path] = Retry(count, now + min(longest, first * 4.0 ** (count - 1)))
    return waiting
