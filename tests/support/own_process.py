"""A server in a process of its own that ends with the tests, whatever ends them.

Database servers refuse to run as root, so root starts them as another user. They outlive a
killed parent, so a shell stands between: it reads from a pipe that closes even on a kill, and
then tells the server to end. It ends with its server.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_WATCHED = """
signal=$1; shift
exec 3<&0
"$@" 3<&- & server=$!
{ cat <&3 >/dev/null; kill -$signal $server; } & watch=$!
wait $server; ended=$?
kill $watch 2>/dev/null
exit $ended
"""
# Below those that Linux gives out by itself, where each process of a run begins somewhere else.
_FIRST_PORT, _PORTS, _APART = 20_000, 12_000, 101
_ports = itertools.count(os.getpid() * _APART)


def unprivileged() -> int | None:
    """Return the user to start a server as; None: the current one."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "mysql", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise RuntimeError("there is no user but root to start a server as")


def run_as_user(command: Sequence[str], where: Path) -> None:
    """Run to the end as that user. Raises `RuntimeError` with what it wrote if it fails."""
    done = subprocess.run(
        command, user=unprivileged(), cwd=where, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")


def start_as_user(
    command: Sequence[str], where: Path, log: Path, signal: str
) -> subprocess.Popen[bytes]:
    """Start as that user; closing its standard input sends it ``signal``, which has to end it.

    What it writes goes to ``log``.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            ["sh", "-c", _WATCHED, "sh", signal, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            user=unprivileged(),
            cwd=where,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End what `start_as_user` started, and wait for it."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=60)


@contextmanager
def own_folder(name: str) -> Iterator[Path]:
    """Yield a folder of that user, with a path short enough for a socket in it."""
    place = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        user = unprivileged()
        if user is not None:
            os.chown(place, user, -1)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def free_port() -> int:
    """Return a free port of the loopback address that the system hands out to nobody else.

    A port that the system chose would be chosen again, for somebody else, before it is bound here.
    """
    for number in _ports:
        port = _FIRST_PORT + number % _PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is always another number")


def program(name: str, *folders: str) -> str:
    """Its path: of ``PATH``, or of the newest of the folders' patterns that holds it."""
    found = shutil.which(name)
    if found is not None:
        return found
    places = [place for pattern in folders for place in Path("/").glob(pattern.lstrip("/"))]
    for place in sorted(places, reverse=True):
        if (place / name).exists():
            return str(place / name)
    raise FileNotFoundError(f"{name} is missing; `make setup-dev` installs it")
