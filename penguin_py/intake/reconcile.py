"""The sweep: all files in the directory compared with all paths in the log. Pure.

Polls look above the watermarks only. The sweep finds files that appear below them after the grace
period, in a closed partition, or in place of a quarantined file:

* *stragglers*: young files that neither log nor record knows; they are committed;
* *retries*: quarantined files that were replaced since; they are tried again;
* *overdue* files: older than the horizon, but newer than the last sweep; ours are committed, the
  others are recorded;
* *orphans*: older than the horizon and than the last sweep; they are reported only.

The horizon makes the sweep safe. The log forgets a removed path after
``delta.deletedFileRetentionDuration``. A file whose removal is forgotten looks like one that never
was in the table; committing it would bring deleted rows back. A file younger than that cannot have
been removed longer ago, unless the directory was copied, which makes all files young
(`copied_at`). The first poll of a start follows the same rule.

A file with an output id needs no horizon if it came since the last sweep, as files do while Penguin
is down. Ids of commits are never forgotten (`penguin_py.delta.output_ids`), so an unknown id was
never in the table, however old its file is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from blizzard_core.handover.quarantine import QuarantineRecord, spelled
from blizzard_core.storage.protocol import Entry
from penguin_py.model import CLOCK_SKEW_SECS, LoggedPath, Rejection

# Times before 2001 are not those of files in an object store.
MADE_UP_SECS = 1e9
BEYOND = (
    "is older than reconcile_horizon, or than the table's log remembers removed files"
    " (delta.deletedFileRetentionDuration less an hour), and not in the log: the table may have had"
    " and removed it. If it belongs in the table, copy it to a new name; where that property is"
    " shorter than a day, set it to 'interval 7 days'"
)


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a sweep, each list in the order of the listing."""

    stragglers: tuple[Entry, ...]
    retries: tuple[Entry, ...]
    overdue: tuple[Entry, ...]
    orphans: tuple[Entry, ...]
    # On record and in the log all the same, by the record's spelling: two Penguins had it at
    # once, and the one saw its output id before it saw its path.
    committed: tuple[str, ...] = ()

    @property
    def due(self) -> tuple[Entry, ...]:
        """Return those to be looked into."""
        return (*self.stragglers, *self.retries, *self.overdue)


def copied_at(pairs: Iterable[tuple[Entry, LoggedPath]], now: float) -> float:
    """Return until when a copy of the directory rewrote files, in epoch seconds; 0 if none did.

    ``pairs`` are files as listed and as the log knows them. The result is 0 if most of them still
    have the logged times. Times that are missing, made up, or ahead of ``now`` (a wrong clock of
    the store) are ignored. So are removals, whose times are those of the deletion. A compaction's
    time is its machine's, so it counts only if nothing else is left.
    """
    times = [
        (listed, known)
        for listed, known in pairs
        if known.origin != "removal"
        and known.modified > MADE_UP_SECS
        and listed.modified <= now + CLOCK_SKEW_SECS
    ]
    times = [pair for pair in times if pair[1].origin == "data"] or times
    copied = [
        listed.modified
        for listed, known in times
        if listed.modified > known.modified + CLOCK_SKEW_SECS
    ]
    return max(copied) + CLOCK_SKEW_SECS if copied and 2 * len(copied) >= len(times) else 0.0


def beyond_horizon(entry: Entry) -> Rejection:
    """Return the rejection of a file that is too old: the log may have removed it."""
    return Rejection(entry, "horizon", BEYOND)


def came_since(chores: Mapping[str, int], copied: float) -> float:
    """Return the time after which a file was in no sweep yet.

    It is infinite if no sweep is known, since without a mirror the ids of cleaned-up log entries
    may be unknown. It is also infinite if the directory was ``copied``, which makes times
    meaningless.
    """
    known = "reconcile" in chores and not copied
    return chores["reconcile"] - CLOCK_SKEW_SECS if known else math.inf


def safe_horizon(configured: float, retention_secs: float) -> float:
    """Return a straggler's greatest age in seconds: never that of a removal the log may forget."""
    return max(0.0, min(configured, retention_secs - CLOCK_SKEW_SECS))


def compare(
    unknown: Iterable[Entry], records: Mapping[str, QuarantineRecord], oldest: float, since: float
) -> Findings:
    """Sort listed files that the log does not know.

    ``oldest`` is the horizon, ``since`` is from when on files came after the last sweep
    (epoch seconds both).
    """
    stragglers: list[Entry] = []
    retries: list[Entry] = []
    overdue: list[Entry] = []
    orphans: list[Entry] = []
    for entry in unknown:
        record = records.get(spelled(entry.path))
        if record is not None and record.is_of(entry):
            continue
        if entry.modified < oldest:
            (orphans if entry.modified < since else overdue).append(entry)
        elif record is None:
            stragglers.append(entry)
        else:
            retries.append(entry)
    return Findings(tuple(stragglers), tuple(retries), tuple(overdue), tuple(orphans))
