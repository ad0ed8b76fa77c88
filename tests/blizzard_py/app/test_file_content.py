"""The content of a file in `explain`: how it is stored, its columns, and why it cannot be read."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import orc

from blizzard_core.settings.load import load_config
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app import file_content
from blizzard_py.app.file_content import read_content
from blizzard_py.app.wiring import ingest_settings
from blizzard_py.job import IngestSettings
from tests.support.scenario import Scenario
from tests.support.workbooks import saved

DAY = "date=2024-01-01"
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "nullable": False},
    {"name": "price", "type": "decimal(10,2)"},
    {"name": "note", "type": "string"},
]


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    found = Scenario(tmp_path, str(tmp_path))
    found.document["pipelines"]["events"]["schema"] = {"fields": FIELDS}
    return found


def explained(
    scenario: Scenario, form: Any, name: str, data: bytes, **schema: Any
) -> tuple[dict[str, Any], str]:
    """Return the document and the text for a file of a format."""
    scenario.main_source["format"] = form
    scenario.document["pipelines"]["events"]["schema"].update(schema)
    scenario.write_config()
    scenario.put(f"{DAY}/{name}", data)
    arguments = ["explain", str(scenario.config), f"{scenario.place}/raw/{DAY}/{name}"]
    done = CliRunner().invoke(blizzard, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), CliRunner().invoke(blizzard, arguments).stdout


def parquet(columns: Mapping[str, Any]) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), target)
    return target.getvalue()


def orc_file(columns: Mapping[str, Any]) -> bytes:
    target = io.BytesIO()
    orc.write_table(pa.table(dict(columns)), target)
    return target.getvalue()


def avro(columns: Mapping[str, Any]) -> bytes:
    kinds = {"id": "int", "price": "string", "extra": "double"}
    fields = [{"name": name, "type": kinds[name]} for name in columns]
    target = io.BytesIO()
    rows = pa.table(dict(columns)).to_pylist()
    fastavro.writer(target, {"type": "record", "name": "event", "fields": fields}, rows)
    return target.getvalue()


TYPED = {"id": pa.array([1], pa.int32()), "price": ["1.50"], "extra": [0.5]}
CSV = b"id,price,extra\n1,1.50,0.5\n"
HEADERS: dict[str, tuple[Any, bytes]] = {
    "csv": ("csv", CSV),
    "xlsx": ("excel", saved([["id", "price", "extra"], [1, 1.5, 0.5]])),
    "parquet": ("parquet", parquet(TYPED)),
    "orc": ("orc", orc_file(TYPED)),
    "avro": ("avro", avro(TYPED)),
}


@pytest.mark.parametrize("ending", HEADERS)
def test_a_header_or_schema_is_compared_with_the_columns(scenario: Scenario, ending: str) -> None:
    form, data = HEADERS[ending]
    found, text = explained(scenario, form, f"a.{ending}", data)
    content = found["content"]
    assert (content["format"], content["codecs"], content["members"]) == (form, [], [])
    assert (content["missing"], content["unexpected"]) == (["note"], ["extra"])
    assert (content["problem"], found["untaken"]) == (None, ["extra"])
    columns = {each["name"]: each for each in content["columns"]}
    assert list(columns) == ["id", "price", "extra"]
    is_typed = ending not in {"csv", "xlsx"}
    assert columns["price"] == {
        "name": "price",
        "type": "string" if is_typed else None,
        "column": "decimal(10,2)",
        "match": "converted" if is_typed else None,
    }
    assert columns["id"]["match"] == ("converted" if is_typed else None)
    assert columns["extra"]["column"] is None
    assert f"  format     {form}\n  columns    3 in the file: id, price, extra\n" in text
    assert "  missing    note: not in the file\n" in text
    assert "  no column  for extra; see" in text
    line = "  type       price: string in the file is converted to decimal(10,2)\n"
    assert (line in text) == is_typed
    assert "unreadable" not in text


LINES: dict[str, tuple[Any, bytes]] = {
    "ndjson": ("ndjson", b'{"id": 1, "extra": 2}\n'),
    "json": ({"type": "json", "records": "data"}, b'{"data": [{"id": 1, "extra": 2}]}'),
    "xml": (
        {"type": "xml", "row_tag": "row"},
        b"<rows><row><id>1</id><extra>2</extra></row></rows>",
    ),
}


@pytest.mark.parametrize("ending", LINES)
def test_records_that_name_their_fields_have_no_header(scenario: Scenario, ending: str) -> None:
    form, data = LINES[ending]
    found, text = explained(scenario, form, f"a.{ending}.gz", gzip.compress(data))
    assert found["content"] == {
        "format": ending,
        "codecs": ["gzip"],
        "members": [],
        "columns": None,
        "missing": None,
        "unexpected": None,
        "problem": None,
        "path_columns": {},
    }
    assert found["untaken"] == ["extra"]
    assert f"  format     {ending}, gzip\n" in text
    assert "columns" not in text


@pytest.mark.parametrize("form", ["text", "binary"])
def test_fixed_columns_show_the_format_alone(scenario: Scenario, form: str) -> None:
    column = {"text": "value", "binary": "path"}[form]
    scenario.main_source["include"] = ["**/*.gz"]
    fields = [{"name": column, "type": "string"}]
    data = gzip.compress(b"x\n" * 100)
    found, _ = explained(scenario, form, "a.gz", data, fields=fields)
    assert found["content"]["codecs"] == (["gzip"] if form == "text" else [])
    assert (found["content"]["columns"], found["content"]["problem"]) == (None, None)


def archive(*names: str, content: bytes = CSV) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as out:
        for name in names:
            out.writestr(name, content)
    return target.getvalue()


def test_the_members_of_an_archive_are_named(scenario: Scenario) -> None:
    names = [f"m{number:02}.csv" for number in range(25)]
    found, text = explained(scenario, "csv", "a.csv.zip", archive(*names, ".hidden"))
    content = found["content"]
    assert (content["codecs"], content["members"]) == (["zip"], names)
    assert content["missing"] == ["note"]
    assert "  format     csv, zip\n  members    25: m00.csv, m01.csv," in text
    assert "m19.csv and 5 more\n" in text
    assert "  columns    3 in the file of m00.csv: id, price, extra\n" in text


def test_a_codec_in_a_codec_is_named(scenario: Scenario) -> None:
    found, _ = explained(scenario, "csv", "a.csv.gz", gzip.compress(gzip.compress(CSV)))
    assert found["content"]["codecs"] == ["gzip", "gzip"]


def test_nested_types_and_lists_are_compared_with_the_columns(scenario: Scenario) -> None:
    fields = [
        *FIELDS[:1],
        {"name": "same", "type": "list", "items": "string"},
        {"name": "at", "type": "timestamp"},
        {"name": "user", "type": "struct", "fields": [{"name": "name", "type": "string"}]},
        {"name": "empty", "type": "date"},
    ]
    columns = {
        "id": [1],
        "same": [["x"]],
        "at": pa.array([dt.datetime(2024, 5, 6, tzinfo=dt.UTC)], pa.timestamp("ns")),
        "user": [{"name": "a", "age": 3}],
        "empty": pa.nulls(1),
    }
    found, text = explained(scenario, "parquet", "a.parquet", parquet(columns), fields=fields)
    content = found["content"]
    assert {each["name"]: each["match"] for each in content["columns"]} == {
        "id": "equal", "same": "equal", "at": "equal", "user": "converted", "empty": "equal",
    }  # fmt: skip
    assert content["unexpected"] == found["untaken"] == ["user.age"]
    assert "user: struct<name: string, age: int64> in the file is converted to struct" in text


UNFIT: dict[str, tuple[Any, str, bytes, dict[str, Any], str, list[str] | None]] = {
    "no column": ("csv", "a.csv", b"a;b\n1;2\n", {}, "has none of the columns", ["a_b"]),
    "required": ("csv", "a.csv", b"price\n1\n", {}, "lacks id, which", ["price"]),
    "unexpected": (
        "csv", "a.csv", CSV, {"unexpected_fields": "fail"}, "unexpected columns in the header",
        ["id", "price", "extra"],
    ),
    "required of a schema": (
        "parquet", "a.parquet", parquet({"price": [1]}), {}, "'id': is required", ["price"],
    ),
    "never": (
        "parquet", "a.parquet", parquet({"id": [1], "price": [[1]]}), {}, "cannot be decimal(10,2)",
        ["id", "price"],
    ),
    "not the format": ("parquet", "a.parquet", CSV, {}, "cannot be read as Parquet", None),
    "an empty file": ("avro", "a.avro", b"", {}, "container: it is empty", None),
    "cut": ("csv", "a.csv.gz", gzip.compress(CSV)[:-4], {}, "not a complete gzip", None),
    "not a workbook": ("excel", "a.xlsx", CSV, {}, "no Excel workbook", None),
    "no record": (
        {"type": "xml", "row_tag": "row"}, "a.xml", b"<rows><other/></rows>", {},
        "no element of row_tag", None,
    ),
    "no path": (
        {"type": "json", "records": "data"}, "a.json", b'{"rows": []}', {}, "data is missing", None,
    ),
    "in an archive": ("csv", "a.csv.zip", archive("m.csv", content=b"x\n1\n"), {}, "'m.csv'",
                      ["x"]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_explain_says_why_a_file_cannot_be_read(scenario: Scenario, name: str) -> None:
    form, path, data, schema, words, columns = UNFIT[name]
    found, text = explained(scenario, form, path, data, **schema)
    content = found["content"]
    assert words in content["problem"]
    assert f"  unreadable {content['problem']}\n" in text
    named = content["columns"]
    assert (named and [each["name"] for each in named]) == columns
    if name == "never":
        assert "price: list<element: int64> in the file can never be decimal(10,2)" in text


def test_a_quarantined_file_has_content(scenario: Scenario) -> None:
    explained(scenario, "csv", "a.csv", b"x\n1\n")
    scenario.ingest()
    found, _ = explained(scenario, "csv", "a.csv", b"x\n1\n")
    assert found["verdict"] == "quarantined"
    assert "has none of the columns" in found["content"]["problem"]
    missing, text = explained(scenario, "csv", "b.txt", b"")
    (scenario.folder / f"raw/{DAY}/b.txt").unlink()
    assert missing["content"]["columns"] is None
    ignored, _ = explained(scenario, "csv", "c.other", CSV)
    assert (ignored["verdict"], ignored["content"]) == ("ignored", None)
    assert "unreadable" not in text


def test_columns_to_infer_are_shown_before_they_are_known(scenario: Scenario) -> None:
    schema = scenario.document["pipelines"]["events"]["schema"]
    del schema["fields"]
    found, text = explained(scenario, "csv", "a.csv", CSV, infer=True)
    content = found["content"]
    assert [each["name"] for each in content["columns"]] == ["id", "price", "extra"]
    assert (content["missing"], content["unexpected"]) == (None, None)
    scenario.ingest()
    found, text = explained(scenario, "csv", "b.csv", b"id,price,more\n1,1.5,2\n")
    assert found["content"]["unexpected"] == ["more"]
    assert "missing    extra: not in the file" in text


def test_captured_fields_have_no_column_either(scenario: Scenario) -> None:
    found, text = explained(scenario, "csv", "a.csv", CSV, unexpected_fields="capture")
    assert (found["untaken"], found["content"]["unexpected"]) == (None, ["extra"])
    assert "  no column  for extra\n" in text


def settings_of(scenario: Scenario, form: Any) -> IngestSettings:
    scenario.main_source["format"] = form
    scenario.write_config()
    pipeline = load_config(scenario.config).pipelines["events"]
    return ingest_settings(pipeline, pipeline.sources["main"])


class Counting(LocalStorage):
    """A store that counts the bytes that were read."""

    size = 0

    def read_range(self, path: str, start: int, end: int) -> bytes:
        data = super().read_range(path, start, end)
        self.size += len(data)
        return data

    def open_input(self, path: str) -> Any:
        stream = super().open_input(path)
        read = stream.read

        class Stream:
            def read(self, size: int = -1) -> bytes:
                data: bytes = read(size)
                store.size += len(data)
                return data

            def close(self) -> None:
                stream.close()

        store = self
        return Stream()


def noise(rows: int) -> list[str]:
    return [os.urandom(30).hex() for _ in range(rows)]


def large_parquet() -> bytes:
    target = io.BytesIO()
    table = pa.table({"id": range(400_000), "note": noise(400_000)})
    pq.write_table(table, target, row_group_size=50_000)
    return target.getvalue()


def large_csv() -> bytes:
    return b"id,note\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(2_000_000))


LARGE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "csv": ("csv", large_csv),
    "parquet": ("parquet", large_parquet),
}


@pytest.mark.parametrize("name", LARGE)
def test_only_the_beginning_of_a_file_is_read(scenario: Scenario, name: str) -> None:
    form, make = LARGE[name]
    data = make()
    (scenario.folder / "raw").mkdir()
    (scenario.folder / "raw/a").write_bytes(data)
    store = Counting(str(scenario.folder / "raw"))
    found = read_content(store, Entry("a", len(data), 0.0), settings_of(scenario, form))
    assert (found.problem, found.missing) == (None, ("price",))
    assert 0 < store.size < len(data) / 3


@pytest.mark.parametrize("form", [{"type": "xml", "row_tag": "row"}, "csv", "parquet"])
def test_a_file_is_read_up_to_the_limit(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    monkeypatch.setattr(file_content, "EXPLAINED_BYTES", 1 << 20)
    data = {
        "csv": b'id,note\n1,"' + b"x" * (8 << 20),
        "parquet": parquet({"id": range(100_000), "note": noise(100_000)}),
    }.get(str(form), b"<rows>" + b"<other>text</other>" * 500_000)
    (scenario.folder / "raw").mkdir()
    (scenario.folder / "raw/a").write_bytes(data)
    store = Counting(str(scenario.folder / "raw"))
    found = read_content(store, Entry("a", len(data), 0.0), settings_of(scenario, form))
    assert found.problem == "there is no record in its first 1 MiB"


def test_text_shows_few_of_many_and_no_control_codes(scenario: Scenario) -> None:
    names = ["id", *(f"c\u202e{number}" for number in range(3000))]
    found, text = explained(scenario, "csv", "a.csv", f"{','.join(names)}\n".encode())
    assert len(found["content"]["columns"]) == 3001
    assert "3,001 in the file: id, c_0," in text
    assert "and 2,981 more" in text
    assert "\u202e" not in text
