"""A table in a directory of its own, and a Penguin over it."""

from __future__ import annotations

import time
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.support.penguin_world import World


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> World:
    """Files get their times from the disk, so the daemon's clock starts there, too."""
    return World(str(tmp_path / "table"), pool, now=time.time())
