"""Columns with another name than the records' field, in every format."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from blizzard_core.settings.format_options import AvroOptions
from blizzard_core.settings.formats import (
    CsvOptions,
    ExcelOptions,
    FormatSettings,
    JsonOptions,
    NdjsonOptions,
    OrcOptions,
    ParquetOptions,
    XmlOptions,
)
from blizzard_core.settings.schema import FieldSettings
from blizzard_py.formats.input_names import renamed
from blizzard_py.formats.names import format_of
from blizzard_py.job import FieldSpec
from blizzard_py.kernels.row_groups import reason_to_decode
from blizzard_py.schema.field_specs import field_document, field_spec
from tests.support.ingest_job_harness import IngestJobHarness, specs
from tests.support.workbooks import saved

GROSS = FieldSpec("us_gross", "int64", nullable=True, source="US Gross")
TITLE = FieldSpec("title", "string", nullable=True)
RATING = FieldSpec("rating", "float64", nullable=True, source="IMDB {Rating}")
STUDIO = FieldSpec(
    "studio",
    "struct",
    nullable=True,
    children=(FieldSpec("head_office", "string", nullable=True, source="Head Office"),),
    source="The Studio",
)
FIELDS = (GROSS, TITLE, RATING)
ROWS: list[dict[str, Any]] = [
    {"US Gross": 1, "title": "a", "IMDB {Rating}": 6.5},
    {"US Gross": None, "title": "b", "IMDB {Rating}": None},
]
EXPECTED = [
    {"us_gross": 1, "title": "a", "rating": 6.5},
    {"us_gross": None, "title": "b", "rating": None},
]


def ndjson(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def columnar(write: Any, rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    write(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def avro(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    kinds = {"Gross": "long", "title": "string", "Rating": "double"}
    fields = [{"name": name, "type": ["null", kind]} for name, kind in kinds.items()]
    short = [dict(zip(kinds, row.values(), strict=True)) for row in rows]
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, short)
    return sink.getvalue()


CSV = b"US Gross,title,IMDB {Rating}\n1,a,6.5\n,b,\n"
XML = (
    b"<m><r><US.Gross>1</US.Gross><title>a</title><x:R xmlns:x='u'>6.5</x:R></r>"
    b"<r><title>b</title></r></m>"
)
AVRO_NAMES = {"us_gross": "Gross", "rating": "Rating"}
XML_NAMES = {"us_gross": "US.Gross", "rating": "x:R"}
SHEET = saved([["US Gross", "title", "IMDB {Rating}"], [1, "a", 6.5], [None, "b", None]])
CASES: dict[str, tuple[FormatSettings, str, bytes, dict[str, str]]] = {
    "ndjson": (NdjsonOptions(), "a.ndjson", ndjson(*ROWS), {}),
    "json": (JsonOptions(type="json"), "a.json", json.dumps(ROWS).encode(), {}),
    "csv": (CsvOptions(type="csv"), "a.csv", CSV, {}),
    "parquet": (ParquetOptions(type="parquet"), "a.parquet", columnar(pq.write_table, ROWS), {}),
    "orc": (OrcOptions(type="orc"), "a.orc", columnar(pa.orc.write_table, ROWS), {}),
    "excel": (ExcelOptions(type="excel"), "a.xlsx", SHEET, {}),
    "avro": (AvroOptions(type="avro"), "a.avro", avro(ROWS), AVRO_NAMES),
    "xml": (XmlOptions(type="xml", row_tag="r"), "a.xml", XML, XML_NAMES),
}  # fmt: skip


def harness(root: Path, name: str, **given: Any) -> IngestJobHarness:
    form, path, data, sources = CASES[name]
    fields = tuple(
        FieldSpec(spec.name, spec.type, spec.nullable, source=sources.get(spec.name, spec.source))
        for spec in FIELDS
    )
    world = IngestJobHarness(root, fields=fields, format=form, **given)
    world.put(path, data)
    return world


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_column_is_filled_from_its_field(tmp_path: Path, name: str, attempt: int) -> None:
    world = harness(tmp_path, name)
    report = world.run_task(attempt=attempt)
    assert [file.error for file in report.files] == [""]
    assert world.rows(report) == EXPECTED


@pytest.mark.parametrize("name", CASES)
def test_field_of_the_columns_name_is_another_one(tmp_path: Path, name: str) -> None:
    form, path, data, sources = CASES[name]
    field = FieldSpec("title", "int64", nullable=True, source=sources.get("us_gross", "US Gross"))
    world = IngestJobHarness(tmp_path, fields=(field,), format=form, unexpected_fields="capture")
    world.put(path, data)
    rows = world.rows(world.run_task())
    assert [row["title"] for row in rows] == [1, None]
    assert json.loads(rows[0]["_rescued"])["title"] == "a"


@pytest.mark.parametrize("fast", [True, False])
def test_nested_fields_are_filled(tmp_path: Path, *, fast: bool) -> None:
    listed = FieldSpec(
        "offices",
        "list",
        nullable=True,
        children=(FieldSpec("element", "struct", nullable=True, children=STUDIO.children),),
    )
    world = IngestJobHarness(tmp_path, fields=(STUDIO, listed), unexpected_fields="capture")
    world.put(
        "a.ndjson",
        ndjson(
            {
                "The Studio": {"Head Office": "x", "head_office": 1},
                "offices": [{"Head Office": "y"}],
            },
            {"The Studio": None, "studio": {}},
        ),
    )
    assert world.rows(world.run_task(attempt=0 if fast else 1)) == [
        {
            "studio": {"head_office": "x"},
            "offices": [{"head_office": "y"}],
            "_rescued": '{"The Studio":{"head_office":1}}',
        },
        {"studio": None, "offices": None, "_rescued": '{"studio":{}}'},
    ]


@pytest.mark.parametrize("name", CASES)
def test_letter_comes_again_by_a_replay(tmp_path: Path, name: str) -> None:
    form, path, data, sources = CASES[name]
    source = sources.get("us_gross", "US Gross")
    wrong = FieldSpec("us_gross", "date", nullable=True, source=source)
    if name in {"parquet", "orc", "avro"}:  # a type that never fits costs the file
        wrong = FieldSpec("us_gross", "int64", nullable=False, source=source)
    world = IngestJobHarness(tmp_path / "first", fields=(wrong, TITLE), format=form)
    world.put(path, data)
    report = world.run_task()
    letters = world.dead_letters(report)
    assert letters
    kind = "int64"
    right = (FieldSpec("us_gross", kind, nullable=True, source=source), TITLE)
    again = IngestJobHarness(
        tmp_path / "again", fields=right, format=format_of(form).replay_settings()
    )
    for number, content in enumerate(format_of(form).replay_contents(letters)):
        again.put(f"{number}{Path(path).suffix}", content)
    rows = world.rows(report) + again.rows(again.run_task())
    assert {(row["us_gross"], row["title"]) for row in rows} <= {(1, "a"), (None, "b")}
    assert len(rows) == 2


def test_unknown_field_is_reported_by_its_own_name(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, fields=(GROSS,), evolves=True)
    world.put("a.ndjson", ndjson({"US Gross": 1, "us_gross": 2, "Net (EUR)": 3}))
    found = {each.name: each.values for each in world.run_task().unexpected}
    assert found == {"us_gross": ("2",), "Net (EUR)": ("3",)}


def test_row_groups_of_other_names_are_decoded(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, fields=FIELDS)
    assert "'us_gross' has another name" in reason_to_decode(world.job().settings)


def test_fast_and_exact_path_agree(tmp_path: Path) -> None:
    chance = random.Random(7)
    names = ["US Gross", "us_gross", "title", "IMDB {Rating}", "The Studio", "x y"]
    values: list[Any] = [None, 1, 2.5, "a", {"Head Office": "h"}, {"head_office": 1}]
    data = ndjson(
        *({name: chance.choice(values) for name in chance.sample(names, 4)} for _ in range(500))
    )
    found = []
    for attempt in (0, 1):
        world = IngestJobHarness(tmp_path / str(attempt), fields=(*FIELDS, STUDIO))
        world.put("a.ndjson", data)
        report = world.run_task(attempt=attempt)
        found.append((world.rows(report), [each["raw"] for each in world.letters(report)]))
    assert found[0] == found[1]
    assert found[0][0]


def test_rows_are_renamed_without_a_copy() -> None:
    kind = pa.struct([("Head Office", pa.string())])
    values = pa.array([{"Head Office": "x"}, None, {"Head Office": None}], kind)
    table = pa.table(
        {"The Studio": pa.chunked_array([values[1:], values[:0]], kind), "_rescued": ["", "r"]}
    )
    found = renamed(table, (STUDIO,))
    found.validate(full=True)
    assert found.to_pylist() == [
        {"studio": None, "_rescued": ""},
        {"studio": {"head_office": None}, "_rescued": "r"},
    ]
    assert found.column(0).chunk(0).buffers()[0].address == values.buffers()[0].address


def test_settings_and_documents_are_inverse() -> None:
    document = {
        "name": "studio",
        "from": "The Studio",
        "type": "struct",
        "fields": [{"name": "head_office", "from": "Head Office", "type": "string"}],
    }
    assert field_spec(FieldSettings.model_validate(document)) == STUDIO
    assert field_document(STUDIO) == document


def test_plain_names_read_as_they_are() -> None:
    plain = specs(a="int64", b="string")
    assert all(spec.as_read is spec for spec in plain)
