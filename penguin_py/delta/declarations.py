"""What a table declares, as delta-rs has it at a version."""

from __future__ import annotations

import json

from deltalake import DeltaTable

from blizzard_core.errors import Unavailable
from blizzard_core.table.contract import Declared
from penguin_py.delta.messages import is_failure, is_passing, told_by


def declared_by(handle: DeltaTable) -> Declared:
    """The protocol and the metadata of the table's version. Raises what delta-rs does."""
    protocol, metadata = handle.protocol(), handle.metadata()
    return Declared(
        protocol.min_reader_version,
        protocol.min_writer_version,
        [*(protocol.reader_features or ()), *(protocol.writer_features or ())],
        metadata.configuration,
        json.loads(handle.schema().to_json())["fields"],
        metadata.partition_columns,
    )


def has_vectors(handle: DeltaTable, uri: str) -> bool:
    """Whether a file of the table has a deletion vector. Raises `Unavailable`."""
    try:
        return any(True for _ in handle.deletion_vectors())
    except BaseException as error:  # delta-rs raises what it likes
        if not is_failure(error):
            raise
        told = told_by(error)
        if is_passing(told):
            raise Unavailable(f"{uri}: {told}") from error
        return True  # one that cannot be read is there all the same
