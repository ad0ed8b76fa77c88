"""The events that code logs, for tests."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from blizzard_core import log


@contextmanager
def captured_logs(level: str = "info") -> Iterator[list[dict[str, Any]]]:
    """Yield a list that holds the printed events once the block has ended."""
    stream, events = io.StringIO(), list[dict[str, Any]]()
    log.configure(level, stream)
    try:
        yield events
    finally:
        log.flush()
        log.silence()
        events += map(json.loads, stream.getvalue().splitlines())
