"""PostgreSQL for real, in a folder of its own on a loopback port, stopped at the end."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_postgresql.dbapi as adbc  # type: ignore[import-untyped]  # ships no types

from tests.support.own_process import (
    end,
    free_port,
    own_folder,
    program,
    run_as_user,
    start_as_user,
)

_BINARIES = "/usr/lib/postgresql/*/bin"
PASSWORD = "open sesame/@:%"  # every character that a URI has to escape


@dataclass
class PostgresqlServer:
    place: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def uri(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        secret = quote(password or PASSWORD, safe="")
        return f"postgresql://{user}:{secret}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        command = [
            program("postgres", _BINARIES), "-D", str(self.place / "data"),
            "-p", str(self.port), "-k", str(self.place), "-h", "127.0.0.1",
            "-c", "fsync=off", "-c", "max_prepared_transactions=4", "-c", "shared_buffers=32MB",
            "-c", "wal_level=logical",
        ]  # fmt: skip
        self.process = start_as_user(command, self.place, self.place / "log", "INT")
        deadline = time.monotonic() + 60
        while True:
            try:
                self.execute("SELECT 1")
            except adbc.Error:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)  # it says nowhere else that it takes connections
            else:
                return

    def stop(self) -> None:
        """End it at once (a fast shutdown); what is connected is cut off."""
        if self.process is not None:
            end(self.process)
            self.process = None

    def connect(self, database: str = "postgres") -> adbc.Connection:
        """Open a superuser's session that commits each statement."""
        return adbc.connect(self.uri(database), autocommit=True)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        with self.connect(database) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, statement: str, database: str = "postgres") -> Sequence[tuple[Any, ...]]:
        with self.connect(database) as session, session.cursor() as cursor:
            cursor.execute(statement)
            found: Sequence[tuple[Any, ...]] = cursor.fetchall()
            return found

    def send(self, message: str, database: str = "postgres") -> None:
        """Send statements in one message, as scripts do; ADBC would take them apart."""
        one = message.replace(";", "\\;") + "SELECT 1;"
        subprocess.run(
            [program("psql", _BINARIES), "--no-psqlrc", "--quiet", self.uri(database)],
            input=one,
            text=True,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def new_database(self) -> str:
        """Return the name of a fresh database, so that tests share only the server."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return name


@contextmanager
def standby_of(primary: PostgresqlServer) -> Iterator[PostgresqlServer]:
    """Run a second server that follows the first one."""
    with own_folder("pgs") as place:
        run_as_user(
            [program("pg_basebackup", _BINARIES), "-d", primary.uri(), "-D", str(place / "data"),
             "-R", "--checkpoint=fast", "--wal-method=stream", "--no-sync"],
            place,
        )  # fmt: skip
        server = PostgresqlServer(place, free_port())
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def postgresql_server() -> Iterator[PostgresqlServer]:
    """Make a cluster, start it on a free port, stop and remove it at the end."""
    with own_folder("pg") as place:
        secret = place / "password"
        secret.write_text(PASSWORD)
        run_as_user(
            [program("initdb", _BINARIES), "-D", str(place / "data"), "-U", "postgres",
             "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync", "-E", "UTF8",
             "--locale=C.UTF-8"],
            place,
        )  # fmt: skip
        server = PostgresqlServer(place, free_port())
        try:
            server.start()
            yield server
        finally:
            server.stop()
