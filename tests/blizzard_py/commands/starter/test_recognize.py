"""Formats by names and first bytes: real shapes of files, each read without losing a row."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyarrow import orc

from blizzard_core.settings.formats import CsvOptions, JsonOptions, XmlOptions
from blizzard_core.settings.load import load_config
from blizzard_core.storage.local import LocalStorage
from blizzard_py.app.wiring import ingest_settings
from blizzard_py.commands.starter.config import configuration
from blizzard_py.commands.starter.recognize import FileHead, recognize
from blizzard_py.commands.starter.sample import sample
from tests.support.ingest_job_harness import IngestJobHarness
from tests.support.workbooks import saved

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
    document = yaml.safe_load(text)["pipelines"]["events"]["sources"]["main"]
    assert document.get("format") != "ndjson"


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ("semicolon and decimal comma", {"delimiter": ";", "decimal": ",", "thousands": "."}),
        ("tabs and comments", {"delimiter": "\t", "comment": "#"}),
        ("tsv", {}),
        ("title rows", {"skip_rows": 2}),
        ("no header", {"header": False, "columns": ["column_1", "column_2", "column_3"]}),
        ("null words", {"null_value": ["", "NULL"]}),
        ("american dates", {"date_format": ["%m/%d/%Y"]}),
        ("cp1252 export", {"delimiter": ";", "encoding": "cp1252"}),
    ],
)
def test_options_are_what_the_files_need(shape: str, options: dict[str, Any]) -> None:
    path, content, _ = CSV[shape]
    found = recognize([FileHead(path, content, is_whole=True)])
    assert isinstance(found, CsvOptions)
    assert found.model_dump(exclude_defaults=True, exclude={"type"}) == options


def test_the_array_of_a_long_document_is_found_by_its_beginning() -> None:
    for more in (b"", b', "' + b'\\"' * 400_000):
        assert recognize([FileHead("a.json", b'{\n"a": 1' + more, is_whole=False)]).type == "json"
    found = recognize([FileHead("a.json", PRETTY[:90], is_whole=False)])
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
    found = recognize([FileHead("a.xml", content.encode(), is_whole=True)])
    assert isinstance(found, XmlOptions)
    assert found.row_tag == row_tag


@pytest.mark.parametrize("content", ["<", "<a", "<!DOCTYPE r [<!ENTITY a 'b'>]><r><e/><e/></r>"])
def test_xml_without_a_record_is_not_guessed(content: str) -> None:
    assert recognize([FileHead("a.xml", content.encode(), is_whole=True)]).type == "ndjson"


def test_empty_files_count_as_ndjson() -> None:
    assert recognize([FileHead("a.csv", b" \n", is_whole=True)]).type == "ndjson"
