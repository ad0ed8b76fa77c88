"""The description of a table or a query: columns with types, and the table's own facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from blizzard_py.connections.postgresql.types import PgType

# A domain has the type that it is based on. A missing table is an error here.
CATALOG = """
WITH RECURSIVE told AS (
  SELECT a.attnum, a.attname, a.attnotnull, t.oid, t.typname, t.typtype, t.typbasetype,
         CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  WHERE a.attrelid = {table}::regclass AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT o.attnum, o.attname, o.attnotnull, t.oid, t.typname, t.typtype, t.typbasetype,
         CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE o.modifier END
  FROM told o JOIN pg_type t ON t.oid = o.typbasetype WHERE o.typtype = 'd')
SELECT attname::text AS name, typname::text AS type, modifier::int8 AS modifier,
       attnotnull AS required, typtype = 'c' AS composite,
       c.relkind::text AS relkind, pg_relation_size(c.oid) AS size,
       current_setting('block_size')::int8 AS page,
       current_setting('server_version_num')::int8 AS version
FROM told, pg_class c WHERE typtype <> 'd' AND c.oid = {table}::regclass ORDER BY attnum
"""

# The primary key's columns in key order.
KEY = """
SELECT a.attname::text AS name
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = {table}::regclass AND i.indisprimary
ORDER BY array_position(i.indkey::int2[], a.attnum)
"""

# Whether a subscription writes the table.
FED = """
SELECT EXISTS (SELECT 1 FROM pg_subscription_rel WHERE srrelid = {table}::regclass) AS fed
"""
IS_FED = (
    "a subscription writes this table: times that are replicated, and not set here, may arrive"
    " below the watermark and be missed; set a column here (DEFAULT now()), or read the publisher"
)


@dataclass(frozen=True)
class PgTableFacts:
    """Facts of a plain table: its pages, and whether ranges of pages can be read; else all 0."""

    pages: int = 0
    page_bytes: int = 0
    by_pages: bool = False
    relkind: str = ""


# A column's name, its type, and whether it may be null.
PgColumn: TypeAlias = tuple[str, PgType, bool]


def from_catalog(answer: pa.Table) -> tuple[Sequence[PgColumn], PgTableFacts]:
    """Return columns and facts from the answer to `CATALOG`."""
    rows = answer.to_pylist()
    columns = [
        (row["name"], PgType(row["type"], row["modifier"], row["composite"]), not row["required"])
        for row in rows
    ]
    if not rows:
        return columns, PgTableFacts()
    first = rows[0]
    pages = -(-first["size"] // first["page"])
    # Since release 14, ranges of ctid are read without scanning the rest.
    by_pages = first["relkind"] in ("r", "m") and first["version"] >= 140_000
    return columns, PgTableFacts(pages, first["page"], by_pages, first["relkind"])


def from_schema(schema: pa.Schema) -> Sequence[PgColumn]:
    """Return columns from a query's answer, by ADBC's metadata; all may be null."""
    return [(field.name, _kind(field), True) for field in schema]


def _kind(field: pa.Field) -> PgType:
    metadata = field.metadata or {}
    return PgType(
        metadata.get(b"POSTGRESQL:type", b"text").decode(),
        int(metadata.get(b"POSTGRESQL:typmod", b"-1")),
    )
