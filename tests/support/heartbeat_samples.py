"""A heartbeat as a daemon stores it."""

from __future__ import annotations

import json

NOW = 1_700_000_000.0


def heartbeat_of(**given: object) -> bytes:
    """Return the heartbeat object of a daemon on another machine, with the given fields."""
    document = {"host": "far", "pid": 7, "started": NOW, "key": "boot/1/7/9", "at": NOW, **given}
    return json.dumps(document).encode()
