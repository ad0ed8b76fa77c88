"""Formats by names and first bytes: real shapes of files, each read without losing a row."""

from __future__ import annotations

import datetime as dt
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import fastavro
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyarrow import orc

from blizzard_core.settings.formats import CsvOptions, ExcelOptions, JsonOptions, XmlOptions
from blizzard_core.settings.load import load_config
from blizzard_core.storage.local import LocalStorage
from blizzard_py.app.wiring import ingest_settings
from blizzard_py.commands.starter.config import configuration
from blizzard_py.commands.starter.heads import FileHead, Recognized
from blizzard_py.commands.starter.recognize import recognize
from blizzard_py.commands.starter.sample import sample
from tests.support.ingest_job_harness import IngestJobHarness
from tests.support.workbooks import bytes_of, saved

ROWS = [{"id": number, "name": f"n{number}"} for number in range(1, 4)]
PRETTY = json.dumps({"meta": {"page": 1}, "data": {"items": ROWS}}, indent=2).encode()


def typed(kind: str) -> bytes:
    """Return two rows in a format with types."""
    target, table = io.BytesIO(), pa.table({"id": [1, 2], "d": [dt.date(2024, 5, 6), None]})
    if kind == "avro":
        fields = [{"name": "id", "type": "long"}]
        schema = {"type": "record", "name": "r", "fields": fields}
        fastavro.writer(target, schema, table.select(["id"]).to_pylist())
    else:
        (pq.write_table if kind == "parquet" else orc.write_table)(table, target)
    return target.getvalue()


CSV: dict[str, tuple[str, bytes, int]] = {
    "plain": ("a.csv", b"id,name\n1,x\n2,y\n", 2),
    "semicolon and decimal comma": ("a.csv", b"id;price\n1;1.234,50\n2;7,25\n", 2),
    "utf-16 export": ("a.csv", "id;name\n1;ä\n2;b\n".encode("utf-16"), 2),
    "cp1252 export": ("a.csv", "id;name\n1;ä\n2;b\n".encode("cp1252"), 2),
    "byte order mark": ("a.csv", b"\xef\xbb\xbfid,name\n1,x\n", 1),
    "tabs and comments": ("a.txt", b"# made by x\n# v2\nid\tname\n1\tx\n2\ty\n", 2),
    "tsv": ("a.tsv", b"id\tname\n1\tx\n", 1),
    "pipes": ("a.txt", b"id|name|z\n1|x|\n2|y|\n", 2),
    "line ends in quotes": ("a.csv", b'id,note\n1,"a\nb, c"\n2,"d ""e"""\n', 2),
    "database export": ("a.csv", b'"id","at"\r\n"1","2024-01-01 10:00:00"\r\n"2",\r\n', 2),
    "title rows": ("a.csv", b"Report\n\nid,name,z\n1,x,\n2,y,\n3,w,\n", 3),
    "hashtags": ("a.csv", b"tag,count\n#python,3\n#java,4\nrust,5\n", 3),
    "header with a hash": ("a.csv", b"#name,city\nanna,rom\nbob,ulm\n", 2),
    "title and a hash below": ("a.csv", b"# export\nid,name\n1,#1 fan\n#2,b\n", 2),
    "comment and title": ("a.csv", b"#c\nTitle\nid,n,z\n1,a,b\n", 1),
    "title of full width": ("a.csv", b"Report,,\n2024,,\nid,name,z\n1,a,b\n2,c,d\n", 2),
    "separator line": ("a.csv", b"sep=;\nid;name\n1;a\n2;b\n", 2),
    "times first": ("a.csv", b"2024-01-01 10:00:00,INFO,x\n2024-01-01 10:00:01,WARN,y\n", 2),
    "german records": ("a.csv", b"Muller;1,50;01.02.2024\nMeier;2,50;02.02.2024\n", 2),
    "exponents": ("a.csv", b"abc,1e5\ndef,2e5\n", 2),
    "years as names": ("a.csv", b"country,2021,2022\nDE,1,2\nFR,3,4\n", 2),
    "names without text": ("a.csv", b"Kunde;Betrag;;\nA;1;;\nB;2;;\n", 2),
    "blanks in names": ("a.csv", b"Order ID,Net Amount\n1,2.5\n2,3.5\n", 2),
    "a name twice": ("a.csv", b"id,v,v\n1,x,y\n2,z,w\n", 2),
    "an index without a name": ("a.csv", b",id,v\n0,1,x\n1,2,y\n", 2),
    "a first value missing": ("a.csv", b",1,x\n5,2,y\n", 2),
    "utf-16-be without a mark": ("a.csv", "id,name\n1,aaaa\n2,bbbb\n".encode("utf-16-be"), 2),
    "no delimiter": ("a.txt", b"10.0.0.1 - GET / 200\n10.0.0.2 - GET /a 200\n", 2),
    "lines of an array": ("a.json", b'{"total": 2, "items": [{"id": 1}, {"id": 2}]}', 2),
    "geojson": (
        "a.json",
        b'{"type": "FeatureCollection", "features": [{"type": "Feature"}, {"type": "Feature"}]}',
        2,
    ),
    "a record with a list": ("a.json", b'{\n"id": 1,\n"tags": [{"a": 1}, {"a": 2}]\n}', 1),
    "records with lists": (
        "a.json",
        b'{\n"id": 1,\n"l": [{"a": 1}, {"a": 2}]\n}\n{\n"id": 2,\n"l": [{"a": 1}]\n}\n',
        2,
    ),
    "errors beside data": (
        "a.json",
        b'{\n"errors": [{}, {}, {}],\n"data": [{"i": 1}, {"i": 2}]}',
        2,
    ),
    "a long line": (
        "a.json",
        b'{"data":[' + b",".join(b'{"id":%d}' % number for number in range(120_000)) + b"]}",
        120_000,
    ),
    "one element with a list": ("a.xml", b"<o><id>1</id><line>a</line><line>b</line></o>", 1),
    "no header": ("a.csv", b"1,x,2024-01-01\n2,y,2024-01-02\n", 2),
    "formatted dates": ("a.csv", b"id;d;t\n1;31.12.2024;31.12.2024 10:00\n", 1),
    "american dates": ("a.csv", b"id,d\n1,12/31/2024\n2,01/02/2024\n", 2),
    "null words": ("a.csv", b"id,n,s\n1,NULL,x\n2,5,NULL\n", 2),
    "codes with zeros": ("a.csv", b"id,zip\n1,01067\n2,80331\n", 2),
    "truth values": ("a.csv", b"id,ok\n1,true\n2,false\n", 2),
    "array": ("a.json", json.dumps(ROWS).encode(), 3),
    "pretty with a path": ("a.json", PRETTY, 3),
    "objects behind each other": ("a.json", b'{\n"id": 1\n}\n{\n"id": 2\n}\n', 2),
    "lines": ("a.json", b'{"id": 1}\n{"id": 2}\n', 2),
    "parquet": ("a.parquet", typed("parquet"), 2),
    "orc": ("a.orc", typed("orc"), 2),
    "avro": ("a.avro", typed("avro"), 2),
    "elements": ("a.xml", b"<r><e><id>1</id></e><e><id>2</id><t>a</t><t>b</t></e></r>", 2),
    "elements in utf-16": ("a.xml", "<r><e k='ä'/><e k='b'/></r>".encode("utf-16"), 2),
    "one element": (
        "a.xml",
        b"<?xml version='1.0' encoding='latin1'?><r><e><a>\xe4</a></e></r>",
        1,
    ),
    "feed": ("a.xml", b"<r><l/><l/><e><id>1</id></e><e><id>2</id></e></r>", 2),
}


CSV["workbook"] = ("a.xlsx", saved([["id", "when"], [1, dt.datetime(2024, 5, 6, 12)], [2]]), 2)  # noqa: DTZ001  # cells have no zone

_TABLE: list[list[Any]] = [["id", "name", "n"], [1, "x", 2], [2, "y", 3]]
SHEETS: dict[str, tuple[list[list[Any]], int, dict[str, Any]]] = {
    "a title": ([["Report 2024"], *_TABLE], 2, {"data_address": "A2:XFD"}),
    "a title of two cells": ([["Report", "May"], [], *_TABLE], 2, {"data_address": "A3:XFD"}),
    "no header": (
        [[1, "x", 2.5], [2, "y", 3.5]],
        2,
        {"header_rows": 0, "columns": ["column_A", "column_B", "column_C"]},
    ),
    "all text": ([["a", "b"], ["x", "y"]], 1, {}),
    "years as names": ([["country", 2021, 2022], ["de", 5, 7]], 1, {}),
    "a column without a name": (
        [["Report"], ["id", "name"], [1, "x", 2]],
        1,
        {"data_address": "A2:XFD"},
    ),
    "one column": ([["id"], [1], [2]], 2, {}),
    "names with blanks": ([["Order ID", "Net (EUR)"], [1, 2.5], [2, 3.5]], 2, {}),
}
CSV |= {
    f"workbook, {name}": ("a.xlsx", saved(rows), count) for name, (rows, count, _) in SHEETS.items()
}


@pytest.mark.parametrize("shape", SHEETS)
def test_tables_of_workbooks_are_found(tmp_path: Path, shape: str) -> None:
    rows, _, options = SHEETS[shape]
    (tmp_path / "a.xlsx").write_bytes(saved(rows))
    found = sample(LocalStorage(str(tmp_path))).format
    assert found.model_dump(exclude_defaults=True, exclude={"type"}) == options


def test_workbooks_with_and_without_a_title_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(saved(_TABLE))
    (tmp_path / "b.xlsx").write_bytes(saved([["Report"], *_TABLE]))
    found = sample(LocalStorage(str(tmp_path)))
    assert found.format.model_dump(exclude_defaults=True, exclude={"type"}) == {}
    [doubt] = found.doubts
    assert doubt.startswith("b.xlsx will be quarantined: its table begins in row 2")


_NOTES: list[list[Any]] = [["Data of May"], ["Author", "Anna"]]
BOOKS: dict[str, tuple[dict[str, list[list[Any]]], str]] = {
    "notes first": ({"Notes": _NOTES, "It's data": _TABLE}, "'It''s data'!A:XFD"),
    "a blank sheet first": ({"Cover": [], "Data": _TABLE}, "'Data'!A:XFD"),
    "notes and a title": ({"Notes": _NOTES, "Data": [["May"], *_TABLE]}, "'Data'!A2:XFD"),
    "two tables": ({"Data": _TABLE, "More": _TABLE}, ""),
    "a table of texts behind notes": (
        {"Notes": _NOTES, "Data": [["key", "name"], ["a", "x"], ["b", "y"]]},
        "'Data'!A:XFD",
    ),
    "a table of texts behind pairs": (
        {"Notes": _NOTES[1:], "Data": [["key", "name"], ["a", "x"], ["b", "y"]]},
        "'Data'!A:XFD",
    ),
    "texts alone": ({"Data": [["key", "name"], ["a", "x"], ["b", "y"]]}, ""),
    "notes behind": ({"Data": _TABLE, "Notes": _NOTES}, ""),
}


def book(sheets: dict[str, list[list[Any]]]) -> bytes:
    found = openpyxl.Workbook()
    found.remove(found.worksheets[0])
    for title, rows in sheets.items():
        sheet = found.create_sheet(title)
        for row in rows:
            sheet.append(row)
    return bytes_of(found)


CSV |= {name: ("a.xlsx", book(sheets), 2) for name, (sheets, _) in BOOKS.items()}


@pytest.mark.parametrize("shape", BOOKS)
def test_a_sheet_with_a_table_is_chosen(tmp_path: Path, shape: str) -> None:
    sheets, address = BOOKS[shape]
    (tmp_path / "a.xlsx").write_bytes(book(sheets))
    found = sample(LocalStorage(str(tmp_path)))
    assert isinstance(found.format, ExcelOptions)
    assert found.format.data_address == address
    notes = [doubt for doubt in found.doubts if doubt.startswith("only the sheet")]
    assert len(notes) == sum(map(bool, sheets.values())) - 1


def test_workbooks_without_the_chosen_sheet_are_named(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.xlsx").write_bytes(book({"Notes": _NOTES, "Data": _TABLE}))
    (tmp_path / "c.xlsx").write_bytes(book({"Other": _TABLE}))
    found = sample(LocalStorage(str(tmp_path)))
    assert [spec.name for spec in found.fields] == ["id", "name", "n"]
    assert any(
        "c.xlsx will be quarantined: it has no sheet 'Data'" in each for each in found.doubts
    )


@pytest.mark.parametrize(
    ("trailer", "rows", "bad", "doubt"),
    [
        ("Total,435.0,\n", 31, 0, "ends with 'Total,435.0,', which may be a total"),
        ("Total,435.0\n", 30, 1, "lines behind the table become dead letters"),
        ("-- 30 rows\n", 30, 1, "as '-- 30 rows' of a.csv"),
        ("\n(30 rows)\nsource: x\n", 30, 2, "as '(30 rows)' of a.csv"),
        ("", 30, 0, ""),
    ],
)
def test_lines_behind_a_table_are_named(
    tmp_path: Path, trailer: str, rows: int, bad: int, doubt: str
) -> None:
    records = "".join(f"{number},{number}.5,n{number}\n" for number in range(30))
    (tmp_path / "a.csv").write_text(f"id,amount,name\n{records}{trailer}")
    found = sample(LocalStorage(str(tmp_path)))
    assert [spec.name for spec in found.fields] == ["id", "amount", "name"]
    assert (found.trial.rows, found.trial.bad) == (rows, bad)
    assert [doubt in each for each in found.doubts] == [True] * bool(doubt)


@pytest.mark.parametrize("first", ["README.txt", "z.md", "README.csv", "x/Read me.csv"])
def test_members_of_an_archive_without_data_are_named(tmp_path: Path, first: str) -> None:
    members = {first: b"See also, the site.\n", "data.csv": b"id,name\n1,x\n2,y\n"}
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        for name in sorted(members):
            archive.writestr(name, members[name])
    found = sample(LocalStorage(str(tmp_path)))
    assert [spec.name for spec in found.fields] == ["id", "name"]
    [doubt] = found.doubts
    assert doubt.startswith(f"the archive a.csv.zip also has {first}, which is read like the data")
    assert found.trial.reasons


@pytest.mark.parametrize("shape", CSV)
def test_real_shapes_are_read_without_losing_a_row(tmp_path: Path, shape: str) -> None:
    path, content, rows = CSV[shape]
    world = IngestJobHarness(tmp_path)
    world.put(path, content)
    found = sample(LocalStorage(str(world.source)))
    assert found.problem == ""
    text = configuration(str(world.source), str(world.table), found)
    (tmp_path / "config.yaml").write_text(text)
    [pipeline] = load_config(tmp_path / "config.yaml").pipelines.values()
    settings = ingest_settings(pipeline, pipeline.sources["main"])
    again = IngestJobHarness(
        tmp_path, fields=settings.schema.fields, format=settings.format, max_bad_fraction=0.0
    )
    report = again.run_task()
    assert [(file.outcome, file.error) for file in report.files] == [("ingested", "")]
    assert len(again.rows(report)) == rows
    [block] = yaml.safe_load(text)["pipelines"].values()
    assert block["sources"]["main"].get("format") != "ndjson"


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ("semicolon and decimal comma", {"delimiter": ";", "decimal": ",", "thousands": "."}),
        ("tabs and comments", {"delimiter": "\t", "comment": "#"}),
        ("tsv", {}),
        ("title rows", {"skip_rows": 2}),
        ("no header", {"header": False, "columns": ["column_1", "column_2", "column_3"]}),
        ("null words", {"null_value": ["", "NULL"]}),
        ("hashtags", {}),
        ("title and a hash below", {"skip_rows": 1}),
        ("comment and title", {"skip_rows": 2}),
        ("title of full width", {"skip_rows": 2}),
        ("separator line", {"skip_rows": 1, "delimiter": ";"}),
        ("exponents", {"header": False, "columns": ["column_1", "column_2"]}),
        ("years as names", {}),
        ("blanks in names", {}),
        ("a name twice", {"header": False, "columns": ["id", "v", "v_3"], "skip_rows": 1}),
        (
            "an index without a name",
            {"header": False, "columns": ["column_1", "id", "v"], "skip_rows": 1},
        ),
        (
            "a first value missing",
            {"header": False, "columns": ["column_1", "column_2", "column_3"]},
        ),
        ("american dates", {"date_format": ["%m/%d/%Y"]}),
        ("cp1252 export", {"delimiter": ";", "encoding": "cp1252"}),
    ],
)
def test_options_are_what_the_files_need(shape: str, options: dict[str, Any]) -> None:
    path, content, _ = CSV[shape]
    found = recognize([FileHead(path, content, is_whole=True)]).format
    assert isinstance(found, CsvOptions)
    assert found.model_dump(exclude_defaults=True, exclude={"type"}) == options


def test_the_array_of_a_long_document_is_found_by_its_beginning() -> None:
    for more in (b"", b', "' + b'\\"' * 400_000):
        assert (
            recognize([FileHead("a.json", b'{\n"a": 1' + more, is_whole=False)]).format.type
            == "json"
        )
    found = recognize([FileHead("a.json", PRETTY[:90], is_whole=False)]).format
    assert isinstance(found, JsonOptions)
    assert found.records == "data.items"


@pytest.mark.parametrize(
    ("content", "row_tag"),
    [
        ("<r><h/><l><e><i/><i/><i/></e><e/></l></r>", "e"),
        ("<r><e>1</e><e>2</e><x><e>3</e></x></r>", "r/e"),
        ("<r><l/><l/><e><a/></e><e/></r>", "e"),
        ("<r><e><a>1</a><b>2</b></e>", "e"),
    ],
)
def test_a_record_of_xml_is_the_outermost_that_repeats(content: str, row_tag: str) -> None:
    found = recognize([FileHead("a.xml", content.encode(), is_whole=True)]).format
    assert isinstance(found, XmlOptions)
    assert found.row_tag == row_tag


@pytest.mark.parametrize("content", ["<", "<a", "<!DOCTYPE r [<!ENTITY a 'b'>]><r><e/><e/></r>"])
def test_xml_without_a_record_is_not_guessed(content: str) -> None:
    assert recognize([FileHead("a.xml", content.encode(), is_whole=True)]).format.type == "ndjson"


def test_empty_files_count_as_ndjson() -> None:
    assert recognize([FileHead("a.csv", b" \n", is_whole=True)]).format.type == "ndjson"


def recognized(**files: bytes | str) -> Recognized:
    """Return what CSV files are recognized as."""
    heads = [
        FileHead(f"{name}.csv", data.encode() if isinstance(data, str) else data, is_whole=True)
        for name, data in files.items()
    ]
    return recognize(heads)


def options(found: Recognized) -> dict[str, Any]:
    """Return the options that are no defaults."""
    return found.format.model_dump(exclude_defaults=True, exclude={"type"})


@pytest.mark.parametrize(
    ("rows", "expected", "doubt"),
    [
        ("1,01/01/2024,01/31/2024\n2,02/01/2024,03/04/2024\n", ["%m/%d/%Y"], ""),
        ("1,01/01/2024,31/01/2024\n2,02/01/2024,04/03/2024\n", ["%d/%m/%Y"], ""),
        ("1,31/01/2024,01/31/2024\n", None, "counts for all columns"),
        ("1,01/01/2024,02/03/2024\n", None, "no value shows"),
    ],
)
def test_one_proven_order_of_dates_counts_for_all(
    rows: str, expected: list[str] | None, doubt: str
) -> None:
    found = recognized(a=f"id,start,end\n{rows}")
    assert options(found).get("date_format") == expected
    assert [doubt in each for each in found.doubts] == ([True] if doubt else [])


@pytest.mark.parametrize(
    ("column", "nulls", "doubts"),
    [
        (("DE", "NA", "ZA"), None, 1),
        (("1", "NA", "3"), ["", "NA"], 0),
        (("-", "+", "-"), None, 1),
        (("2024-01-01", "-", "2024-01-02"), ["", "-"], 0),
    ],
)
def test_words_are_null_in_typed_columns_only(
    column: tuple[str, ...], nulls: list[str] | None, doubts: int
) -> None:
    found = recognized(a="id,v\n" + "".join(f"{n},{text}\n" for n, text in enumerate(column)))
    assert options(found).get("null_value") == nulls
    assert len(found.doubts) == doubts


def test_an_unproven_group_of_thousands_stays_text() -> None:
    found = recognized(a="id;ver;q;n\n1;1.234;1,5;1.234.567\n2;2.100;2.002,5;12\n")
    assert options(found) == {"delimiter": ";", "decimal": ",", "thousands": "."}
    assert found.as_text == {"ver"}
    comma = recognized(a="id;v\n1;1,234\n2;5,678\n")
    assert options(comma) == {"delimiter": ";"}
    assert "decimal" in comma.doubts[0]


def test_files_that_differ_are_named_and_not_misread() -> None:
    titled = recognized(a="Title\nid,name,z\n1,a,b\n", b="id,name,z\n2,a,b\n3,c,d\n")
    assert options(titled) == {}
    assert list(titled.odd_files) == ["a.csv"]
    other = recognized(a="id,name\n1,a\n", b="id;name\n2;a\n")
    assert options(other) == {}
    assert list(other.odd_files) == ["b.csv"]
    encoded = recognized(a="id,n\n1,\u00e9\n", b="id,n\n2,\u00e9\n".encode("cp1252"))
    assert options(encoded) == {}
    assert any("b.csv is not UTF-8" in doubt for doubt in encoded.doubts)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("\u65e5\u672c\u8a9e", "shift_jis"),
        ("\u041f\u0440\u0438\u0432\u0435\u0442", "cp1251"),
        ("M\u00fcller", "cp1252"),
        ("\u00e9t\u00e9", "cp1252"),
    ],
)
def test_invalid_bytes_rule_out_encodings(text: str, encoding: str) -> None:
    found = recognized(a=f"id,n\n1,{text}\n".encode(encoding))
    assert options(found) == {"encoding": encoding}
    assert "is a guess" in found.doubts[0]


def test_line_ends_identify_mac_text() -> None:
    found = recognized(a="id,n\r1,\u00e9\r".encode("mac-roman"))
    assert options(found) == {"encoding": "mac-roman"}


def test_doubts_and_a_trial_stand_in_the_configuration(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path)
    world.put("a.csv", b"id;name\n1;a\n2;b\n\n(2 rows)\n")
    world.put("b.csv", b"Title\nid;name\n3;\xe4\n")
    found = sample(LocalStorage(str(world.source)))
    text = configuration(str(world.source), str(world.table), found)
    assert (found.trial.rows, found.trial.bad) == (2, 1)
    assert "# Tried: 2 rows, 1 bad record." in text
    assert "#   a.csv: 1 fields instead of 2" in text
    assert "# b.csv will be quarantined: its header follows 1 line" in text
    assert "is a guess" in text
