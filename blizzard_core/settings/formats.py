"""Settings of file formats: one block for each `type`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from blizzard_core.limits import RECORDS_LEVELS, XML_LEVELS
from blizzard_core.settings.format_options import (
    AvroOptions,
    Encoding,
    FormatOptions,
    OneCharacter,
    Texts,
    ValueOptions,
    parse_address,
)


class NdjsonOptions(FormatOptions):
    """There are no options."""

    type: Literal["ndjson"] = "ndjson"
    """One JSON object in each line."""

    endings: ClassVar[tuple[str, ...]] = (".ndjson", ".jsonl", ".json")


class JsonOptions(FormatOptions):
    """Options of JSON documents: docs/reference/formats.md."""

    type: Literal["json"]
    """JSON documents."""
    records: str = Field(default="", examples=["data.items"])
    """Path of the array of records; default: the root."""
    encoding: Literal["utf-8", "utf-16", "utf-16-le", "utf-16-be"] = "utf-8"
    """utf-16: with a byte order mark."""

    endings: ClassVar[tuple[str, ...]] = (".json",)
    spark_names: ClassVar[Mapping[str, str]] = {"charset": "encoding"}

    @property
    def keys(self) -> tuple[str, ...]:
        """The names on the path to the array."""
        return tuple(self.records.split(".")) if self.records else ()

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        if not all(self.keys) or len(self.keys) > RECORDS_LEVELS:
            raise ValueError(
                f"records: {self.records!r} is no path: write at most {RECORDS_LEVELS} names with"
                " a dot between, such as data.items"
            )
        return self


# A name in the configuration; a file may have others, which no column can be named after.
_XML_NAME = re.compile(r"[^\W\d][\w.:-]*")


class CsvOptions(ValueOptions):
    """Options of CSV: docs/reference/formats.md."""

    type: Literal["csv"]
    """Delimited text."""
    delimiter: OneCharacter | None = Field(default=None, min_length=1, examples=[";"])
    """Default: a comma; in .tsv files a tab."""
    quote: OneCharacter = '"'
    """Empty: quotes have no meaning."""
    escape: OneCharacter = Field(default="", examples=["\\"])
    """Character that precedes a quote within quotes; default: quotes are doubled."""
    header: bool = True
    """The first record names the columns."""
    columns: list[str] = Field(default=[], examples=[["id", "name"]])
    """Names of the columns without a header; default: the order of `schema.fields`."""
    comment: OneCharacter = Field(default="", examples=["#"])
    """Lines that begin with it are ignored."""
    skip_rows: int = Field(default=0, ge=0, le=10_000)
    """Lines before the header that are ignored."""
    ragged_rows: Literal["bad", "pad"] = "bad"
    """`pad`: missing fields at the end are null, and empty ones beyond the header are dropped."""
    encoding: Encoding = "utf-8"
    """Encoding of the files."""
    ignore_leading_white_space: bool = False
    """Drop blanks before text; before other values they never count."""
    ignore_trailing_white_space: bool = False
    """The same after text."""

    endings: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".txt")
    name_marks: ClassVar[tuple[str, ...]] = (".tsv",)
    spark_names: ClassVar[Mapping[str, str]] = {
        "sep": "delimiter",
        "charset": "encoding",
        "locale": "use decimal and thousands",
        "char_to_escape_quote_escaping": "escape",
        "infer_schema": "use schema.fields of the pipeline",
        "multi_line": "not needed, since quotes may always hold line ends",
        "enforce_schema": "not needed, since columns are matched by name",
    }

    def delimiter_of(self, path: str) -> str:
        """Return the delimiter of a file, which its name tells if it is not set."""
        name = path.rpartition("/")[2].lower()
        has_tabs = any(mark in name for mark in self.name_marks)
        return self.delimiter or ("\t" if has_tabs else ",")

    @property
    def trims(self) -> tuple[bool, bool]:
        """True for blanks before text, and for those after it, that are dropped."""
        return self.ignore_leading_white_space, self.ignore_trailing_white_space

    @field_validator("delimiter", mode="before")
    @classmethod
    def _is_one_character(cls, value: Any) -> Any:
        if isinstance(value, str) and len(value) > 1:
            raise ValueError("must be one character; delimiters of several are not read")
        return value

    @model_validator(mode="after")
    def _characters_differ(self) -> Self:
        used = [self.delimiter or ",", self.quote, self.escape, self.comment]
        used = [each for each in used if each]
        if len(set(used)) < len(used):
            raise ValueError("delimiter, quote, escape and comment must differ")
        if any(not each.isascii() or each in "\r\n" for each in used):
            raise ValueError("delimiter, quote, escape and comment must be ASCII, no line ends")
        if self.columns and self.header:
            raise ValueError("columns goes with header: false")
        return self


class XmlOptions(ValueOptions):
    """Options of XML: docs/reference/formats.md."""

    type: Literal["xml"]
    """XML elements."""
    row_tag: str = Field(examples=["event"])
    """Name of the element that is a record, or `a/b` for a `b` in an `a`."""
    null_value: Texts = Field(default=[], examples=[["NULL"]])
    """Texts that are null. An empty text is null in all columns that hold no text."""
    attribute_prefix: str = Field(default="_", max_length=20)
    """Stands before the names of attributes."""
    value_tag: str = Field(default="_VALUE", min_length=1, max_length=40)
    """Name of an element's text beside attributes or other elements."""
    exclude_attribute: bool = False
    """Ignore attributes."""
    ignore_namespace: bool = False
    """Ignore prefixes of names."""
    ignore_surrounding_spaces: bool = True
    """Drop blanks around text; around other values they never count."""

    endings: ClassVar[tuple[str, ...]] = (".xml",)
    spark_names: ClassVar[Mapping[str, str]] = {
        "charset": "not needed, since files declare their encoding",
        "encoding": "not needed, since files declare their encoding",
        "infer_schema": "use schema.fields of the pipeline",
        "sampling_ratio": "use schema.fields of the pipeline",
        "row_validation_xsdpath": "not read, since schemas of XML are not supported",
        "wildcard_col_name": "use schema.unexpected_fields: capture",
        "locale": "use decimal and thousands",
    }

    @property
    def row_path(self) -> tuple[str, ...]:
        """The names that lead to a record; the last one is its own."""
        return tuple(self.row_tag.split("/"))

    @property
    def trims(self) -> tuple[bool, bool]:
        """True for blanks before text, and for those after it, that are dropped."""
        return self.ignore_surrounding_spaces, self.ignore_surrounding_spaces

    @field_validator("row_tag")
    @classmethod
    def _is_path(cls, value: str) -> str:
        names = value.split("/")
        if len(names) > XML_LEVELS or not all(map(_XML_NAME.fullmatch, names)):
            raise ValueError(
                f"{value!r} is no name of an element; write a name such as event, or names with"
                " slashes between, such as events/event"
            )
        return value

    @model_validator(mode="after")
    def _has_no_ignored_prefix(self) -> Self:
        if self.ignore_namespace and ":" in self.row_tag:
            raise ValueError("row_tag has a prefix, which ignore_namespace: true ignores")
        return self


class TextFileOptions(FormatOptions):
    """Options of text without structure: docs/reference/formats.md."""

    type: Literal["text"]
    """Lines, or whole files, of the column `value`."""
    whole_text: bool = False
    """A file is one row."""
    line_sep: OneCharacter = Field(default="", examples=[";"])
    """ASCII character at the end of a line; default: `\\n`, with or without `\\r` before it."""

    spark_names: ClassVar[Mapping[str, str]] = {
        "wholetext": "whole_text",
        "encoding": "not read; store the files as UTF-8",
    }
    fixed_columns: ClassVar[Mapping[str, str]] = {"value": "string"}

    @field_validator("line_sep", mode="before")
    @classmethod
    def _is_one_byte(cls, value: Any) -> Any:
        if isinstance(value, str) and not (value.isascii() and len(value) <= 1):
            raise ValueError("must be one ASCII character; leave it out for \\n and \\r\\n")
        return value

    @model_validator(mode="after")
    def _has_lines_or_not(self) -> Self:
        if self.whole_text and self.line_sep:
            raise ValueError("line_sep does not go with whole_text, which has no lines")
        return self


class BinaryFileOptions(FormatOptions):
    """There are no options."""

    type: Literal["binary"]
    """Whole files of any kind, each a row."""

    streams: ClassVar[bool] = False
    fixed_columns: ClassVar[Mapping[str, str]] = {
        "path": "string",
        "modification_time": "timestamp",
        "length": "int64",
        "content": "binary",
    }


class ParquetOptions(FormatOptions):
    """Options of Parquet: docs/reference/formats.md."""

    type: Literal["parquet"]
    """Parquet files."""
    row_groups: Literal["decode", "copy"] = "decode"
    """`copy`: row groups like those of the table are copied with their pages and statistics, which
    are believed."""
    nanoseconds: Literal["bad", "cut"] = "bad"
    """Times with nanoseconds: the record is bad, or they are cut."""
    datetime_rebase_mode: Literal["error", "corrected", "legacy"] = "error"
    """Dates before 1582-10-15 in files of Hive and Spark 2 that do not name their calendar: a bad
    record, as stored, or converted."""

    endings: ClassVar[tuple[str, ...]] = (".parquet",)
    spark_names: ClassVar[Mapping[str, str]] = {
        "int96_rebase_mode": "datetime_rebase_mode",
        "merge_schema": "not needed, since columns are matched by name in each file",
    }
    streams: ClassVar[bool] = False


class OrcOptions(FormatOptions):
    """Options of ORC: docs/reference/formats.md."""

    type: Literal["orc"]
    """ORC files."""
    nanoseconds: Literal["bad", "cut"] = "bad"
    """Times with nanoseconds: the record is bad, or they are cut."""

    endings: ClassVar[tuple[str, ...]] = (".orc",)
    spark_names: ClassVar[Mapping[str, str]] = {
        "merge_schema": "not needed, since columns are matched by name in each file"
    }
    streams: ClassVar[bool] = False


class ExcelOptions(ValueOptions):
    """Options of Excel workbooks: docs/reference/formats.md."""

    type: Literal["excel"]
    """A sheet of each workbook."""
    data_address: str = Field(default="", examples=["Orders!A3:F500"])
    """Sheet, range, or both: `Sheet!A3:F500`, `Sheet!A3`, `Sheet!A:F`, `Sheet`. Default: the first
    visible sheet."""
    header_rows: Literal[0, 1] = 1
    """1: the first row that is not blank names the columns."""
    columns: list[str] = Field(default=[], examples=[["id", "name"]])
    """Names of the columns without a header; default: the order of `schema.fields`."""
    null_value: Texts = Field(default=[""], examples=[["", "#N/A"]])
    """Texts and errors that are null: one, or a list."""

    endings: ClassVar[tuple[str, ...]] = (".xlsx",)
    streams: ClassVar[bool] = False
    spark_names: ClassVar[Mapping[str, str]] = {
        "header": "use header_rows",
        "sheet_name": "use data_address",
        "infer_schema": "use schema.fields of the pipeline",
        "treat_empty_values_as_nulls": "use null_value",
        "use_plain_number_format": "not needed, since numbers are read plain",
        "workbook_password": "not read; save the workbooks without a password",
        "operation": "not read; a wrong name of a sheet lists those that exist",
    }

    @field_validator("data_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parse_address(value)
        return value

    @model_validator(mode="after")
    def _columns_have_no_header(self) -> Self:
        if self.columns and self.header_rows:
            raise ValueError("columns goes with header_rows: 0")
        if len(set(self.columns)) < len(self.columns) or not all(self.columns):
            raise ValueError("columns must be different names")
        return self


def _with_type(value: Any) -> Any:
    """Return the block of a format that was given by its name."""
    return {"type": value} if isinstance(value, str) else value


def _type_of(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("type", ""))
    return str(getattr(value, "type", value))


# A new format is a line in both of these, and one in `blizzard_py.formats.names`.
FORMATS: tuple[type[FormatOptions], ...] = (
    NdjsonOptions,
    JsonOptions,
    CsvOptions,
    AvroOptions,
    TextFileOptions,
    BinaryFileOptions,
    XmlOptions,
    ParquetOptions,
    OrcOptions,
    ExcelOptions,
)
# Those of which letters are rows of `LetterOptions`.
FORMATS_WITH_TYPES = (AvroOptions, BinaryFileOptions, ParquetOptions, OrcOptions, ExcelOptions)
# Those of which letters of tables need more than a line of NDJSON.
FORMATS_OF_TABLE_LETTERS = (*FORMATS_WITH_TYPES, CsvOptions, XmlOptions)
FormatSettings: TypeAlias = Annotated[
    Annotated[NdjsonOptions, Tag("ndjson")]
    | Annotated[JsonOptions, Tag("json")]
    | Annotated[CsvOptions, Tag("csv")]
    | Annotated[AvroOptions, Tag("avro")]
    | Annotated[TextFileOptions, Tag("text")]
    | Annotated[BinaryFileOptions, Tag("binary")]
    | Annotated[XmlOptions, Tag("xml")]
    | Annotated[ParquetOptions, Tag("parquet")]
    | Annotated[OrcOptions, Tag("orc")]
    | Annotated[ExcelOptions, Tag("excel")],
    Discriminator(_type_of),
    BeforeValidator(_with_type),
]


class LetterOptions(FormatOptions):
    """Files of rows in dead letters, which a replay writes. No configuration names them."""

    type: Literal["letters"] = "letters"
    of: FormatSettings
    """The format of the files that the rows are of, with the options of today."""
    of_table: bool = False
    """Rows of a table, some of which are lines of NDJSON."""

    @classmethod
    def of_rows(cls, form: FormatSettings | None) -> Self:
        """Return the format of letters of rows, of files in this format or of none."""
        own = form if isinstance(form, FORMATS_OF_TABLE_LETTERS) else NdjsonOptions()
        return cls(of=own, of_table=True)


# The formats of files that are ingested.
FileFormat: TypeAlias = FormatSettings | LetterOptions
