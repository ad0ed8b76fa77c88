"""The sweep: everything that lies in the directory against everything the log knows. Pure.

Polls look above the watermarks only. What appears below them later than the
grace period, in a closed partition, or instead of a quarantined file, is found
here:

* *stragglers*: young files that neither log nor record knows; they are committed;
* *retries*: quarantined files that were replaced since; they are tried again;
* *orphans*: the same, but older than the horizon; they are reported only.

The horizon is what makes it safe. The log forgets a removed path after
``delta.deletedFileRetentionDuration``, and a file whose removal it has forgotten
looks like one that never was in it; to commit that would bring deleted rows
back. A file younger than that cannot have been removed longer ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from blizzard_py.core.model import Entry
from penguin_py.quarantine import Record, spelled

# Stores and daemons have clocks of their own.
CLOCK_SKEW_SECS = 3600.0


@dataclass(frozen=True, slots=True)
class Findings:
    """What a sweep found, each list in the order of the listing."""

    stragglers: tuple[Entry, ...]
    retries: tuple[Entry, ...]
    orphans: tuple[Entry, ...]


def safe_horizon(configured: float, removed_kept_secs: float) -> float:
    """How old a straggler may be, in seconds: never as old as a removal the log may forget."""
    return max(0.0, min(configured, removed_kept_secs - CLOCK_SKEW_SECS))


def compare(unknown: Iterable[Entry], records: Mapping[str, Record], oldest: float) -> Findings:
    """Sort listed files that the log does not know; ``oldest`` is the horizon (epoch seconds)."""
    stragglers: list[Entry] = []
    retries: list[Entry] = []
    orphans: list[Entry] = []
    for entry in unknown:
        record = records.get(spelled(entry.path))
        if record is not None and record.is_of(entry):
            continue
        if entry.modified < oldest:
            orphans.append(entry)
        elif record is None:
            stragglers.append(entry)
        else:
            retries.append(entry)
    return Findings(tuple(stragglers), tuple(retries), tuple(orphans))
