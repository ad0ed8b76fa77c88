"""The data source that a query over event time reads: our staged rows, less late ones.

An offset is the number of a batch. A *tick* is a row that moves the watermark and that the query
drops behind it (`TICK`); it has a time, and of all else what is nothing. The classes travel to
Spark's Python processes by name, so importing this module does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from blizzard_py.engines.spark.handed import whole_sink
from blizzard_py.engines.spark.worker import prepare_worker, storage_of
from blizzard_py.job import JobFile
from blizzard_py.kernels.lateness import split, times_of
from blizzard_py.kernels.sql_stage import read_records
from blizzard_py.streaming.blank import blank
from blizzard_py.streaming.offers import Offer, newest, offered

FORMAT = "blizzard_staged"
# The option that says where offers are.
OFFERS = "offers"
# The column that says which rows are ticks.
TICK = "_blizzard_tick"
_BATCH = "batch"


@dataclass
class OfferedFiles(InputPartition):
    """What one task reads: files, or nothing but the tick."""

    offer: Offer
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
    """Reads what was offered, a batch for each offset."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        return {
            _BATCH: 0
        }  # the first batch has number 1, and a later start asks for no initial one

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802  # Spark's
        return {_BATCH: newest(self._folder)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        found: list[InputPartition] = []
        for number in range(start[_BATCH] + 1, end[_BATCH] + 1):
            offer = offered(self._folder, number)
            found += [OfferedFiles(offer, files) for files in offer.tasks or ((),)]
            if offer.tick_us is not None:
                found.append(OfferedFiles(offer, (), is_tick=True))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OfferedFiles)  # noqa: S101  # the ones that it was given
        prepare_worker()
        offer = partition.offer
        if partition.is_tick and offer.tick_us is not None:
            yield _marked(blank(offer.schema, {offer.rule.column: offer.tick_us}), is_tick=True)
            return
        storage = storage_of(whole_sink(offer.sink))
        for batch in read_records(storage, partition.files, offer.schema):
            times = times_of(batch.column(offer.rule.column))
            kept = split(offer.rule, offer.limits, times).kept
            some = batch if kept.all() else batch.filter(pa.array(kept))
            yield _marked(some, is_tick=False)


def _marked(batch: pa.RecordBatch, *, is_tick: bool) -> pa.RecordBatch:
    flags = pa.repeat(pa.scalar(is_tick), batch.num_rows)
    return batch.append_column(pa.field(TICK, pa.bool_(), nullable=False), flags)
