"""CSV files through whole tasks: rows, letters, groups of small files, and second attempts."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.limits import EXPANSION
from blizzard_core.settings.formats import CsvOptions
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.csv.files import CsvFormat
from blizzard_py.job import JobFile, PartitionRule
from blizzard_py.kernels import task
from blizzard_py.sources.files.lines import read_records
from blizzard_py.sources.files.sampling import first_records
from blizzard_py.state.record_names import record_file, stem_of
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs

FIELDS = specs(id="int64", note="string")
ODD = b'id,note\n1,"two\nlines"\nx,bad\n3,"open\n4,\n'


def options(**given: Any) -> CsvOptions:
    return CsvOptions.model_validate({"type": "csv", **given})


def harness(root: Path, form: CsvOptions | None = None, **given: Any) -> IngestJobHarness:
    given = {"fields": FIELDS, "metadata": ("_source_file", "_source_line"), **given}
    return IngestJobHarness(root, format=form or options(), **given)


def rows_of(world: IngestJobHarness, report: Any) -> list[tuple[Any, ...]]:
    found = [
        (row["_source_file"][-5:], row["_source_line"], row["id"]) for row in world.rows(report)
    ]
    return sorted(found)


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("size", [0, 1 << 20])
def test_rows_and_letters_have_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int, size: int
) -> None:
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", size)
    world = harness(tmp_path)
    world.put("a.csv", ODD)
    world.put("b.csv", b"id,note\n5,x\n\n6,y\n")
    world.put("c.csv", b"note,id\nz,7\n")
    world.put("d.csv", gzip.compress(b"other,id\n,8\n"))
    report = world.run_task(attempt=attempt)
    assert rows_of(world, report) == [
        ("a.csv", 2, 1), ("a.csv", 6, 4), ("b.csv", 2, 5), ("b.csv", 4, 6), ("c.csv", 2, 7),
        ("d.csv", 2, 8),
    ]  # fmt: skip
    assert by_path(report)["a.csv"].bad_rows == 2
    bad, opened = world.letters(report)
    assert (bad["line"], bad["raw"], bad["header"]) == (4, "x,bad", "id,note")
    assert (opened["line"], opened["raw"], opened["header"]) == (5, '3,"open', "id,note")
    for letter in (bad, opened):
        assert ODD[letter["offset"] :].startswith(letter["raw"].encode())
        assert letter["length"] == len(letter["raw"])
    assert {field.name for field in report.unexpected} == {"other"}


def test_letters_come_again_as_the_rows_of_a_mended_file(tmp_path: Path) -> None:
    world = harness(tmp_path, options(date_format="%d.%m.%Y"), fields=specs(id="int64", d="date"))
    world.put("a.csv", b"id,d\n1,31.12.2024\n2,2025-01-01\n")
    [letter] = world.letters(world.run_task())
    form = CsvFormat(options(date_format=["%d.%m.%Y", "%Y-%m-%d"]))
    [content] = form.replay_contents([_letter(letter)])
    again = harness(tmp_path / "again", form.replay_settings(), fields=specs(id="int64", d="date"))
    again.put("a.csv", content)
    assert [row["id"] for row in again.rows(again.run_task())] == [2]


@pytest.mark.parametrize(
    ("data", "given"),
    [
        (b"id,note\n1,x\\", {"escape": "\\"}),
        (b'id,note\n1,"\\', {"escape": "\\"}),
        (b'id,note\n1,\\\n2,"open\n3,x\n', {"escape": "\\"}),
        (b'id,note\n1,"open\nx,2\n', {}),
        (b"7,x\n\xef\xbb\xbf1,a\n\xef\xbb\xbf2,b\n", {"header": False}),
        (b"7,x\n\xff\xfe,a\n", {"header": False}),
        (b"7,x\n\x28\xb5\x2f\xfd,a\n", {"header": False}),
        (b"7,x\nPK\3\4,a\n", {"header": False}),
    ],
)
def test_letters_are_the_same_when_nothing_has_changed(
    tmp_path: Path, data: bytes, given: dict[str, Any]
) -> None:
    world = harness(tmp_path, options(**given))
    world.put("a.csv", data)
    letters = world.dead_letters(world.run_task())
    assert letters
    form = CsvFormat(options(**given))
    found = []
    for number, content in enumerate(form.replay_contents(letters)):
        again = harness(tmp_path / str(number), form.replay_settings())
        again.put("a.csv", content)
        report = again.run_task()
        assert (by_path(report)["a.csv"].outcome, again.rows(report)) == ("ingested", [])
        found += again.dead_letters(report)
    texts = [[(each.error, each.raw, each.header) for each in some] for some in (letters, found)]
    assert sorted(texts[0]) == sorted(texts[1])


@pytest.mark.parametrize("name", ["d=1/a.tsv", f"d=1/{'n' * 200}.tsv.part-0001", "b.csv"])
def test_files_of_records_have_the_delimiter_of_their_file(name: str) -> None:
    delimiter = "," if name == "b.csv" else "\t"
    raw = f"x{delimiter}1".encode()
    for _ in range(2):  # bad records of a file of records come again as well
        letter = DeadLetter(f"s3://raw/{name}", "", "parse", "", line=1, raw=raw, header=b"")
        form = CsvFormat(options(header=False))
        [content] = form.replay_contents([letter])
        name = record_file(stem_of(name), "0190a0a0-0000-7000-8000-000000000000", 0)
        assert form.options.delimiter_of(name) == delimiter
        assert content == b"\xef\xbb\xbf" + raw + b"\n"
        name = f"//records/{name}"


def _letter(document: dict[str, Any]) -> DeadLetter:
    return DeadLetter(
        document["path"], document["error"], document["stage"], document["timestamp"],
        line=document["line"], raw=document["raw"].encode(), header=document["header"].encode(),
    )  # fmt: skip


def test_a_row_without_a_directory_is_a_letter_of_its_record(tmp_path: Path) -> None:
    world = harness(tmp_path, rules=(PartitionRule("note", key="note"),))
    long = b"n" * 300
    world.put("a.csv", b"id,note\n1,x\n2," + long + b"\n3,y\n")
    report = world.run_task()
    assert sorted(row["id"] for row in world.rows(report)) == [1, 3]
    [letter] = world.letters(report)
    assert (letter["line"], letter["stage"], letter["raw"]) == (
        3,
        "partition",
        "2," + long.decode(),
    )


def test_a_file_with_too_many_bad_records_is_quarantined_alone(tmp_path: Path) -> None:
    world = harness(tmp_path, max_bad_fraction=0.5)
    world.put("a.csv", b"id,note\n" + b"x,y\n" * 3 + b"1,z\n")
    world.put("b.csv", b"id,note\n2,z\n")
    world.put("c.csv", b"no,column\n2,z\n")
    found = by_path(world.run_task())
    assert {path: file.outcome for path, file in found.items()} == {
        "a.csv": "quarantined", "b.csv": "ingested", "c.csv": "quarantined",
    }  # fmt: skip
    assert "has none of the columns of schema.fields: no, column" in found["c.csv"].error


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_new_columns_are_reported_with_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", size)
    world = harness(tmp_path, evolves=True)
    world.put("a.csv", b'id,note,extra\n1,"m\nn",7\n2,y,8\n')
    world.put("b.csv", b"id,note,extra\n3,z,9\n")
    [field] = world.run_task().unexpected
    assert (field.name, field.path) == ("extra", "a.csv")
    assert field.values[0] == "7"


def test_a_large_file_is_the_same_by_threads(tmp_path: Path) -> None:
    world = harness(tmp_path)
    records = b"".join(b'%d,"text ""%d""\n more"\n' % (n, n) for n in range(200_000))
    world.put("a.csv", b"id,note\n" + records)
    report = world.run_task(threads=3)
    lines = {row["_source_line"]: row["id"] for row in world.rows(report)}
    assert lines == {2 * n + 2: n for n in range(200_000)}


def test_records_are_read_again_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(ODD)
    found = read_records(
        LocalStorage(str(tmp_path)), JobFile("a.csv", len(ODD)), [2, 3, 4, 5, 6, 99], EXPANSION,
        options(),
    )  # fmt: skip
    assert {number: record.raw for number, record in found.items()} == {
        2: b'1,"two\nlines"', 4: b"x,bad", 5: b'3,"open', 6: b"4,",
    }  # fmt: skip
    assert {record.header for record in found.values()} == {ODD.partition(b"\n")[0]}


def test_a_sample_shows_records_as_json(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,note,ok\n1,x,true\n007,,false\n")
    entry = Entry("a.csv", 40, 0.0)
    lines = first_records(LocalStorage(str(tmp_path)), entry, 1000, options()).lines
    assert lines == [
        b'{"id":1,"note":"x","ok":true}', b'{"id":"007","note":null,"ok":false}',
    ]  # fmt: skip


@pytest.mark.parametrize("attempt", [0, 1, 2])
@pytest.mark.parametrize("choice", ["quarantine_file", "fail"])
@pytest.mark.parametrize(
    ("content", "skip", "line"),
    [
        (b"id,note\n1,a\nx,b\n", 0, 3),
        (b"id,note\n1,a\n\n\nx,b\n", 0, 5),
        (b"t\n\nid,note\n1,a\nx,b\n", 2, 5),
        (b'id,note\n1,"a\nb"\n2,c\nx,b\n', 0, 5),
    ],
)
def test_a_failure_names_the_line_of_the_file(
    tmp_path: Path, content: bytes, skip: int, line: int, choice: str, attempt: int
) -> None:
    world = harness(tmp_path, options(skip_rows=skip), on_bad_record=choice)
    world.put("a.csv", content)
    assert by_path(world.run_task(attempt=attempt))["a.csv"].error.startswith(f"line {line}: ")
