"""MySQL's types: the expression that selects each without loss, and the field to declare.

connectorx cuts decimals to ten fractional digits, and panics at zero dates, times beyond a day,
geometries and bits. So these are read as text, or as numbers if possible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from blizzard_core.settings.schema import FieldType
from blizzard_py.connections.protocol import ColumnKind, SourceColumn
from blizzard_py.job import FieldSpec

_INTEGERS: dict[str, FieldType] = {
    "tinyint": "int32",
    "smallint": "int32",
    "mediumint": "int32",
    "int": "int32",
    "bigint": "int64",
    "year": "int32",
    "float": "float32",
    "double": "float64",
}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_GEOMETRIES = ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
               "multipolygon", "geometrycollection", "geomcollection")  # fmt: skip
_TIMES = ("datetime", "timestamp")


@dataclass(frozen=True)
class MyType:
    """A type from ``information_schema``. ``digits`` are the fractional digits of seconds."""

    name: str
    unsigned: bool = False
    precision: int = 0
    scale: int = 0
    digits: int = 0

    @property
    def label(self) -> str:
        """The type's name for people."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name in _TIMES:
            return f"{self.name}({self.digits})"
        return f"{self.name} unsigned" if self.unsigned else self.name


def column(name: str, kind: MyType, *, nullable: bool) -> SourceColumn:
    """Return the column with the field that holds it."""
    return SourceColumn(name, kind.label, _order(kind), nullable, _field(name, kind, nullable))


def _order(kind: MyType) -> ColumnKind:
    if kind.name in _INTEGERS or kind.name in ("decimal", "bit"):
        return "number"
    if kind.name in _TIMES:
        return "time"
    if kind.name == "date":
        return "date"
    return "text" if kind.name in _TEXTS else "other"


def _field(name: str, kind: MyType, nullable: bool) -> FieldSpec:
    if kind.name == "bit" or (kind.unsigned and kind.name == "bigint"):
        return FieldSpec(name, "decimal", nullable, (), 20, 0)  # up to 2^64 - 1
    if kind.name in _INTEGERS:
        wide = kind.unsigned and kind.name == "int"
        return FieldSpec(name, "int64" if wide else _INTEGERS[kind.name], nullable)
    if kind.name == "decimal" and kind.precision <= 38:
        return FieldSpec(name, "decimal", nullable, (), kind.precision, kind.scale)
    if kind.name in _TIMES:
        return FieldSpec(name, "timestamp", nullable)
    if kind.name in _BYTES:
        return FieldSpec(name, "binary", nullable)
    known: dict[str, FieldType] = {"date": "date", "json": "json"}
    return FieldSpec(name, known.get(kind.name, "string"), nullable)


def expression(quoted: str, kind: MyType) -> str:
    """Return the expression that selects the column so that connectorx loses nothing."""
    if kind.name in ("year", "bit"):
        return f"CAST({quoted} AS UNSIGNED)"
    if kind.name in _GEOMETRIES:
        return f"ST_AsText({quoted})"
    if kind.name in _INTEGERS or kind.name in _TEXTS or kind.name in _BYTES:
        return quoted
    return f"CAST({quoted} AS CHAR)"


_DECIMAL = re.compile(r"decimal\d+\((\d+), (\d+)\)")
_ARROW: dict[str, MyType] = {
    "int8": MyType("tinyint"),
    "int16": MyType("smallint"),
    "int32": MyType("int"),
    "int64": MyType("bigint"),
    "uint8": MyType("tinyint", unsigned=True),
    "uint16": MyType("smallint", unsigned=True),
    "uint32": MyType("int", unsigned=True),
    "uint64": MyType("bigint", unsigned=True),
    "float": MyType("float"),
    "double": MyType("double"),
    "large_binary": MyType("blob"),
    "binary": MyType("blob"),
    "timestamp[us]": MyType("datetime", digits=6),
    "date32[day]": MyType("date"),
    "time64[us]": MyType("time"),
}


def from_arrow(kind: str) -> MyType:
    """Return the type of a query's column, as far as connectorx reports it."""
    if _DECIMAL.fullmatch(kind):
        return MyType("decimal", precision=65, scale=30)
    return _ARROW.get(kind, MyType("text"))
