"""Text to values: what a text becomes here, in duckdb and in Spark, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import SourceError
from blizzard_core.settings.format_options import ValueOptions
from blizzard_core.settings.formats import CsvOptions
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.scalars import NoSuchCast
from blizzard_py.formats.texts import text_values
from blizzard_py.job import FieldSpec

UTC = dt.UTC
BERLIN = ZoneInfo("Europe/Berlin")
BAD = "bad"
INF, NAN = float("inf"), float("nan")
day = dt.date


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def spec(kind: Any, **more: Any) -> FieldSpec:
    return FieldSpec("v", kind, nullable=True, **more)


INT, FLOAT, BOOLEAN = spec("int64"), spec("float64"), spec("boolean")
DECIMAL = spec("decimal", precision=10, scale=2)
DATE, TIME, STRING = spec("date"), spec("timestamp"), spec("string")
SQL = {
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "decimal": "DECIMAL(10,2)",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "string": "STRING",
}


DEFAULTS = ValueOptions()


@dataclass(frozen=True)
class Notation:
    """The same options here, in duckdb and in Spark, as far as they have them."""

    ours: ValueOptions = field(default=DEFAULTS, hash=False)
    duckdb: str = ""
    spark: Mapping[str, str] = field(default_factory=dict, hash=False)


PLAIN = Notation()
COMMA = Notation(
    ValueOptions(decimal=",", thousands="."),
    "decimal_separator=',', thousands='.'",
    {"locale": "de-DE"},
)
GERMAN = Notation(
    ValueOptions(date_format=("%d.%m.%Y",)),
    "dateformat='%d.%m.%Y'",
    {"dateFormat": "dd.MM.yyyy"},
)
UNPADDED = Notation(
    ValueOptions(date_format=("%-d.%-m.%Y",)),
    "dateformat='%-d.%-m.%Y'",
    {"dateFormat": "d.M.yyyy"},
)
ORACLE = Notation(
    ValueOptions(date_format=("%d-%b-%Y",)),
    "dateformat='%d-%b-%Y'",
    {"dateFormat": "dd-MMM-yyyy"},
)
AMERICAN = Notation(
    ValueOptions(timestamp_format=("%m/%d/%Y %I:%M %p",)),
    "timestampformat='%m/%d/%Y %I:%M %p'",
    {"timestampFormat": "MM/dd/yyyy hh:mm a"},
)
IN_BERLIN = Notation(ValueOptions(time_zone="Europe/Berlin"), "", {"timeZone": "Europe/Berlin"})
YES_NO = Notation(ValueOptions(true_values=("ja",), false_values=("nein",)))
TRIMMED = Notation(
    CsvOptions(type="csv", ignore_leading_white_space=True, ignore_trailing_white_space=True),
    "",
    {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"},
)


@dataclass(frozen=True)
class Row:
    """A text, its declared type, and what three readers make of it.

    A value that Python does not have is its text.
    """

    text: str
    field: FieldSpec
    ours: Any
    duckdb: Any
    spark: Any
    notation: Notation = PLAIN

    def __str__(self) -> str:
        return f"{self.text!r}-{self.field.type}"


#         text, type, here, duckdb, Spark
TABLE = (
    Row("7", INT, 7, 7, 7),
    Row("007", INT, 7, 7, 7),
    Row("+7", INT, 7, 7, 7),
    Row(" 7", INT, 7, 7, BAD),
    Row("-0", INT, 0, 0, 0),
    Row("0x1F", INT, BAD, 31, BAD),
    Row("1.5", INT, BAD, 2, BAD),
    Row("1e3", INT, BAD, 1000, BAD),
    Row("1_000", INT, BAD, 1000, BAD),
    Row("1,000", INT, BAD, BAD, BAD),
    Row("\N{ARABIC-INDIC DIGIT ONE}", INT, BAD, BAD, 1),
    Row("", INT, BAD, BAD, BAD),
    Row("9223372036854775808", INT, BAD, BAD, BAD),
    Row("1.234", INT, 1234, 1234, BAD, COMMA),
    Row("1.23.4", INT, BAD, 1234, BAD, COMMA),
    Row("1.5", FLOAT, 1.5, 1.5, 1.5),
    Row(".5", FLOAT, 0.5, 0.5, 0.5),
    Row("1e400", FLOAT, BAD, INF, INF),
    Row("1e-400", FLOAT, 0.0, 0.0, 0.0),
    Row("Infinity", FLOAT, INF, INF, INF),
    Row("NaN", FLOAT, NAN, NAN, NAN),
    Row("1,5", FLOAT, BAD, BAD, BAD),
    Row("0x1p3", FLOAT, BAD, BAD, 8.0),
    Row("1.5f", FLOAT, BAD, BAD, 1.5),
    Row("1.234,5", FLOAT, 1234.5, 1234.5, BAD, COMMA),
    Row("1234,5", FLOAT, 1234.5, 1234.5, BAD, COMMA),
    Row("1.5", FLOAT, BAD, 15.0, 1.5, COMMA),
    Row("1.50", DECIMAL, Decimal("1.50"), Decimal("1.50"), Decimal("1.50")),
    Row("1.505", DECIMAL, BAD, Decimal("1.51"), Decimal("1.51")),
    Row("1e2", DECIMAL, Decimal("100.00"), Decimal("100.00"), Decimal("100.00")),
    Row("123456789", DECIMAL, BAD, BAD, BAD),
    Row("NaN", DECIMAL, BAD, BAD, BAD),
    Row("1.234,50", DECIMAL, Decimal("1234.50"), Decimal("1234.50"), Decimal("1234.50"), COMMA),
    Row("12.34,50", DECIMAL, BAD, Decimal("1234.50"), Decimal("1234.50"), COMMA),
    Row("TRUE", BOOLEAN, True, True, True),
    Row("1", BOOLEAN, True, True, BAD),
    Row("yes", BOOLEAN, BAD, True, BAD),
    Row("t", BOOLEAN, BAD, True, BAD),
    Row("Ja", BOOLEAN, True, BAD, BAD, YES_NO),
    Row("2024-05-06", DATE, day(2024, 5, 6), day(2024, 5, 6), day(2024, 5, 6)),
    Row("2024-05-06T12:00:00Z", DATE, BAD, day(2024, 5, 6), day(2024, 5, 6)),
    Row("2024-5-6", DATE, BAD, day(2024, 5, 6), day(2024, 5, 6)),
    Row("20240506", DATE, BAD, BAD, BAD),
    Row("19000", DATE, BAD, BAD, "+19000-01-01"),
    Row("2024-02-30", DATE, BAD, BAD, BAD),
    Row("0000-01-01", DATE, BAD, "0001-01-01 (BC)", "0000-01-01"),
    Row("06.05.2024", DATE, day(2024, 5, 6), day(2024, 5, 6), day(2024, 5, 6), GERMAN),
    Row("31.02.2024", DATE, BAD, BAD, BAD, GERMAN),
    Row("06.05.24", DATE, BAD, day(24, 5, 6), BAD, GERMAN),
    Row("6.5.2024", DATE, BAD, day(2024, 5, 6), BAD, GERMAN),
    Row("6.5.2024", DATE, day(2024, 5, 6), day(2024, 5, 6), day(2024, 5, 6), UNPADDED),
    Row("06.05.2024", DATE, BAD, day(2024, 5, 6), day(2024, 5, 6), UNPADDED),
    Row(" 06.05.2024", DATE, day(2024, 5, 6), day(2024, 5, 6), BAD, GERMAN),
    Row("06-MAY-2024", DATE, day(2024, 5, 6), day(2024, 5, 6), day(2024, 5, 6), ORACLE),
    Row(
        "2024-05-06T12:00:00+02:00",
        TIME,
        utc(2024, 5, 6, 10, 0),
        utc(2024, 5, 6, 12, 0),
        utc(2024, 5, 6, 10, 0),
    ),
    Row(
        "2024-05-06 12:00:00.123456",
        TIME,
        utc(2024, 5, 6, 12, 0, 0, 123456),
        utc(2024, 5, 6, 12, 0, 0, 123456),
        utc(2024, 5, 6, 12, 0, 0, 123456),
    ),
    Row(
        "2024-05-06T12:00:00.123456789Z",
        TIME,
        BAD,
        utc(2024, 5, 6, 12, 0, 0, 123456),
        utc(2024, 5, 6, 12, 0, 0, 123456),
    ),
    Row("2024-05-06", TIME, utc(2024, 5, 6, 0, 0), utc(2024, 5, 6, 0, 0), utc(2024, 5, 6, 0, 0)),
    Row("2024-05-06T24:00:00Z", TIME, BAD, utc(2024, 5, 7, 0, 0), BAD),
    Row("1715000000", TIME, BAD, BAD, BAD),
    Row(
        "05/06/2024 12:30 AM",
        TIME,
        utc(2024, 5, 6, 0, 30),
        utc(2024, 5, 6, 0, 30),
        utc(2024, 5, 6, 0, 30),
        AMERICAN,
    ),
    Row("05/06/2024 13:30 PM", TIME, BAD, BAD, BAD, AMERICAN),
    Row(
        "2024-05-06 12:00:00",
        TIME,
        utc(2024, 5, 6, 10, 0),
        utc(2024, 5, 6, 12, 0),
        utc(2024, 5, 6, 10, 0),
        IN_BERLIN,
    ),
    Row(
        "2024-03-31 02:30:00",
        TIME,
        BAD,
        utc(2024, 3, 31, 2, 30),
        utc(2024, 3, 31, 1, 30),
        IN_BERLIN,
    ),
    Row(
        "2024-10-27 02:30:00",
        TIME,
        BAD,
        utc(2024, 10, 27, 2, 30),
        utc(2024, 10, 27, 0, 30),
        IN_BERLIN,
    ),
    Row(" a ", STRING, " a ", " a ", " a "),
    Row("é", STRING, "é", "é", "é"),
    Row(" a ", STRING, "a", " a ", " a ", TRIMMED),
)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_text_becomes_the_value_or_is_bad(row: Row) -> None:
    assert value_of(row.field, row.text, row.notation.ours) == shown(row.ours)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_duckdb_reads_the_text_as_the_table_says(row: Row, tmp_path: Path) -> None:
    path = written([row.text], tmp_path)
    options = ", ".join(filter(None, [DUCKDB, row.notation.duckdb]))
    query = f"SELECT v FROM read_csv(?, columns={{'v': '{SQL[row.field.type]}'}}, {options})"
    try:
        with duckdb.connect() as connection:
            found = connection.execute(query, [str(path)]).fetchall()[0][0]
    except duckdb.Error:
        found = BAD
    if isinstance(found, dt.datetime):
        found = found.replace(tzinfo=UTC)
    assert shown(found) == shown(row.duckdb)


def test_spark_reads_the_texts_as_the_table_says(spark_engine: SparkEngine, tmp_path: Path) -> None:
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in TABLE:
        groups.setdefault((row.field.type, id(row.notation)), []).append(row)
    session, found = spark_engine.session().newSession(), {}
    # Else it compiles code for each of the few rows.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    for rows in groups.values():
        path = written([row.text for row in rows], tmp_path)
        kind = SQL[rows[0].field.type]
        values = (
            session.read.schema(f"v {kind}")
            .options(mode="PERMISSIVE", escape='"', sep=";", timeZone="UTC")
            .options(**rows[0].notation.spark)
            .csv(str(path))
            .selectExpr(AS_READ.get(kind, "v"))
            .collect()
        )
        found |= {
            row: of_spark(row.field, value) for row, (value,) in zip(rows, values, strict=True)
        }
    assert {row: shown(value) for row, value in found.items()} == {
        row: shown(row.spark) for row in TABLE
    }


DUCKDB = "auto_detect=false, header=false, delim=';', quote='\"', escape='\"'"
AS_READ = {"TIMESTAMP": "unix_micros(v)", "DATE": "CAST(v AS STRING)"}


def of_spark(field: FieldSpec, value: Any) -> Any:
    """Return the value, independent of the time zones of Spark and of this process."""
    if isinstance(value, int) and field.type == "timestamp":
        return utc(1970, 1, 1) + dt.timedelta(microseconds=value)
    if isinstance(value, str) and field.type == "date" and len(value) == len("2024-05-06"):
        return day.fromisoformat(value) if value[0] != "0" else value
    return value


def written(texts: list[str], folder: Path) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.csv"
    path.write_text("".join(f'"{text}"\n' for text in texts), "utf-8")
    return path


def shown(value: Any) -> str:
    """Return a value with its type; null stands for a bad one."""
    if value is None or value == BAD:
        return BAD
    if isinstance(value, dt.datetime):
        return str(value.astimezone(UTC))
    return repr(value)


def value_of(field: FieldSpec, text: str, options: ValueOptions = PLAIN.ours) -> str:
    try:
        return shown(text_values(field, pa.array([text]), options).to_pylist()[0])
    except ValueError:
        return BAD


# --- columns -------------------------------------------------------------------------------------


def conformed(
    field: FieldSpec, texts: list[str | None], options: ValueOptions
) -> tuple[list[Any], dict[int, str]]:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["v"])
    found = Conformer([field], texts=options).conform(batch)
    return found.table.column("v").to_pylist(), dict(found.bad)


def test_formats_are_tried_in_turn_for_each_value() -> None:
    options = ValueOptions(date_format=("%d/%m/%Y", "%m/%d/%Y", "%B %-d, %Y"))
    texts = ["02/03/2024", "02/13/2024", None, "february 3, 2024", "31/02/2024", "2024-02-03"]
    values, bad = conformed(DATE, texts, options)
    assert values == [day(2024, 3, 2), day(2024, 2, 13), None, day(2024, 2, 3)]
    assert bad == {
        row: f"column 'v': '{texts[row]}' is not of the format %d/%m/%Y or %m/%d/%Y or %B %-d, %Y"
        for row in (4, 5)
    }


def test_times_with_and_without_zone_may_be_in_one_column() -> None:
    texts = ["2024-05-06T12:00:00Z", "2024-05-06 12:00:00", None, "2024-03-31 02:30:00", "x"]
    values, bad = conformed(TIME, texts, IN_BERLIN.ours)
    assert values == [utc(2024, 5, 6, 12), utc(2024, 5, 6, 10), None]
    assert "2024-03-31 02:30:00 does not exist in Europe/Berlin, or exists twice" in bad[3]
    assert list(bad) == [3, 4]


LATE = [
    ("2037-07-01 12:00:00", utc(2037, 7, 1, 10)),
    ("2038-07-01 12:00:00", utc(2038, 7, 1, 10)),
    ("2038-12-01 12:00:00", utc(2038, 12, 1, 11)),
    ("2038-03-28 02:30:00", BAD),
    ("2038-10-31 02:30:00", BAD),
    ("9999-12-31 23:59:59", utc(9999, 12, 31, 22, 59, 59)),
    ("0001-01-01 00:00:00", BAD),
]


@pytest.mark.parametrize(("text", "value"), LATE)
def test_zones_have_summer_time_in_all_years(text: str, value: Any) -> None:
    assert value_of(TIME, text, IN_BERLIN.ours) == shown(value)
    neighbours = ["2024-05-06 12:00:00", None, text, text, "2024-05-06T12:00:00Z"]
    values, bad = conformed(TIME, neighbours, IN_BERLIN.ours)
    here = [] if value == BAD else [value, value]
    assert values == [utc(2024, 5, 6, 10), None, *here, utc(2024, 5, 6, 12)]
    assert list(bad) == ([] if here else [2, 3])


def test_no_year_follows_the_last_one() -> None:
    options = ValueOptions(time_zone="America/New_York")
    assert value_of(TIME, "9999-12-31 23:59:59", options) == BAD


def test_no_other_format_reads_an_hour_that_a_zone_lacks() -> None:
    forms = ("%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M")
    options = ValueOptions(timestamp_format=forms, time_zone="America/New_York")
    values, bad = conformed(TIME, ["03/10/2024 02:30", "03/10/2024 03:30"], options)
    assert (values, list(bad)) == ([utc(2024, 3, 10, 7, 30)], [0])


TIMES = [
    ("%d/%b/%Y:%H:%M:%S %z", "06/May/2024:12:00:01 +0200", utc(2024, 5, 6, 10, 0, 1)),
    ("%Y-%m-%d %H:%M:%S.%f", "2024-05-06 12:00:01.5", utc(2024, 5, 6, 12, 0, 1, 500_000)),
    ("%FT%T,%f%z", "2024-05-06T12:00:01,000001Z", utc(2024, 5, 6, 12, 0, 1, 1)),
    ("%-m/%-d/%y %-I:%M %p", "5/6/24 1:05 pm", utc(2024, 5, 6, 13, 5)),
    ("%Y年%m月%d日 %H:%M", "2024年05月06日 12:30", utc(2024, 5, 6, 12, 30)),
    ("%y%m%d%H", "69050623", utc(1969, 5, 6, 23)),
    ("%d. %B %Y (100%%)", "06. May 2024 (100%)", utc(2024, 5, 6)),
    ("%R %F", "23:59 9999-12-31", utc(9999, 12, 31, 23, 59)),
]


@pytest.mark.parametrize(("form", "text", "value"), TIMES, ids=str)
def test_format_of_times_reads_its_texts(form: str, text: str, value: dt.datetime) -> None:
    options = ValueOptions(timestamp_format=(form,))
    assert value_of(TIME, text, options) == shown(value)
    assert value_of(TIME, text + "0", options) == BAD or "%f" in form
    assert (
        value_of(TIME, text.replace("0", "\N{ARABIC-INDIC DIGIT ZERO}"), options) == BAD
        or "0" not in text
    )
    assert conformed(TIME, [text, None, ""], options)[0] == [value, None]


@pytest.mark.parametrize("text", ["24:00", "23:60", "23:59:60", "1:00", "12:00:00.1234567"])
def test_no_time_of_day_is_corrected(text: str) -> None:
    forms = ("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f")
    assert value_of(TIME, f"2024-05-06 {text}") == BAD
    assert value_of(TIME, f"2024-05-06 {text}", ValueOptions(timestamp_format=forms)) == BAD


EPOCHS = [
    ("s", "1715000000.25", utc(2024, 5, 6, 12, 53, 20, 250_000)),
    ("ms", " 1715000000000 ", utc(2024, 5, 6, 12, 53, 20)),
    ("us", "1.5", BAD),
    ("ms", "2024-05-06", BAD),
    ("s", "1e30", BAD),
]


@pytest.mark.parametrize(("unit", "text", "value"), EPOCHS)
def test_time_with_a_unit_is_a_number(unit: Any, text: str, value: Any) -> None:
    assert value_of(replace(TIME, unit=unit), text) == shown(value)


SEPARATED = [
    (INT, "1'234'567", "'", 1234567),
    (INT, "1'2345", "'", BAD),
    (INT, "'123", "'", BAD),
    (INT, "12'34'567", "'", BAD),
    (INT, "0x1'234", "'", BAD),
    (FLOAT, "-1\N{NO-BREAK SPACE}234,5e3", "\N{NO-BREAK SPACE}", -1234500.0),
    (FLOAT, "1 234,567 8", " ", BAD),
    (FLOAT, "-inf", " ", -INF),
    (FLOAT, "1e400", " ", BAD),
    (FLOAT, ",5", "", 0.5),
    (FLOAT, ",", "", BAD),
    (DECIMAL, "1.5", "", BAD),
    (DECIMAL, "1,505", "", BAD),
    (DECIMAL, "1,5,5", "", BAD),
]


@pytest.mark.parametrize(("field", "text", "thousands", "value"), SEPARATED)
def test_separators_must_be_regular(
    field: FieldSpec, text: str, thousands: str, value: Any
) -> None:
    options = ValueOptions(decimal=",", thousands=thousands)
    assert value_of(field, text, options) == shown(value)


def test_lists_of_booleans_are_complete() -> None:
    options = ValueOptions(true_values=("Oui", "É"), false_values=("non",))
    values, bad = conformed(BOOLEAN, ["OUI", " é ", "Non", None, "true", "1"], options)
    assert (values, list(bad)) == ([True, True, False, None], [4, 5])


ITEM = FieldSpec("element", "decimal", nullable=True, precision=5, scale=2)


def test_nested_types_are_json_texts() -> None:
    numbers = spec("list", children=(ITEM,))
    values, bad = conformed(numbers, ["[1.50]", None, "1.50", "[1,50]", "["], COMMA.ours)
    assert values == [[Decimal("1.50")], None, [Decimal(1), Decimal(50)]]
    assert list(bad) == [2, 4]
    assert conformed(spec("json"), ['{"a":\n1.10}'], COMMA.ours) == (['{"a":1.10}'], {})


def test_texts_inside_columns_are_read_by_the_same_rules() -> None:
    record = spec("struct", children=(replace(ITEM, name="a"), replace(DATE, name="b")))
    numbers = replace(spec("list", children=(ITEM,)), name="w")
    entries = replace(spec("map", children=(ITEM,)), name="m")
    options = COMMA.ours.model_copy(update={"date_format": ["%d.%m.%Y"]})
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([{"a": "1,50", "b": "06.05.2024"}, {"a": "1.50", "b": None}]),
            pa.array([["1,5", None], []]),
            pa.array([[("k", "2,5")], []], pa.map_(pa.string(), pa.string())),
        ],
        ["v", "w", "m"],
    )
    conformer = Conformer([record, numbers, entries], texts=options)
    found = conformer.conform(batch)
    assert found.table.to_pylist() == [
        {
            "v": {"a": Decimal("1.50"), "b": day(2024, 5, 6)},
            "w": [Decimal("1.5"), None],
            "m": [("k", Decimal("2.5"))],
        }
    ]
    assert list(found.bad) == [1]


def test_a_letter_shows_values_in_the_notation_of_lines() -> None:
    fields = [INT, replace(DECIMAL, name="d"), replace(DATE, name="t"), replace(STRING, name="s")]
    batch = pa.RecordBatch.from_pydict(
        {"v": ["1.234"], "d": ["1,50"], "t": ["06.05.2024"], "s": ["1,5"], "other": ["1,5"]}
    )
    options = COMMA.ours.model_copy(update={"date_format": ["%d.%m.%Y"]})
    line = json.loads(Conformer(fields, texts=options).text_of(batch, 0), parse_float=Decimal)
    assert line == {"v": 1234, "d": Decimal("1.50"), "t": "2024-05-06", "s": "1,5", "other": "1,5"}


def test_only_texts_are_read() -> None:
    with pytest.raises(NoSuchCast):
        text_values(INT, pa.array([1]), PLAIN.ours)
    batch = pa.RecordBatch.from_arrays([pa.array([b"a"])], ["v"])
    with pytest.raises(SourceError, match=r"schema\.fields"):
        Conformer([DECIMAL], texts=PLAIN.ours).conform(batch)


KINDS = (INT, FLOAT, DECIMAL, BOOLEAN, DATE, TIME, STRING, spec("binary"), spec("json"))


@pytest.mark.parametrize("field", KINDS, ids=lambda field: field.type)
@pytest.mark.parametrize("notation", [PLAIN, COMMA, GERMAN, UNPADDED, AMERICAN, IN_BERLIN, YES_NO])
def test_columns_without_values_are_columns(field: FieldSpec, notation: Notation) -> None:
    for nulls in (0, 3):
        array = pa.nulls(nulls, pa.string())
        assert text_values(field, array, notation.ours).to_pylist() == [None] * nulls
    invalid = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    if field.type != "binary":
        with pytest.raises(ValueError, match=r"."):
            text_values(field, invalid, notation.ours)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"decimal": ""}, "at least 1 character"),
        ({"decimal": ".", "thousands": "."}, "decimal and thousands must differ"),
        ({"thousands": "''"}, "at most 1 character"),
        ({"decimal": "5"}, "must be no digit, letter or sign"),
        ({"date_format": ("%H:%M",)}, "no year|which a date would lose"),
        ({"timestamp_format": ("dd.MM.yyyy",)}, "write '%d.%m.%Y'"),
        ({"time_zone": "Mars/Base"}, "is unknown; use a name such as"),
        ({"true_values": ("J",), "false_values": ("j",)}, "'j' is in true_values and in"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ValueOptions(**options)


def test_options_can_be_sent_to_a_process() -> None:
    assert pickle.loads(pickle.dumps(GERMAN.ours)) == GERMAN.ours


# --- every value prints back ---------------------------------------------------------------------

NUMBERS = st.text("0123456789+-.,' eExX_", max_size=12)
SEPARATORS = st.sampled_from([(".", ""), (",", ""), (",", "."), (".", ","), (".", "'")])


@given(text=NUMBERS, marks=SEPARATORS, field=st.sampled_from([INT, FLOAT, DECIMAL]))
def test_an_accepted_number_has_all_digits(
    text: str, marks: tuple[str, str], field: FieldSpec
) -> None:
    decimal, thousands = marks
    found = value_of(field, text, ValueOptions(decimal=decimal, thousands=thousands))
    if found == BAD:
        return
    digits = text.strip()
    if thousands:
        groups = re.split(r"[^\d']", digits.lstrip("+-").replace(thousands, "'"))[0].split("'")
        assert len(groups) == 1 or {len(group) for group in groups[1:]} == {3}
        assert len(groups) == 1 or 1 <= len(groups[0]) <= 3
    plain = digits.replace(thousands, "") if thousands else digits
    exact = Decimal(plain.replace(decimal, "."))
    assert set(plain) <= set(f"0123456789+-{decimal}eE")
    assert found == shown(
        {"int64": int, "float64": float}.get(field.type, Decimal)(exact)
        if field is not DECIMAL
        else exact.quantize(Decimal("0.01"))
    ) or (field is FLOAT and float(found) == float(exact))


@given(number=st.integers(-(2**63), 2**63 - 1), marks=SEPARATORS)
def test_a_printed_integer_is_read(number: int, marks: tuple[str, str]) -> None:
    decimal, thousands = marks
    options = ValueOptions(decimal=decimal, thousands=thousands)
    for text in (str(number), f"{number:,}".replace(",", thousands), f" {number:+}\t"):
        assert value_of(INT, text, options) == shown(number)


@given(number=st.floats())
def test_a_printed_fraction_is_read(number: float) -> None:
    assert value_of(FLOAT, repr(number)) == shown(number)
    comma = ValueOptions(decimal=",", thousands=".")
    assert value_of(FLOAT, repr(number).replace(".", ","), comma) == shown(number)


FORMS = st.sampled_from(
    ["%d.%m.%Y", "%-d.%-m.%Y", "%m/%d/%y", "%d-%b-%Y", "%B %-d, %Y", "%Y%m%d", "%F", "%d%%%m %Y"]
)
DAYS = st.dates(day(1970, 1, 1), day(2068, 12, 31))


@given(value=DAYS, form=FORMS)
def test_a_printed_date_is_read(value: dt.date, form: str) -> None:
    options = ValueOptions(date_format=(form,))
    for text in (value.strftime(form), value.strftime(form).upper()):
        assert value_of(DATE, text, options) == shown(value)


@given(
    value=DAYS,
    form=FORMS,
    odd=st.text("0123456789./- aMy", max_size=2),
    at=st.integers(0, 12),
    width=st.integers(0, 2),
)
def test_an_accepted_date_prints_the_same_text(
    value: dt.date, form: str, odd: str, at: int, width: int
) -> None:
    text = value.strftime(form)
    text = text[:at] + odd + text[at + width :]
    found = text_or_none(DATE, text, ValueOptions(date_format=(form,)))
    if found is not None:
        year = f"{found.year:04d}"
        printed = found.strftime(form.replace("%F", "%Y-%m-%d").replace("%Y", year))
        assert printed.lower() == text.strip().lower()


def text_or_none(field: FieldSpec, text: str, options: ValueOptions) -> Any:
    try:
        return text_values(field, pa.array([text]), options).to_pylist()[0]
    except ValueError:
        return None


CLOCKS = ["%Y-%m-%d %H:%M:%S", "%d/%b/%y %-I:%M:%S %p", "%H%M%S %-m/%-d/%Y", "%FT%T.%f"]


@given(
    value=st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2068, 12, 30)),  # noqa: DTZ001
    form=st.sampled_from([*CLOCKS, *(f"{form} %z" for form in CLOCKS)]),
)
def test_a_printed_time_is_read_if_its_zone_has_it(value: dt.datetime, form: str) -> None:
    if "%f" not in form:
        value = value.replace(microsecond=0)
    options = ValueOptions(timestamp_format=(form,), time_zone="Europe/Berlin")
    local = value.replace(tzinfo=BERLIN)
    found = text_or_none(TIME, local.strftime(form), options)
    if "%z" in form:
        assert found == local
        return
    there = local.astimezone(UTC).astimezone(BERLIN).replace(tzinfo=None) == value
    twice = local.utcoffset() != local.replace(fold=1).utcoffset()
    assert found == (local.astimezone(UTC) if there and not twice else None)


FEW = {
    "int64": ["1", "+1", " 007", "0x1F", "1.5", "1.000", "9" * 19, "odd", ""],
    "float64": [
        "1",
        "+1.5",
        "1e400",
        "nan",
        "-nan(1)",
        "Infinity",
        "infinite",
        ".",
        "1.234,5",
        "x",
    ],
    "decimal": ["1", "+1.5", "1e3", "1.505", ".", "1.000,5", "9" * 9, "NaN", "odd"],
    "boolean": ["true", "TRUE", " 0 ", "ja", "Nein", "01", ""],
    "date": ["2024-05-06", "29.02.2024", "29.02.2023", "05.13.2024", "30.02.2024", "0000-01-01"],
    "timestamp": [
        "2024-05-06",
        "2024-05-06 12:00:00",
        " 2024-05-06T12:00:00Z ",
        "2024-05-06T12:00:00.5+02:00",
        "06.05.2024 12:00",
        "31.02.2024 12:00",
        "05.13.2024 12:00",
        "02.30.2024 12:00",
        "27.10.2024 02:30",
        "27.10.2044 12:30",
        "2024-05-06 odd",
        "",
    ],
    "string": [" a", ""],
    "json": ["{}", "{", ""],
}
MANY = ValueOptions(
    decimal=",",
    thousands=".",
    date_format=("%d.%m.%Y", "%m.%d.%Y", "%F"),
    timestamp_format=("%d.%m.%Y %H:%M", "%m.%d.%Y %H:%M", "%FT%T%z"),
    time_zone="Europe/Berlin",
    true_values=("ja",),
    false_values=("nein",),
)


@given(data=st.data(), field=st.sampled_from(KINDS), options=st.sampled_from([DEFAULTS, MANY]))
def test_a_value_is_the_same_among_any_neighbours(
    data: st.DataObject, field: FieldSpec, options: ValueOptions
) -> None:
    some = st.sampled_from([None, *FEW.get(field.type, [""])])
    texts = data.draw(st.lists(some, max_size=12))
    values, bad = conformed(field, texts, options)
    alone = ["null" if text is None else value_of(field, text, options) for text in texts]
    assert ["null" if value is None else shown(value) for value in values] == [
        value for value in alone if value != BAD
    ]
    assert list(bad) == [row for row, value in enumerate(alone) if value == BAD]
    reasons = [conformed(field, [texts[row]], options)[1][0] for row in bad]
    assert list(bad.values()) == reasons


@given(value=st.dates(), form=st.sampled_from(["%d.%m.%Y", "%-d.%-m.%Y"]), days=st.integers(0, 3))
def test_no_month_has_more_days_than_it_has(value: dt.date, form: str, days: int) -> None:
    numbers = f"{value.day + days:02d}.{value.month:02d}.{value.year:04d}"
    text = re.sub(r"\b0(\d\.)", r"\1", numbers) if "-" in form else numbers
    found = text_or_none(DATE, text, ValueOptions(date_format=(form,)))
    later = value + dt.timedelta(days=days) if value < day(9999, 12, 28) else value
    fits = later.month == value.month and later.day == value.day + days
    assert found == (later if fits else None)
