"""Four orders of changes that tools with a merge get wrong, and the rows that are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

# Loads of changes: key, sequence, whether it is a delete.
Load = Sequence[tuple[int, int, bool]]

CASES: Mapping[str, Sequence[Load]] = {
    "an older row comes later": ([(1, 10, False)], [(1, 5, False)]),
    "a key twice in one load": ([(2, 10, False)], [(2, 12, False), (2, 11, False)]),
    "a new key twice in one load": ([(9, 1, False)], [(3, 11, False), (3, 12, False)]),
    "an older row comes after a delete": (
        [(1, 10, False), (9, 1, False)],
        [(1, 20, True)],
        [(1, 15, False)],
    ),
}


def expected(loads: Sequence[Load]) -> list[tuple[int, int]]:
    """Return the key and sequence of the rows that are right."""
    newest: dict[int, tuple[int, bool]] = {}
    for load in loads:
        for key, seq, deleted in load:
            newest[key] = max(newest.get(key, (-1, False)), (seq, deleted))
    return sorted((key, seq) for key, (seq, deleted) in newest.items() if not deleted)


def table_of(load: Load) -> pa.Table:
    """Return a load as a table."""
    keys, sequences, deletes = zip(*load, strict=True)
    return pa.table({"id": keys, "seq": sequences, "deleted": deletes})


def rows_in(folder: Path) -> list[tuple[int, int]]:
    """Return key and sequence of the rows of a table.

    Without delta-rs's dataset: threads of it that outlive the read abort the process at its end.
    """
    files = DeltaTable(folder).file_uris()
    found = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    return sorted((row["id"], row["seq"]) for row in found)
