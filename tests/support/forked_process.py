"""Processes of the commands that begin as forks of one that has imported everything.

A new interpreter imports for more than a second before a command begins. A fork has its own
process id, signals, files and end, and can be killed as any other process.

``python -m tests.support.forked_process DESCRIPTOR`` takes commands from an open socket.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
_REQUEST_BYTES = 1 << 20
_templates: list[_Template] = []


def call_forked(
    module: str, arguments: Sequence[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module`` in a fork, with these variables besides this process's."""
    template = _templates.pop() if _templates else _Template()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            code = template.run([module, *arguments], os.environ | environment, (out, err))
        except BaseException:
            template.end()
            raise
        _templates.append(template)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode())
    return subprocess.CompletedProcess([module, *arguments], code, *texts)


class _Template:
    """The process that forks."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(
        self, command: list[str], environment: Mapping[str, str], files: Sequence[IO[bytes]]
    ) -> int:
        """Return the exit code of a command that writes to the files."""
        request = json.dumps([command, dict(environment)]).encode()
        socket.send_fds(self._socket, [request], [file.fileno() for file in files])
        return int(self._socket.recv(_REQUEST_BYTES))

    def end(self) -> None:
        """End it and whatever runs in its forks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._socket.close()


@atexit.register
def _end() -> None:
    while _templates:
        _templates.pop().end()


def serve(requests: socket.socket) -> None:
    """Fork for each command, one after the other; end with who asks."""
    while True:
        request, files, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 2)
        if not request:
            return
        child = os.fork()
        if not child:
            requests.close()
            _become(files, *json.loads(request))
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        requests.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(files: list[int], command: list[str], environment: dict[str, str]) -> None:
    """Be the command's process from here on; ends as an interpreter ends."""
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # that of these variables
    sys.argv = command
    # What is run is not imported yet, as in an interpreter of its own.
    for name in (f"{command[0]}.__main__", command[0]):
        if not hasattr(sys.modules.get(name), "__path__"):
            sys.modules.pop(name, None)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    for each in ("blizzard_py.app.workers", "penguin_py.app", "tests.support.dying_main"):
        importlib.import_module(each)
    serve(socket.socket(fileno=int(sys.argv[1])))
