"""Common options of file formats: notation of values, encodings, and Spark's names.

Option names are those of Spark in snake case where the meaning is equal. A default differs from
Spark's only where Spark's loses or alters data.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from blizzard_core.limits import AVRO_SCHEMA_BYTES
from blizzard_core.settings.base import Settings
from blizzard_core.settings.time_formats import check_time_format

# Spark's options for what is not a property of a file here.
_ELSEWHERE = {
    "mode": "error_handling.on_bad_record",
    "bad_records_path": "error_handling.advanced.dlq_path",
    "column_name_of_corrupt_record": "dead letters, which hold the record",
    "rescued_data_column": "schema.unexpected_fields: capture",
    "path_glob_filter": "include of the source",
    "compression": "advanced.compression of the source",
}


class FormatOptions(Settings):
    """Options of a format.

    ``endings`` are the names of its files, before the ending of a codec; none if any name fits.
    ``spark_names`` are Spark's options under another name here. ``streams`` says whether files may
    be compressed. ``fixed_columns`` are the columns of all files with their types, if no file names
    its own. ``name_marks`` are parts of a file's name, in lower case, that change how it is read;
    files of its records keep them.
    """

    endings: ClassVar[tuple[str, ...]] = ()
    spark_names: ClassVar[Mapping[str, str]] = {}
    streams: ClassVar[bool] = True
    fixed_columns: ClassVar[Mapping[str, str]] = {}
    name_marks: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _name_sparks_options(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for key in data:
            name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(key)).lower()
            if str(key) in cls.model_fields:
                continue
            if name in _ELSEWHERE:
                raise ValueError(f"{key} is no option of a format: use {_ELSEWHERE[name]}")
            known = cls.spark_names.get(name, name if name in cls.model_fields else "")
            if known:
                raise ValueError(f"{key}: {known}" if " " in known else f"{key} is {known} here")
        return data


# Encodings that are text in their own bytes: no escapes, no transport forms.
_ENCODINGS = frozenset(
    {
        "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be",
        "ascii", "latin-1", "iso8859-1", "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9",
        "iso8859-15", "cp437", "cp850", "cp852", "cp866", "cp1250", "cp1251", "cp1252", "cp1253",
        "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "koi8-r", "koi8-u", "mac-roman",
        "shift_jis", "cp932", "euc_jp", "gb2312", "gbk", "gb18030", "big5", "cp950",
        "euc_kr", "cp949",
    }
)  # fmt: skip


def known_encoding(name: str) -> str:
    """Return the codec's own name. Raises `ValueError` for what is no encoding of text."""
    try:
        found = codecs.lookup(name).name
    except LookupError:
        found = ""
    if found not in {codecs.lookup(each).name for each in _ENCODINGS}:
        raise ValueError("is no encoding of text; use utf-8, utf-16, cp1252, latin-1 or the like")
    return found


Encoding = Annotated[str, AfterValidator(known_encoding)]
OneCharacter = Annotated[str, StringConstraints(max_length=1)]


def _schema_text(value: str) -> str:
    """Return a schema in JSON, read from its file if an absolute path is given."""
    text = value.strip()
    if text.startswith("/"):
        try:
            with Path(text).open("rb") as file:
                text = file.read(AVRO_SCHEMA_BYTES + 1).decode().strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no text in UTF-8"
            raise ValueError(f"{value}: cannot be read ({why})") from error
    elif text and not text.startswith(("{", "[")):
        raise ValueError("must be a schema in JSON, or the path of a file with one")
    return text


AvroSchema = Annotated[str, AfterValidator(_schema_text)]


def _as_list(value: Any) -> Any:
    """Return a single text as a list."""
    return [value] if isinstance(value, str) else value


Texts = Annotated[
    list[str],
    BeforeValidator(_as_list),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]


def _date_formats(formats: list[str]) -> list[str]:
    for form in formats:
        check_time_format(form, has_time=False)
    return formats


def _time_formats(formats: list[str]) -> list[str]:
    for form in formats:
        check_time_format(form, has_time=True)
    return formats


def _known_zone(zone: str) -> str:
    try:
        ZoneInfo(zone)
        if zone != "UTC":
            import pyarrow as pa  # noqa: PLC0415  # a configuration rarely names a zone
            import pyarrow.compute as pc  # noqa: PLC0415  # likewise

            # Arrow has a database of its own.
            pc.assume_timezone(pa.nulls(1, pa.timestamp("us")), zone)
        is_known = zone != "localtime"
    except (KeyError, ValueError, OSError):
        is_known = False
    if not is_known:
        raise ValueError("is unknown; use a name such as Europe/Berlin")
    return zone


class ValueOptions(FormatOptions):
    """Notation of values in text."""

    null_value: Texts = Field(default=[""], examples=[["", "NULL"]])
    """Unquoted texts that are null: one, or a list."""
    decimal: OneCharacter = Field(default=".", min_length=1)
    """Decimal separator."""
    thousands: OneCharacter = Field(default="", examples=["."])
    """Separator of thousands; default: none."""
    date_format: Annotated[Texts, AfterValidator(_date_formats)] = Field(
        default=[], examples=["%d.%m.%Y"]
    )
    """strftime codes of dates; of a list each is tried. Default: ISO 8601."""
    timestamp_format: Annotated[Texts, AfterValidator(_time_formats)] = Field(
        default=[], examples=["%d.%m.%Y %H:%M:%S"]
    )
    """The same for times."""
    time_zone: Annotated[str, AfterValidator(_known_zone)] = "UTC"
    """Zone of times without one."""
    true_values: Texts = Field(default=["true", "1"])
    """Texts for true, in any case."""
    false_values: Texts = Field(default=["false", "0"])
    """Texts for false, in any case."""

    @property
    def trims(self) -> tuple[bool, bool]:
        """True for blanks before text, and for those after it, that are dropped."""
        return False, False

    @model_validator(mode="after")
    def _marks_differ(self) -> Self:
        if self.decimal == self.thousands:
            raise ValueError("decimal and thousands must differ")
        if any(mark.isalnum() or mark in {"+", "-"} for mark in (self.decimal, self.thousands)):
            raise ValueError("decimal and thousands must be no digit, letter or sign")
        texts = ({text.lower() for text in each} for each in (self.true_values, self.false_values))
        if both := set.intersection(*texts):
            raise ValueError(f"{min(both)!r} is in true_values and in false_values")
        return self


class AvroOptions(FormatOptions):
    """Avro object container files."""

    type: Literal["avro"]
    """Avro object container files; takes the extra `avro`."""
    avro_schema: AvroSchema = Field(default="", examples=["/etc/blizzard/order.avsc"])
    """Schema that all files are read as: JSON, or the path of a file with it. Default: each file's
    own."""
    nanoseconds: Literal["bad", "cut"] = "bad"
    """Times with nanoseconds: the record is bad, or they are cut."""
    union: Literal["json", "string"] = "json"
    """Unions of several types: JSON text, or texts as they are and JSON for other values."""

    endings: ClassVar[tuple[str, ...]] = (".avro",)
    spark_names: ClassVar[Mapping[str, str]] = {
        "avro_schema_url": "avro_schema",
        "ignore_extension": "use include of the source",
        "datetime_rebase_mode": "not needed, since dates are read as stored",
        "record_name": "not needed, since names of records do not matter",
        "record_namespace": "not needed, since names of records do not matter",
        "enable_stable_identifiers_for_union_type": "use union",
        "recursive_field_max_depth": "not read, since recursive types are refused",
    }
