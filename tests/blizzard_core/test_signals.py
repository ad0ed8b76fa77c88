"""Signals of a supervisor and of a person."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from blizzard_core.signals import INTERRUPTED, stop_on_signals

# Does not end when it is told to: something hangs.
STUBBORN = """
import threading
from blizzard_core.signals import stop_on_signals
stop = threading.Event()
with stop_on_signals(stop, 20):
    print("ready", flush=True)
    while not stop.wait(0.1):
        pass
    print("told", flush=True)
    while True:
        threading.Event().wait(0.1)
"""


# Stays when the program has ended: a terminal whose first process goes forgets what it shows.
SHELL = """trap : INT; "$0" -c "$1"; echo "ended with $? itself"; cat"""


@contextmanager
def terminal() -> Iterator[int]:
    """The program in a shell with a terminal of its own: the keyboard's end of that."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["sh", "-c", SHELL, sys.executable, STUBBORN],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # noqa: PLW1509  # its terminal from now on
    )  # fmt: skip
    os.close(theirs)
    try:
        yield ours
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        os.close(ours)


def shown_until(keyboard: int, text: str) -> str:
    """Return the terminal's output up to a text."""
    shown = ""
    while text not in shown:
        shown += os.read(keyboard, 4096).decode()
    return shown


class Locked:
    """An object that is set under a lock, as a `threading.Event` is."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = threading.Event()

    def set(self) -> None:
        with self.lock:
            self.done.set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_stop_lock_does_not_deadlock(number: int) -> None:
    stop = Locked()
    with stop_on_signals(stop, 20):
        with stop.lock:  # the handler runs in here
            signal.raise_signal(number)
        assert stop.done.wait(60)


def test_ctrl_c_answers_at_once_and_the_second_one_ends() -> None:
    with terminal() as keyboard:
        shown_until(keyboard, "ready")
        os.write(keyboard, b"\x03")
        shown = shown_until(keyboard, "told")
        assert "may finish within 20 seconds. Press Ctrl-C again to end at once" in shown
        os.write(keyboard, b"\x03")
        shown = shown_until(keyboard, " itself")
        assert "ended at once" in shown
        assert f"ended with {INTERRUPTED} itself" in shown
    assert INTERRUPTED == 130


def test_a_supervisor_that_repeats_itself_ends_nothing_early() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "told\n"
        process.terminate()
        for _ in range(60):  # two that come at once are one
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
                break
        assert process.returncode == INTERRUPTED
    finally:
        process.kill()
        _, err = process.communicate()
    assert err == ""  # nobody looks


def test_signals_set_the_event_and_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    for number in (signal.SIGTERM, signal.SIGINT):
        stop = threading.Event()
        with stop_on_signals(stop, 1):
            os.kill(os.getpid(), number)
            assert stop.wait(60)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
