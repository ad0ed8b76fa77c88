"""MariaDB for real, in a folder of its own on a loopback port, stopped at the end."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tests.support.own_process import (
    end,
    free_port,
    own_folder,
    program,
    run_as_user,
    start_as_user,
)

PASSWORD = "open sesame/@:%"  # every character that a URI has to escape


@dataclass
class MariadbServer:
    place: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def uri(self, database: str = "test", user: str = "reader", password: str = "") -> str:
        secret = quote(password or PASSWORD, safe="")
        return f"mysql://{user}:{secret}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        command = [
            program("mariadbd", "/usr/sbin"), "--no-defaults", f"--datadir={self.place}/data",
            f"--socket={self.place}/socket", f"--port={self.port}", "--bind-address=127.0.0.1",
            "--max-allowed-packet=256M", "--innodb-flush-log-at-trx-commit=0",
            "--default-time-zone=-05:00", "--skip-name-resolve", "--character-set-server=utf8mb4",
        ]  # fmt: skip
        self.process = start_as_user(command, self.place, self.place / "log", "TERM")
        deadline = time.monotonic() + 60
        while self._client("SELECT 1").returncode:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError("MariaDB did not start: " + (self.place / "log").read_text())
            time.sleep(0.05)  # it says nowhere else that it takes connections

    def stop(self) -> None:
        """End it; what is connected is cut off."""
        if self.process is not None:
            end(self.process)
            self.process = None

    def execute(self, *statements: str, database: str = "test") -> str:
        """Run as the superuser; what they answer, tabs between columns."""
        done = self._client(";\n".join(statements), database)
        if done.returncode:
            raise RuntimeError(done.stderr[-500:])
        return done.stdout

    def new_database(self) -> str:
        """Return the name of a fresh database, so that tests share only the server."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}", f"GRANT SELECT ON {name}.* TO reader")
        return name

    def _client(self, text: str, database: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program("mariadb"), "--no-defaults", f"--socket={self.place}/socket", "--batch",
             "--user=root", "--raw", "--skip-column-names", "--max-allowed-packet=256M",
             "--default-character-set=utf8mb4", *([database] if database else [])],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip


@contextmanager
def mariadb_server() -> Iterator[MariadbServer]:
    """Make a server's files, start it on a free port, stop and remove it at the end."""
    with own_folder("maria") as place:
        run_as_user(
            [program("mariadb-install-db"), "--no-defaults", f"--datadir={place}/data",
             "--auth-root-authentication-method=normal", "--skip-test-db"],
            place,
        )  # fmt: skip
        server = MariadbServer(place, free_port())
        try:
            server.start()
            secret = PASSWORD.replace("'", "''")
            server.execute(
                "CREATE DATABASE test", f"CREATE USER reader IDENTIFIED BY '{secret}'",
                "GRANT SELECT ON test.* TO reader", database="mysql",
            )  # fmt: skip
            yield server
        finally:
            server.stop()
