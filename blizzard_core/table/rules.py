"""The part of a table's settings that decides which files and columns it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from blizzard_core.bounds import NEW_COLUMNS

# The types that partition values have, by the names that the configuration gives them.
PARTITION_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "boolean": pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration says of a table.

    ``partition_types`` are its partition columns in order, None where nobody says.
    ``max_new_columns`` bounds what one commit may add to a table that exists, fields of
    structs counted.
    """

    partition_types: Mapping[str, str] | None
    evolution: str
    max_new_columns: int = NEW_COLUMNS
