"""The dead-letter queue: files that were given up, made durable before they are passed.

One NDJSON object per batch, ``{dlq}/{pipeline}_{source}/{batch}.ndjson``, one
line per file::

    {"path": "s3://raw/…", "error": "line 3: …", "stage": "parse",
     "timestamp": "2024-01-28T14:00:00Z", "retry_count": 0}

The object is named by the batch, so a batch that runs again after a crash
replaces its letters and never doubles them.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence

from blizzard_py.core.model import FinishedFile
from blizzard_py.core.storage import Storage, join


class DeadLetters:
    """The dead letters of one source."""

    def __init__(self, storage: Storage, source_id: str, source_uri: str) -> None:
        self._storage = storage
        self._source_id = source_id
        self._source_uri = source_uri

    def keep(
        self, batch: str, files: Sequence[FinishedFile], retries: Mapping[str, int], now: float
    ) -> str | None:
        """Write the batch's quarantined files, durable on return; the object's URI if any.

        With none, letters that an earlier attempt at the batch left are removed.
        """
        path = join(self._source_id, f"{batch}.ndjson")
        lines = [
            json.dumps(
                {
                    "path": f"{self._source_uri}/{file.path}",
                    "error": file.error,
                    "stage": file.stage,
                    "timestamp": dt.datetime.fromtimestamp(now, dt.UTC).isoformat(),
                    "retry_count": retries.get(file.path, 0),
                },
                ensure_ascii=False,
            )
            for file in files
            if file.outcome == "quarantined"
        ]
        if not lines:
            self._storage.delete(path)
            return None
        self._storage.put_atomic(
            path, ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
        )
        return f"{self._storage.uri}/{path}"
