"""A source in memory with two rejected files, and names of its files and records."""

from __future__ import annotations

from typing import Any

from tests.support.request_harness import BATCH, DAY, RequestHarness

NEXT_DAY = "date=2024-01-02"
# Files with a dead letter.
FIRST, SECOND = f"{DAY}/60.json", f"{NEXT_DAY}/2.json"
# An ingested file, which may have bad records.
INGESTED = f"{NEXT_DAY}/1.json"


class FailedFilesHarness(RequestHarness):
    """A source with two rejected files, in two partitions and two batches."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**source)
        self.put(FIRST, "bad")
        self.drain()
        self.now += 10
        self.put(INGESTED, "b")
        self.put(SECOND, "bad")
        self.drain()
        assert len(self.open_letters()) == 2

    def mend(self) -> None:
        self.put(FIRST, "c")
        self.put(SECOND, "d")


def uri(path: str) -> str:
    """Return the URI of a file of the source."""
    return f"mem://raw/{path}"


def record_name(path: str, batch: str = BATCH, piece: int = 0) -> str:
    """Return the name, in the state, of the file with a file's records."""
    return f"//records/{path}.{batch}.{piece}.ndjson"
