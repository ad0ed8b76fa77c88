"""The data source of a query over event time: our staged rows without late ones.

An offset is the number of a batch. A *tick* is a row that moves the watermark and is dropped behind
it (`TICK`). It has a time; its other columns are empty. The classes travel to Spark's Python
processes by name, so importing this module has no effects. Spark plans with a separate process for
each step of a query's start, so this module also imports little.

Rows of several sources are in one stream, each with the name of its source (`WHOSE`). Spark asks
streams one after the other for their progress, so two streams might bring one batch in two
micro-batches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from blizzard_py.job import JobFile
from blizzard_py.kernels.lateness import split, times_of
from blizzard_py.streaming.batch_queue import (
    NewestNumber,
    Offer,
    SourceShare,
    read_offer,
    starting_number,
)

_NOTHING: Mapping[int, Any] = {
    pa.lib.Type_BOOL: False,
    pa.lib.Type_STRING: "",
    pa.lib.Type_BINARY: b"",
    pa.lib.Type_DECIMAL128: Decimal(0),
    pa.lib.Type_DATE32: dt.date(1970, 1, 1),
    pa.lib.Type_LIST: [],
    pa.lib.Type_MAP: [],
}


def blank(schema: pa.Schema, given: Mapping[str, Any]) -> pa.RecordBatch:
    """Return one row of the schema, with the values ``given`` for some of its columns."""
    arrays = [
        pa.array([given[field.name] if field.name in given else _nothing(field)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _nothing(field: pa.Field) -> Any:
    if field.nullable:
        return None
    if pa.types.is_struct(field.type):
        return {child.name: _nothing(child) for child in field.type}
    # All others are numbers and times.
    return _NOTHING.get(field.type.id, 0)


FORMAT = "blizzard_staged"
# The option with the folder of offers.
OFFERS = "offers"
# The column that marks ticks.
TICK = "_blizzard_tick"
# With several sources, the column with a row's source.
WHOSE = "_blizzard_source"
_BATCH = "batch"


@dataclass
class OfferPartition(InputPartition):
    """One task's part of a source: files, or only the tick."""

    offer: Offer
    share: SourceShare
    files: tuple[JobFile, ...]
    is_tick: bool = False


class StagedRows(DataSource):
    """Our staged rows as a stream."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's
        return StagedReader(Path(self.options[OFFERS]))


class StagedReader(DataSourceStreamReader):
    """Reads the offered batches, one for each offset."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._newest = NewestNumber(folder)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        # A start with a working copy does not call this.
        return {_BATCH: starting_number(self._folder)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802  # Spark's
        return {_BATCH: self._newest.ask()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        found: list[InputPartition] = []
        for number in range(start[_BATCH] + 1, end[_BATCH] + 1):
            offer = read_offer(self._folder, number)
            for share in offer.shares:
                found += [OfferPartition(offer, share, files) for files in share.tasks or ((),)]
                if share.tick_us is not None:
                    found.append(OfferPartition(offer, share, (), is_tick=True))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # A task's process has already loaded them; Spark's planning processes never need them.
        from blizzard_py.engines.spark.job_secrets import restore_sink  # noqa: PLC0415  # see above
        from blizzard_py.engines.spark.worker import prepare_worker, storage_of  # noqa: PLC0415  # see above
        from blizzard_py.kernels.sql_stage import read_records  # noqa: PLC0415  # see above

        assert isinstance(partition, OfferPartition)  # noqa: S101  # the ones that it was given
        prepare_worker()
        offer, share = partition.offer, partition.share
        whose = share.source if len(offer.shares) > 1 else None
        if partition.is_tick and share.tick_us is not None:
            tick = blank(offer.schema, {share.rule.column: share.tick_us})
            yield _marked(tick, whose, is_tick=True)
            return
        if not partition.files:
            return  # with only ticks there is no job, so the task has no credentials
        storage = storage_of(restore_sink(offer.sink))
        own = pa.schema([field for field in offer.schema if field.name not in share.lacks])
        for batch in read_records(storage, partition.files, own):
            times = times_of(batch.column(share.rule.column))
            on_time = split(share.rule, offer.limits, times).on_time
            some = batch if on_time.all() else batch.filter(pa.array(on_time))
            yield _marked(with_all_columns(some, offer.schema), whose, is_tick=False)


def with_all_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with all columns of the schema; missing ones are null."""
    known = set(batch.schema.names)
    arrays = [
        batch.column(field.name) if field.name in known else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def marks(schema: pa.Schema, *, several: bool) -> pa.Schema:
    """Return the columns of the stream: those of the rows, and the marks of each row."""
    found = schema.append(pa.field(TICK, pa.bool_(), nullable=False))
    return found.append(pa.field(WHOSE, pa.string(), nullable=False)) if several else found


def _marked(batch: pa.RecordBatch, whose: str | None, *, is_tick: bool) -> pa.RecordBatch:
    ticks = [pa.repeat(pa.scalar(is_tick), batch.num_rows)]
    if whose is not None:
        ticks.append(pa.repeat(pa.scalar(whose), batch.num_rows))
    schema = marks(batch.schema, several=whose is not None)
    return pa.RecordBatch.from_arrays([*batch.columns, *ticks], schema=schema)
