"""Rows that wait on a local disk instead of in memory.

The file has no name, so it is gone with its process, however that ends. A block is one Arrow
message of about a megabyte, which a reader needs in memory at least.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from blizzard_core.storage.failures import wrap_error

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """The position of some rows in the file."""

    offset: int
    length: int
    rows: int


class Spill:
    """One temporary file. Errors of the disk are `StorageError` and name its directory."""

    def __init__(self) -> None:
        # Spark gives executors fast disks there; the container's own disk may be read-only.
        given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        self._folder = given or tempfile.gettempdir()
        self._size = 0
        try:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # `close` does
        except OSError as error:
            raise wrap_error(self._folder, error) from error

    def write(self, table: pa.Table) -> list[Block]:
        """Return blocks that hold the table's rows in order."""
        rows = max(1, table.num_rows * BLOCK_BYTES // max(1, table.nbytes))
        blocks: list[Block] = []
        try:
            for batch in table.to_batches(max_chunksize=rows):
                message = batch.serialize()
                self._file.write(message)
                blocks.append(Block(self._size, len(message), batch.num_rows))
                self._size += len(message)
        except OSError as error:
            raise wrap_error(self._folder, error) from error
        return blocks

    def read(self, blocks: Sequence[Block], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the blocks' rows, one batch each."""
        try:
            self._file.flush()
            for block in blocks:
                data = os.pread(self._file.fileno(), block.length, block.offset)
                yield pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        except OSError as error:
            raise wrap_error(self._folder, error) from error

    def close(self) -> None:
        """Release the disk space."""
        self._file.close()
