"""Needs of a batch on this machine, checked before the first one."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main
from blizzard_py.app import machine

NO_JAVA = {"PATH": "/nowhere", "JAVA_HOME": ""}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(**more: Any) -> Path:
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / "raw" / "1.ndjson").write_text('{"id": 1}\n')
        sink = {"table_uri": str(tmp_path / "lake"), **more.pop("sink", {})}
        pipeline = {
            "sources": {"main": {"source_uri": str(tmp_path / "raw")}},
            "sink": sink,
            "schema": {"fields": [{"name": "id", "type": "int64"}]},
        }
        path = tmp_path / "config.yaml"
        path.write_text(json.dumps({"pipelines": {"events": pipeline}, **more}))
        return path

    return write


def config(path: Path) -> Config:
    return load_config(path)


def results(path: Path, environment: dict[str, str]) -> dict[str, tuple[str, str]]:
    found = machine.check_machine(config(path), environment)
    return {each.check: (each.result, each.text) for each in found}


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words, env=NO_JAVA)


@pytest.mark.parametrize("command", [("run", "--once"), ("run",), ("up",)])
def test_without_java_nothing_begins(write: Write, command: tuple[str, ...]) -> None:
    path = write()
    done = call(command[0], str(path), *command[1:])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: there is no Java: JAVA_HOME is not set, and PATH (/now")
    assert len(done.stderr.splitlines()) == 1
    assert not (path.parent / "lake").exists()


def test_demo_without_java_copies_nothing(tmp_path: Path) -> None:
    done = call("demo", str(tmp_path / "demo"))
    assert done.exit_code == 2
    assert "there is no Java" in done.stderr
    assert not (tmp_path / "demo").exists()


def test_validate_and_doctor_name_a_missing_java(write: Write) -> None:
    path = str(write())
    done = call("validate", path)
    assert done.exit_code == 0  # the configuration may be for another machine
    assert "note: there is no Java" in done.stderr
    done = call("doctor", path)
    assert done.exit_code == 2
    assert "failed  this machine: java: there is no Java" in done.stdout
    assert "tables: the columns of 1 pipeline fit" in done.stdout


def test_doctor_names_packages_that_are_missing(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    path = write(sink={"table_uri": "abfss://lake@account.dfs.core.windows.net/events"})
    done = CliRunner().invoke(main, ["doctor", str(path)])
    assert done.exit_code == 2
    assert "packages: pipelines.events.sink.table_uri: Azure storage needs adlfs" in done.stdout
    assert done.stdout.count("pip install 'blizzard-penguin[azure]'") == 2


def test_a_machine_is_described(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_limit_bytes", lambda: 64 * 10**9)
    found = results(write(spark={"master": "local[2]"}), {})
    assert found["memory"] == ("ok", "64.0 GB, and 2.3 GB are planned for local[2]")
    found = results(write(spark={"master": "local[2, 3]"}), {})
    assert found["memory"] == ("ok", "64.0 GB, and 2.3 GB are planned for local[2, 3]")
    assert found["disk"][1].endswith(f" GB free in {tempfile.gettempdir()}")


def test_machines_without_affinity_count_all_cores(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(machine, "_limit_bytes", lambda: 64 * 10**9)
    found = results(write(spark={"master": "local[*]"}), {})
    assert found["memory"] == ("ok", "64.0 GB, and 4.1 GB are planned for local[*]")


def test_little_memory_is_a_note(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_limit_bytes", lambda: 2 * 10**9)
    spark = {"master": "local[4]", "conf": {"spark.driver.memory": "2g"}}
    result, text = results(write(spark=spark), {})["memory"]
    assert result == "note"
    assert text.startswith("2.0 GB, and 3.9 GB are planned for local[4]; raise the limit, or lower")


def test_a_full_disk_is_a_note(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Usage:
        free = 5 * 10**8

    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _folder: Usage)
    path = write(sink={"sort_by": ["id"]})
    result, text = results(path, {"SPARK_LOCAL_DIRS": str(tmp_path)})["disk"]
    assert result == "note"
    assert text.startswith(f"0.5 GB free in {tmp_path}, and 1.1 GB may be needed; ")
    assert text.endswith("set SPARK_LOCAL_DIRS to a larger disk")


def test_a_temporary_folder_that_is_gone_fails(write: Write) -> None:
    result, text = results(write(), {"SPARK_LOCAL_DIRS": "/no/such"})["disk"]
    assert result == "failed"
    assert "/no/such: No such file or directory" in text


def test_a_start_costs_no_process_and_little_time(write: Write) -> None:
    path = config(write())
    machine.check_at_start(path)  # imports
    began = time.process_time()
    machine.check_at_start(path)
    assert time.process_time() - began < 0.05
