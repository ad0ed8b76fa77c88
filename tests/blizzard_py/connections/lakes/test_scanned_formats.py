"""Folders of files in each format that is scanned: windows, bad records, filters, digests."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from blizzard_core.errors import SourceError
from blizzard_core.settings.document import Config
from blizzard_py.app.engine import NoEngine
from blizzard_py.app.wiring import context_of
from blizzard_py.connections.lakes import scanned
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.dead_letters.reader import objects, read
from blizzard_py.formats.json_documents.records import read_records
from blizzard_py.formats.names import format_of
from blizzard_py.formats.protocol import BadRecord
from blizzard_py.job import FieldSpec
from blizzard_py.reading import ReadTask, Window
from tests.support.ingest_job_harness import IngestJobHarness
from tests.support.lake_pipelines import poll
from tests.support.lake_reading import Poller, read_all, rows_of
from tests.support.scanned_files import SCANNED, Row, moment
from tests.support.text_lakes import AT, ID, access_to, at, field, ids
from tests.support.workbooks import saved

DAY = field("day", "date")
FIELDS = (ID, AT, DAY)


def source(
    name: str,
    folder: Path,
    fields: tuple[FieldSpec, ...] = FIELDS,
    columns: tuple[str, ...] = ("at",),
    **selection: Any,
) -> Poller:
    access = access_to(SCANNED[name].driver, folder, form=SCANNED[name].format)
    chosen = ReadSelection(columns=columns, fields=fields, **selection)
    connection = scanned.connect(access, chosen)
    return Poller(lambda: connection, scanned.read, access, "rows", columns, fields)


def row(number: int, secs: float, **more: Any) -> Row:
    return {"id": number, "at": moment(secs), "day": dt.date(2026, 5, 4), **more}


def window_of(found: Poller, low: float | None, up_to: float) -> list[Any]:
    """Return the batches and lines of one window."""
    after = {} if low is None else {"at": moment(low)}
    window = Window(after, {"at": moment(up_to)}, after, nulls_first=low is None)
    return [
        some
        for task in found.connect().tasks(window, WindowSplit())
        for some in read_all(found.reader, found.access, task, found.fields)
    ]


def bad_in(found: list[Any]) -> list[BadRecord]:
    """Return the records that are no rows; of lines those without an id."""
    lines = b"".join(some for some in found if isinstance(some, bytes)).split(b"\n")[:-1]
    bad = [BadRecord(0, 0, len(line), line, "") for line in lines if b'"id"' not in line]
    return bad + [some for some in found if isinstance(some, BadRecord)]


@pytest.mark.parametrize("name", SCANNED)
def test_each_row_comes_once(tmp_path: Path, name: str) -> None:
    found = source(name, tmp_path)
    seen = []
    for number in range(4):
        rows = [row(number * 10 + n, number + n / 4) for n in range(3)]
        SCANNED[name].write(tmp_path / str(number), rows)
        seen.append(ids(found.poll()))
    assert seen == [[n * 10, n * 10 + 1, n * 10 + 2] for n in range(4)]
    assert found.poll() == []
    assert found.stored == {"at": moment(3.5)}


@pytest.mark.parametrize("name", SCANNED)
def test_a_window_has_its_rows_of_a_file(tmp_path: Path, name: str) -> None:
    SCANNED[name].write(tmp_path / "a", [row(n, n) for n in range(10)])
    found = source(name, tmp_path)
    tasks = found.connect().tasks(
        Window({"at": moment(2)}, {"at": moment(5)}, {"at": moment(2)}), WindowSplit()
    )
    assert ids(rows_of(found.reader, found.access, tasks, FIELDS)) == [3, 4, 5]


REASONS = {
    "csv": "1 fields instead of 3",
    "ndjson": "",
    "json": "",
    "avro": "column 'clock': 1000000000000000 is no time of a day",
    "xml": "column 'id': comes several times; declare a list",
    "excel": "column 'id': the error #DIV/0!; correct the sheet",
}
HEADS = {
    "csv": b"2",
    "ndjson": b"{",
    "json": b"{",
    "avro": b'[{"id": 2,',
    "xml": b"<row>",
    "excel": b'{"id": {"error": "#DIV/0!"},',
}


@pytest.mark.parametrize("name", REASONS)
def test_a_bad_record_comes_once_with_the_highest_value(tmp_path: Path, name: str) -> None:
    form = SCANNED[name]
    path = form.write(tmp_path / "a", [row(1, 1), row(2, 2) | form.bad, row(3, 3)])
    if name == "csv":
        path.write_bytes(path.read_bytes() + b"2\n")
    elif form.driver == "json":
        path.write_bytes(path.read_bytes().replace(b'"id": 2', b'"no" 2'))
    clock = [field("clock", "string")] if name == "avro" else []
    found = source(name, tmp_path, (*FIELDS, *clock))
    windows = [(None, 1), (1, 2), (2, 3)]
    bad = [bad_in(window_of(found, low, up_to)) for low, up_to in windows]
    assert [len(each) for each in bad] == [0, 0, 1]
    assert REASONS[name] in bad[2][0].reason
    assert bad[2][0].head.startswith(HEADS[name])


@pytest.mark.parametrize("name", ["csv", "avro", "orc", "excel"])
def test_a_file_without_the_watermark_is_one_bad_record(tmp_path: Path, name: str) -> None:
    form = SCANNED[name]
    form.write(tmp_path / "a", [row(1, 1)])
    form.write(tmp_path / "b", [{"id": 2}])
    found = source(name, tmp_path)
    bound = found.connect().bound("rows", 0)
    assert "1 file without any value of at, such as b." in bound.warnings[0]
    [bad] = bad_in(window_of(found, None, 1))
    assert bad.reason.startswith("no row is read: the file has no column at; correct its header")
    assert bad.head.startswith(f"{form.driver} row, no row is read".encode())
    assert bad_in(window_of(found, 1, 2)) == []


@pytest.mark.parametrize("name", ["avro", "orc", "excel", "xml"])
def test_columns_that_a_file_lacks_are_null(tmp_path: Path, name: str) -> None:
    SCANNED[name].write(tmp_path / "a", [{"at": moment(1), "id": 1}])
    SCANNED[name].write(tmp_path / "b", [row(2, 2)])
    required = FieldSpec("day", "date", nullable=False)
    rows = source(name, tmp_path, (ID, AT, required)).poll()
    assert [each["day"] is None for each in sorted(rows, key=lambda r: int(r["id"]))] == [
        True,
        False,
    ]


@pytest.mark.parametrize("name", SCANNED)
def test_rows_without_a_watermark_are_first_and_reported(tmp_path: Path, name: str) -> None:
    SCANNED[name].write(tmp_path / "a", [row(1, 1), {**row(2, 1), "at": None}])
    found = source(name, tmp_path)
    assert (
        "1 file with rows that have no value of at" in found.connect().bound("rows", 0).warnings[0]
    )
    assert ids(found.poll()) == [1, 2]


@pytest.mark.parametrize("name", SCANNED)
def test_a_filter_keeps_rows(tmp_path: Path, name: str) -> None:
    SCANNED[name].write(tmp_path / "a", [row(n, n) for n in range(5)])
    for columns in ((), ("at",)):
        found = source(name, tmp_path, columns=columns, filter="id >= 2 AND id <> 3")
        window = Window(up_to={"at": moment(9)}) if columns else Window()
        tasks = found.connect().tasks(window, WindowSplit())
        assert ids(rows_of(found.reader, found.access, tasks, FIELDS)) == [2, 4]


@pytest.mark.parametrize("name", SCANNED)
def test_a_replaced_file_raises_source_error(tmp_path: Path, name: str) -> None:
    path = SCANNED[name].write(tmp_path / "a", [row(1, 1)])
    found = source(name, tmp_path)
    _, tasks = found.plan()
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    with pytest.raises(SourceError, match="replaced by another"):
        rows_of(found.reader, found.access, tasks, FIELDS)


@pytest.mark.parametrize("name", ["avro", "orc", "excel", "json", "xml"])
def test_a_damaged_file_stops_the_source_by_name(tmp_path: Path, name: str) -> None:
    path = SCANNED[name].write(tmp_path / "a", [row(n, n) for n in range(100)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceError, match=f"a{SCANNED[name].ending}: "):
        source(name, tmp_path).plan()


@pytest.mark.parametrize("name", ["csv", "ndjson", "xml"])
def test_archives_are_read(tmp_path: Path, name: str) -> None:
    form = SCANNED[name]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(2):
            archive.writestr(f"{number}{form.ending}", form.content([row(number, number)]))
    (tmp_path / f"a{form.ending}.zip").write_bytes(packed.getvalue())
    assert ids(source(name, tmp_path).poll()) == [0, 1]


def test_first_member_of_archive_decides_about_watermark(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("a.csv", f"id,at\n1,{at(1)}\n")
        archive.writestr("b.csv", "id\n2\n")
        archive.writestr("c.csv", f"id,at\n3,{at(3)}\n")
    found = source("csv", tmp_path, (ID, AT))
    assert ids(found.poll()) == [1, 2, 3]


def test_a_long_record_of_a_document_invents_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(read_records.__kwdefaults__ or {}, "limit", 200)
    long = '{"v": "' + "x" * 300 + '",\n"inner": [\n{"id": 7}\n]}'
    document = f'{{"data": [{{"id": 1}}, {long}]}}'
    (tmp_path / "a.json").write_text(document)
    found = source("json", tmp_path, (ID,), ())
    [task] = found.connect().tasks(Window(), WindowSplit())
    lines = b"".join(found.reader(found.access, task.spec, (ID,))).split(b"\n")  # type: ignore[arg-type]  # all are lines
    assert [line[-1:] for line in lines] == [b"}", b"\0", b""]


@pytest.mark.parametrize("name", SCANNED)
def test_units_have_their_rows_of_all_files(tmp_path: Path, name: str) -> None:
    for number in range(2):
        SCANNED[name].write(tmp_path / str(number), [row(n, n) for n in range(number, 6, 2)])
    found = source(name, tmp_path, columns=(), filter="at >= {from} AND at < {to}")
    ends = [{"from": moment(low), "to": moment(low + 3)} for low in (0, 3)]
    tasks = [task for task in found.connect().unit_tasks(ends) if isinstance(task, ReadTask)]
    rows = [ids(rows_of(found.reader, found.access, [task], FIELDS)) for task in tasks]
    assert rows == [[0, 1, 2], [3, 4, 5]]


TYPES = {
    "csv": {"id": "string", "at": "string", "day": "string"},
    "ndjson": {"id": "int64", "at": "timestamp", "day": "timestamp"},
    "avro": {"id": "int64", "at": "timestamp", "day": "date"},
    "orc": {"id": "int64", "at": "timestamp", "day": "date"},
    "excel": {"id": "string", "at": "string", "day": "string"},
}


@pytest.mark.parametrize("name", TYPES)
def test_columns_are_proposed(tmp_path: Path, name: str) -> None:
    SCANNED[name].write(tmp_path / "a", [row(1, 1)])
    found = source(name, tmp_path, (), ()).connect().columns()
    assert {each.name: each.field.type for each in found} == TYPES[name]


def test_options_of_csv_count_for_rows_and_watermarks(tmp_path: Path) -> None:
    form = {
        "type": "csv",
        "delimiter": ";",
        "decimal": ",",
        "date_format": "%d.%m.%Y",
        "encoding": "cp1252",
        "comment": "#",
    }
    amount = field("amount", "decimal", precision=9, scale=2)
    config = config_of(tmp_path, "csv", form, {"columns": ["day", "amount"]}, (ID, DAY, amount))
    for name, line in {"a": "1;31.12.2025;1,50", "b": "2;01.01.2026;0,5", "c": "3;#;é"}.items():
        text = f"# a comment\nid;day;amount\n{line}\n"
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.csv").write_text(text, encoding="cp1252")
        poll(config)
    rows = table(tmp_path)
    assert [(r["id"], r["day"].isoformat(), str(r["amount"])) for r in rows] == [
        (1, "2025-12-31", "1.50"),
        (2, "2026-01-01", "0.50"),
    ]


def config_of(
    folder: Path, driver: str, form: Any, watermark: Any, fields: tuple[FieldSpec, ...]
) -> Config:
    def document(spec: FieldSpec) -> dict[str, Any]:
        kind = f"decimal({spec.precision},{spec.scale})" if spec.precision else spec.type
        return {"name": spec.name, "type": kind}

    of = {"kind": "table", "connection": "lake", "table": "in", "watermark": watermark}
    return Config.model_validate(
        {
            "connections": {"lake": {"driver": driver, "uri": str(folder)}},
            "pipelines": {
                "p": {
                    "sources": {"s": {**of, **({"format": form} if form else {})}},
                    "sink": {"table_uri": str(folder / "table")},
                    "schema": {"fields": [document(spec) for spec in fields]},
                }
            },
        }
    )


def table(folder: Path) -> list[Row]:
    files = (folder / "table").glob("*.parquet")
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=lambda each: int(each["id"]))


@pytest.mark.parametrize("name", SCANNED)
def test_a_look_back_publishes_late_rows_alone(tmp_path: Path, name: str) -> None:
    """Rows that are read again are recognised by digests, new ones among them are published."""
    form = SCANNED[name]
    marks = {"columns": ["at"], "backward": "1d", "reread": "new_only"}
    config = config_of(tmp_path, form.driver, form.format, marks, FIELDS)
    form.write(tmp_path / "in" / "a", [row(1, 1), row(2, 50)])
    poll(config)
    form.write(tmp_path / "in" / "b", [row(3, 2), row(4, 60)])
    poll(config)
    poll(config)
    assert [(each["id"], each["at"]) for each in table(tmp_path)] == [
        (1, moment(1)),
        (2, moment(50)),
        (3, moment(2)),
        (4, moment(60)),
    ]


def test_the_configuration_of_the_documentation_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "tables.md").read_text()
    [block] = [each for each in page.split("```") if "driver: excel" in each]
    document = yaml.safe_load(block.removeprefix("yaml").replace("s3://lake", str(tmp_path)))
    document["pipelines"] = {"p": document["pipelines"]["budget"]}
    header = ["id", "amount", "changed_on"]
    rows = [["1", 1.5, "04.05.2026"], [2, 0, dt.date(2026, 5, 5)], [3, 2, dt.date(2026, 5, 6)]]
    path = tmp_path / "reports" / "budget" / "a.xlsx"
    path.parent.mkdir(parents=True)
    path.write_bytes(saved([["Plan of the year"], [], header, *rows], "Plan"))
    config = Config.model_validate(document)
    for _ in range(2):
        poll(config)
    files = (tmp_path / "plan").glob("*.parquet")
    assert sorted(each["id"] for file in files for each in pq.read_table(file).to_pylist()) == [
        1,
        3,
    ]


@pytest.mark.parametrize("name", ["csv", "avro", "xml", "excel"])
def test_a_bad_record_has_one_letter_with_its_reason(tmp_path: Path, name: str) -> None:
    form = SCANNED[name]
    marks = {"columns": ["at"], "backward": "1d", "reread": "new_only"}
    clock = [field("clock", "string")] if name == "avro" else []
    config = config_of(tmp_path, form.driver, form.format, marks, (*FIELDS, *clock))
    path = form.write(tmp_path / "in" / "a", [row(1, 1), row(2, 2) | form.bad, row(3, 3)])
    if name == "csv":
        path.write_bytes(path.read_bytes() + b"2,2,2,2\r\n")
    poll(config)
    form.write(tmp_path / "in" / "b", [row(4, 4)])
    poll(config)
    paths = (tmp_path / "table" / "_blizzard" / "dlq").rglob("*.records.ndjson")
    [letter] = [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]
    assert REASONS[name].replace("1 fields", "4 fields") in letter["error"]
    good = [1, 2, 3, 4] if name == "csv" else [1, 3, 4]
    assert [each["id"] for each in table(tmp_path)] == good


def test_letters_of_excel_come_again_as_rows_of_a_mended_schema(tmp_path: Path) -> None:
    form, marks = SCANNED["excel"], {"columns": ["at"], "backward": "1d", "reread": "new_only"}
    config = config_of(tmp_path, form.driver, form.format, marks, FIELDS)
    form.write(tmp_path / "in" / "a", [row(1, 1), row(2, 2, id="two"), row(3, 3)])
    poll(config)
    [[name, pipeline]] = config.pipelines.items()
    live = context_of(config, (name, *pipeline.sources), NoEngine())
    [found] = objects(live.stores.dlq, live.letters_id)
    letters = list(read(live.stores.dlq, found))
    made = format_of(live.ingest.format)
    [content] = made.replay_contents(letters)
    fields = (field("id", "string"), AT, DAY)
    again = IngestJobHarness(tmp_path / "again", fields, format=made.replay_settings())
    again.put("a.ndjson", content)
    again.put("b.ndjson", b'{"id": "line"}\n')
    assert [each["id"] for each in again.rows(again.run_task())] == ["two", "line"]
