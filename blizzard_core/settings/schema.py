"""The settings under ``schema``: nested types, inference and unexpected fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from blizzard_core.settings.base import Settings

FieldType = Literal[
    "string",
    "int32",
    "int64",
    "float32",
    "float64",
    "boolean",
    "timestamp",
    "date",
    "json",
    "binary",
    "decimal",
    "struct",
    "list",
    "map",
]
TimeUnit = Literal["iso", "s", "ms", "us"]
UnexpectedFields = Literal["ignore", "capture", "fail"]
Evolve = Literal["never", "add"]
RESCUED = "_rescued"  # the column that ``unexpected_fields: capture`` adds

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)")
DECIMAL_DIGITS = 38


def decimal_digits(text: str) -> tuple[int, int]:
    """Return precision and scale of ``decimal(p,s)``. Raises `ValueError` for other text."""
    found = _DECIMAL.fullmatch(text)
    precision, scale = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    if not 1 <= precision <= DECIMAL_DIGITS or scale > precision:
        raise ValueError(
            f"{text!r} is not decimal(p,s) with 1 to {DECIMAL_DIGITS} digits, s of them"
            " behind the point"
        )
    return precision, scale


def _known_type(text: str) -> str:
    if text.startswith("decimal"):
        decimal_digits(text)
    elif text not in get_args(FieldType):
        known = ", ".join(name for name in get_args(FieldType) if name != "decimal")
        raise ValueError(f"there is no type {text!r}; known: {known}, decimal(p,s)")
    return text


class TypeSettings(Settings):
    """The type of a value. As plain text it is `type` alone."""

    type: Annotated[str, AfterValidator(_known_type)]
    """A type from docs/reference/schema.md."""
    nullable: bool = True
    """false: a record without the value is bad, at every level."""
    fields: list[FieldSettings] | None = None
    """For a struct."""
    items: TypeSettings | None = None
    """For a list."""
    values: TypeSettings | None = None
    """For a map; its keys are text."""
    unit: TimeUnit = "iso"
    """For a timestamp: ISO 8601 text, or time since 1970 in this unit."""
    coerce: bool = False
    """true: a string accepts any value, as JSON text."""

    text_key: ClassVar[str] = "type"

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        for key, owner in (("fields", "struct"), ("items", "list"), ("values", "map")):
            given = getattr(self, key)
            if self.type == owner and not given:
                raise ValueError(f"type {owner} needs `{key}`")
            if self.type != owner and given is not None:
                raise ValueError(f"`{key}` belongs to type {owner}, not to {self.type}")
        if self.unit != "iso" and self.type != "timestamp":
            raise ValueError(f"`unit` belongs to type timestamp, not to {self.type}")
        if self.coerce and self.type != "string":
            raise ValueError(f"`coerce` belongs to type string, not to {self.type}")
        check_unique(self.fields or [])
        return self


class FieldSettings(TypeSettings):
    """A column of the schema, or a field of a struct."""

    text_key: ClassVar[str] = ""

    name: str = Field(min_length=1)
    """Name of the column, and in the records without `from`; case-sensitive."""
    from_: str | None = Field(default=None, alias="from", min_length=1, examples=["US Gross"])
    """Name in the records, if the column has another one."""

    @property
    def input_name(self) -> str:
        """The name in the records."""
        return self.name if self.from_ is None else self.from_


_ESCAPED = re.compile(r'["\\\x00-\x1f]')
# What Delta tables cannot have in a column's name without column mapping.
_NO_COLUMN = re.compile(r"[ ,;{}()\n\t=]")


def column_name(name: str) -> str:
    """Return the name of the column for a name in records.

    Characters that no column can have become one ``_``, and none at the ends: ``Net (EUR)`` is
    ``Net_EUR``. A name of a column stays as it is, and so does one of nothing but those.
    """
    plain = "".join(c if c.isprintable() and c not in '"\\' else " " for c in name)
    return "_".join(_NO_COLUMN.sub(" ", plain).split()) or name


def odd_names(fields: Iterable[FieldSettings], outer: str = "") -> Iterator[str]:
    """Yield why a table cannot have these names, at every level."""
    for field in fields:
        found = _NO_COLUMN.search(field.name)
        if found is not None:
            plain = column_name(field.name)
            remedy = f"write {{ name: {plain}, from: {json.dumps(field.input_name)}, … }}"
            yield (
                f"{outer}{field.name!r}: Delta has no column whose name holds {found[0]!r}; "
                + (remedy if plain != field.name else "give another name, and this one as `from`")
            )
        yield from odd_names(_inner_fields(field), f"{outer}{field.name}.")


def _inner_fields(of: TypeSettings) -> Iterator[FieldSettings]:
    """Yield the fields of a struct, also of one inside a list or a map."""
    yield from of.fields or ()
    for inner in (of.items, of.values):
        if inner is not None:
            yield from _inner_fields(inner)


def check_readable(fields: list[FieldSettings], *, by_name: bool) -> None:
    """Raise `ValueError` for names that JSON has to escape, where readers search by name.

    Values that stay JSON text need the check; with ``by_name`` every field needs it, because the
    reader must know which fields have no column.
    """
    for field in fields:
        if (by_name or _needs_conversion(field)) and _ESCAPED.search(field.input_name):
            raise ValueError(
                f"field {field.input_name!r}: a name with a quote, a backslash or a control"
                " character goes neither with json, map and coerce nor with unexpected_fields:"
                " capture or fail; rename it at the source, or leave it out"
            )
        if by_name:
            check_readable(field.fields or [], by_name=True)


def _needs_conversion(of: TypeSettings) -> bool:
    inner = [*(of.fields or ()), of.items, of.values]
    is_converted = of.type in {"json", "map"} or of.coerce
    return is_converted or any(_needs_conversion(each) for each in inner if each is not None)


def check_unique(fields: list[FieldSettings]) -> None:
    """Raise `ValueError` for a repeated name, of columns or in the records."""
    seen: set[str] = set()
    read: dict[str, str] = {}
    for field in fields:
        if field.name.lower() in seen:
            raise ValueError(f"field {field.name!r} is given twice or differs only in case")
        seen.add(field.name.lower())
        other = read.setdefault(field.input_name, field.name)
        if other != field.name:
            raise ValueError(
                f"fields {other!r} and {field.name!r} are both filled from {field.input_name!r};"
                " leave one of them out, or give it another `from`"
            )


# Shown in the example configuration.
COLUMNS = [
    {"name": "time", "type": "timestamp", "nullable": False},
    {"name": "user", "type": "string"},
    {"name": "added", "type": "int64"},
    {"name": "price", "type": "decimal(12,2)"},
    {"name": "tags", "type": "list", "items": "string"},
    {"name": "counts", "type": "map", "values": "int64"},
    {"name": "note", "type": "string", "coerce": True},
    {
        "name": "geo",
        "type": "struct",
        "fields": [
            {"name": "city", "type": "string"},
            {"name": "seen", "type": "timestamp", "unit": "ms"},
        ],
    },
]


class OwnSchema(Settings):
    """Fields that only one of several sources has; null in rows of the others.

    Fields of two sources with the same name need the same type.
    """

    fields: list[FieldSettings] = Field(min_length=1)
    """Additional columns."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        check_unique(self.fields)
        return self


class SchemaAdvanced(Settings):
    """Schema inference and the reading of lines."""

    sample_files: int = Field(default=16, ge=1, le=1000)
    """Files in the sample: the oldest, the newest and some between."""
    sample_bytes_per_file: int = Field(default=1 << 20, ge=1024)
    """Decompressed bytes per file."""
    coerce_conflicts_to_utf8: bool = True
    """Values of different types become a string; false: they are an error."""
    infer_timestamps: bool = False
    """true: text that is always ISO 8601 becomes a timestamp."""
    fast_path: bool = True
    """false: use only the slower reader; the rows are the same."""


class SchemaSettings(Settings):
    """The table's columns: declared in `fields`, inferred, or both.

    Inference reads a sample once. `evolve: add` does not add fields inside structs.
    """

    fields: list[FieldSettings] = Field(default_factory=list)
    """Declared columns; required without `infer`."""
    unexpected_fields: UnexpectedFields = "ignore"
    """Fields without a column: drop them, store them as JSON in `_rescued`, or reject the line."""
    evolve: Evolve = "never"
    """add: new fields of file sources become columns."""
    infer: bool = False
    """true: infer columns that are not in `fields` from a sample."""
    advanced: SchemaAdvanced = Field(default_factory=SchemaAdvanced)
    """Rarely needed."""

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if not self.fields and not self.infer:
            raise ValueError("give `fields`, or `infer: true`, or both")
        check_unique(self.fields)
        check_readable(self.fields, by_name=self.unexpected_fields != "ignore")
        used_names = {field.name.lower() for field in self.fields}
        if self.unexpected_fields == "capture" and RESCUED in used_names:
            raise ValueError(f"field {RESCUED!r} is what unexpected_fields: capture adds")
        if self.evolve == "add" and self.unexpected_fields == "fail":
            raise ValueError(
                "evolve: add and unexpected_fields: fail contradict each other: a field is added,"
                " or its record is bad; leave one of them out"
            )
        return self

    @property
    def is_found_out(self) -> bool:
        """True if undeclared columns are stored beside the checkpoint."""
        return self.infer or self.evolve == "add"
