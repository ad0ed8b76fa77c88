"""One process that runs commands of both programs one after the other, for a shell.

A command in a process of its own imports for a second, and its JVM begins with cold classes. A
document with twenty commands is about what they do together. What a process of its own adds
(signals, exit codes, the JVM's end) is tested by `test_readme` and in ``tests/promise``.

``python -m tests.support.command_process DESCRIPTOR`` serves on an open socket. `write_program`
makes a command of the shell that hands over its arguments, folder, environment and open files, and
ends with its exit code.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
from tests.support.scenario import ROOT

_PROGRAMS = {"blizzard": blizzard, "penguin": penguin}
# Isolated and without the site: it starts in ten milliseconds.
_CLIENT = """\
#!{python} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect({place!r})
    socket.send_fds(server, [b"+"], [1, 2])
    server.sendall(json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    code = server.recv(3)
sys.exit(int(code) if code else "the process of the commands has ended")
"""


@contextmanager
def command_process(environment: dict[str, str]) -> Iterator[Path]:
    """Yield the socket of a process that runs commands; it ends with the block."""
    # The path of a socket has to be short.
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        place = Path(folder, "commands")
        listener.bind(str(place))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_process", str(listener.fileno())],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
        try:
            yield place
        finally:
            process.kill()
            process.wait()


def write_program(path: Path, name: str, place: Path) -> None:
    """Write the command ``name`` of a shell, to be run by the process at the socket."""
    path.write_text(_CLIENT.format(python=sys.executable, place=str(place), name=name))
    path.chmod(0o755)


def serve(listener: socket.socket) -> None:
    """Run commands until the process is ended."""
    while True:
        with listener.accept()[0] as client:
            _, (out, log), _, _ = socket.recv_fds(client, 1, 2)
            with client.makefile("rb") as request:
                name, arguments, folder, environment = json.load(request)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            # Not as the numbers of the process: its JVM would keep a pipe of the shell open. What
            # logs later than its command keeps the second.
            sys.stderr = open(log, "w", buffering=1, encoding="utf-8")  # noqa: PTH123, SIM115  # a number
            with open(out, "w", encoding="utf-8") as sys.stdout:  # noqa: PTH123  # a number
                code = _run(name, arguments)
            client.sendall(str(code).encode())


def _run(name: str, arguments: list[str]) -> int:
    try:
        _PROGRAMS[name](arguments, prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
