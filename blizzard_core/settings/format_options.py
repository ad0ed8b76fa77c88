"""Common options of file formats: notation of values, encodings, Spark's names, cells of a sheet.

Option names are those of Spark in snake case where the meaning is equal. A default differs from
Spark's only where Spark's loses or alters data.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
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

# The last cell of a sheet.
LAST_ROW = 1_048_576
LAST_COLUMN = 16_384
_CELL = r"\$?([A-Za-z]{1,3})(?:\$?([1-9]\d{0,6}))?"
_LETTERS = re.compile(r"[A-Za-z]{1,3}")
_RANGE = re.compile(rf"{_CELL}(?::{_CELL})?", re.ASCII)
_NO_NAME = re.compile(r"[:\\/?*\[\]]")


@dataclass(frozen=True, slots=True)
class DataAddress:
    """The part of a sheet that is read; rows and columns count from 1, both ends inclusive.

    Without a ``sheet`` it is the first visible one.
    """

    sheet: str = ""
    first_row: int = 1
    last_row: int = LAST_ROW
    first_column: int = 1
    last_column: int = LAST_COLUMN


def parse_address(text: str) -> DataAddress:
    """Return the address. Raises `ValueError` if the text is none."""
    sheet, has_range, cells = text.rpartition("!")
    if not has_range:
        sheet, cells = ("", text) if ":" in text else (text, "")
    if len(sheet) > 1 and sheet[0] == sheet[-1] == "'":
        sheet = sheet[1:-1].replace("''", "'")
    if _NO_NAME.search(sheet):
        raise ValueError(f"{sheet!r} is no name of a sheet")
    if not cells and not has_range:
        return DataAddress(sheet)
    match = _RANGE.fullmatch(cells)
    if match is None:
        raise ValueError(
            f"{cells!r} is no range of cells; write Sheet!A2:D500, Sheet!A2, Sheet!A:D or Sheet"
        )
    first, first_row, last, last_row = match.groups()
    found = DataAddress(
        sheet,
        int(first_row or 1),
        int(last_row or LAST_ROW),
        column_number(first),
        column_number(last) if last else LAST_COLUMN,
    )
    if found.last_row > LAST_ROW or found.last_column > LAST_COLUMN:
        raise ValueError(f"{cells!r} ends behind XFD{LAST_ROW}, the last cell of a sheet")
    if found.first_row > found.last_row or found.first_column > found.last_column:
        raise ValueError(f"{cells!r} ends before it begins")
    return found


def is_cell(text: str) -> bool:
    """Return whether a text is a cell with its row, such as `B2`."""
    match = _RANGE.fullmatch(text)
    return match is not None and match[2] is not None


def column_number(letters: str) -> int:
    """Return the number of a column, from 1 for A. Raises `ValueError` for other letters."""
    if not _LETTERS.fullmatch(letters):
        raise ValueError(f"{letters!r:.20} are no letters of a column, which are A to XFD")
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number


def column_letters(number: int) -> str:
    """Return the letters of a column, from 1 for A. There are none for a smaller number."""
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


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
