"""A table in a directory of its own, and a Penguin over it."""

from __future__ import annotations

import time
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.support.table_harness import TableHarness


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> TableHarness:
    """Files get their times from the disk, so the daemon's clock starts there, too."""
    return TableHarness(str(tmp_path / "table"), pool, now=time.time())
