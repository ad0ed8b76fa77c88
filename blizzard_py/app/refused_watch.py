"""Periodic search for refused files of a daemon's sources.

It has its own thread and its own stores. So no poll waits for it, and its requests do not hide a
loop that hangs. Without refused files it costs a LIST for each table and search.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from blizzard_core.errors import BlizzardError
from blizzard_core.handover.quarantine import QuarantineRecord, quarantined
from blizzard_core.log import get_logger
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_core.threads import in_background
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.story import way_out
from blizzard_py.state.source_state import checkpoint_path

if TYPE_CHECKING:
    from blizzard_py.selection.refused import RefusedOutput

LOOK_SECS = 300.0

# An answer is looked for anew after so long: a file may be gone.
_OLD_SECS = 3600.0

# What an answer follows from: the records, when a replay has last changed what counts, the hour.
_Cause = tuple[dict[str, QuarantineRecord], float, int]


class RefusedWatch:
    """Tells the activities of sources what was refused of them."""

    def __init__(self, workers: Sequence[SourcePipeline]) -> None:
        self._sources = [
            (each.activity or worker.activity, _with_own_store(each))
            for worker in workers
            for each in worker.each
        ]
        self._causes: dict[str, _Cause] = {}
        self._rows: dict[str, int] = {}
        # Who runs once looks at the end, and the thread may still be at its beginning.
        self._one_at_a_time = threading.Lock()

    def look(self) -> bool:
        """Return whether rows of any source were refused, as far as could be looked."""
        with self._one_at_a_time:
            return self._look()

    def _look(self) -> bool:
        tables: dict[str, dict[str, QuarantineRecord]] = {}
        for activity, parts in self._sources:
            log = get_logger(pipeline=parts.pipeline, source=parts.source_name)
            try:
                sink = parts.stores.sink
                if sink.uri not in tables:
                    tables[sink.uri] = quarantined(sink)
                hour = int(parts.monotonic() // _OLD_SECS)
                cause = (tables[sink.uri], _saved(sink, parts), hour)
                if cause == self._causes.get(parts.name):
                    continue
                found = _refused(parts, tables[sink.uri])
            except BlizzardError as error:
                log.warning("refused_unknown", error=str(error))
                continue
            self._causes[parts.name] = cause
            rows = sum(each.rows for each in found)
            newest = max(found, key=lambda each: each.timestamp, default=None)
            why = "" if newest is None else f"{newest.path}: {newest.error}"
            activity.refused(len(found), rows, why, way_out(parts))
            if rows and rows != self._rows.get(parts.name):
                log.warning("outputs_refused", outputs=len(found), rows=rows, newest=why)
            self._rows[parts.name] = rows
        return any(self._rows.values())

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at once, and then every few minutes."""

        def turn(over: threading.Event) -> None:
            while True:
                self.look()
                if over.wait(LOOK_SECS):
                    return

        with in_background("refused", turn, secs=1.0):
            yield


def _refused(
    parts: SourceContext, records: Mapping[str, QuarantineRecord]
) -> Sequence[RefusedOutput]:
    if not records:
        return ()
    # Most tables have none, and need nothing that follows them to source files.
    from blizzard_py.selection.refused import refused_outputs  # noqa: PLC0415  # see above

    return refused_outputs(parts, records)


def _with_own_store(parts: SourceContext) -> SourceContext:
    """Return the parts with a table store whose answers no loop counts."""
    sink = open_storage(parts.ingest.sink.uri, parts.ingest.sink.options)
    return replace(parts, stores=replace(parts.stores, sink=sink))


def _saved(sink: Storage, parts: SourceContext) -> float:
    """Return the time of the last saved state by which a file may have come again."""
    entry = sink.stat(checkpoint_path(parts.home_id))
    return 0.0 if entry is None else entry.modified
