"""The settings under ``schema``: types that nest, and what happens beside them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self, get_args

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
_MAX_DECIMAL_DIGITS = 38


def decimal_digits(text: str) -> tuple[int, int]:
    """Precision and scale of ``decimal(p,s)``. Raises `ValueError` for anything else."""
    found = _DECIMAL.fullmatch(text)
    precision, scale = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    if not 1 <= precision <= _MAX_DECIMAL_DIGITS or scale > precision:
        raise ValueError(
            f"{text!r} is not decimal(p,s) with 1 to {_MAX_DECIMAL_DIGITS} digits, s of them"
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
    """The type of a value; as plain text it is the ``type`` alone.

    ``fields`` belong to a struct, ``items`` to a list and ``values`` to a map,
    whose keys are text. ``unit`` makes a timestamp a number of seconds,
    milliseconds or microseconds since 1970 instead of ISO 8601 text. ``coerce``
    makes a string take any value: what is not text is kept as its JSON text.
    A ``nullable: false`` value is required at every level.
    """

    type: Annotated[str, AfterValidator(_known_type)]
    """One of the table in docs/reference/schema.md."""
    nullable: bool = True
    """false: a record without it is bad."""
    fields: list[FieldSettings] | None = None
    """Of a struct."""
    items: TypeSettings | None = None
    """Of a list."""
    values: TypeSettings | None = None
    """Of a map, whose keys are text."""
    unit: TimeUnit = "iso"
    """Of a timestamp: ISO 8601 text, or a number since 1970."""
    coerce: bool = False
    """true: a string that takes any value, as its JSON text."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_a_type(cls, data: Any) -> Any:
        return {"type": data} if isinstance(data, str) else data

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
    """One column of the declared schema, or one field of a struct."""

    name: str = Field(min_length=1)
    """As in the records, case and all."""


_ESCAPED = re.compile(r'["\\\x00-\x1f]')


def check_readable(fields: list[FieldSettings], *, by_name: bool) -> None:
    """Raise `ValueError` for names that JSON has to escape, where a reader looks for names.

    It does for values that are taken out of the line as text; ``by_name`` for all, since it has to
    know which fields have no column.
    """
    for field in fields:
        if (by_name or _needs_conversion(field)) and _ESCAPED.search(field.name):
            raise ValueError(
                f"field {field.name!r}: a name with a quote, a backslash or a control character"
                " goes neither with json, map and coerce nor with unexpected_fields: capture or"
                " fail; rename it at the source, or leave it out"
            )
        if by_name:
            check_readable(field.fields or [], by_name=True)


def _needs_conversion(of: TypeSettings) -> bool:
    inner = [*(of.fields or ()), of.items, of.values]
    taken_out = of.type in {"json", "map"} or of.coerce
    return taken_out or any(_needs_conversion(each) for each in inner if each is not None)


def check_unique(fields: list[FieldSettings]) -> None:
    """Raise `ValueError` for a name that is given twice."""
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise ValueError(f"field {field.name!r} is given twice or differs only in case")
        seen.add(field.name.lower())


# What the example configuration shows.
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
    """Fields that one of several sources has beside those of the pipeline's ``schema``.

    In rows of the others they are null. What two sources have under one name has one type.
    """

    fields: list[FieldSettings] = Field(min_length=1)
    """Its further columns."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        check_unique(self.fields)
        return self


class SchemaAdvanced(Settings):
    """Inference of columns, and reading of lines.

    Inference reads up to ``sample_bytes_per_file`` (decompressed) of up to ``sample_files``
    files; 16 MiB in all take a second or two and see what a day of files has in common. Values
    of different types become a string that takes anything, or with ``coerce_conflicts_to_utf8:
    false`` an error that names the field.
    """

    sample_files: int = Field(default=16, ge=1, le=1000)
    """The oldest, the newest and some between."""
    sample_bytes_per_file: int = Field(default=1 << 20, ge=1024)
    """Decompressed."""
    coerce_conflicts_to_utf8: bool = True
    """false: values of different types are an error."""
    infer_timestamps: bool = False
    """true: text that is ISO 8601 throughout becomes a timestamp."""
    fast_path: bool = True
    """false: every line is read by the slower reader alone; the rows are the same."""


class SchemaSettings(Settings):
    """The table's columns: ``fields`` are declared, with ``infer`` the rest is found out.

    Inference reads a sample, the oldest files, the newest and some between, once; the result is
    kept beside the checkpoint.

    ``unexpected_fields`` says what happens to JSON fields without a column:
    ``ignore`` drops them, which costs nothing; ``capture`` keeps them as one JSON
    object in the column ``_rescued``; ``fail`` makes the line a bad record.

    ``evolve: add`` makes a column of each such field, with the first record that has a value for
    it: its type is what inference makes of the values of that batch, and it stays. Fields
    inside of structs are not added.
    """

    fields: list[FieldSettings] = Field(default_factory=list)
    """Declared columns; required unless the rest is inferred."""
    unexpected_fields: UnexpectedFields = "ignore"
    """What becomes of others: dropped, kept as JSON in `_rescued`, or the line is bad."""
    evolve: Evolve = "never"
    """add: others become columns, of sources of files."""
    infer: bool = False
    """true: find columns beside `fields` in a sample, once."""
    advanced: SchemaAdvanced = SchemaAdvanced()
    """What few have to set."""

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if not self.fields and not self.infer:
            raise ValueError("give `fields`, or `infer: true`, or both")
        check_unique(self.fields)
        check_readable(self.fields, by_name=self.unexpected_fields != "ignore")
        taken = {field.name.lower() for field in self.fields}
        if self.unexpected_fields == "capture" and RESCUED in taken:
            raise ValueError(f"field {RESCUED!r} is what unexpected_fields: capture adds")
        if self.evolve == "add" and self.unexpected_fields == "fail":
            raise ValueError(
                "evolve: add and unexpected_fields: fail contradict each other: a field is added,"
                " or its record is bad; leave one of them out"
            )
        return self

    @property
    def is_found_out(self) -> bool:
        """Return whether columns are kept beside the checkpoint that are not declared."""
        return self.infer or self.evolve == "add"
