"""PostgreSQL's types: the expression that selects each without loss, and the field to declare.

Types that ADBC reads correctly are selected unchanged. The server casts all others to text: numbers
of any size (ADBC would produce the same text with more CPU), times of day, network addresses and
types of extensions. Arrays are selected as JSON: PostgreSQL allows two dimensions in any array
column, and ADBC flattens them. Infinite times are recognised in the batches
(`blizzard_py.connections.sql.batches`), which costs the server nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from blizzard_core.settings.schema import DECIMAL_DIGITS, FieldType
from blizzard_py.connections.protocol import ColumnKind, SourceColumn
from blizzard_py.job import FieldSpec

_SIMPLE: dict[str, tuple[FieldType, ColumnKind]] = {
    "int2": ("int32", "number"),
    "int4": ("int32", "number"),
    "int8": ("int64", "number"),
    "float4": ("float32", "number"),
    "float8": ("float64", "number"),
    "bool": ("boolean", "other"),
    "text": ("string", "text"),
    "varchar": ("string", "text"),
    "bpchar": ("string", "text"),
    "name": ("string", "text"),
    "bytea": ("binary", "other"),
    "date": ("date", "date"),
    "timestamp": ("timestamp", "time"),
    "timestamptz": ("timestamp", "time"),
    "json": ("json", "other"),
    "jsonb": ("json", "other"),
}


@dataclass(frozen=True)
class PgType:
    """A type by its name in pg_type, with its modifier (-1: none); ``composite``: a row type."""

    name: str
    modifier: int = -1
    composite: bool = False

    @property
    def as_json(self) -> bool:
        return self.composite or self.name.startswith("_") or self.name in ("hstore", "record")

    @property
    def digits(self) -> tuple[int, int] | None:
        """Precision and scale of a numeric column, None if it has none or no decimal holds it."""
        if self.modifier < 4:
            return None
        packed = self.modifier - 4
        precision, scale = packed >> 16, ((packed & 0x7FF) ^ 1024) - 1024
        return (precision, scale) if 0 <= scale <= precision <= DECIMAL_DIGITS else None

    @property
    def label(self) -> str:
        """The type's name for people."""
        if self.name.startswith("_"):
            return f"{PgType(self.name[1:], self.modifier).label}[]"
        if self.name == "numeric" and self.modifier >= 4:
            packed = self.modifier - 4
            return f"numeric({packed >> 16},{((packed & 0x7FF) ^ 1024) - 1024})"
        if self.name in ("timestamp", "timestamptz") and self.modifier >= 0:
            return f"{self.name}({self.modifier})"
        return self.name


def column(name: str, kind: PgType, *, nullable: bool) -> SourceColumn:
    """Return the column with the field that holds it."""
    known = _SIMPLE.get(kind.name)
    order: ColumnKind = (
        known[1] if known else "number" if kind.name in ("numeric", "oid") else "other"
    )
    if kind.name in ("uuid", "citext"):
        order = "other" if kind.name == "uuid" else "text"
    return SourceColumn(name, kind.label, order, _field(name, kind, nullable=nullable))


def _field(name: str, kind: PgType, *, nullable: bool) -> FieldSpec:
    if kind.name in _SIMPLE:
        return FieldSpec(name, _SIMPLE[kind.name][0], nullable)
    if kind.name == "oid":
        return FieldSpec(name, "int64", nullable)
    if kind.name == "numeric" and kind.digits:
        precision, scale = kind.digits
        return FieldSpec(name, "decimal", nullable, (), precision, scale)
    if kind.name.startswith("_"):
        # bytea within JSON is text with hexadecimal digits, not base64.
        inner = PgType("text") if kind.name == "_bytea" else PgType(kind.name[1:], kind.modifier)
        return FieldSpec(name, "list", nullable, (_field("element", inner, nullable=True),))
    if kind.name == "hstore":
        return FieldSpec(name, "map", nullable, (FieldSpec("value", "string", nullable=True),))
    return FieldSpec(name, "json" if kind.as_json else "string", nullable)


def expression(quoted: str, kind: PgType, field: FieldSpec) -> str:
    """Return the expression that selects the column so that ADBC loses nothing."""
    if kind.as_json:
        return f"to_json({quoted})"
    if kind.name in _SIMPLE:
        return quoted
    if kind.name == "oid":
        return f"{quoted}::bigint"
    if kind.name == "uuid" and field.type == "binary":
        return quoted
    return f"{quoted}::text"
