"""A source's history for the status page, from its journal and its table's log. Writes nothing.

Both outlive the daemon. The cost is bounded: some LISTs, and one read for each batch and commit
shown. A damaged batch object is shown as such, beside the others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import StateError
from blizzard_core.handover.complete import Completions, completions_path, parser
from blizzard_core.handover.published import first_name
from blizzard_core.handover.quarantine import quarantined, spelled
from blizzard_core.limits import SHOWN_BATCH_BYTES
from blizzard_core.observability.commits import CommitSummary, CommitTail, commit_to_json
from blizzard_core.redact import clean_text, error_text
from blizzard_core.storage.protocol import Entry, join, listed, order_key
from blizzard_core.text import printable
from blizzard_py.app.page_letters import OpenLetters
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.event_times import BEHIND_SECS, EventTimes
from blizzard_py.state.journal import BatchDocument, Journal, latest
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.stream_state import QueryBatch

# The newest so many partitions are shown.
PARTITIONS = 240
# Of one batch, so many partitions and files that were not ingested are counted.
_EACH = 1_000

State = Literal["rejected", "dead-lettered", "late", "missing", "waiting", "ingested"]
_STATES: Mapping[str, State] = {
    "ingested": "ingested",
    "quarantined": "dead-lettered",
    "reported": "late",
    "missing": "missing",
}
# The number of files of a partition in each state, and the latest of them.
Counts: TypeAlias = dict[str, dict[State, tuple[int, str]]]


def folder_of(path: str) -> str:
    """Return the partition of a file's path."""
    return path.rpartition("/")[0]


def count_files(batch: BatchDocument) -> Counts:
    """Return the files of a batch by partition and state."""
    found: Counts = {}
    for file in batch.files:
        state = _STATES.get(file.outcome)
        folder = folder_of(file.path)
        is_known = folder in found or len(found) < _EACH
        if state is not None and is_known and not is_of_records(file.path):
            states = found.setdefault(folder, {})
            states[state] = (states.get(state, (0, ""))[0] + 1, file.path)
    return found


def failed_paths(batch: BatchDocument) -> dict[str, State]:
    """Return the files of a batch that were not ingested."""
    failed = (
        (file.path, state)
        for file in batch.files
        if (state := _STATES.get(file.outcome)) is not None and state != "ingested"
    )
    return dict(list(failed)[:_EACH])


def merge(
    batches: Iterable[tuple[Counts, Mapping[str, State], Collection[str], bool]],
) -> Counts:
    """Return the sum of batches, the newest first.

    Of each are given the counts, its failed files, the files that it brought by request, and
    whether Penguin has rejected any of its output. A file that a later batch has brought counts
    there only.
    """
    found: Counts = {}
    brought: set[str] = set()
    for counts, failed, ingested, is_rejected in batches:
        mended = Counter(
            (folder_of(path), state) for path, state in failed.items() if path in brought
        )
        for folder, states in counts.items():
            for state, (count, path) in states.items():
                gone = mended[folder, state]
                if count > gone:
                    rejected = is_rejected and state == "ingested"
                    _put(found, folder, "rejected" if rejected else state, count - gone, path)
        brought.update(ingested)
    return found


def _put(found: Counts, folder: str, state: State, count: int, path: str) -> None:
    states = found.setdefault(folder, {})
    known, latest = states.get(state, (0, path))
    states[state] = (known + count, latest)


def shown_partitions(found: Counts, place: str, complete: Collection[str] = ()) -> dict[str, Any]:
    """Return the newest partitions for the page; ``uri`` is a file that explains the state.

    Folders below ``complete`` partitions are marked.
    """
    names: Sequence[str] = sorted(found, key=order_key)[-PARTITIONS:]
    return {
        "more": len(found) - len(names),
        "list": [
            {
                "name": printable(name),
                "complete": any(f"{name}/".startswith(f"{each}/") for each in complete),
                "states": {
                    state: {"files": count, "uri": printable(f"{place}/{path}")}
                    for state, (count, path) in found[name].items()
                },
            }
            for name in names
        ],
    }


# How many batches are shown, and how many files that were not ingested.
BATCHES = 60
FAILED = 30
# Where the newest batches are looked for: names tell the time, and a listing goes forward only.
_SPANS_SECS = (6 * 3600.0, 3 * 86_400.0, None)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The shown parts of a batch, its outputs' names, its failures, and its files by state.

    ``brought`` are the files that it ingested by request, which may have failed before.
    """

    shown: dict[str, Any]
    outputs: tuple[frozenset[str], ...] = ()
    failed: tuple[dict[str, Any], ...] = ()
    counts: Counts = field(default_factory=dict)
    failed_paths: Mapping[str, State] = field(default_factory=dict)
    brought: frozenset[str] = frozenset()


class SourceHistory:
    """The newest batches of one source and commits of its table."""

    def __init__(
        self, parts: SourceContext, clock: Callable[[], float], *, samples: bool = False
    ) -> None:
        """Read from the stores of ``parts``; ``samples`` shows the beginning of bad records."""
        self._parts = parts
        self._clock = clock
        self._commits = CommitTail(parts.stores.sink)
        self._letters = OpenLetters(parts.stores.dlq, parts.letters_id, samples=samples)
        self._read: dict[Entry, _Batch] = {}

    def look(self) -> dict[str, Any]:
        """Return the history as plain data. Raises `StateError`, `StorageError`."""
        batches = self._batches()
        commits = self._commits.look()
        brought: set[str] = set()
        failed = []
        for each in batches:
            failed += [file for file in each.failed if file["path"] not in brought]
            brought.update(map(printable, each.brought))
        return {
            "batches": [
                {**each.shown, **commit_versions(each.outputs, each.shown["at"], commits)}
                for each in batches
            ],
            "failed": failed[:FAILED],
            "letters": self._letters.look(),
            "partitions": self._partitions(batches) if self._parts.has_files else None,
            "commits": [commit_to_json(commit) for commit in commits],
        }

    def _partitions(self, batches: Sequence[_Batch]) -> dict[str, Any]:
        records = quarantined(self._parts.stores.sink)
        found = merge(
            (
                each.counts,
                each.failed_paths,
                each.brought,
                any(spelled(name) in records for names in each.outputs for name in names),
            )
            for each in batches
        )
        return shown_partitions(found, self._parts.stores.source.uri, self._complete())

    def _complete(self) -> list[str]:
        """Return the partitions that the mirror has as complete."""
        settings, path = self._parts.source.as_files, completions_path(self._parts.id)
        if settings is None or settings.complete_after is None:
            return []
        found = checkpoint.load(self._parts.stores.sink, path, parser(Completions))
        return [] if found is None else [p for p, c in found.partitions.items() if c.complete_ts]

    def _batches(self) -> list[_Batch]:
        """Return the newest batches, the latest first; each is read once."""
        entries = self._newest()
        new = [entry for entry in entries if entry not in self._read]
        journal = Journal(self._parts.stores.sink, self._parts.id, self._parts.concurrency)
        place = self._parts.stores.source.uri
        fresh = {
            entry: _unreadable_batch(entry, f"has {entry.size:,} bytes, too many to look into")
            for entry in new
            if entry.size > SHOWN_BATCH_BYTES
        }
        for entry, found in journal.documents_or_errors(
            entry for entry in new if entry not in fresh
        ):
            if isinstance(found, StateError):
                fresh[entry] = _unreadable_batch(entry, f"is damaged: {error_text(found)}")
            else:
                fresh[entry] = _batch_of(found, place)
        known = {entry: self._read.get(entry) or fresh.get(entry) for entry in entries}
        self._read = {entry: each for entry, each in known.items() if each is not None}
        return [self._read[entry] for entry in reversed(entries) if entry in self._read]

    def _newest(self) -> Sequence[Entry]:
        found: deque[Entry] = deque()
        for span in _SPANS_SECS:
            found = deque(self._listed(span), maxlen=BATCHES)
            if len(found) == BATCHES:
                break
        return found

    def _listed(self, span: float | None) -> Iterator[Entry]:
        folder = StatePaths(self._parts.id).journal
        after = f"{folder}/" if span is None else join(folder, first_name(self._clock() - span))
        for _, entry in latest(listed(self._parts.stores.sink, after, f"{folder}0")):
            yield entry


# What is shown of a batch.
_SHOWN = (
    "odd", "batch", "at", "secs", "attempt", "files", "failed", "bytes", "rows", "bad_rows",
    "outputs", "event_time",
)  # fmt: skip


def _batch_of(batch: BatchDocument, place: str) -> _Batch:
    outcomes = [file.outcome for file in batch.files]
    shown = {
        "odd": "",
        "batch": batch.batch,
        "at": batch.finished_ts,
        "secs": max(0.0, batch.finished_ts - batch.started_ts),
        "attempt": batch.attempt,
        "files": len(batch.files),
        "failed": sum(outcome != "ingested" for outcome in outcomes),
        "bytes": sum(file.size for file in batch.files),
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
            "error": clean_text(file.error),
        }
        for file in batch.files
        # Dead letters are shown by their reason, and a file to try again is not lost.
        if file.outcome not in {"ingested", "quarantined", "retry"}
    )
    outputs = tuple(frozenset((each.final, *each.earlier)) for each in batch.outputs)
    return _Batch(
        shown,
        outputs,
        failed[:FAILED],
        count_files(batch),
        failed_paths(batch),
        frozenset(file.path for file in batch.files if file.outcome == "ingested")
        if batch.request
        else frozenset(),
    )


def _unreadable_batch(entry: Entry, why: str) -> _Batch:
    """Return a batch of which only the time of its object is known, and why."""
    known = {
        "odd": f"its object of the journal {why}",
        "batch": entry.path.rpartition("/")[2].removesuffix(".json"),
        "at": entry.modified,
    }
    return _Batch(dict.fromkeys(_SHOWN) | known)


def _course(settled: QueryBatch) -> dict[str, Any]:
    return {
        "watermark_ms": settled.watermark_ms,
        "max_event_time_ms": settled.max_event_time_ms,
        "times": None if settled.times is None else _shown_times(settled.times),
        "operators": [asdict(each) for each in settled.operators],
        "state_rows": settled.state_rows,
        "late_rows": settled.late_rows,
    }


def _shown_times(times: EventTimes) -> dict[str, Any]:
    """As in the journal, and each bucket with how many seconds behind it ends; the last never."""
    return asdict(times) | {"behind": list(zip((*BEHIND_SECS, None), times.behind, strict=True))}


def commit_versions(
    outputs: Sequence[frozenset[str]], at: float, commits: Sequence[CommitSummary]
) -> Mapping[str, Any]:
    """Return the versions with outputs settled ``at`` a moment, and the number missing.

    ``commits`` are the newest, the latest first. ``missing`` is None if older ones, not known here,
    may have them. Pure.
    """
    versions = {path: commit.version for commit in reversed(commits) for path in commit.paths}
    found = [next((versions[p] for p in names if p in versions), None) for names in outputs]
    oldest = commits[-1] if commits else None
    whole = all(commit.whole for commit in commits)
    reaches = oldest is None or oldest.version == 0 or oldest.at < at
    missing = sum(version is None for version in found) if reaches and whole else None
    known = sorted({version for version in found if version is not None})
    return {"versions": known, "missing": 0 if None not in found else missing}
