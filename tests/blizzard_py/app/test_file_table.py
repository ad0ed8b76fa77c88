"""``blizzard files``: outcomes as a table, and the view of the journals that duckdb has."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main
from blizzard_py.app import file_table
from tests.support.scenario import ROOT, Scenario, ndjson

PATH = "date=2024-01-01/{}.ndjson.gz"
COLUMNS = [
    "pipeline", "source", "path", "outcome", "rows", "bad_rows", "size", "modified", "seen",
    "finished", "batch", "attempt", "stage", "error", "request",
]  # fmt: skip


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("files")
    scenario = Scenario(folder, str(folder))
    scenario.put_rows(PATH.format(1), 1, 2, 3)
    good = [{"id": number, "text": "x"} for number in range(30)]
    scenario.put(PATH.format(2), ndjson(*good, {"id": "no", "text": "y"}))
    scenario.ingest()
    scenario.put(PATH.format(3), b"no gzip")
    scenario.ingest()
    return scenario


def printed(scenario: Scenario, *options: str) -> str:
    done = CliRunner().invoke(main, ["files", str(scenario.config), *options])
    assert done.exit_code == 0, done.output
    return done.output


def rows(path: Path) -> list[dict[str, Any]]:
    relation = duckdb.connect().execute(
        "SELECT * REPLACE (epoch(modified) AS modified, epoch(seen) AS seen,"
        " epoch(finished) AS finished) FROM read_parquet($1) ORDER BY path",
        [str(path)],
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in relation.fetchall()]


def test_parquet_has_a_row_for_each_item(scenario: Scenario, tmp_path: Path) -> None:
    target = tmp_path / "files.parquet"
    assert printed(scenario, "--to", str(target)) == f"3 rows in {target}\n"
    assert [*tmp_path.iterdir()] == [target]
    one, two, three = rows(target)
    assert [each["path"] for each in (one, two, three)] == [PATH.format(n) for n in (1, 2, 3)]
    assert [each["outcome"] for each in (one, two, three)] == [
        "ingested", "ingested", "quarantined",
    ]  # fmt: skip
    assert (one["rows"], two["rows"], two["bad_rows"]) == (3, 30, 1)
    assert three["stage"] == "parse"
    assert three["error"]
    stored = (Path(scenario.place) / "raw" / PATH.format(1)).stat()
    assert (one["size"], one["modified"]) == (stored.st_size, pytest.approx(stored.st_mtime))
    assert one["modified"] <= one["seen"] <= one["finished"]
    assert one["batch"] == two["batch"] != three["batch"]


def test_rows_go_to_the_file_some_at_a_time(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_table, "_TOGETHER", 2)
    found = file_table.rows_of(load_config(scenario.config), [("events", "main")], None)
    assert file_table.write_parquet(found, tmp_path / "some.parquet") == 3
    assert len(rows(tmp_path / "some.parquet")) == 3


def test_without_a_file_outcomes_are_counted(scenario: Scenario) -> None:
    found = json.loads(printed(scenario, "--json"))["outcomes"]
    assert [(each["outcome"], each["items"], each["rows"]) for each in found] == [
        ("ingested", 2, 33),
        ("quarantined", 1, 0),
    ]
    text = printed(scenario)
    assert re.search(r"events/main +ingested +2 +33 +1 ", text)


def test_since_leaves_earlier_batches_out(scenario: Scenario) -> None:
    assert json.loads(printed(scenario, "--json", "--since", "2099-01-01"))["outcomes"] == []
    assert json.loads(printed(scenario, "--json", "--since", "2001-01-01T00:00:00Z"))["outcomes"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--since", "yesterday"], "no time"),
        (["--to", "/no/such/folder/x.parquet"], "cannot be written"),
        (["--source", "other"], "other"),
    ],
)
def test_what_cannot_be_is_said(scenario: Scenario, options: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["files", str(scenario.config), *options])
    assert done.exit_code == 2
    assert says in done.output


def journal_of(scenario: Scenario) -> tuple[Path, dict[str, Any]]:
    path = min(Path(scenario.place).glob("lake/events/_blizzard/journal/*/*.json"))
    return path, json.loads(path.read_bytes())


@pytest.mark.parametrize(
    ("key", "value"),
    [("rows", 2**63), ("size", -(2**70)), ("modified", 1e300), ("modified", -1e18)],
)
def test_a_number_out_of_range_is_named(
    scenario: Scenario, tmp_path: Path, key: str, value: float
) -> None:
    path, document = journal_of(scenario)
    whole = path.read_bytes()
    document["files"][0][key] = value
    path.write_text(json.dumps(document))
    try:
        for options in ([], ["--to", str(tmp_path / "x.parquet")]):
            done = CliRunner().invoke(main, ["files", str(scenario.config), *options])
            assert done.exit_code == 1
            assert f"{path.name}: {key} of {PATH.format(1)} is out of range" in done.output
    finally:
        path.write_bytes(whole)
    assert not [*tmp_path.iterdir()]


def test_undecodable_bytes_and_old_times_are_written(scenario: Scenario, tmp_path: Path) -> None:
    path, document = journal_of(scenario)
    whole = path.read_bytes()
    document["files"][0] |= {"path": "a\udcff", "error": "of b\udcff", "modified": -86400.0}
    path.write_bytes(json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    try:
        printed(scenario, "--to", str(tmp_path / "x.parquet"))
    finally:
        path.write_bytes(whole)
    found = next(row for row in rows(tmp_path / "x.parquet") if row["path"] == r"a\udcff")
    assert (found["error"], found["modified"]) == (r"of b\udcff", -86400.0)


def test_only_plain_files_are_replaced(scenario: Scenario, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link.parquet"
    os.mkfifo(pipe)
    link.symlink_to("real.parquet")
    for target in (str(pipe), ""):
        done = CliRunner().invoke(main, ["files", str(scenario.config), "--to", target])
        assert done.exit_code == 2
        assert "is not a plain file" in done.output
    assert pipe.is_fifo()
    printed(scenario, "--to", str(link))
    assert link.is_symlink()
    assert len(rows(tmp_path / "real.parquet")) == 3


def test_the_documented_view_reads_the_journals(scenario: Scenario, tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/state.md").read_text()
    [view] = re.findall(r"```sql\n(CREATE VIEW files.*?)```", page, re.DOTALL)
    connection = duckdb.connect()
    connection.execute(view.replace("s3://lake/events", f"{scenario.place}/lake/events"))
    told = connection.execute("SELECT path, outcome, rows, bad_rows, batch FROM files").fetchall()
    target = tmp_path / "files.parquet"
    printed(scenario, "--to", str(target))
    names = ("path", "outcome", "rows", "bad_rows", "batch")
    assert sorted(told) == [tuple(row[name] for name in names) for row in rows(target)]
