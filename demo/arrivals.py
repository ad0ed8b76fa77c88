"""The sample's edits in the order of their arrival, which differs from the order of their times.

Each edit is under way for some minutes, and one in fifty for hours: a phone without a network, a
site that was cut off. A file has what arrived in a quarter of an hour, and is named by its
beginning; so names sort by arrival, which is the one thing a watermark over *files* asks for.
Which edit takes how long follows from its line alone, so files are the same each time.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import uuid
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

SLOT_SECS = 15 * 60
# One edit in so many takes up to that long, the others up to that.
_SLOW_ONE_IN, _SLOW_SECS, _USUAL_SECS = 50, 3 * 3600, 8 * 60


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit, and the file and line that it arrives in (from 1)."""

    file: str
    line: int
    time: datetime
    channel: str
    added: int


def arriving(sample: Path, target: Path) -> list[list[Edit]]:
    """Write the edits of ``sample`` into files of ``target``; each file's, in path order."""
    slots: dict[int, list[tuple[float, bytes]]] = defaultdict(list)
    with gzip.open(sample, "rb") as lines:
        for line in lines:
            at = datetime.fromisoformat(json.loads(line)["time"]).timestamp() + _under_way(line)
            slots[int(at) // SLOT_SECS].append((at, line))
    target.mkdir(parents=True)
    return [_file(target, slot, sorted(arrived)) for slot, arrived in sorted(slots.items())]


def _under_way(line: bytes) -> float:
    chance = int.from_bytes(hashlib.sha256(line).digest()[:8], "big")
    most = _SLOW_SECS if chance % _SLOW_ONE_IN == 0 else _USUAL_SECS
    return chance // _SLOW_ONE_IN % (most * 1000) / 1000


def _file(target: Path, slot: int, arrived: list[tuple[float, bytes]]) -> list[Edit]:
    seconds = slot * SLOT_SECS
    name = f"{seconds}-{uuid.uuid5(uuid.NAMESPACE_URL, f'arrivals/{seconds}')}.ndjson.gz"
    lines = [line for _, line in arrived]
    (target / name).write_bytes(gzip.compress(b"".join(lines), 6, mtime=0))
    return [_edit(name, number, json.loads(line)) for number, line in enumerate(lines, 1)]


def _edit(file: str, number: int, found: dict[str, object]) -> Edit:
    time, channel, added = found["time"], found["channel"], found["added"]
    assert isinstance(time, str)
    assert isinstance(channel, str)
    assert isinstance(added, int)
    return Edit(file, number, datetime.fromisoformat(time), channel, added)
