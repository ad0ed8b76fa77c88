"""Published outputs that are missing in table and store, and rejected files that are resolved.

A VACUUM with a short retention, or after a long outage, deletes files that wait for their commit.
The table's directory does not show that, but Blizzard's journal does. Each check reads the
journal records since the last one, and looks in the store for those outputs that the log lacks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from blizzard_core.handover.published import (
    PublishedBatch,
    PublishedOutput,
    journal_objects,
    published_batch,
)
from blizzard_core.handover.quarantine import MISSING, QuarantineRecord, spelled
from blizzard_core.storage.protocol import Entry, Storage
from penguin_py.intake.footers import read_footers
from penguin_py.model import Rejection

# A batch is named so long before its journal is written at most.
LONGEST_BATCH_SECS = 86_400.0
# Journals of the last minutes are looked at again: stores' listings and clocks differ by so much.
MARGIN_SECS = 300.0
# How many source files a message names.
NAMED = 5
# Objects of a journal that are read and held at the same time.
AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class MissingOutputs:
    """The missing outputs, and the time before which all batches are checked."""

    missing: tuple[Rejection, ...]
    checked_until: float


class PublishedOutputs:
    """The published outputs of one table. Not thread-safe."""

    def __init__(self, storage: Storage, pool: Executor) -> None:
        self._storage = storage
        self._pool = pool
        # Journal objects whose outputs are all committed or recorded, and that are still listed.
        self._settled: set[str] = set()

    def look(
        self,
        known: Container[str],
        records: Mapping[str, QuarantineRecord],
        since: float,
        now: float,
    ) -> MissingOutputs:
        """Compare what was published at ``since`` or later with the log and the store.

        ``known`` are the output ids of the log, ``records`` what is on record as refused.
        Raises `StateError`, `StorageError`.
        """
        objects = list(journal_objects(self._storage, since - LONGEST_BATCH_SECS))
        due = [e for e in objects if e.modified >= since and e.path not in self._settled]
        missing: list[Rejection] = []
        find_resolved = now - MARGIN_SECS
        for start in range(0, len(due), AT_ONCE):
            some = due[start : start + AT_ONCE]
            batches = self._pool.map(lambda e: published_batch(self._storage, e.path), some)
            for entry, batch in zip(some, batches, strict=True):
                if batch is not None and self._waits(batch, known, records, missing):
                    find_resolved = min(find_resolved, entry.modified)
                else:
                    self._settled.add(entry.path)
        self._settled &= {entry.path for entry in objects if entry.modified >= find_resolved}
        return MissingOutputs(tuple(missing), find_resolved)

    def _waits(
        self,
        batch: PublishedBatch,
        known: Container[str],
        records: Mapping[str, QuarantineRecord],
        missing: list[Rejection],
    ) -> bool:
        """Return whether an output waits for its commit; add those that are gone to ``missing``."""
        waits = False
        for output in () if batch.group is not None else batch.outputs:
            if output.output_id in known or any(spelled(p) in records for p in output.places):
                continue
            # In their order: an output that moves meanwhile is met in one of them.
            if any(self._storage.stat(place) is not None for place in output.places):
                waits = True
            else:
                missing.append(_missing(batch, output))
        return waits


def _missing(batch: PublishedBatch, output: PublishedOutput) -> Rejection:
    files = batch.ingested
    more = f" and {len(files) - NAMED:,} more" if len(files) > NAMED else ""
    return Rejection(
        Entry(output.final, 0, 0.0),
        MISSING,
        f"was published with {output.rows:,} rows and deleted before it was committed (a VACUUM"
        f" with a short retention?); the rows are of {', '.join(files[:NAMED])}{more};"
        " `blizzard replay CONFIG --refused` ingests these files again",
        output.output_id,
    )


# How many footers are read, of the latest rejected files.
AT_MOST = 1000


def find_resolved(
    storage: Storage,
    records: Iterable[QuarantineRecord],
    known: Container[str],
    pool: Executor,
) -> set[str]:
    """Return the rejected files of which nothing is missing: the log knows their output id.

    Their output was discarded (`penguin discard`, which `blizzard replay --refused` runs first), or
    came in another file. The record stays while the file exists, because the sweep would take it
    for a straggler. The operator need not act. An unreadable file is not resolved.
    """
    records = list(records)
    found = {r.path for r in records if r.output_id is not None and r.output_id in known}
    newest = sorted(records, key=lambda record: record.timestamp, reverse=True)[:AT_MOST]
    entries = [
        Entry(each.path, each.size, each.modified or 0.0) for each in newest if each.size > 0
    ]
    while entries:
        footers = read_footers(storage, entries, pool)
        found |= {
            footer.path
            for footer in footers.sound
            if footer.output_id is not None and footer.output_id in known
        }
        entries = list(footers.unread)
    return found
