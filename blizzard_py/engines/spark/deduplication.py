"""Deduplication of a batch's records by key (`deduplicate_by`)."""

from __future__ import annotations

from pyspark.sql import DataFrame

from blizzard_core.handover.groups import UNIT_COLUMN
from blizzard_py.job import POSITION, IngestSettings

_ALONE = "_blizzard_alone"
_RANK = "_blizzard_rank"


def without_duplicates(frame: DataFrame, settings: IngestSettings, tasks: int) -> DataFrame:
    """Keep the first record of each key, by file and line, and all records with a null in it.

    Null is no value, so two nulls are not known to be equal. If rows are replaced by slice, each
    slice keeps one record: another slice may be removed later.
    """
    added, sql = settings.added_columns, settings.sql
    if not sql.deduplicate_by:
        return frame
    keys = [quoted(name) for name in sql.deduplicate_by]
    unknown = " OR ".join(f"{key} IS NULL" for key in keys)
    # Its position makes a record without a key unique, and distributes such records.
    place = ", ".join(POSITION)
    alone = f"CASE WHEN {unknown} THEN struct({place}) END AS {_ALONE}"
    group = [*keys, _ALONE, *([UNIT_COLUMN] if added.unit else [])]
    rank = f"row_number() OVER (PARTITION BY {', '.join(group)} ORDER BY {place}) AS {_RANK}"
    helpers = set(POSITION) - set(added.metadata)
    columns = [quoted(name) for name in frame.columns if name not in helpers]
    return (
        frame.selectExpr("*", alone)
        .repartition(tasks, *group)
        .selectExpr("*", rank)
        .where(f"{_RANK} = 1")
        .selectExpr(*columns)
    )


def quoted(name: str) -> str:
    """Return a column's name, quoted for Spark SQL."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
