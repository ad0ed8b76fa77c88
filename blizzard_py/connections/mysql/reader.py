"""The tasks' side of MySQL and MariaDB: one statement, streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from blizzard_py.connections.mysql.session import ask, stream
from blizzard_py.connections.sql.batches import MAX_BYTES, pieces
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

# Batches are bounded by rows alone, so the first rows tell how many are to be in one.
_SAMPLE_ROWS, _MOST_ROWS = 64, 16_384


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """See `blizzard_py.connections.protocol.Reader`; the statement was made for ``fields``."""
    del fields
    statement: str = spec["statement"]
    sample = ask(access, f"{statement} LIMIT {_SAMPLE_ROWS}")
    average = max(1, sample.nbytes // max(1, sample.num_rows))
    del sample
    rows = max(1, min(_MOST_ROWS, MAX_BYTES // average))
    for batch in stream(access, statement, rows):
        yield from pieces(batch)
