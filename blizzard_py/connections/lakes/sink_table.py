"""The Delta table that a pipeline writes for, as its log declares it: protocol and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from blizzard_core.delta_json import LOG, newest_actions
from blizzard_core.errors import NotFound, StateError
from blizzard_core.storage.opening import scheme_of
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.contract import TableDeclaration, objections
from blizzard_core.table.pipeline_fit import TableShape
from blizzard_core.text import json_value

_AT_ONCE = 16
_KINDS = ("protocol", "metaData")


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A table's declaration; ``objections`` is why Penguin cannot commit to it, if it cannot.

    ``shape`` is None if the columns cannot be read either.
    """

    shape: TableShape | None
    objections: tuple[str, ...]


def sink_table(sink: Storage) -> SinkTable | None:
    """Return the table in that directory, None if there is none yet.

    Raises `StateError` for a log that cannot be understood, and the store's errors.
    """
    try:
        found = newest_actions(sink, _KINDS, _AT_ONCE)
    except NotFound:
        if scheme_of(sink.uri):
            raise  # a missing bucket; a directory is made with the first file
        return None
    missing = [kind for kind in _KINDS if kind not in found]
    if found and missing:
        raise StateError(f"{sink.uri}/{LOG}: the log has no {missing[0]}; restore it")
    if missing:
        return None
    return _understood(found["protocol"], found["metaData"], f"{sink.uri}/{LOG}")


def _understood(protocol: Mapping[str, Any], metadata: Mapping[str, Any], where: str) -> SinkTable:
    try:
        text = str(metadata["schemaString"])
        partitions = [str(name) for name in metadata.get("partitionColumns") or ()]
        against = objections(
            TableDeclaration(
                int(protocol["minReaderVersion"]),
                int(protocol["minWriterVersion"]),
                [
                    *(protocol.get("readerFeatures") or ()),
                    *(protocol.get("writerFeatures") or ()),
                ],
                dict(metadata.get("configuration") or {}),
                json_value(text)["fields"],
                partitions,
            )
        )
        if against:
            return SinkTable(None, tuple(against))
        from deltalake import Schema  # noqa: PLC0415  # 7 MB, and a new table needs none of it

        schema = pa.schema(Schema.from_json(text).to_arrow())
    except Exception as error:  # delta-rs raises errors of many types
        raise StateError(
            f"{where}: the table's declaration cannot be understood ({type(error).__name__})"
        ) from error
    return SinkTable(TableShape(schema, tuple(partitions)), ())
