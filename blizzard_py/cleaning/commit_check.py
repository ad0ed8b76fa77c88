"""The check of the table that proves that batches are in it, and still are. Read-only."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Sequence

from blizzard_core.delta_json import commit_entries, version_of
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.committed import committed_versions, lost_folders
from blizzard_py.cleaning.eligible import LogCheck, after_log, with_commit_check
from blizzard_py.state.batch import Batch
from blizzard_py.state.source_state import CleaningState, CommitCheck


def check_log(sink: Storage, state: CleaningState, concurrency: int) -> LogCheck:
    """Return the end of the log, and what has left the table since the last check.

    Everything may have left it if the log does not continue the one that was checked: the table
    was removed, created again, taken back by a copy of its folder, or has lost commits. Costs a GET
    for each commit since, and one more. Raises `StateError`, `StorageError`.
    """
    known = state.log_version
    commits = list(commit_entries(sink, max(known, 0)))
    if not commits:
        return LogCheck(-1, "", frozenset() if known < 0 else None)
    first, newest = version_of(commits[0].path), version_of(commits[-1].path)
    continues = first == 0 if known < 0 else first == known
    # Commits that nobody has may have removed rows.
    continues &= newest - first == len(commits) - 1
    continues &= known < 0 or _digest(sink, commits[0].path) == state.log_digest
    new = commits if known < 0 else commits[1:]
    lost = lost_folders(sink, new, concurrency) if continues else None
    is_same = continues and newest == known
    digest = state.log_digest if is_same else _digest(sink, commits[-1].path)
    return LogCheck(newest, digest, lost)


def end_of_log(sink: Storage) -> LogCheck:
    """Return the end of the log, for a cleaning that begins. Raises `StorageError`."""
    newest = max((entry.path for entry in commit_entries(sink)), default="")
    if not newest:
        return LogCheck(-1, "", frozenset())
    return LogCheck(version_of(newest), _digest(sink, newest), frozenset())


def _digest(sink: Storage, path: str) -> str:
    return hashlib.sha256(sink.read(path)).hexdigest()


def check_commits(
    sink: Storage,
    state: CleaningState,
    batches: Sequence[Batch],
    last_batch: str,
    now: float,
    concurrency: int,
) -> CleaningState:
    """Return the state after a check for rows that have left, and for the outputs of batches.

    ``batches`` are those of the journal behind the last check, in order, without batches in
    flight. There may be none: a check is due before every cleaning all the same. ``now`` is the
    store's time from before the check.
    Costs those of `check_log` and of `committed_versions`. Raises `StateError`, `StorageError`.
    """
    log = check_log(sink, state, concurrency)
    state = after_log(state, log, last_batch, now)
    if log.lost is None or not batches:
        return state
    wanted = {final for batch in batches for each in batch.results.outputs for final in each.finals}
    since = min(batch.started_ts for batch in batches)
    found, _ = committed_versions(sink, wanted, since, concurrency)
    # Later commits may have removed rows; the next check finds those.
    present = {path for path, version in found.items() if version <= log.version}
    through = committed_through(batches, present)
    return state if not through else with_commit_check(state, CommitCheck(through, now))


def committed_through(batches: Iterable[Batch], present: Container[str]) -> str:
    """Return the last batch of which, and of all before it, every output was committed. Pure.

    Empty if the first one is incomplete. A batch that a committer refused holds back later ones.
    """
    through = ""
    for batch in batches:
        for output in batch.results.outputs:
            if not any(final in present for final in output.finals):
                return through
        through = batch.batch
    return through
