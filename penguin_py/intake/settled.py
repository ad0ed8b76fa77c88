"""Files on record as refused of which the log says that nothing of them is missing any more.

Their output was given up (`penguin discard`, which is what `blizzard redo` does first), or has come
by another file. They stay on record for as long as they lie there, or the sweep would take them for
stragglers; nobody has to do anything about them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from concurrent.futures import Executor

from blizzard_core.handover.quarantine import Record
from blizzard_core.storage.protocol import Entry, Storage
from penguin_py.intake.footers import read_footers

# So many footers are read, of the files that were refused last.
AT_MOST = 1000


def settled(
    storage: Storage, records: Iterable[Record], known: Container[str], pool: Executor | None
) -> set[str]:
    """The paths of those whose output id is ``known`` to the log. What cannot be read is none."""
    records = list(records)
    found = {r.path for r in records if r.output_id is not None and r.output_id in known}
    newest = sorted(records, key=lambda record: record.timestamp, reverse=True)[:AT_MOST]
    left = [Entry(each.path, each.size, each.modified or 0.0) for each in newest if each.size > 0]
    while left:
        footers = read_footers(storage, left, pool)
        found |= {
            footer.path
            for footer in footers.sound
            if footer.output_id is not None and footer.output_id in known
        }
        left = list(footers.left)
    return found
