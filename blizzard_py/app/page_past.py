"""A source's history as the page shows it: from its journal and its table's log. Writes nothing.

Both outlive the daemon. What it costs is bounded: some LISTs, and a read for each batch and commit
that is shown, once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blizzard_core.delta_json import listed
from blizzard_core.observability.activity import told_text
from blizzard_core.observability.commits import Commit, CommitTail, told
from blizzard_core.storage.protocol import join
from blizzard_core.text import printable
from blizzard_py.sources.parts import Parts
from blizzard_py.state.journal import BatchDocument, Journal, first_name, latest
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.stream_state import SettledBatch

# How many batches are shown, and how many files that were not ingested.
BATCHES = 60
FAILED = 30
# Where the newest batches are looked for: names tell the time, and a listing goes forward only.
_SPANS_SECS = (6 * 3600.0, 3 * 86_400.0, None)

# A batch by its id, and by when its object was written.
_Key = tuple[str, float]


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is kept of a batch: what is shown of it, its outputs' names, and its failures."""

    shown: dict[str, Any]
    outputs: tuple[frozenset[str], ...]
    failed: tuple[dict[str, Any], ...]


class SourcePast:
    """The newest batches of one source and commits of its table."""

    def __init__(self, parts: Parts, clock: Callable[[], float]) -> None:
        self._parts = parts
        self._clock = clock
        self._commits = CommitTail(parts.stores.sink)
        self._read: dict[_Key, _Batch] = {}

    def look(self) -> dict[str, Any]:
        """The history as plain data. Raises `StateError`, `StorageError`."""
        batches = self._batches()
        commits = self._commits.look()
        failed = [file for each in batches for file in each.failed]
        return {
            "batches": [
                {**each.shown, **landed(each.outputs, each.shown["at"], commits)}
                for each in batches
            ],
            "failed": failed[:FAILED],
            "commits": [told(commit) for commit in commits],
        }

    def _batches(self) -> list[_Batch]:
        """The newest, the latest first; each is read once."""
        keys = self._newest()
        new = [batch for batch, at in keys if (batch, at) not in self._read]
        journal = Journal(self._parts.stores.sink, self._parts.id, self._parts.concurrency)
        place = self._parts.stores.source.uri
        fresh = {each.batch: _kept(each, place) for each in journal.documents(new)}
        known = {key: self._read.get(key) or fresh.get(key[0]) for key in keys}
        self._read = {key: each for key, each in known.items() if each is not None}
        return [self._read[key] for key in reversed(keys) if key in self._read]

    def _newest(self) -> Sequence[_Key]:
        found: deque[_Key] = deque()
        for span in _SPANS_SECS:
            found = deque(self._listed(span), maxlen=BATCHES)
            if len(found) == BATCHES:
                break
        return found

    def _listed(self, span: float | None) -> Iterator[_Key]:
        folder = StatePaths(self._parts.id).journal
        after = f"{folder}/" if span is None else join(folder, first_name(self._clock() - span))
        for batch, entry in latest(listed(self._parts.stores.sink, after, f"{folder}0")):
            yield batch, entry.modified


def _kept(batch: BatchDocument, place: str) -> _Batch:
    outcomes = [file.outcome for file in batch.files]
    shown = {
        "batch": batch.batch,
        "at": batch.finished_ts,
        "secs": max(0.0, batch.finished_ts - batch.started_ts),
        "attempt": batch.attempt,
        "files": len(batch.files),
        "failed": sum(outcome != "ingested" for outcome in outcomes),
        "bytes": sum(file.size or 0 for file in batch.files),
        "rows": sum(output.rows for output in batch.outputs),
        "bad_rows": sum(file.bad_rows for file in batch.files),
        "outputs": len(batch.outputs),
        "event_time": None if batch.event_time is None else _course(batch.event_time),
    }
    failed = tuple(
        {
            "at": batch.finished_ts,
            "batch": batch.batch,
            "path": printable(file.path),
            "uri": printable(f"{place}/{file.path}"),
            "outcome": file.outcome,
            "stage": file.stage,
            "error": told_text(file.error),
        }
        for file in batch.files
        if file.outcome != "ingested"
    )
    outputs = tuple(frozenset((each.final, *each.earlier)) for each in batch.outputs)
    return _Batch(shown, outputs, failed[:FAILED])


def _course(settled: SettledBatch) -> dict[str, Any]:
    return {
        "watermark_ms": settled.watermark_ms,
        "max_event_time_ms": settled.max_event_time_ms,
        "state_rows": settled.state_rows,
        "late_rows": settled.late_rows,
    }


def landed(
    outputs: Sequence[frozenset[str]], at: float, commits: Sequence[Commit]
) -> Mapping[str, Any]:
    """In which versions outputs are that were settled ``at`` a moment, and how many in none.

    ``commits`` are the newest, the latest first. ``missing`` is None where older ones, which are
    not known here, may have them. Pure.
    """
    versions = {path: commit.version for commit in reversed(commits) for path in commit.paths}
    found = [next((versions[p] for p in names if p in versions), None) for names in outputs]
    oldest = commits[-1] if commits else None
    whole = all(commit.whole for commit in commits)
    reaches = oldest is None or oldest.version == 0 or oldest.at < at
    missing = sum(version is None for version in found) if reaches and whole else None
    known = sorted({version for version in found if version is not None})
    return {"versions": known, "missing": 0 if None not in found else missing}
