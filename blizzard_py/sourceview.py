"""One source, looked at: its state in storage, what a poll would find, what waits. Writes nothing.

What runs a source (`blizzard_py.pipeline`) looks through the same eyes, so ``plan``, ``status``
and a poll never disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from blizzard_py.backlog import Backlog, backlog
from blizzard_py.core.storage import Storage
from blizzard_py.core.storeclock import StoreClock
from blizzard_py.discovery import (
    SCAN_FILES,
    Discovery,
    FirstSeen,
    Places,
    Scope,
    accepts,
    check_identity,
    check_tracking,
    discover,
    discover_unseen,
    starting_point,
)
from blizzard_py.letters import LetterObject, objects
from blizzard_py.parts import Parts
from blizzard_py.processed import Digests
from blizzard_py.settrack import SetTracker
from blizzard_py.state import STATE_FOLDER, SourceState, checkpoint_path
from blizzard_py.statefile import read_names, read_state
from blizzard_py.sweep import grace_of


class SourceView:
    """A source as it is in storage, within a ``scope`` of it if one is given."""

    def __init__(self, parts: Parts, scope: Scope | None = None) -> None:
        self.pipeline = parts.pipeline
        self.source_name = parts.source_name
        self.checkpoint_path = checkpoint_path(parts.id)
        self._parts = parts
        self._source = parts.source
        self._stores = parts.stores
        self._clock = StoreClock(parts.clock, parts.monotonic)
        self._scope = scope
        self._where = f"{parts.stores.sink.uri}/{self.checkpoint_path}"
        self._tracker = SetTracker(parts.stores.sink, f"{STATE_FOLDER}/{parts.id}_processed")
        # The state that whoever owns it goes on from; then the tracker is in step with it.
        self._state: SourceState | None = None
        self._first_seen = FirstSeen()
        self._young = 0
        self._listed: Digests | None = None

    @property
    def name(self) -> str:
        """``pipeline/source``."""
        return self._parts.name

    @property
    def id(self) -> str:
        """What its state is named by."""
        return self._parts.id

    @property
    def poll_interval_secs(self) -> float:
        """From the source's settings."""
        return self._source.poll_interval_secs

    @property
    def sink(self) -> Storage:
        """The table's storage, where the state is."""
        return self._stores.sink

    def grace_period_secs(self, state: SourceState) -> float:
        """The grace period in use: as configured, or sized by measured lateness."""
        return grace_of(self._source, state, self._clock())

    def load(self) -> SourceState:
        """The state in storage, or a cold start. Raises `StateError`, `StorageError`."""
        found = read_state(self._stores.sink, self._parts.id)
        return SourceState() if found is None else found

    def discover(self, state: SourceState, *, whole: bool = False) -> Discovery:
        """What the next poll would find; ``whole``: the ones after it as well. Writes nothing."""
        self.check(state)
        source = self._source
        if not source.use_watermark:
            # Who only looks reads beside the owner, whose tracker is in step with its state.
            looks = self._state is None
            names = read_names(self.sink, self.id) if looks else self._tracker
            found, self._listed = discover_unseen(
                self._stores.source, source, names.unseen, self._clock, self._first_seen
            )
            return replace(found, progress=state.progress)
        return discover(
            self._stores.source,
            source,
            starting_point(state, source, self._clock(), self._where),
            self._clock,
            self._parts.concurrency,
            self._first_seen,
            self._scope,
            # What waits must not take the places of what could be done.
            None if whole else SCAN_FILES + len(state.retries) + self._young,
        )

    def backlog(self, state: SourceState) -> Backlog | None:
        """What waits, for a bounded number of requests; None without a watermark to start at.

        Raises `StorageError`, `StateError`.
        """
        if not self._source.use_watermark:
            return None
        now = self._clock()
        start = starting_point(state, self._source, now, self._where)
        accept = accepts(self._source.compression)
        return backlog(
            self._stores.source,
            start,
            accept,
            lambda progress: Places(progress, self._source, now),
            state.queue,
        )

    def dead_letters(self) -> Iterator[LetterObject]:
        """The open objects of its dead-letter queue. Raises `StorageError`."""
        return objects(self._stores.dlq, self._parts.letters_id)

    def check(self, state: SourceState) -> None:
        """Raise `StateError` if the state is not this source's or was kept in another way."""
        check_identity(state, self._parts.identity, self._source.id, self._where)
        check_tracking(state, self._source, self._where)
