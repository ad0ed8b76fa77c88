"""Letters of CSV and XML tables: `replay` brings their records again in their own format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from blizzard_core.settings.formats import CsvOptions, LetterOptions
from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main as blizzard
from blizzard_py.formats.letters.header import ROWS, header_text, text_header
from tests.support.direct_engine import DirectEngine
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.lake_pipelines import poll

pytestmark = pytest.mark.promise("G-004")

DATA = {
    "csv": b'ID;at\n1;1\n2;"2\n3;3\n',
    "xml": b'<rows xmlns:a="b"><row><id>1</id><at>1</at></row>'
    b"<row>\n<a:x/><id>2</id><id>4</id><at>2</at></row><row><id>3</id><at>3</at></row></rows>",
}
RAW = {"csv": '2;"2', "xml": "<row>\n<a:x/><id>2</id><id>4</id><at>2</at></row>"}
FORMATS: dict[str, dict[str, Any]] = {
    "csv": {"type": "csv", "delimiter": ";"},
    "xml": {"type": "xml", "row_tag": "row"},
}


class World:
    """A pipeline over a folder, and its commands."""

    def __init__(self, folder: Path, driver: str) -> None:
        self._folder = folder
        self._driver = driver
        self.fields = {"id": "string", "at": "string"}
        self.format = FORMATS[driver]
        (folder / "in").mkdir()
        self.put("a", DATA[driver])

    def put(self, name: str, data: bytes) -> None:
        (self._folder / "in" / f"{name}.{self._driver}").write_bytes(data)

    def poll(self) -> None:
        poll(load_config(self._configuration()))

    def replay(self) -> None:
        place = ("--pipeline", "p", "--source", "s", "--all")
        done = CliRunner().invoke(blizzard, ["replay", str(self._configuration()), *place])
        assert isinstance(done.exception, SystemExit | None), done.exception

    def _configuration(self) -> Path:
        config = {
            "connections": {"lake": {"driver": self._driver, "uri": str(self._folder)}},
            "pipelines": {
                "p": {
                    "sources": {
                        "s": {
                            "kind": "table",
                            "connection": "lake",
                            "table": "in",
                            "watermark": {"columns": ["at"]},
                            "format": self.format,
                        }
                    },
                    "sink": {"table_uri": str(self._folder / "table")},
                    "schema": {
                        "fields": [
                            {"name": name, "type": kind} for name, kind in self.fields.items()
                        ]
                    },
                }
            },
        }
        path = self._folder / "blizzard.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def rows(self) -> list[str]:
        files = (self._folder / "table").glob("*.parquet")
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return sorted(str(row["id"]) for row in rows)

    def letters(self) -> list[tuple[str, str]]:
        folder = self._folder / "table" / "_blizzard" / "dlq" / "p_s"
        lines = [line for path in folder.glob("*.ndjson") for line in path.read_text().splitlines()]
        found = map(json.loads, lines)
        return [(each["raw"], each.get("header", "")) for each in found]


def _without_quotes(world: World) -> None:
    world.format = {**world.format, "quote": ""}


def _of_any_json(world: World) -> None:
    world.fields = {**world.fields, "id": "json"}


MENDED = {"csv": (_without_quotes, "2"), "xml": (_of_any_json, '["2","4"]')}


@pytest.mark.parametrize("driver", DATA)
def test_a_record_comes_again_in_its_own_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    world = World(tmp_path, driver)
    world.poll()
    assert world.rows() == ["1", "3"]
    letters = world.letters()
    assert [raw for raw, _ in letters] == [RAW[driver]]
    world.replay()
    assert (world.rows(), world.letters()) == (["1", "3"], letters)
    change, name = MENDED[driver]
    change(world)
    world.replay()
    assert (world.rows(), world.letters()) == (sorted(["1", "3", name]), [])


def test_a_file_without_the_watermark_has_no_record_to_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    world = World(tmp_path, "csv")
    world.put("b", b"id,at\n5,5\n")
    world.poll()
    rows, letters = world.rows(), sorted(world.letters())
    assert [raw.startswith("csv row, no row is read") for raw, _ in letters] == [False, True]
    world.replay()
    assert (world.rows(), sorted(world.letters())) == (rows, letters)


def test_letters_of_another_format_are_refused(tmp_path: Path) -> None:
    form = LetterOptions(of=CsvOptions(type="csv"), of_table=True)
    world = IngestJobHarness(tmp_path, specs(id="string"), format=form)
    world.put("rows", header_text(ROWS, {"columns": {"id": "string"}}) + b'\n{"id": "1"}\n')
    world.put("lines", b'{"id": "2"}')
    world.put("text", text_header(b"id") + b"\nid\n4,5\n3\n")
    report = world.run_task()
    assert {row["id"] for row in world.rows(report)} == {"2", "3"}
    assert "of another format" in by_path(report)["rows"].error
    [letter] = world.dead_letters(report)
    assert (letter.raw, letter.header) == (b"4,5", text_header(b"id"))
