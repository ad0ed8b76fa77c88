"""Temporary files of a killed process are removed by the next one, those of a living one never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blizzard_py.engines.spark import gateway, session
from blizzard_py.engines.spark.scratch import Scratch

CHILD = """
import sys, signal
from pathlib import Path
from blizzard_py.engines.spark.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.path / "shuffle").mkdir()
print(scratch.path, flush=True)
signal.pause()
"""


def test_jvm_option_files_exist_only_during_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def launched(_conf: None, _options: dict[str, Any]) -> object:
        told.extend(path.name for path in tmp_path.glob("*/*"))
        return object()

    monkeypatch.setattr(gateway.SparkContext, "_gateway", None)
    monkeypatch.setattr(gateway, "launch_gateway", launched)
    gateway.open_gateway({}, tmp_path)
    assert sorted(told) == ["jvm.options", "log4j2.properties", "spark.properties"]
    assert not list(tmp_path.iterdir())


def test_scratch_removes_only_folders_of_dead_processes(tmp_path: Path) -> None:
    unrelated = tmp_path / "blizzard-other"
    unrelated.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        left = Path(child.stdout.readline().strip())
        first = Scratch(tmp_path)
        assert (left / "shuffle").is_dir()
        os.kill(child.pid, signal.SIGKILL)
    second = Scratch(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([unrelated, first.path, second.path])
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == [unrelated]


def test_scratch_ignores_folders_of_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of millions of files would hold up every start."""
    theirs = tmp_path / "blizzard-spark-theirs"
    theirs.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
    Scratch(tmp_path).close()
    assert theirs.is_dir()
    monkeypatch.undo()
    Scratch(tmp_path).close()
    assert not theirs.exists()


def test_directories_of_the_environment_hold_own_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the image and under systemd `SPARK_LOCAL_DIRS` outlives a killed process."""
    places = session._places  # noqa: SLF001  # a start of Spark would cost seconds
    session._own_local_dirs.cache_clear()  # noqa: SLF001  # as in a new process
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, folders)))
    try:
        for _ in range(2):  # an idle Spark is started again
            places("local[1]", {})
            own = [Path(each) for each in os.environ["SPARK_LOCAL_DIRS"].split(",")]
            assert [each.parent for each in own] == folders
            assert all(each.is_dir() and each.name.startswith("blizzard-spark-") for each in own)
        session._own_local_dirs.cache_clear()  # noqa: SLF001  # as above
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
        places("local[1]", {})
        assert os.environ["SPARK_LOCAL_DIRS"] == str(tmp_path / "gone")  # Spark says what is wrong
    finally:
        session._own_local_dirs.cache_clear()  # noqa: SLF001  # as above
