"""The sample's events as files that arrive: one every quarter of an hour, laid out by hour.

``date=YYYY-MM-DD/hour=HH/<unix seconds>-<uuid>.ndjson.gz``, where the seconds are the
time of the file's first event. So paths sort as the events happened, which is the
one thing a watermark asks of a source. Names and bytes depend on the events alone:
splitting again gives the same files.
"""

from __future__ import annotations

import gzip
import json
import uuid
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

SLOT_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True)
class ArrivingFile:
    """One file of the source: its path below the source root, and the rows in it."""

    path: str
    rows: int


def split(sample: Path, target: Path) -> list[ArrivingFile]:
    """Write the events of ``sample`` below ``target``; the files, in path order.

    Lines are copied as they are, ordered by their ``time``.
    """
    slots: dict[int, list[tuple[datetime, bytes]]] = defaultdict(list)
    with gzip.open(sample, "rb") as lines:
        for line in lines:
            moment = datetime.fromisoformat(json.loads(line)["time"])
            slots[int(moment.timestamp()) // SLOT_SECONDS].append((moment, line))
    files = []
    for events in slots.values():
        events.sort(key=lambda event: event[0])
        path = file_path(events[0][0])
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        # mtime=0: the gzip header would hold the time of day otherwise.
        place.write_bytes(gzip.compress(b"".join(line for _, line in events), 6, mtime=0))
        files.append(ArrivingFile(path, len(events)))
    return sorted(files, key=lambda file: file.path)


def file_path(first: datetime) -> str:
    """Return the path of the file whose first event happened then (UTC)."""
    seconds = int(first.timestamp())
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"demo/{seconds}")
    return f"{first:date=%Y-%m-%d/hour=%H}/{seconds}-{name}.ndjson.gz"
