"""A table in a directory of its own, and a Penguin over it."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.support.table_harness import TableHarness


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> TableHarness:
    """The clock is the disk's: a file beside a log that is there must not look old."""
    found = TableHarness(str(tmp_path / "table"), pool)
    Path(found.uri).mkdir()
    found.now = Path(found.uri).stat().st_mtime
    return found
