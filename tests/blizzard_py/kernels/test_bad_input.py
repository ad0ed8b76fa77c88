"""Bad input, one by one: an error that names the file, and no loss of anything else."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]  # ships no types
import pytest
import zstandard
from click.testing import CliRunner

from blizzard_core.errors import StateError
from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.workers import build
from penguin_py.__main__ import main as penguin
from tests.support.direct_engine import DirectEngine
from tests.support.s3_server import S3Server, s3_server
from tests.support.scenario import Scenario, ndjson

DAY = "date=2024-01-01"
GOOD = ndjson({"id": 1, "text": "a"}, {"id": 2, "text": "b"})

# name -> (content, stage, part of the error)
BAD_FILES: dict[str, tuple[bytes, str, str]] = {
    "corrupt.json.gz": (GOOD[:14] + b"\x00\xff\x00" + GOOD[17:], "decompress", ""),
    "half.json.gz": (
        ndjson(*({"id": n, "text": "x" * n} for n in range(500)))[:900],
        "decompress",
        "",
    ),
    "not-gzip.json.gz": (b"\x1f\x8b\x08 and no more", "decompress", ""),
    "zero-bytes.json.gz": (b"", "decompress", ""),
    "half.json.zst": (zstandard.compress(b'{"id": 1}\n' * 9999)[:-9], "decompress", ""),
    "not-json.json": (b'{"id": 10}\n{"id": 11}\n{"id": \n', "parse", "line 3"),
    "wrong-type.json": (b'{"id": 12}\n{"id": "thirteen"}\n', "parse", "line 2"),
    "missing.json": (b'{"text": "no id"}\n', "parse", "line 1"),
    "no-object.json": (b'{"id": 14}\nnull\n', "parse", "line 2"),
    "not-utf8.json": (b'{"id": 15, "text": "\xff\xfe"}\n', "parse", "line 1"),
}


def letters(scenario: Scenario, *, records: bool = False) -> dict[str, dict[str, Any]]:
    """Dead letters (of files, or of ``records``) by file name."""
    found = {}
    for page in scenario.table.list_range("_blizzard/dlq/", "_blizzard/dlq0"):
        for entry in page.entries:
            if entry.path.endswith(".records.ndjson") is not records:
                continue
            for line in scenario.table.read(entry.path).decode().splitlines():
                letter = json.loads(line)
                found[letter["path"].rpartition("/")[2]] = letter
    return found


@pytest.mark.promise("G-099")
def test_unreadable_files_are_dead_letters_and_block_nothing(tmp_path: Path) -> None:
    """The real processes on every kind of bad file at once, between good ones."""
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put(f"{DAY}/a-first.json.gz", GOOD)
    scenario.put(f"{DAY}/empty.json.gz", gzip.compress(b""))
    scenario.put(f"{DAY}/empty.json", b"")
    for name, (content, _, _) in BAD_FILES.items():
        scenario.put(f"{DAY}/{name}", content)
    scenario.put("no-partition.json", b'{"id": 16}\n')
    scenario.put(f"{DAY}/one-record.json", b'{"id": 4}\n{"id": 5}\n' * 5 + b"{\n")
    scenario.put(f"{DAY}/z-last.json", b'{"id": 3}\n')
    done = scenario.run("blizzard", "run", str(scenario.config), "--once")
    scenario.commit()
    assert scenario.ids() == [1, 2, 3, *[4] * 5, *[5] * 5]
    [record] = letters(scenario, records=True).values()
    assert record["path"] == f"{scenario.source.uri}/{DAY}/one-record.json"
    assert (record["line"], record["offset"], record["raw"]) == (11, 100, "{")
    assert "records_quarantined" in done.stderr
    found = letters(scenario)
    assert set(found) == {*BAD_FILES, "no-partition.json"}
    for name, (_, stage, message) in BAD_FILES.items():
        letter = found[name]
        assert set(letter) == {"path", "error", "stage", "timestamp", "retry_count"}
        assert (letter["stage"], letter["retry_count"]) == (stage, 0), letter
        assert message in letter["error"], letter
        assert letter["path"] == f"{scenario.source.uri}/{DAY}/{name}"
        assert f"{DAY}/{name}" in done.stderr  # the log names it as well
    assert found["no-partition.json"]["stage"] == "partition"
    totals = scenario.status("blizzard")["pipelines"]["events"]["sources"]["main"]["totals"]
    assert (totals["files"], totals["quarantined"]) == (5, 11)
    assert (totals["rows"], totals["bad_rows"]) == (13, 1)
    told = CliRunner().invoke(blizzard, ["explain", str(scenario.config), record["path"]]).stdout
    assert "10 rows in batch" in told
    assert "1 bad record in" in told


@pytest.mark.promise("G-189")
def test_keys_with_special_characters_are_ingested_once(tmp_path: Path, s3: S3Server) -> None:
    """Finding 15: s3fs cut keys at ``?versionId=`` and read another object twice."""
    scenario = Scenario(tmp_path, str(tmp_path))
    uri = f"s3://{s3.new_bucket()}/raw"
    scenario.main_source.update(source_uri=uri, storage_options=s3.options)
    scenario.write_config()
    source = open_storage(uri, s3.options)
    names = [
        "a.json",
        "a.json?versionId=1.json",
        "/a.json",
        " a.json",
        "a%2Fa.json",
        "a#a.json",
        "a+a.json",
        "a\ra.json",
    ]
    for number, name in enumerate(names):
        source.put_atomic(f"{DAY}/{name}", b'{"id": %d}\n' % number)
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == list(range(len(names)))
    assert letters(scenario) == {}


def test_an_unwritable_sink_loses_nothing(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put(f"{DAY}/1.json.gz", GOOD)
    (tmp_path / "lake").write_text("a file where the table's directory should be")
    [worker] = build(load_config(scenario.config), DirectEngine())
    with pytest.raises(Exception, match="lake/events") as caught:
        worker.cycle(threading.Event())
    assert not isinstance(caught.value, StateError)
    (tmp_path / "lake").unlink()
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2]


@pytest.fixture
def strict_s3() -> Iterator[S3Server]:
    """An S3 API that checks credentials after the first request, which makes the bucket."""
    with s3_server(INITIAL_NO_AUTH_ACTION_COUNT="1") as server:
        yield server


@pytest.mark.promise("G-186")
def test_wrong_credentials_are_denied_and_not_shown(tmp_path: Path, strict_s3: S3Server) -> None:
    bucket = strict_s3.new_bucket()
    options = {**strict_s3.options, "AWS_SECRET_ACCESS_KEY": "geheim-und-falsch"}
    scenario = Scenario(tmp_path, f"s3://{bucket}/base", options)
    for program in (blizzard, penguin):
        for command in (["run", "--once"], ["plan"]):
            done = CliRunner().invoke(program, [command[0], str(scenario.config), *command[1:]])
            assert done.exit_code == 1, done.stderr
            assert f"s3://{bucket}/base" in done.stderr
            assert "geheim" not in done.stderr + done.stdout
            assert "Traceback" not in done.stderr
            assert "access denied" in done.stderr.lower() or "InvalidAccessKeyId" in done.stderr


def test_the_strict_server_lets_no_one_in(strict_s3: S3Server) -> None:
    """Guards the test above: with the check off it would prove nothing."""
    bucket = strict_s3.new_bucket()
    client = boto3.client(
        "s3",
        endpoint_url=strict_s3.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="x",
        region_name="us-east-1",
    )
    with pytest.raises(client.exceptions.ClientError):
        client.list_objects_v2(Bucket=bucket)
    client.close()
