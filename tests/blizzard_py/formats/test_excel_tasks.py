"""Workbooks through whole tasks: rows, letters, second attempts, replays, and samples."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.limits import EXPANSION
from blizzard_core.settings.formats import ExcelOptions
from blizzard_core.settings.load import load_config
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.app.wiring import ingest_settings
from blizzard_py.formats.names import format_of
from blizzard_py.job import JobFile, PartitionRule
from blizzard_py.kernels import task
from blizzard_py.lines import source
from blizzard_py.schema.inference import Inference, Rules
from blizzard_py.sources.files.lines import read_records
from blizzard_py.sources.files.sampling import add_sample
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.workbooks import Written, inline, named, row, saved

FIELDS = specs(id="int64", note="string", day="date")
DAY = dt.date(2024, 5, 6)
ROWS: list[list[Any]] = [
    ["id", "note", "day", "more"],
    [1, "a", DAY, "x"],
    [],
    ["no", 7, DAY, 2.5],
    [3, "#DIV/0!", None, None],
    [4, "d", "2024-05-07"],
]
EXCEL = ExcelOptions(type="excel")


def harness(root: Path, **given: Any) -> IngestJobHarness:
    given = {"fields": FIELDS, "metadata": ("_source_file", "_source_line"), **given}
    return IngestJobHarness(root, **{"format": EXCEL, **given})


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_rows_and_letters_have_their_numbers(tmp_path: Path, attempt: int) -> None:
    world = harness(tmp_path)
    world.put("a.xlsx", saved(ROWS))
    world.put("b.xlsx", saved([["note", "id"], ["z", 9]]))
    world.put("c.xlsx", saved([["other"], ["z"]]))
    world.put("d.xlsx", b"id,note\n1,x\n")
    world.put("e.xlsx", saved([]))
    report = world.run_task(attempt=attempt)
    found = [
        (each["_source_file"][-6:], each["_source_line"], each["id"]) for each in world.rows(report)
    ]
    assert sorted(found) == [("a.xlsx", 2, 1), ("a.xlsx", 6, 4), ("b.xlsx", 2, 9)]
    files = by_path(report)
    assert {path: each.outcome for path, each in files.items()} == {
        "a.xlsx": "ingested", "b.xlsx": "ingested", "c.xlsx": "quarantined",
        "d.xlsx": "quarantined", "e.xlsx": "ingested",
    }  # fmt: skip
    assert (files["a.xlsx"].rows, files["a.xlsx"].bad_rows) == (2, 2)
    bad, error = world.letters(report)
    assert (bad["line"], bad["offset"]) == (4, -1)
    assert bad["raw"] == '{"id": "no", "note": 7, "day": {"time": "2024-05-06"}, "more": 2.5}'
    assert bad["error"] == "column 'id': 'no' is no int64"
    assert error["line"] == 5
    assert error["raw"] == '{"id": 3, "note": {"error": "#DIV/0!"}}'
    assert {each.name for each in report.unexpected} == {"more"}


def test_letters_come_again_as_the_rows_of_a_mended_sheet(tmp_path: Path) -> None:
    world = harness(tmp_path)
    world.put("a.xlsx", saved(ROWS))
    letters = world.dead_letters(world.run_task())
    form = format_of(EXCEL)
    [content] = form.replay_contents(letters)
    wider = specs(id="string", note="string", day="date")
    again = harness(tmp_path / "again", format=form.replay_settings(), fields=wider, metadata=())
    again.put("a.ndjson", content)
    report = again.run_task()
    mended = harness(tmp_path / "mended", fields=wider, metadata=())
    mended.put("a.xlsx", saved([ROWS[0], ROWS[3]]))
    assert again.rows(report) == mended.rows(mended.run_task())
    # An error of Excel stays a bad record, and does not become a text.
    [letter] = again.letters(report)
    assert (letter["line"], letter["error"][:28]) == (3, "column 'note': the error #DI")


def test_letters_keep_cells_without_a_column(tmp_path: Path) -> None:
    digits = "123456789012345678901234567890123456789012345"
    error = '<c t="e"><v>#N/A</v></c>'
    data = bytes(
        Written(named("id", "n", "e") + row(inline("bad"), f"<c><v>{digits}</v></c>", error))
    )
    world = harness(tmp_path, unexpected_fields="capture")
    world.put("a.xlsx", data)
    [letter] = world.letters(world.run_task())
    assert letter["raw"] == f'{{"id": "bad", "n": {digits}, "e": {{"error": "#N/A"}}}}'
    mended = harness(tmp_path / "b", fields=specs(id="string"), unexpected_fields="capture")
    mended.put("a.xlsx", data)
    [found] = mended.rows(mended.run_task())
    assert found["_rescued"] == f'{{"n":{digits},"e":{{"error":"#N/A"}}}}'


def test_a_row_without_a_directory_is_a_letter(tmp_path: Path) -> None:
    world = harness(tmp_path, rules=(PartitionRule("note", key="note"),))
    world.put("a.xlsx", saved([["id", "note"], [1, "x"], [], [2, "n" * 300], [3, "y"]]))
    report = world.run_task()
    assert sorted(each["id"] for each in world.rows(report)) == [1, 3]
    [letter] = world.letters(report)
    assert (letter["line"], letter["stage"]) == (4, "partition")


def test_a_file_with_too_many_bad_records_is_quarantined_alone(tmp_path: Path) -> None:
    world = harness(tmp_path, max_bad_fraction=0.5)
    world.put("a.xlsx", saved([["id"], ["x"], ["y"], [1]]))
    world.put("b.xlsx", saved([["id"], [1]]))
    found = by_path(world.run_task())
    assert [each.outcome for each in found.values()] == ["quarantined", "ingested"]
    assert "first line 2: column 'id': 'x' is no int64" in found["a.xlsx"].error


def test_a_bomb_costs_only_itself(tmp_path: Path) -> None:
    world = harness(tmp_path)
    world.put("a.xlsx", bytes(Written(named("id") + " " * (40 << 20))))
    world.put("b.xlsx", saved([["id"], [1]]))
    found = by_path(world.run_task())
    assert [each.stage for each in found.values()] == ["decompress", ""]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_large_file_is_read_by_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(source, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(task, "FILE_BUFFER_BYTES", 1 << 20)
    world = harness(tmp_path)
    world.put("a.xlsx", saved([["id", "note"], *([n, f"t{n}"] for n in range(40_000))]))
    report = world.run_task(threads=threads)
    lines = {each["_source_line"]: each["id"] for each in world.rows(report)}
    assert lines == {n + 2: n for n in range(40_000)}


def test_new_columns_are_reported_with_their_values(tmp_path: Path) -> None:
    world = harness(tmp_path, evolves=True)
    world.put("a.xlsx", saved(ROWS))
    [found] = world.run_task().unexpected
    assert (found.name, list(found.values)) == ("more", ['"x"'])


def test_records_are_read_again_by_their_number(tmp_path: Path) -> None:
    data = saved(ROWS)
    (tmp_path / "a.xlsx").write_bytes(data)
    storage = LocalStorage(str(tmp_path))
    found = read_records(storage, JobFile("a.xlsx", len(data)), [1, 2, 3, 5, 99], EXPANSION, EXCEL)
    assert list(found) == [2, 5]
    assert found[5].raw == b'{"id": 3, "note": {"error": "#DIV/0!"}}'


def test_a_sample_shows_types(tmp_path: Path) -> None:
    rows = ["id", "code", "day", "when", "ok", "price"], [
        1, "007", DAY, dt.datetime(2024, 5, 6, 12), True, 1.5,  # noqa: DTZ001  # cells have no zone
    ]  # fmt: skip
    (tmp_path / "a.xlsx").write_bytes(saved([rows[0], [], rows[1]]))
    assert inferred(tmp_path, EXCEL) == {
        "id": "int64", "code": "string", "day": "date", "when": "timestamp", "ok": "boolean",
        "price": "float64",
    }  # fmt: skip


def inferred(root: Path, form: ExcelOptions) -> dict[str, str]:
    """Return the types of the columns that the files show."""
    inference = Inference(Rules())
    for path in sorted(root.glob("*.xlsx")):
        entry = Entry(path.name, path.stat().st_size, 0.0)
        add_sample(inference, LocalStorage(str(root)), entry, 1 << 20, form)
    return {field.name: field.type for field in inference.result().fields}


NOON = dt.datetime(2024, 5, 6, 12)  # noqa: DTZ001  # cells have no zone


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([DAY, None, "#DIV/0!"], "date"),
        ([DAY, NOON], "timestamp"),
        ([DAY, "none"], "date"),
        ([DAY, "x"], "string"),
        ([DAY, 5], "string"),
        ([dt.time(7, 8)], "string"),
        ([dt.timedelta(hours=36)], "string"),
        ([NOON, dt.time(7, 8)], "string"),
        ([None, "none"], "string"),
        ([5, "none"], "int64"),
    ],
    ids=str,
)
@pytest.mark.parametrize("parts", [False, True], ids=["one file", "a file each"])
def test_a_column_of_dates_is_inferred_as_one(
    tmp_path: Path, cells: list[Any], kind: str, *, parts: bool
) -> None:
    form = ExcelOptions(type="excel", null_value=["none"])
    rows = [[at, cell] for at, cell in enumerate(cells)]
    files = [[row] for row in rows] if parts else [rows]
    for number, content in enumerate(files):
        (tmp_path / f"{number}.xlsx").write_bytes(saved([["id", "c"], *content]))
    assert inferred(tmp_path, form)["c"] == kind


def test_the_configuration_of_the_page_reads_a_workbook(tmp_path: Path) -> None:
    page = Path("docs/reference/formats.md").read_text()
    [block] = [
        part.partition("```")[0] for part in page.split("```yaml\n")[1:] if "type: excel" in part
    ]
    form = block.partition("format: ")[2].strip()
    (tmp_path / "c.yaml").write_text(
        f"pipelines:\n  p:\n    sink: {{table_uri: {tmp_path}/t}}\n    schema:\n"
        "      fields: [{name: id, type: int64}]\n    sources:\n      s:\n"
        f"        source_uri: {tmp_path}/s\n        format: {form}\n"
    )
    pipeline = load_config(tmp_path / "c.yaml").pipelines["p"]
    settings = ingest_settings(pipeline, pipeline.sources["s"])
    assert settings.format.type == "excel"
    world = harness(tmp_path, format=settings.format, fields=specs(id="int64"))
    world.put(
        "a.xlsx",
        bytes(
            Written(row() * 2 + named("id") + row("<c><v>5</v></c>"), sheets=[("Orders", "hidden")])
        ),
    )
    assert [each["id"] for each in world.rows(world.run_task())] == [5]


@pytest.mark.parametrize("attempt", [0, 1, 2])
@pytest.mark.parametrize("choice", ["quarantine_file", "fail"])
def test_a_failure_names_the_row_of_the_sheet(tmp_path: Path, choice: str, attempt: int) -> None:
    world = harness(tmp_path, on_bad_record=choice)
    world.put("a.xlsx", saved([["id"], [1], [], ["x"], [2]]))
    assert by_path(world.run_task(attempt=attempt))["a.xlsx"].error.startswith("line 4: ")
