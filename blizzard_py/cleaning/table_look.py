"""The look at the table that proves that batches are in it. Read-only."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from blizzard_core.delta_json import commit_entries, version_of
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.committed import LOG_SLACK_SECS, committed_versions, has_restore
from blizzard_py.cleaning.eligible import after_log, with_sighting
from blizzard_py.state.batch import Batch
from blizzard_py.state.cleaning_state import CleaningState, Sighting


def look_at_table(
    sink: Storage,
    state: CleaningState,
    batches: Sequence[Batch],
    last_batch: str,
    now: float,
    concurrency: int,
) -> CleaningState:
    """Return the state after a look for RESTORE and for the outputs of batches.

    ``batches`` are those of the journal behind the last sighting, in order, without batches in
    flight. There may be none: a look is due before every cleaning all the same. ``now`` is the
    store's time from before the look.
    Costs a GET for each commit since the last look, and those of `committed_versions`. Raises
    `StateError`, `StorageError`.
    """
    since = min((batch.started_ts for batch in batches), default=now)
    commits = list(commit_entries(sink, max(state.log_version, 0)))
    if not commits:
        return state
    is_first = state.log_version < 0
    if is_first:
        # Only what came after the first of the batches could have taken their rows out.
        new = [entry for entry in commits if entry.modified >= since - LOG_SLACK_SECS]
    else:
        new = commits[1:]
    # The last commit of the earlier look is still there, or some behind it may be missing.
    reaches_back = is_first or version_of(commits[0].path) == state.log_version
    is_restored = not reaches_back or has_restore(sink, new, concurrency)
    newest = version_of(commits[-1].path)
    state = after_log(state, newest, last_batch, is_restored=is_restored)
    if is_restored or not batches:
        return state
    wanted = {final for batch in batches for each in batch.results.outputs for final in each.finals}
    found, _ = committed_versions(sink, wanted, since, concurrency)
    # A RESTORE may have come since the commits were listed; the next look judges those.
    present = {path for path, version in found.items() if version <= newest}
    through = committed_through(batches, present)
    return state if not through else with_sighting(state, Sighting(through, now))


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
