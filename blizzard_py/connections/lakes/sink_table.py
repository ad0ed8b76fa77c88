"""The Delta table that a pipeline writes for, as its log declares it: protocol and columns.

Reads the newest protocol and metadata alone: commits backwards as far as the checkpoint, and
two columns of that. delta-rs would read which files there are besides, 950 MB for a million.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from blizzard_core.checkpoint.document import parsed
from blizzard_core.delta_checkpoint import newest_checkpoint
from blizzard_core.delta_json import COMMIT, LOG, listed, read_each
from blizzard_core.errors import NotFound, StateError
from blizzard_core.json_text import json_value
from blizzard_core.storage.opening import scheme_of
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile
from blizzard_core.table.contract import Declared, objections
from blizzard_core.table.pipeline_fit import TableShape

_NEWEST = 10**20 - 1
_AT_ONCE = 16
_KINDS = ("protocol", "metaData")


@dataclass(frozen=True, slots=True)
class SinkTable:
    """What a table is like; ``objections`` is why Penguin commits nothing to it, if anything.

    ``shape`` is None where these are such that its columns cannot be told either.
    """

    shape: TableShape | None
    objections: tuple[str, ...]


def sink_table(sink: Storage) -> SinkTable | None:
    """The table in that directory, None if there is none yet.

    Raises `StateError` for a log that cannot be understood, and what the store raises.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for action in _newest_first(sink):
        for kind in _KINDS:
            if action.get(kind):
                found.setdefault(kind, action[kind])
        if len(found) == len(_KINDS):
            return _understood(found["protocol"], found["metaData"], f"{sink.uri}/{LOG}")
    if found:
        raise StateError(f"{sink.uri}/{LOG}: the log has no {_missing(found)}; restore it")
    return None


def _missing(found: Mapping[str, object]) -> str:
    return next(kind for kind in _KINDS if kind not in found)


def _newest_first(sink: Storage) -> Iterator[Mapping[str, Any]]:
    """The log's actions that declare something, those that count first."""
    try:
        version, parts = newest_checkpoint(sink, _NEWEST) or (-1, [])
    except NotFound:
        if scheme_of(sink.uri):
            raise  # a bucket that is not there; a directory comes with the first file
        return
    after = f"{LOG}/{version + 1:020d}"
    later = [e.path for e in listed(sink, after, f"{LOG}/:") if COMMIT.fullmatch(e.path)]
    for where, raw in read_each(sink, iter(sorted(later, reverse=True)), _AT_ONCE):
        for line in reversed(raw.split(b"\n")):
            if b'"protocol"' in line or b'"metaData"' in line:
                document = parsed(line, where)
                if isinstance(document, Mapping):
                    yield document
    for part in parts:
        yield from _of_checkpoint(sink, part)


def _of_checkpoint(sink: Storage, path: str) -> Iterator[Mapping[str, Any]]:
    size = sink.stat(path)
    if size is None:
        return
    try:
        with pq.ParquetFile(pa.PythonFile(RangeFile(sink, path, size.size), mode="r")) as file:
            for batch in file.iter_batches(columns=list(_KINDS)):
                for kind in _KINDS:
                    column = batch.column(kind)
                    for value in column.filter(column.is_valid()).to_pylist():
                        yield {kind: value}
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise StateError(f"{sink.uri}/{path}: the checkpoint cannot be read: {error}") from error


def _understood(protocol: Mapping[str, Any], metadata: Mapping[str, Any], where: str) -> SinkTable:
    try:
        text = str(metadata["schemaString"])
        partitions = [str(name) for name in metadata.get("partitionColumns") or ()]
        against = objections(
            Declared(
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
        schema = pa.schema(Schema.from_json(text).to_arrow())
    except Exception as error:  # delta-rs raises what it likes
        raise StateError(
            f"{where}: what the table declares cannot be understood ({type(error).__name__})"
        ) from error
    return SinkTable(TableShape(schema, tuple(partitions)), ())
