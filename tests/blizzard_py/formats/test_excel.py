"""Excel workbooks through the seam: cells of every kind, addresses, headers, refused files."""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from dataclasses import replace
from decimal import Decimal
from typing import Any

import openpyxl
import pytest
from pydantic import ValidationError

from blizzard_core.settings.format_options import DataAddress, column_letters, parse_address
from blizzard_core.settings.schema import FieldType
from blizzard_py.formats.excel import records as excel
from blizzard_py.formats.excel.cells import moment_kind, unescaped
from blizzard_py.formats.names import format_of
from blizzard_py.formats.protocol import BadLine
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.framing import Piece
from tests.support.ingest_job_harness import specs
from tests.support.memory_file import MemoryFile
from tests.support.workbooks import (
    SHEET,
    STRICT,
    Written,
    bytes_of,
    failure,
    inline,
    named,
    numbered,
    options,
    parsed_of,
    row,
    saved,
)

DAY = dt.datetime(2024, 5, 6, tzinfo=dt.UTC)
MONEY = (FieldSpec("v", "decimal", nullable=True, precision=20, scale=2),)


def value(cell: str, kind: FieldType | tuple[FieldSpec, ...], **given: Any) -> Any:
    """Return the value of a single cell, or the reason why there is none."""
    form = given.pop("form", None)
    fields = kind if isinstance(kind, tuple) else specs(v=kind, w="string")
    data = bytes(Written(named("v", "w") + row(cell, inline("x")), **given))
    rows, bad = numbered(data, fields, form)
    return rows[0][1]["v"] if rows else next(iter(bad.values()))


def number(text: str, style: int = 0) -> str:
    return f'<c s="{style}"><v>{text}</v></c>'


def formula(kind: str, result: str) -> str:
    return f'<c t="{kind}"><f>A1</f>{result}</c>'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1", "1"), ("1.0", "1"), ("-0", "0"), ("1E3", "1000"), ("0.1", "0.1"), (".5", "0.5"),
        ("1.1000000000000001", "1.1"), ("12345678901234567890", "12345678901234567890"),
        ("1.23456789012345E+19", "12345678901234500000"), ("1E25", "1E+25"), ("1e-9", "1E-9"),
        ("-2.50", "-2.5"), ("+7", "7"), ("100", "100"),
        ("0.1234567890123456789", "0.1234567890123456789"),
    ],
)  # fmt: skip
def test_a_number_in_a_string_column_is_the_plain_number(text: str, shown: str) -> None:
    assert value(number(text), "string") == shown


@pytest.mark.parametrize("text", ["1,5", "abc", "NaN", "inf", "1e999", "0x1F", "1" * 500, "\u0661"])
def test_what_is_no_number_makes_a_bad_record(text: str) -> None:
    found = value(number(text), "string")
    assert "is no number" in found or "is beyond Excel's numbers" in found


NUMBERS: list[tuple[str, Any, Any]] = [
    ("7", "int64", 7),
    ("7.0", "int32", 7),
    ("1E3", "int64", 1000),
    ("9007199254740993", "int64", 9007199254740993),
    ("0.1", "float64", 0.1),
    ("1E300", "float64", 1e300),
    ("1", "boolean", True),
    ("1.1000000000000001", MONEY, Decimal("1.10")),
    ("12", "json", "12"),
    ("1.5", "int64", "column 'v': '1.5' is no int64"),
    ("1.505", MONEY, "column 'v': "),
    ("45000", "date", "column 'v': '45000' is no date"),
    ("45000", "timestamp", "column 'v': '45000' is no timestamp"),
    ("2024", "timestamp", "column 'v': '2024' is no timestamp"),
    ("2", "boolean", "column 'v': '2' is no boolean"),
]


@pytest.mark.parametrize(("text", "kind", "expected"), NUMBERS)
def test_numbers_become_the_declared_type_or_a_bad_record(
    text: str, kind: Any, expected: Any
) -> None:
    found = value(number(text), kind)
    if isinstance(expected, str) and expected.startswith("column"):
        assert found.startswith(expected)
    else:
        assert found == expected
    # Options of texts do not change it.
    assert value(number(text), kind, form=options(decimal=",", thousands=".")) == found


def test_numbers_may_be_seconds_since_1970() -> None:
    fields = (FieldSpec("v", "timestamp", nullable=True, unit="s"),)
    assert value(number("1714996800.5"), fields) == dt.datetime(
        2024, 5, 6, 12, 0, 0, 500000, tzinfo=dt.UTC
    )


DATES: list[tuple[str, int, bool, str]] = [
    ("45418", 1, False, "2024-05-06"),
    ("45418", 2, False, "2024-05-06T00:00:00"),
    ("45418.5", 1, False, "2024-05-06T12:00:00"),
    ("45418.520833333336", 2, False, "2024-05-06T12:30:00"),
    ("45418.000000011", 2, False, "2024-05-06T00:00:00.001"),
    ("1", 1, False, "1900-01-01"),
    ("59", 1, False, "1900-02-28"),
    ("61", 1, False, "1900-03-01"),
    ("2958465", 1, False, "9999-12-31"),
    ("0", 1, True, "1904-01-01"),
    ("60", 1, True, "1904-03-01"),
    ("43956", 1, True, "2024-05-06"),
    ("0.5", 3, False, "12:00:00"),
    ("0.5", 3, True, "12:00:00"),
    ("0.9999999999", 3, False, "23:59:59.999"),
    ("0.9999999999", 4, False, "24:00:00"),
    ("45418.5", 3, False, "2024-05-06T12:00:00"),
    ("1.5", 4, False, "36:00:00"),
    ("-0.25", 4, False, "-06:00:00"),
    ("60", 1, False, "is no day of a calendar"),
    ("0", 1, False, "is no day of a calendar"),
    ("-1", 1, False, "is no day of a calendar"),
    ("-1", 1, True, "is no day of a calendar"),
    ("2958466", 1, False, "is no day of a calendar"),
    ("1e200", 1, False, "is no day of a calendar"),
    ("x", 1, False, "is no number"),
]


@pytest.mark.parametrize(("serial", "style", "is_1904", "shown"), DATES)
def test_dates_are_days_of_the_workbooks_calendar(
    serial: str, style: int, is_1904: bool, shown: str
) -> None:
    properties = '<workbookPr date1904="1"/>' if is_1904 else ""
    found = value(number(serial, style), "string", properties=properties)
    assert (
        found == shown
        if shown[-1].isdigit()
        else found.endswith((shown, f"{shown}; correct the date"))
    )


def test_dates_become_dates_and_times() -> None:
    assert value(number("45418", 2), "date") == DAY.date()
    assert value(number("45418", 1), "timestamp") == DAY
    berlin = options(time_zone="Europe/Berlin", timestamp_format="%d.%m.%Y %H:%M")
    assert value(number("45418.5", 2), "timestamp", form=berlin) == DAY.replace(hour=10)
    assert value(inline("06.05.2024 12:00"), "timestamp", form=berlin) == DAY.replace(hour=10)
    assert "is no date" in value(number("45418.5", 1), "date")
    assert "is no int64" in value(number("45418", 1), "int64")
    assert "is no timestamp" in value(number("0.5", 3), "timestamp")
    gap = value(number("45382.104166666664", 2), "timestamp", form=berlin)
    assert "does not exist in Europe/Berlin" in gap


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("yyyy-mm-dd", "date"), ("dd/mm/yy hh:mm", "both"), ("h:mm AM/PM", "time"),
        ("[hh]:mm:ss", "elapsed"), ("mmm", "date"), ("mm:ss.0", "time"), ("General", ""),
        ("0.00E+00", ""), ("#,##0.00 [$EUR-407]", ""), ("[Red]0.00", ""), ('0 "days"', ""),
        ("0\\d", ""), ("[$-409]d mmm yyyy;@", "date"), ("_-* #,##0_-", ""), ("@", ""),
        ('"am" 0', ""), ("[$-F400]h:mm:ss", "time"), ("yyyy;[Red]0", "date"), ("", ""),
        ("0.0 kg", ""), ("0 g", ""), ("#,##0 mg", ""), ("0.00 EUR", ""), (".0 h", ""),
        ('"Date; "yyyy-mm-dd', "date"), ("d\\;m", "date"), ("hh:mm:ss.000", "time"),
        ("[h]:mm:ss.00", "elapsed"), ("[ss].0", "elapsed"), ("ggge\\.m\\.d", "date"),
    ],
)  # fmt: skip
def test_formats_of_dates_differ_from_those_of_numbers(code: str, kind: str) -> None:
    assert moment_kind(164, code) == kind
    assert moment_kind(14, None) == "date"


CELLS: list[tuple[str, Any, Any]] = [
    ('<c t="b"><v>1</v></c>', "boolean", True),
    ('<c t="b"><v>0</v></c>', "string", "false"),
    ('<c t="b"><v>1</v></c>', "int64", "column 'v': 'true' is no int64"),
    ('<c t="b"><v>7</v></c>', "boolean", "column 'v': a cell of the unknown type 'b'"),
    ('<c t="d"><v>2024-05-06T00:00:00</v></c>', "date", DAY.date()),
    ('<c t="d"><v>2024-05-06T00:00:00</v></c>', "timestamp", DAY),
    ('<c t="q"><v>1</v></c>', "string", "column 'v': a cell of the unknown type 'q'"),
    (inline("007"), "string", "007"),
    (inline(" 7 "), "int64", 7),
    (inline("1.5"), "int64", "column 'v': '1.5' is no int64"),
    (inline(""), "int64", None),
    (inline("{}"), "json", "{}"),
    (inline("a_x000D_&#10;b"), "string", "a\r\nb"),
    ("<c><v></v></c>", "string", None),
    (
        '<c t="inlineStr"><is><t>x</t><rPh sb="0" eb="1"><t>aloud</t></rPh></is></c>',
        "string",
        "x",
    ),
    ('<c s="1"/>', "date", None),
    (formula("n", "<v>3</v>"), "int64", 3),
    (formula("str", "<v>x</v>"), "string", "x"),
    (formula("str", "<v></v>"), "string", None),
    (formula("b", "<v>1</v>"), "boolean", True),
    (formula("n", "<v/>"), "int64", "column 'v': a formula without a stored result"),
    (formula("n", ""), "string", "column 'v': a formula without a stored result"),
    (formula("str", ""), "string", "column 'v': a formula without a stored result"),
    (formula("e", "<v>#DIV/0!</v>"), "string", "column 'v': the error #DIV/0!; correct the sheet"),
    ('<c t="e"><v>#N/A</v></c>', "float64", "column 'v': the error #N/A"),
]


@pytest.mark.parametrize(("cell", "kind", "expected"), CELLS)
def test_cells_become_values_or_bad_records(cell: str, kind: Any, expected: Any) -> None:
    found = value(cell, kind)
    if isinstance(expected, str) and expected.startswith("column"):
        assert found.startswith(expected)
    else:
        assert found == expected


def test_texts_and_errors_may_be_null() -> None:
    form = options(null_value=["#N/A", "-"])
    assert value('<c t="e"><v>#N/A</v></c>', "int64", form=form) is None
    assert value(inline("-"), "int64", form=form) is None
    assert value(inline(""), "string", form=form) == ""
    assert "the error #REF!" in value('<c t="e"><v>#REF!</v></c>', "int64", form=form)


def test_one_column_may_have_cells_of_all_kinds() -> None:
    cells = [number("1"), inline("2,5"), '<c t="b"><v>1</v></c>', number("45418", 1), "<c/>"]
    data = bytes(Written(named("v", "w") + "".join(row(cell, inline("x")) for cell in cells)))
    rows, bad = numbered(data, specs(v="string"))
    assert [found["v"] for _, found in rows] == ["1", "2,5", "true", "2024-05-06", None]
    rows, bad = numbered(data, specs(v="float64"), options(decimal=","))
    assert [(at, found["v"]) for at, found in rows] == [(2, 1.0), (3, 2.5), (6, None)]
    assert list(bad) == [4, 5]


def test_required_columns_name_the_cell_before_the_null() -> None:
    fields = (FieldSpec("v", "int64", nullable=False),)
    cells = [number("1"), '<c t="e"><v>#N/A</v></c>', "<c/>"]
    data = bytes(Written(named("v", "w") + "".join(row(cell, inline("x")) for cell in cells)))
    _, bad = numbered(data, fields)
    assert bad[3].startswith("column 'v': the error #N/A")
    assert bad[4] == "column 'v': is required, and null"


def test_shared_texts_have_runs_and_no_furigana() -> None:
    texts = (
        "<si><t>plain</t></si><si><r><t>a</t></r><r><t xml:space='preserve'> b</t></r></si>"
        "<si><t>x</t><rPh sb='0' eb='1'><t>aloud</t></rPh></si><si/>"
    )
    cells = [f'<c t="s"><v>{at}</v></c>' for at in range(4)]
    data = bytes(Written(named("v", "w") + "".join(row(c, number("1")) for c in cells), texts))
    rows, _ = numbered(data, specs(v="string"))
    assert [found["v"] for _, found in rows] == ["plain", "a b", "x", None]


def test_escaped_characters_are_read() -> None:
    assert unescaped("_x0041_b_x005F_x000D_") == "Ab_x000D_"
    assert unescaped("_xD83D__xDE00_") == "\U0001f600"
    assert unescaped("_xD83D_ _xzz_") == "_xD83D_ _xzz_"


# --- rows ----------------------------------------------------------------------------------------


def test_rows_have_their_numbers_in_the_sheet() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    for at, values in {3: ["id"], 4: [1], 7: [2], 9: ["x"], 10: [None, "other"], 12: [4]}.items():
        for column, found in enumerate(values, 1):
            sheet.cell(at, column, found)
    sheet.row_dimensions[7].hidden = True
    rows, bad = numbered(bytes_of(book), specs(id="int64"))
    assert [(at, found["id"]) for at, found in rows] == [(4, 1), (7, 2), (10, None), (12, 4)]
    assert list(bad) == [9]


def test_rows_and_cells_may_have_no_places() -> None:
    data = bytes(
        Written(named("a", "b") + row(number("1"), number("2")) + "<row/>" + row(number("3")))
    )
    rows, _ = numbered(data, specs(a="int64", b="int64"))
    assert rows == [(2, {"a": 1, "b": 2}), (4, {"a": 3, "b": None})]


def test_a_merged_range_has_its_value_in_the_first_cell() -> None:
    book = openpyxl.Workbook()
    for values in (["a", "b"], ["x", "y"], ["z", "w"]):
        book.active.append(values)
    book.active.merge_cells("A2:B3")
    rows, _ = numbered(bytes_of(book), specs(a="string", b="string"))
    assert [found for _, found in rows] == [{"a": "x", "b": None}]


def test_verdicts_do_not_depend_on_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["id", "s", "d"]]
    for at in range(60):
        if at % 7 == 3:
            rows.append([])
        rows.append(
            [at if at % 5 else f"x{at}", at if at % 2 else f"t{at}", DAY.replace(tzinfo=None)]
        )
    data, fields = saved(rows), specs(id="int64", s="string", d="date")
    whole = numbered(data, fields)
    assert len(whole[0]) + len(whole[1]) == 60
    for cells in (1, 10, 33):
        monkeypatch.setattr(excel, "_PIECE_CELLS", cells)
        assert numbered(data, fields) == whole


def test_halves_give_the_records_of_the_piece() -> None:
    rows = [["id", "s"], *([at if at % 3 else "bad", "x"] if at % 4 else [] for at in range(40))]
    schema = RowSchema(specs(id="int64"), evolves=True)
    form = format_of(options())
    decoder = form.decoder(schema, tolerant=True, fast=True)
    [piece] = form.pieces(MemoryFile(saved(rows)), schema)
    assert isinstance(piece, Piece)

    def verdicts(part: Piece, at: int = 0) -> list[Any]:
        halves = decoder.halves(part)
        if halves is not None:
            return verdicts(halves[0], at) + verdicts(halves[1], at + halves[0].lines)
        parsed = decoder.decode(part)
        found = [*parsed.rows_at.tolist(), *(bad.index for bad in parsed.bad)]
        return [(at + found[0], part.lines, bool(parsed.bad), dict(decoder.records(part)))]

    single = verdicts(piece)
    parsed = decoder.decode(piece)
    assert [at for at, _, is_bad, _ in single if is_bad] == [bad.index for bad in parsed.bad]
    assert [at for at, _, is_bad, _ in single if not is_bad] == parsed.rows_at.tolist()
    records = decoder.records(piece)
    assert [found[0] for *_, found in single] == [records[at] for at, *_ in single]
    assert {bad.index: bad.head for bad in parsed.bad} == {
        bad.index: records[bad.index][1] for bad in parsed.bad
    }
    assert len(decoder.as_lines(piece).split(b"\n")) == piece.lines + 1
    assert list(records) == sorted([*parsed.rows_at.tolist(), *(bad.index for bad in parsed.bad)])


def test_the_first_bad_record_is_named_where_none_is_tolerated() -> None:
    data = saved([["id"], [1], [], ["x"]])
    schema = RowSchema(specs(id="int64"))
    [piece] = format_of(options()).pieces(MemoryFile(data), schema)
    decoder = format_of(options()).decoder(schema, tolerant=False, fast=True)
    with pytest.raises(BadLine) as caught:
        decoder.decode(piece)
    assert (caught.value.index, piece.skipped) == (2, 1)


# --- headers and addresses -----------------------------------------------------------------------


def test_columns_without_a_field_follow_the_schema() -> None:
    data = saved([["id", "more", None], [1, DAY.replace(tzinfo=None), 5], [2, None, "x"]])
    captured = numbered(data, specs(id="int64"), unexpected_fields="capture")[0]
    assert [found["_rescued"] for _, found in captured] == [
        '{"more":"2024-05-06T00:00:00","column_C":5}', '{"column_C":"x"}',
    ]  # fmt: skip
    [(_, parsed)] = parsed_of(data, specs(id="int64"))
    assert parsed.unexpected == {"more", "column_C"}
    assert "unexpected field 'more'" in failure(data, unexpected_fields="fail")


def test_headers_that_cannot_be_used_are_refused() -> None:
    assert "none of the columns, but a, 2024" in failure(saved([["a", 2024], [1, 2]]))
    assert "the header has 'id' twice; rename one" in failure(saved([["id", "id"], [1, 2]]))
    twice = saved([["id", "n", "n"], [1, "x", "y"]])
    assert "has 'n' twice" in failure(twice, unexpected_fields="capture")
    required = (FieldSpec("key", "int64", nullable=False),)
    assert "column 'key': is required" in failure(saved([["id"], [1]]), required)
    rows, _ = numbered(twice, specs(id="int64"))
    assert [found["id"] for _, found in rows] == [1]


def test_a_header_of_marks_alone_keeps_its_name() -> None:
    data = saved([["id", ";"], [1, 2]])
    [(_, row)] = numbered(data, specs(id="int64"), unexpected_fields="capture")[0]
    assert row["_rescued"] == '{";":2}'


def test_a_column_without_a_name_is_named_by_its_letter() -> None:
    required = (FieldSpec("column_B", "string", nullable=False),)
    data = saved([["id", None], [1, "x"], [2, None]])
    rows, bad = numbered(data, required)
    assert rows == [(2, {"column_B": "x"})]
    assert bad == {3: "column 'column_B': is required, and null"}
    assert numbered(data, specs(column_B="string"))[0][1] == (3, {"column_B": None})
    assert "column 'column_B': is required, and" in failure(saved([["id"], [1]]), required)
    assert "none of the columns" in failure(saved([["id"], [1]]), specs(column_B="string"))
    assert "column 'column_A': is required" in failure(
        data, (replace(required[0], name="column_A"),)
    )


def test_a_sheet_without_rows_is_no_error() -> None:
    assert numbered(saved([]), specs(id="int64")) == ([], {})
    assert numbered(saved([["id"]]), specs(id="int64")) == ([], {})


def test_names_may_come_from_the_options() -> None:
    data = saved([[1, "a", 5], [2, "b"]])
    fields = specs(id="int64", s="string")
    expected = [(1, {"id": 1, "s": "a"}), (2, {"id": 2, "s": "b"})]
    assert numbered(data, fields, options(header_rows=0))[0] == expected
    form = options(header_rows=0, columns=["id", "s", "n"])
    assert numbered(data, tuple(reversed(fields)), form)[0] == expected


def test_an_address_chooses_sheet_and_cells() -> None:
    book = openpyxl.Workbook()
    book.active.title = "Hidden"
    book.active.sheet_state = "hidden"
    book.active.append(["id"])
    book.active.append([99])
    sheet = book.create_sheet("My Orders!")
    for values in (["title"], [None, "id", "s", "z"], [None, 1, "a", 7], [5, 2, "b", 8], [None, 3]):
        sheet.append(values)
    data = bytes_of(book)

    def ids(address: str) -> list[tuple[int, Any]]:
        rows, _ = numbered(data, specs(id="int64", z="int64"), options(data_address=address))
        return [(at, found["id"], found["z"]) for at, found in rows]

    assert ids("hidden") == [(2, 99, None)]
    assert ids("'My Orders!'!B2") == [(3, 1, 7), (4, 2, 8), (5, 3, None)]
    assert ids("$B$2:$C$4") == [(3, 1, None), (4, 2, None)]
    assert ids("My Orders!!B2:D3") == [(3, 1, 7)]
    assert "none of the columns, but title" in failure(data)
    reason = failure(data, form=options(data_address="Orders"))
    assert reason == (
        "has no sheet 'Orders'; set format.data_address to one of: 'Hidden', 'My Orders!'"
    )


def test_a_range_with_nothing_in_it_is_refused() -> None:
    data = saved([["id"], [1]], "Caf\u00e9")
    reason = failure(data, form=options(data_address="Caf\u00e9!C5:F9"))
    assert reason == "has nothing at 'Caf\u00e9!C5:F9'; correct format.data_address"
    below = options(data_address="Caf\u00e9!A5", header_rows=0)
    assert numbered(data, specs(id="int64"), below) == ([], {})
    composed = options(data_address="CAFE\u0301")
    assert numbered(data, specs(id="int64"), composed)[0] == [(2, {"id": 1})]
    assert failure(data, form=options(data_address="A2")).endswith(
        "; a cell is written as Sheet!A2"
    )


def test_addresses_are_parsed() -> None:
    assert parse_address("") == DataAddress()
    assert parse_address("A1") == DataAddress("A1")
    assert parse_address("'It''s'!C3") == DataAddress("It's", 3, first_column=3)
    assert parse_address("x!A:D") == DataAddress("x", last_column=4)
    assert parse_address("B2:XFD1048576") == DataAddress("", 2, first_column=2)
    assert [column_letters(number) for number in (1, 26, 27, 702, 703, 16384)] == [
        "A", "Z", "AA", "ZZ", "AAA", "XFD",
    ]  # fmt: skip
    for wrong in ("x!", "x!D2:A1", "x!A3:B2", "x!A1:XFE1", "x!A1:B1048577", "a*b", "A1:", "x!1:2"):
        with pytest.raises(ValidationError):
            options(data_address=wrong)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"header_rows": 2}, "header_rows"),
        ({"columns": ["a"]}, "columns goes with header_rows: 0"),
        ({"header_rows": 0, "columns": ["a", "a"]}, "different names"),
        ({"dataAddress": "x"}, "dataAddress is data_address here"),
        ({"workbookPassword": "x"}, "without a password"),
        ({"inferSchema": True}, "use schema.fields"),
        ({"date_format": "yyyy"}, "%Y"),
    ],
)
def test_options_are_checked(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        options(**given)


# --- files ---------------------------------------------------------------------------------------


def test_strict_workbooks_and_prefixed_names_are_read() -> None:
    rows = named("id", "d") + row(number("1"), '<c t="d"><v>2024-05-06</v></c>')
    fields = specs(id="int64", d="date")
    expected = [(2, {"id": 1, "d": DAY.date()})]
    assert numbered(bytes(Written(rows, spaces=STRICT)), fields)[0] == expected
    sheet = bytes(Written(rows))
    with zipfile.ZipFile(io.BytesIO(sheet)) as archive:
        text = archive.read(SHEET).decode()
    prefixed = text.replace("xmlns=", "xmlns:x=").replace("</", "</x:")
    for name in ("worksheet", "sheetData", "row", "c ", "c>", "is>", "t>", "v>"):
        prefixed = prefixed.replace(f"<{name}", f"<x:{name}")
    again = bytes(Written(parts={SHEET: prefixed}))
    assert numbered(again, fields)[0] == expected


def test_workbooks_may_lack_styles_and_shared_texts() -> None:
    rels = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="s1" Type="x/worksheet" Target="worksheets\\sheet1.xml"/></Relationships>'
    )
    parts = {"xl/_rels/workbook.xml.rels": rels, "xl/styles.xml": "", "xl/sharedStrings.xml": ""}
    data = bytes(Written(named("id") + row(number("1")), parts=parts))
    assert numbered(data, specs(id="int64"))[0] == [(2, {"id": 1})]


def test_rows_are_those_that_openpyxl_reads() -> None:
    rows: list[list[Any]] = [["i", "f", "s", "t", "b"]]
    for at in range(500):
        time = dt.datetime(1950 + at % 90, 1 + at % 12, 1 + at % 28, at % 24, at % 60)  # noqa: DTZ001  # cells have no zone
        rows.append([at * 7919 - 5000, at / 7, f"ä{at}<&>\n ", time, at % 2 == 0])
    data = saved(rows)
    fields = specs(i="int64", f="float64", s="string", t="timestamp", b="boolean")
    read = openpyxl.load_workbook(io.BytesIO(data), read_only=True).active.iter_rows(
        min_row=2, values_only=True
    )
    found, bad = numbered(data, fields)
    assert not bad
    plain = [
        tuple(
            each.replace(tzinfo=None) if isinstance(each, dt.datetime) else each
            for each in line.values()
        )
        for _, line in found
    ]
    assert plain == list(read)


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(22) + (9).to_bytes(2, "little") + bytes(16)
XLS = OLE.ljust(512, b"\0") + "Workbook".encode("utf-16-le").ljust(512, b"\0")
ENCRYPTED = OLE.ljust(512, b"\0") + "EncryptedPackage".encode("utf-16-le").ljust(512, b"\0")


def archive_of(**parts: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name.replace("__", "/"), content)
    return out.getvalue()


def with_password() -> bytes:
    data = bytearray(bytes(Written(named("id"))))
    for head, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = -1
        while (place := data.find(head, place + 1)) >= 0:
            data[place + at] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (XLS, "is a workbook of the format .xls; save it as an Excel workbook (.xlsx)"),
        (OLE, "is a workbook of the format .xls"),
        (ENCRYPTED, "is an encrypted workbook; remove the password"),
        (with_password(), "is encrypted; store it without a password"),
        (bytes(Written(parts={"xl/workbook.bin": "x"})), "format .xlsb; save it"),
        (archive_of(mimetype="x", **{"content.xml": "<a/>"}), "OpenDocument file (.ods); save it"),
        (archive_of(a="b"), "is a zip archive, but no Excel workbook"),
        (b"", "is empty"),
        (b"id,name\n1,x\n", "is no Excel workbook, but perhaps text under its name"),
        (b"\xef\xbb\xbf<html>", "perhaps a web page or XML"),
        (saved([["id"], [1]])[:-300], "zip"),
        (bytes(Written(sheets=[("a", "hidden")])), "has no visible sheet"),
        (bytes(Written(parts={SHEET: ""})), f"has no part {SHEET!r}"),
        (bytes(Written(parts={"xl/styles.xml": ""})), "has no part 'xl/styles.xml'"),
        (bytes(Written("<row r='2'/><row r='2'/>")), "row 2 follows 2"),
        (bytes(Written("<row r='1048577'/>")), "row 1048577 follows 0"),
        (bytes(Written("<row r='x'/>")), "is damaged"),
        (bytes(Written("<row r='1_0'/>")), "'1_0' is no whole number"),
        (bytes(Written(row("<c><v>1</v><v>2</v></c>"))), "a cell with two values in row 1"),
        (bytes(Written(row("<c><v>1</v><is><t>2</t></is></c>"))), "a cell with two values"),
        (bytes(Written("<row><row/></row>")), "row 2 follows 1"),
        (bytes(Written("<c/>")), "a cell outside of a row"),
        (bytes(Written('<row r="1"><c r="A2"/></row>')), "the cell 'A2' in row 1"),
        (bytes(Written('<row r="1"><c r="1"/></row>')), "the cell '1' in row 1"),
        (bytes(Written('<row r="1"><c r="XFE1"/></row>')), "behind column 16,384"),
        (bytes(Written('<row r="1"><c r="A1"/><c r="A1"/></row>')), "a cell twice"),
        (bytes(Written(row('<c t="s"><v>5</v></c>'))), "text 5 of 0 in row 1"),
        (bytes(Written(row('<c t="s"><v>-1</v></c>'))), "text -1 of 0 in row 1"),
        (bytes(Written(row('<c s="99"><v>1</v></c>'))), "style 99 of 6 in row 1"),
        (bytes(Written("<row>")), "mismatched tag"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read_are_refused_with_a_remedy(data: bytes, reason: str) -> None:
    assert reason in failure(data)


def test_a_part_that_stands_twice_is_refused() -> None:
    out = io.BytesIO(bytes(Written(named("id"))))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("XL/workbook.xml", "<a/>")
    assert "has the part 'xl/workbook.xml' twice" in failure(out.getvalue())


def test_a_large_file_is_read_by_few_ranges() -> None:
    data = saved([["id", "s"], *([at, f"text {at * 7919 % 1000}"] for at in range(20_000))])
    file = MemoryFile(data)
    assert len(list(format_of(options()).pieces(file, RowSchema(specs(id="int64"))))) >= 1
    assert file.reads < 20
