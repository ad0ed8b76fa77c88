"""The journal: one small object per batch that says what became of every file of it.

``_blizzard/journal/{pipeline}_{source}/{batch}.json``::

    {"batch": "…", "attempt": 1, "started_ts": 1706450500.1, "finished_ts": 1706450512.9,
     "files": [{"path": "date=…/x.ndjson.gz", "outcome": "ingested", "rows": 20,
                "bad_rows": 0}, …],
     "outputs": [{"final": "date=…/<uuidv7>.parquet", "rows": 20, "output_id": "…"}, …]}

It is written after publishing and before the batch leaves the checkpoint, under
the batch's own name, so a batch that is finished after a crash writes the same
object again. Nothing is decided by it: it is there to explain. Batches are
named by UUIDv7, so names sort in time and old ones are removed by name.
"""

from __future__ import annotations

import json
import uuid

from blizzard_py.core.storage import Storage, join
from blizzard_py.state import STATE_FOLDER, Batch

JOURNAL_FOLDER = f"{STATE_FOLDER}/journal"
KEPT_SECS = 30 * 86_400


class Journal:
    """The journal of one source; ``source_id`` is ``{pipeline}_{source}``."""

    def __init__(self, storage: Storage, source_id: str) -> None:
        self._storage = storage
        self._folder = join(JOURNAL_FOLDER, source_id)

    def write(self, batch: Batch, now: float) -> None:
        """Put the batch's object there, or the same again."""
        document = {
            "batch": batch.batch,
            "attempt": batch.attempt,
            "started_ts": batch.started_ts,
            "finished_ts": now,
            "files": [
                {"path": f.path, "outcome": f.outcome, "rows": f.rows, "bad_rows": f.bad_rows}
                for f in batch.finished
            ],
            "outputs": [
                {"final": o.final, "rows": o.rows, "output_id": o.output_id} for o in batch.outputs
            ],
        }
        text = json.dumps(document, ensure_ascii=False)
        path = join(self._folder, f"{batch.batch}.json")
        self._storage.put_atomic(path, text.encode("utf-8", "backslashreplace"))

    def prune(self, now: float) -> int:
        """Remove what is older than thirty days; returns how many objects."""
        limit = join(self._folder, first_name(now - KEPT_SECS))
        old = [
            e for page in self._storage.list_range(f"{self._folder}/", limit) for e in page.entries
        ]
        for entry in old:
            self._storage.delete(entry.path)
        return len(old)


def first_name(moment: float) -> str:
    """What every UUIDv7 made at ``moment`` or later sorts above (RFC 9562: 48 bits of ms)."""
    return str(uuid.UUID(int=max(0, int(moment * 1000)) << 80))[:13]
