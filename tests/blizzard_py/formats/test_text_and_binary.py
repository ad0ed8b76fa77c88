"""Text and binary files: rows, numbers, letters, replay, limits, and their settings."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from blizzard_core.errors import ConfigError
from blizzard_core.limits import EXPANSION, WHOLE_FILE_BYTES
from blizzard_core.settings.formats import BinaryFileOptions, TextFileOptions
from blizzard_core.settings.load import load_config
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats import text
from blizzard_py.formats.binary import BinaryFormat
from blizzard_py.formats.protocol import BadLine
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.formats.text import TextFormat
from blizzard_py.job import JobFile, PartitionRule, RowSchema
from blizzard_py.kernels import task
from blizzard_py.lines.framing import Piece, RefusedRecord, framed
from blizzard_py.sources.files.lines import read_records
from blizzard_py.sources.files.sampling import first_records
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.scenario import Scenario

VALUE = specs(value="string")
FILES = specs(path="string", modification_time="timestamp", length="int64", content="binary")
BINARY = BinaryFileOptions(type="binary")
MARK = b"\xef\xbb\xbf"


def options(**given: Any) -> TextFileOptions:
    return TextFileOptions.model_validate({"type": "text", **given})


def texts(root: Path, form: TextFileOptions | None = None, **given: Any) -> IngestJobHarness:
    given = {"fields": VALUE, "metadata": ("_source_file", "_source_line"), **given}
    return IngestJobHarness(root, format=form or options(), **given)


def files(root: Path, **given: Any) -> IngestJobHarness:
    return IngestJobHarness(root, format=BINARY, **{"fields": FILES, **given})


def rows_of(world: IngestJobHarness, report: Any) -> list[tuple[str, int, str]]:
    return sorted(
        (row["_source_file"].rpartition("/")[2], row["_source_line"], row["value"])
        for row in world.rows(report)
    )


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("size", [0, 1 << 20])
def test_each_line_is_a_row_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int, size: int
) -> None:
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", size)
    world = texts(tmp_path)
    content = MARK + b"one\r\n\ntwo\rtwo\n\xff bad\n  five {\n\xc3\xa4"
    world.put("a.log", content)
    world.put("b.log", gzip.compress(b"x\n"))
    world.put("c.log", b"")
    report = world.run_task(attempt=attempt)
    assert rows_of(world, report) == [
        ("a.log", 1, "one"), ("a.log", 2, ""), ("a.log", 3, "two\rtwo"), ("a.log", 5, "  five {"),
        ("a.log", 6, "ä"), ("b.log", 1, "x"),
    ]  # fmt: skip
    [letter] = world.letters(report)
    assert (letter["line"], letter["error"]) == (4, "not valid UTF-8")
    assert content[letter["offset"] :].startswith(b"\xff bad\n")
    assert letter["length"] == 5
    assert by_path(report)["c.log"].outcome == "ingested"


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_file_is_a_row(tmp_path: Path, attempt: int) -> None:
    world = texts(tmp_path, options(whole_text=True), max_bad_fraction=1.0)
    world.put("a.txt", MARK + b"one\r\ntwo\n")
    world.put("b.txt", b"")
    world.put("c.txt", b"bad \xff\n")
    world.put("d.txt", gzip.compress(b"d"))
    report = world.run_task(attempt=attempt)
    assert rows_of(world, report) == [
        ("a.txt", 1, "one\r\ntwo\n"), ("b.txt", 1, ""), ("d.txt", 1, "d"),
    ]  # fmt: skip
    [letter] = world.letters(report)
    assert (letter["line"], letter["offset"], letter["length"]) == (1, 0, 6)


def test_lines_end_with_another_character(tmp_path: Path) -> None:
    world = texts(tmp_path, options(line_sep=";"))
    world.put("a.txt", b"a\n\r;b;;c")
    assert rows_of(world, world.run_task()) == [
        ("a.txt", 1, "a\n\r"), ("a.txt", 2, "b"), ("a.txt", 3, ""), ("a.txt", 4, "c"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "lines"),
    [(b"a\nb\r", ["a", "b\r"]), (b"\r", ["\r"]), (b"a\r\n", ["a"]), (b"a\rb", ["a\rb"])],
)
@pytest.mark.parametrize("attempt", [0, 1])
def test_a_lone_return_is_text(
    tmp_path: Path, content: bytes, lines: list[str], attempt: int
) -> None:
    world = texts(tmp_path)
    world.put("a.log", content)
    world.put("b.log", b"c\n\xff\r")
    report = world.run_task(attempt=attempt)
    assert [text for path, _, text in rows_of(world, report) if path == "a.log"] == lines
    [letter] = world.letters(report)
    assert (letter["line"], letter["length"]) == (2, 2)


@pytest.mark.parametrize("end", [b"\n", b";"])
def test_lines_do_not_depend_on_blocks(end: bytes) -> None:
    lines = [b"a" * 60, b"", b"b" * 7, b"c" * 60, b"d"]
    data = MARK + end.join(lines)
    for size in range(len(MARK), 15):
        blocks = [data[at : at + size] for at in range(0, len(data), size)]
        found = list(framed(blocks, 10, 25, end=end))
        refused = [item for item in found if isinstance(item, RefusedRecord)]
        assert [(item.offset, item.length) for item in refused] == [(3, 60), (73, 60)]
        whole = b"".join(item.data for item in found if isinstance(item, Piece))
        assert whole == end.join([b"", b"b" * 7, b"d", b""])


def test_pieces_have_a_limited_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "CHUNK_CELLS", 3 * 16)
    (tmp_path / "a.log").write_bytes(MARK + b"a\n" * 7 + b"\xff\n")
    form = TextFormat(options())
    with SourceFile(LocalStorage(str(tmp_path)), JobFile("a.log", 19)) as file:
        pieces = [item for item in form.pieces(file, RowSchema(VALUE)) if isinstance(item, Piece)]
    assert [(piece.offset, piece.lines) for piece in pieces] == [(3, 3), (9, 3), (15, 2)]
    decoder = form.decoder(RowSchema(VALUE), tolerant=True, fast=False)
    first, rest = decoder.halves(pieces[2]) or (None, None)
    assert (first.data, rest.data, rest.offset) == (b"a\n", b"\xff\n", 17)
    assert decoder.halves(rest) is None
    assert decoder.decode(first).table.to_pylist() == [{"value": "a"}]
    with pytest.raises(BadLine, match="UTF-8"):
        form.decoder(RowSchema(VALUE), tolerant=False, fast=False).decode(pieces[2])


def test_utf_16_is_refused(tmp_path: Path) -> None:
    world = texts(tmp_path)
    world.put("a.txt", "a\nb\n".encode("utf-16"))
    found = by_path(world.run_task())["a.txt"]
    assert (found.outcome, found.stage) == ("quarantined", "parse")
    assert "store the file as UTF-8" in found.error


@pytest.mark.parametrize("whole", [False, True])
def test_letters_of_text_come_again_as_the_same_rows(tmp_path: Path, whole: bool) -> None:
    form = options(whole_text=whole)
    kept = ["plain", MARK.decode() + "marked", "ends with \r", "BZh91AY&SY is no codec"]
    contents = TextFormat(form).replay_contents(
        [DeadLetter("u", "", "", "", line=n, raw=line.encode()) for n, line in enumerate(kept, 1)]
    )
    world = texts(tmp_path, form)
    for number, content in enumerate(contents):
        world.put(f"{number}.txt", content)
    assert [value for _, _, value in rows_of(world, world.run_task())] == kept


def test_lines_are_read_again_by_their_number(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\r\n\xfftwo\n")
    found = read_records(
        LocalStorage(str(tmp_path)), JobFile("a.log", 10), [1, 2, 9], EXPANSION, options()
    )
    assert {number: record.raw for number, record in found.items()} == {1: b"one", 2: b"\xfftwo"}


@pytest.mark.parametrize("attempt", [0, 1])
def test_each_file_is_a_row_with_its_bytes(tmp_path: Path, attempt: int) -> None:
    world = files(tmp_path)
    packed = gzip.compress(b"stays packed")
    world.put("d=1/a.png", b"\x89PNG\0\xff")
    world.put("b.gz", packed)
    world.put("c", b"")
    for name, seconds in (("d=1/a.png", 1.25), ("b.gz", 1_700_000_000.5), ("c", 3)):
        os.utime(world.source / name, (0, seconds))
    report = world.run_task(attempt=attempt)
    found = {row.pop("path"): row for row in world.rows(report)}

    def time(seconds: float) -> dt.datetime:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)

    root = world.source
    assert found == {
        f"{root}/d=1/a.png": {
            "modification_time": time(1.25), "length": 6, "content": b"\x89PNG\0\xff",
        },
        f"{root}/b.gz": {
            "modification_time": time(1_700_000_000.5), "length": len(packed), "content": packed,
        },
        f"{root}/c": {"modification_time": time(3), "length": 0, "content": b""},
    }  # fmt: skip


def test_content_that_is_not_declared_is_not_read(tmp_path: Path) -> None:
    world = files(tmp_path, fields=specs(path="string", length="int64"))
    world.put("a.bin", b"")
    os.truncate(world.source / "a.bin", WHOLE_FILE_BYTES + 1)
    report = world.run_task()
    [row] = world.rows(report)
    assert row == {"path": f"{world.source}/a.bin", "length": WHOLE_FILE_BYTES + 1}
    assert by_path(report)["a.bin"].bytes_read == 0


@pytest.mark.parametrize("form", [BINARY, options(whole_text=True)], ids=["binary", "text"])
def test_a_file_above_the_limit_of_a_row_is_quarantined(
    tmp_path: Path, form: BinaryFileOptions | TextFileOptions
) -> None:
    world = files(tmp_path) if form is BINARY else texts(tmp_path, options(whole_text=True))
    world.put("a", b"")
    os.truncate(world.source / "a", WHOLE_FILE_BYTES + 1)
    world.put("b", b"x")
    report = world.run_task()
    found = by_path(report)
    assert (found["a"].outcome, found["a"].stage) == ("quarantined", "parse")
    assert "67,108,864" in found["a"].error
    assert ("content" if form is BINARY else "whole_text: false") in found["a"].error
    assert len(world.rows(report)) == 1


def test_a_file_without_a_directory_is_quarantined(tmp_path: Path) -> None:
    world = files(tmp_path, rules=(PartitionRule("path", key="path"),), max_bad_fraction=0.1)
    world.put("n" * 200, b"x")
    found = by_path(world.run_task())["n" * 200]
    assert (found.outcome, found.bad_rows) == ("quarantined", 0)


@pytest.mark.parametrize("size", [3, 600_000])
def test_a_letter_of_a_file_comes_again_as_its_row(tmp_path: Path, size: int) -> None:
    rules = (PartitionRule("path", key="path"),)
    world = files(tmp_path, rules=rules, max_bad_fraction=1.0)
    name, content = "n" * 200, os.urandom(size)
    world.put(name, content)
    report = world.run_task()
    [document], [letter] = world.letters(report), world.dead_letters(report)
    assert document["truncated"] == (size > 3)
    again = read_records(
        LocalStorage(str(world.source)), JobFile(name, size), [1], EXPANSION, BINARY
    )
    assert again[1].raw.startswith(letter.raw)
    letter = replace(letter, raw=again[1].raw, header=again[1].header)
    form = BinaryFormat(BINARY)
    [data] = form.replay_contents([letter])
    replay = IngestJobHarness(tmp_path / "again", FILES, format=form.replay_settings())
    replay.put("a.ndjson", data)
    [row] = replay.rows(replay.run_task())
    assert (row["content"], row["length"]) == (content, size)
    assert row["path"].endswith(name)
    assert row["modification_time"].timestamp() == pytest.approx(
        (world.source / name).stat().st_mtime, abs=1e-6
    )
    assert json.loads(data.splitlines()[1])["path"] == row["path"]


@pytest.mark.parametrize("form", [BINARY, options()], ids=["binary", "text"])
def test_there_is_nothing_to_infer(
    tmp_path: Path, form: BinaryFileOptions | TextFileOptions
) -> None:
    (tmp_path / "a").write_bytes(b"x\n")
    assert first_records(LocalStorage(str(tmp_path)), Entry("a", 2, 0.0), 1000, form).lines == []


@pytest.mark.parametrize("form", ["text", "binary"])
def test_a_glob_is_required(form: str) -> None:
    with pytest.raises(ValidationError, match="needs include"):
        SourceSettings(source_uri="/raw", format=form)
    assert SourceSettings(source_uri="/raw", format=form, include=("**/*.log",))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"line_sep": "\r\n"}, "must be one ASCII character"),
        ({"line_sep": "é"}, "must be one ASCII character"),
        ({"line_sep": ";", "whole_text": True}, "does not go with whole_text"),
        ({"wholetext": True}, "wholetext is whole_text here"),
        ({"lineSep": ";"}, "lineSep is line_sep here"),
        ({"encoding": "latin-1"}, "store the files as UTF-8"),
    ],
)
def test_options_that_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        options(**given)


@pytest.mark.parametrize(
    ("form", "schema", "reason"),
    [
        ("text", {"fields": [{"name": "id", "type": "int64"}]},
         r"field 'id' of type int64 is no column of format: text; it has value \(string\)\. Make"),
        ("text", {"fields": [{"name": "value", "type": "int64"}]}, "field 'value' of type int64"),
        ("text", {"infer": True}, r"not needed for format: text; declare in schema.fields: value"),
        ("binary", {"fields": [{"name": "path", "type": "string"},
                               {"name": "modification_time", "type": "timestamp", "unit": "s"}]},
         "field 'modification_time'.*it has path .string., modification_time .timestamp., length"),
    ],
)  # fmt: skip
def test_columns_that_no_file_has_are_refused(
    tmp_path: Path, form: str, schema: dict[str, Any], reason: str
) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.main_source.update({"format": form, "include": ["**"]})
    pipeline = scenario.document["pipelines"]["events"]
    pipeline["schema"] = {"fields": [{"name": "value", "type": "string"}]}
    scenario.write_config()
    if form == "text":
        load_config(scenario.config)
    pipeline["schema"] = schema
    scenario.write_config()
    with pytest.raises(ConfigError, match=reason):
        load_config(scenario.config)
