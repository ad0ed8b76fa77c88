"""The demo of a table from a stranger's view, and its lake."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from demo import postgresql, shop
from tests.support.forked_process import call_forked


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that the server's user may enter; the server has its own below it."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def demo(place: Path) -> subprocess.CompletedProcess[str]:
    return call_forked("demo.tables", [], DEMO_DIR=str(place), TMPDIR=str(place.parent))


@pytest.mark.timeout(600)
def test_the_demo_reads_each_version_once_and_leaves_no_server(open_folder: Path) -> None:
    place = open_folder / "demo"
    done = demo(place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "had lost 500 of them" in done.stdout
    assert "held by pid" in done.stdout
    assert "differs" not in done.stdout
    files = DeltaTable(place / "lake/orders").file_uris()
    with duckdb.connect() as db:
        counts = db.execute(
            "SELECT count(*), count(DISTINCT (id, version)), max(version) FROM read_parquet(?)",
            [files],
        ).fetchone()
    assert counts == (21_750, 21_750, 4)
    assert sorted(p.name for p in open_folder.iterdir()) == ["demo"]
    (port,) = re.findall(r"PostgreSQL on port (\d+)", done.stdout)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert f"-p {port} " not in running.stdout


def test_foreign_folder_is_left_alone(open_folder: Path) -> None:
    (open_folder / "mine").touch()
    done = demo(open_folder)
    assert done.returncode == 1
    assert "holds something else" in done.stdout
    assert [p.name for p in open_folder.iterdir()] == ["mine"]


def test_late_transaction_keeps_its_begin_time() -> None:
    with postgresql.running() as server:
        shop.make(server)
        with shop.transaction(server, shop.updating(1, 10, "paid")):
            server.execute(shop.inserting(5))
            assert shop.versions(server) == shop.FIRST_ROWS + 5
            (highest,) = server.row("SELECT max(updated_at) FROM orders")
        assert shop.versions(server) == shop.FIRST_ROWS + 15
        late = f"SELECT count(*) FROM orders WHERE version = 2 AND updated_at < '{highest}'"
        assert server.row(late) == (10,)
