"""The writer of a state file: its identity, its liveness, and take-overs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from blizzard_core.checkpoint import writer_identity
from blizzard_core.checkpoint.fenced_writer import FencedFile, writer_of
from blizzard_core.checkpoint.writer_identity import (
    Process,
    Writer,
    allow_takeover,
    is_running,
    process_key,
    refuse_if_running,
    this_process,
)
from blizzard_core.errors import FencedError, NotFound
from tests.support.memory_store import MemoryStorage
from tests.support.scenario import Scenario

CHECKPOINT = "_blizzard/events_main_checkpoint.json"
PATH = "_blizzard/x.json"
ELSEWHERE = Process("pod-7", 1, 1_700_000_000.0, "another-boot/4026531836/1/99")


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is told to end."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def writer_at(pid: int) -> Writer:
    return Writer("ab", 3, Process("here", pid, 1_700_000_000.0, process_key(pid)))


def test_a_file_names_the_process_that_writes_it() -> None:
    storage = MemoryStorage()
    FencedFile(storage, PATH).take(lambda document, _where: document, dict)
    found = writer_of(json.loads(storage.read(PATH)), "x")
    assert found.process == this_process()
    assert this_process().pid == os.getpid()
    assert str(found) == (
        f"writer {found.id}, epoch 1 (host {this_process().host}, pid {os.getpid()}, started"
        f" {str(found).rpartition('started ')[2]}"
    )
    assert str(Writer("ab", 3)) == "writer ab, epoch 3"
    assert "(host pod-7, pid 1, started 2023-11-14T22:13:20Z)" in str(Writer("a", 1, ELSEWHERE))


def test_a_process_says_when_it_began() -> None:
    command = (
        "from blizzard_core.checkpoint.writer_identity import this_process as p; print(p().started)"
    )
    before = time.time()
    told = subprocess.check_output([sys.executable, "-c", command], text=True)
    # The kernel counts hundredths of a second; clocks may be put right in between.
    assert before - 1 < float(told) < time.time() + 1


def test_threads_see_the_same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    both, starts = threading.Barrier(2), itertools.count()

    def started() -> float:
        both.wait(30)
        return next(starts)

    monkeypatch.setattr(writer_identity, "_PROCESSES", {})
    monkeypatch.setattr(writer_identity, "_started", started)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: this_process(), range(2))
    assert one == other == this_process()


def test_a_process_of_this_machine_is_seen_to_run_and_to_end(
    other: subprocess.Popen[bytes],
) -> None:
    writer = writer_at(other.pid)
    assert is_running(writer) is True
    other.send_signal(signal.SIGSTOP)  # it may go on at any moment
    assert is_running(writer) is True
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has asked
    assert is_running(writer) is False
    other.communicate()
    assert is_running(writer) is False


def test_another_process_under_the_same_pid_is_another(other: subprocess.Popen[bytes]) -> None:
    writer = writer_at(other.pid)
    earlier = replace(writer.process, key=f"{writer.process.key}0")
    assert is_running(replace(writer, process=earlier)) is False


def test_of_a_process_elsewhere_nothing_is_known(tmp_path: Path) -> None:
    assert is_running(Writer("ab", 3, ELSEWHERE)) is None
    assert is_running(Writer("ab", 3)) is None
    assert is_running(Writer("ab", 3, replace(ELSEWHERE, key=""))) is None
    assert is_running(Writer("ab", 3, this_process())) is False  # its own earlier work
    # A kernel that tells nothing.
    assert process_key(os.getpid(), tmp_path) == ""
    assert is_running(writer_at(1), tmp_path) is None


def admitted(writer: Writer, *, person: bool) -> str:
    try:
        refuse_if_running(person=person)(writer)
    except FencedError as error:
        return str(error)
    return ""


@pytest.mark.promise("G-024")
def test_take_over_is_refused_for_running_or_unknown_writers(
    other: subprocess.Popen[bytes],
) -> None:
    running, unknown, nameless = writer_at(other.pid), Writer("ab", 3, ELSEWHERE), Writer("ab", 3)
    for person in (True, False):
        assert "is running; stop it, or take over with --take-over" in admitted(
            running, person=person
        )
        assert admitted(nameless, person=person) == ""
    assert "nobody can see whether it still does" in admitted(unknown, person=True)
    assert admitted(unknown, person=False) == ""
    other.kill()
    other.communicate()
    assert admitted(running, person=True) == ""
    allow_takeover(unknown)


def test_refused_writer_changes_nothing_and_names_the_file(
    other: subprocess.Popen[bytes],
) -> None:
    storage = MemoryStorage()
    document = {"a": 1, "writer": asdict(writer_at(other.pid))}
    storage.put_atomic(PATH, json.dumps(document).encode())
    before = dict(storage.objects)
    refused = FencedFile(storage, PATH, refuse_if_running(person=False))
    for _ in range(2):
        with pytest.raises(FencedError, match=r"x\.json: writer ab, epoch 3 .*--take-over"):
            refused.take(lambda document, _where: document, dict)
    assert storage.objects == before
    other.kill()
    other.communicate()
    assert refused.take(lambda document, _where: document, dict) is not None
    # Who has it needs no admission any more.
    refused.take(lambda document, _where: document, dict)


def wait_for_writer(scenario: Scenario, daemon: subprocess.Popen[str]) -> None:
    """Until the checkpoint names the daemon."""
    pause = threading.Event()
    for _ in range(600):
        assert daemon.poll() is None
        if pid_in_checkpoint(scenario) == daemon.pid:
            return
        pause.wait(0.1)
    pytest.fail("it did not take the checkpoint over within a minute")


def pid_in_checkpoint(scenario: Scenario) -> int | None:
    with contextlib.suppress(NotFound):
        found = writer_of(json.loads(scenario.table.read(CHECKPOINT)), CHECKPOINT)
        return None if found is None or found.process is None else found.process.pid
    return None


@pytest.mark.promise("G-024")
def test_a_second_daemon_needs_take_over_to_replace_the_first(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    config = str(scenario.config)
    first = scenario.start("blizzard", "run", config)
    try:
        wait_for_writer(scenario, first)
        second = scenario.call("blizzard", "run", config, "--once")
        assert second.returncode == 3
        assert f"pid {first.pid}, started" in second.stderr
        assert "take over with --take-over" in second.stderr
        assert pid_in_checkpoint(scenario) == first.pid
        third = scenario.start("blizzard", "run", config, "--take-over")
        wait_for_writer(scenario, third)
        third.terminate()
        third.communicate(timeout=60)
        # The first is told as soon as it has something to do.
        scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
        _, err = first.communicate(timeout=60)
    finally:
        first.kill()
        first.communicate()
    assert first.returncode == 3
    assert f"pid {third.pid}, started" in err
