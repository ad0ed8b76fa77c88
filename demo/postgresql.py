"""A PostgreSQL server for the demo: in one folder, on a free port, deleted with the demo.

It refuses to run as root, so root starts it as another user. A shell stands between, which
reads from a pipe and ends the server when that closes: also where the demo is killed.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc  # type: ignore[import-untyped]  # ships no types

from blizzard_py.demo.stage import DemoFailedError

_WATCHED = '"$@" & server=$!; cat >/dev/null; kill -INT $server; wait $server'
_START_SECS = 60


@dataclass(frozen=True, slots=True)
class Server:
    """Port of a server, and the password of its superuser and of the role ``reader``."""

    port: int
    password: str = field(repr=False)

    def session(self, database: str = "shop", *, autocommit: bool = True) -> adbc.Connection:
        """Open a superuser's session; the caller closes it."""
        uri = f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"
        return adbc.connect(uri, autocommit=autocommit)

    def execute(self, *statements: str, database: str = "shop") -> None:
        """Run each and commit it."""
        with self.session(database) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def row(self, statement: str) -> tuple[Any, ...]:
        """Return the first row of the answer."""
        with self.session() as session, session.cursor() as cursor:
            cursor.execute(statement)
            found: tuple[Any, ...] = cursor.fetchone()
            return found


@contextmanager
def running() -> Iterator[Server]:
    """Make a server, start it, stop and remove it at the end. Raises `DemoFailedError`."""
    # Not below the demo's folder, which the server's user may not be able to enter.
    place = Path(tempfile.mkdtemp(prefix="demo-pg-"))
    try:
        user = _user()
        if user is not None:
            os.chown(place, user, -1)
        server = Server(_free_port(), secrets.token_hex(16))
        _make_cluster(place, user, server.password)
        with _started(place, user, server):
            yield server
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _make_cluster(place: Path, user: int | None, password: str) -> None:
    secret = place / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    if user is not None:
        os.chown(secret, user, -1)
    command = [
        _program("initdb"), "-D", str(place / "data"), "-U", "postgres", "--no-sync", "-E", "UTF8",
        "--locale=C.UTF-8", "--auth=scram-sha-256", f"--pwfile={secret}",
    ]  # fmt: skip
    done = subprocess.run(
        command, user=user, cwd=place, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoFailedError(f"initdb failed: {done.stdout}{done.stderr}")


@contextmanager
def _started(place: Path, user: int | None, server: Server) -> Iterator[None]:
    log = place / "log"
    command: Sequence[str] = (
        _program("postgres"), "-D", str(place / "data"), "-p", str(server.port),
        "-k", "", "-h", "127.0.0.1", "-c", "shared_buffers=32MB",
    )  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", _WATCHED, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            user=user,
            cwd=place,
            # Ctrl-C ends the demo, which then ends the server, after those who still use it.
            start_new_session=True,
        )
    try:
        _wait_for(server, process, log)
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)


def _wait_for(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECS
    while True:
        try:
            server.execute("SELECT 1", database="postgres")
        except adbc.Error:
            if process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-2000:]
                raise DemoFailedError(f"PostgreSQL does not start: {tail}") from None
            time.sleep(0.05)  # it says nowhere else that it takes connections
        else:
            return


def _user() -> int | None:
    """Return the user to start the server as; None: the current one."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise DemoFailedError("there is no user but root to start PostgreSQL as")


def _program(name: str) -> str:
    """Its path: of ``PATH``, or where Debian's package keeps the newest."""
    found = shutil.which(name)
    if found is not None:
        return found
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not places:
        raise DemoFailedError(f"{name} is missing; `make setup-dev` installs it")
    return str(places[-1])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
