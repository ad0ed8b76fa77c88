"""Files whose rows came after a request was made: they do not come again for it.

A request reads its selection a page at a time, and the source goes on between two pages. Files that
its polls, its sweeps and other requests ingest meanwhile are in the table once. So are files of a
request that is accepted again because its checkpoint was lost. The journal shows them, and reports
of requests where the journal has lost the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from blizzard_core.storage.protocol import order_key
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.journal import Journal
from blizzard_py.state.journal_tally import raise_id
from blizzard_py.state.source_state import SourceState

_LOWEST = "00000000-0000-0000-0000-000000000000"


def first_after(state: SourceState) -> str:
    """Return an id such that every batch with missing rows is at or above it. Pure."""
    flying = (batch.batch for batch in state.work.in_flight)
    return min(flying, default=raise_id(_LOWEST, state.ids.last_batch))


class BroughtSince:
    """Names of a source that have rows of batches since a request, as its pages are read.

    Each batch is read once, and only names are held that lie beyond what is read of the selection.
    """

    def __init__(self, parts: SourceContext) -> None:
        self._journal = Journal(parts.stores.sink, parts.id, parts.concurrency)
        self._mailbox = Mailbox(parts.stores.sink, parts.id)
        self._since = self._beyond = ""
        self._read: set[str] = set()
        self._names: set[str] = set()

    def names(self, since: str, beyond: str) -> set[str]:
        """Return those above the path ``beyond`` of batches from ``since`` on.

        Raises `RequestInvalid`, `StateError`, `StorageError`.
        """
        journaled = self._journal.batches_from(since)
        if since != self._since or order_key(beyond) < order_key(self._beyond):
            self._read = set()
            self._names = self._reported(since, journaled)
        self._since, self._beyond = since, beyond
        fresh = [batch for batch in journaled if batch not in self._read]
        for record in self._journal.read(fresh):
            self._names |= {file.path for file in record.files if file.is_ingested}
            self._read.add(record.batch)
        key = order_key(beyond)
        self._names = {path for path in self._names if order_key(path) > key}
        return self._names

    def _reported(self, since: str, journaled: Sequence[str]) -> set[str]:
        """Return names in reports of batches that the journal has lost."""
        known = set(journaled)
        return {
            line.path
            for batch, entry in self._mailbox.outcomes()
            if batch >= since and batch not in known
            for line in self._mailbox.lines(entry)
            if line.state == "ingested"
        }
