"""Commits of a Delta log, as bytes."""

from __future__ import annotations

import json
from typing import Any


def commit(*paths: str, rows: int = 10, **info: Any) -> bytes:
    head = {"commitInfo": {"timestamp": 1_800_000_000_500, "operation": "WRITE", **info}}
    adds = [
        {"add": {"path": path, "size": 100, "stats": json.dumps({"numRecords": rows})}}
        for path in paths
    ]
    return "\n".join(json.dumps(line) for line in (head, *adds)).encode()
