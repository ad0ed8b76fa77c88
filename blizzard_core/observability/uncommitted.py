"""Published rows that no committer has settled yet. For people; reads only.

A committer saves in its state when the last poll began whose files are all settled: committed, or
recorded as rejected. Objects of Blizzard's journal from that time on name the outputs that may
wait. The state also has the output ids of the latest commits, so what was committed meanwhile is
known. The cost depends on what waits, not on what is stored.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blizzard_core.errors import StateError
from blizzard_core.handover.groups import COMMITTERS_FOLDER, GROUPS_FOLDER, decode_group, seq_of
from blizzard_core.handover.published import (
    JOURNAL_FOLDER,
    PublishedBatch,
    first_name,
    latest_objects,
    published_batch,
)
from blizzard_core.handover.quarantine import spelled
from blizzard_core.observability.commits import CommitTail
from blizzard_core.observability.heartbeat import BEAT_SUFFIX, Life, most_alive, read_life
from blizzard_core.observability.peer_state import moment_of, number_of, summarize_state
from blizzard_core.storage.protocol import Entry, Storage, listed, listed_below, read_each
from blizzard_core.text import json_object
from blizzard_core.threads import ThreadPool

# The key of a committer's chores for the last poll whose files are all settled.
POLL_CHORE = "poll"
# How many batches of a source are read: of more a sample.
READ_AT_MOST = 256
# A committer's clock is the store's; this machine's may differ. A poll later than this is of a
# clock that was set back since.
_CLOCK_SLACK_SECS = 900.0
# A batch is named so long before its journal is written at most.
_LONGEST_BATCH_SECS = 86_400.0
_CONCURRENCY = 8
_STATE = "_checkpoint.json"


@dataclass(frozen=True, slots=True)
class Committed:
    """The saved state of a table's committers; times in epoch seconds.

    ``settled`` is None if it is unknown what waits. ``saved`` and ``version`` are of the state that
    was saved last, None if there is none.
    """

    life: Life
    saved: float | None
    version: float | None
    settled: float | None
    output_ids: Container[str]
    groups: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the ``committer`` of ``status --json``."""
        return {**self.life.to_json(), "saved": self.saved, "version": self.version}


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Outputs that wait for their commit; ``oldest`` is when the first was published.

    ``complete`` is false if there are more, ``files`` None if it is unknown.
    """

    files: int | None = 0
    rows: int = 0
    batches: int = 0
    oldest: float | None = None
    complete: bool = True

    def plus(self, other: Uncommitted) -> Uncommitted:
        """Return the sum of both."""
        oldest = [each for each in (self.oldest, other.oldest) if each is not None]
        unknown = self.files is None or other.files is None
        return Uncommitted(
            None if unknown else (self.files or 0) + (other.files or 0),
            self.rows + other.rows,
            self.batches + other.batches,
            min(oldest, default=None),
            self.complete and other.complete,
        )

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the ``uncommitted`` of ``status --json``."""
        document = asdict(self)
        oldest = document.pop("oldest")
        return {**document, "oldest_secs": None if oldest is None else max(0.0, now - oldest)}


def read_committed(storage: Storage, now: float, own: str = "") -> Committed:
    """Read what the committers of a table have saved; a LIST, and a GET each.

    The life is that of the heartbeat at ``own`` if there is one: of several committers with
    partitions of their own, another one may run. Raises `StorageError`.
    """
    there = list(listed_below(storage, COMMITTERS_FOLDER))
    beats = [entry.path for entry in there if entry.path.endswith(BEAT_SUFFIX)]
    lives = [read_life(storage, path, now) for path in ([own] if own in beats else beats)]
    states = [entry for entry in there if entry.path.endswith(_STATE)]
    documents = [
        document
        for _, raw in read_each(storage, (entry.path for entry in states), 1)
        if (document := json_object(raw)) is not None
    ]
    output_ids: set[str] = set()
    groups: dict[str, int] = {}
    settled: list[float] = []
    for document in documents:
        ids, applied = document.get("output_ids"), document.get("groups")
        output_ids.update(i for i in (ids if isinstance(ids, list) else ()) if isinstance(i, str))
        for source, number in (applied if isinstance(applied, dict) else {}).items():
            if isinstance(number, int):
                groups[source] = max(number, groups.get(source, 0))
        chores = document.get("chores")
        polled = moment_of(chores.get(POLL_CHORE)) if isinstance(chores, dict) else None
        settled += [] if polled is None or polled > now + _CLOCK_SLACK_SECS else [polled]
    if not states and not any(commit.ours for commit in CommitTail(storage).look()):
        settled.append(0.0)  # no committer has ever committed here
    known = (number_of(summarize_state(each)["version"]) for each in documents)
    versions = [version for version in known if version is not None]
    return Committed(
        most_alive(lives),
        max((entry.modified for entry in states), default=None),
        max(versions, default=None),
        max(settled, default=None),
        frozenset(output_ids),
        groups,
    )


def waiting_of(
    storage: Storage, source_id: str, committed: Committed, refused: Container[str]
) -> Uncommitted:
    """Return the outputs of a source that are published and wait for their commit.

    ``refused`` are the recorded paths, as `blizzard_core.handover.quarantine` spells them. Costs a
    LIST, and a GET for each waiting batch. Raises `StorageError`.
    """
    if committed.settled is None:
        return Uncommitted(None, complete=False)
    since = int(committed.settled)
    folder = f"{JOURNAL_FOLDER}/{source_id}"
    after = f"{folder}/{first_name(since - _LONGEST_BATCH_SECS)}"
    newest = [e for e in latest_objects(storage, after, f"{folder}0") if e.modified >= since]
    found = Uncommitted(complete=len(newest) <= READ_AT_MOST)

    def read(entry: Entry) -> PublishedBatch | StateError | None:
        try:
            return published_batch(storage, entry.path)
        except StateError as error:
            return error

    entries = _sample(newest)
    with ThreadPool(_CONCURRENCY) as pool:
        for entry, batch in zip(entries, pool.map(read, entries), strict=True):
            if isinstance(batch, StateError):  # damaged: `run` says so
                found = found.plus(Uncommitted(complete=False))
                continue
            outputs = () if batch is None or batch.group is not None else batch.outputs
            rows = [
                output.rows
                for output in outputs
                if output.output_id not in committed.output_ids
                and not any(spelled(place) in refused for place in output.places)
            ]
            if rows:
                found = found.plus(Uncommitted(len(rows), sum(rows), 1, entry.modified))
    return found


def _sample(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return `READ_AT_MOST` entries from the first to the last.

    A committer that stopped within a long poll has settled the first ones.
    """
    if len(entries) <= READ_AT_MOST:
        return entries
    return [entries[n * (len(entries) - 1) // (READ_AT_MOST - 1)] for n in range(READ_AT_MOST)]


def waiting_groups(storage: Storage, source_id: str, committed: Committed) -> Uncommitted:
    """Return the replacement groups of a source that wait for their commit. As `waiting_of`."""
    if committed.settled is None:
        return Uncommitted(None, complete=False)
    applied = committed.groups.get(source_id, 0)
    folder = f"{GROUPS_FOLDER}/{source_id}"
    found = Uncommitted()
    for entry in listed(storage, f"{folder}/{applied + 1:020d}", f"{folder}0"):
        seq = seq_of(entry.path)
        if seq is None or seq <= applied:
            continue
        if found.batches >= READ_AT_MOST:
            return found.plus(Uncommitted(complete=False))
        for where, raw in read_each(storage, [entry.path], 1):
            try:
                group = decode_group(raw, where, source_id, seq)
            except StateError:  # damaged: `run` says so, and nothing behind it is committed
                found = found.plus(Uncommitted(0, 0, 1, entry.modified, complete=False))
                continue
            rows = sum(file.rows for file in group.files)
            found = found.plus(Uncommitted(len(group.files), rows, 1, entry.modified))
    return found
