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

from blizzard_core.errors import EngineError, StateError
from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_py.app.wiring import build
from blizzard_py.job import IngestJob, IngestResult
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


def test_files_that_cannot_be_read_are_dead_letters_and_block_nothing(tmp_path: Path) -> None:
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
    told = scenario.run("blizzard", "explain", str(scenario.config), record["path"]).stdout
    assert "10 rows in batch" in told
    assert "1 bad record in" in told


class Meddling(DirectEngine):
    """Something happens between listing and reading."""

    def __init__(self, meddle: Any) -> None:
        super().__init__()
        self.meddle = meddle

    def ingest(self, job: IngestJob) -> IngestResult:
        self.meddle()
        return super().ingest(job)


def test_a_file_deleted_between_listing_and_reading(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put(f"{DAY}/1.json.gz", GOOD)
    scenario.put_rows(f"{DAY}/2.json.gz", 3)
    engine = Meddling(lambda: scenario.source.delete(f"{DAY}/1.json.gz"))
    [worker] = build(load_config(scenario.config), engine)
    while worker.cycle(threading.Event()):
        pass
    scenario.commit()
    assert scenario.ids() == [3]
    letter = letters(scenario)["1.json.gz"]
    assert letter["stage"] == "read"


def test_keys_that_clients_take_apart_are_ingested_once_each(tmp_path: Path, s3: S3Server) -> None:
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


def test_an_unreadable_checkpoint_stops_the_daemon_and_is_left_alone(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put(f"{DAY}/1.json.gz", GOOD)
    path = "_blizzard/events_main_checkpoint.json"
    scenario.table.put_atomic(path, b'{"schema_version": 1, "waterm')
    for command in (["run", "--once"], ["plan"], ["status"]):
        done = scenario.call("blizzard", command[0], str(scenario.config), *command[1:])
        assert done.returncode == 1
        assert f"{scenario.table.uri}/{path}: is not valid JSON" in done.stderr
    assert scenario.table.read(path) == b'{"schema_version": 1, "waterm'


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


def test_a_sink_that_fails_in_the_middle_of_a_job_loses_nothing(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put(f"{DAY}/1.json.gz", GOOD)
    staging = tmp_path / "lake/events/_blizzard/staging"
    engine = Meddling(lambda: staging.write_text("in the way"))
    [worker] = build(load_config(scenario.config), engine)
    with pytest.raises(EngineError, match="staging"):
        worker.cycle(threading.Event())
    staging.unlink()
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2]


def test_a_parquet_file_that_is_none_blocks_nothing(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put(f"{DAY}/1.json.gz", GOOD)
    scenario.ingest()
    scenario.table.put_atomic(f"{DAY}/00000000-junk.parquet", b"this is not Parquet at all")
    done = scenario.run("penguin", "run", str(scenario.config), "--once")
    assert scenario.ids() == [1, 2]
    assert f"{DAY}/00000000-junk.parquet" in done.stderr
    line = json.loads(scenario.table.read("_penguin/events_quarantine.ndjson"))
    assert line["path"].endswith(f"{DAY}/00000000-junk.parquet")


def test_missing_places_are_named(tmp_path: Path, s3: S3Server) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.main_source.update(source_uri="s3://no-such-bucket/raw", storage_options=s3.options)
    scenario.write_config()
    done = scenario.call("blizzard", "run", str(scenario.config), "--once")
    assert done.returncode == 1
    assert "s3://no-such-bucket/raw" in done.stderr
    assert "the bucket does not exist" in done.stderr
    scenario.main_source.update(source_uri=str(tmp_path / "nowhere"), storage_options={})
    scenario.write_config()
    done = scenario.call("blizzard", "plan", str(scenario.config))
    assert done.returncode == 1
    assert f"{tmp_path}/nowhere: no such directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def strict_s3() -> Iterator[S3Server]:
    """An S3 API that checks credentials after the first request, which makes the bucket."""
    with s3_server(INITIAL_NO_AUTH_ACTION_COUNT="1") as server:
        yield server


def test_wrong_credentials_are_denied_and_not_shown(tmp_path: Path, strict_s3: S3Server) -> None:
    bucket = strict_s3.new_bucket()
    options = {**strict_s3.options, "AWS_SECRET_ACCESS_KEY": "geheim-und-falsch"}
    scenario = Scenario(tmp_path, f"s3://{bucket}/base", options)
    for program in ("blizzard", "penguin"):
        for command in (["run", "--once"], ["plan"]):
            done = scenario.call(program, command[0], str(scenario.config), *command[1:])
            assert done.returncode == 1, done.stderr
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
