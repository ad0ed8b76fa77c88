"""A source in memory with dead letters, and an engine that reads its files and their records."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from blizzard_py.dead_letters import reader
from blizzard_py.job import FinishedFile, IngestJob, IngestResult
from tests.support.blizzard_world import LineEngine
from tests.support.memory_store import MemoryStorage
from tests.support.request_world import DAY, SOURCE_ID, RequestWorld

BATCH = "019aa000-0000-7000-8000-000000000001"
NEXT_DAY = "date=2024-01-02"
# Files that were given up.
FIRST, SECOND = f"{DAY}/60.json", f"{NEXT_DAY}/2.json"
# A file that is in, of which there may be records.
INGESTED = f"{NEXT_DAY}/1.json"
RECORDS = f"{SOURCE_ID}~records"


class RecordEngine(LineEngine):
    """Reads from the place that the job names: the source, or the records in the dead letters.

    With ``is_lenient`` everything is good.
    """

    def __init__(self, source: MemoryStorage, sink: MemoryStorage, dlq: MemoryStorage) -> None:
        super().__init__(source, sink)
        self.raw, self.dlq = source, dlq
        self.is_lenient = False

    def ingest(self, job: IngestJob) -> IngestResult:
        head, _, folder = job.settings.source.uri.partition(f"{self.dlq.uri}/")
        self.source = self.raw if head else Below(self.dlq, folder)  # type: ignore[assignment]  # only read from
        return super().ingest(job)

    def read(self, path: str) -> tuple[FinishedFile, list[str]]:
        if not self.is_lenient:
            return super().read(path)
        lines = [line.lstrip("?") for line in self.source.read(path).decode().splitlines()]
        return FinishedFile(path, "ingested", len(lines), 1), lines


class Below:
    """A folder of a store, to read from."""

    def __init__(self, store: MemoryStorage, folder: str) -> None:
        self.uri = f"{store.uri}/{folder}"
        self.store, self.folder = store, folder

    def read(self, path: str) -> bytes:
        return self.store.read(f"{self.folder}/{path}")

    def open_input(self, path: str) -> BinaryIO:
        return self.store.open_input(f"{self.folder}/{path}")


class RecordWorld(RequestWorld):
    """The source with an engine that reads records of dead letters as well."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**source)
        self.engine: RecordEngine = RecordEngine(self.source, self.sink, self.dlq)

    def put_records(self, *found: dict[str, Any], batch: str = BATCH) -> None:
        """Write a letter of single records, as a batch does."""
        self._put_letter(f"{batch}.records", *({"line": 3, "offset": 0, **each} for each in found))

    def put_letter(self, name: str, **found: Any) -> None:
        """Write a letter of a whole file."""
        self._put_letter(name, found)

    def _put_letter(self, name: str, *found: dict[str, Any]) -> None:
        common = {"error": "bad", "stage": "parse", "timestamp": "1970-01-12T13:46:40+00:00"}
        lines = []
        for each in found:
            length = {"length": len(str(each.get("raw", "")))} if "line" in each else {}
            lines.append(json.dumps({**common, **length, **each}))
        data = "".join(f"{line}\n" for line in lines).encode()
        self.dlq.put_atomic(f"{SOURCE_ID}/{name}.ndjson", data)

    def open_ids(self) -> list[str]:
        return [each.id for each in self.open_letters()]

    def open_uris(self) -> list[str]:
        """Return the file of each open letter."""
        found = (reader.read(self.dlq, each) for each in self.open_letters())
        return sorted(letter.uri for letters in found for letter in letters)

    def record_files(self) -> list[str]:
        """Return the written files of single records, below their folder."""
        return sorted(
            path.removeprefix(f"{RECORDS}/")
            for path in self.dlq.objects
            if path.startswith(f"{RECORDS}/")
        )


class LetterWorld(RecordWorld):
    """The source with two files that were given up, in two partitions and two batches."""

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
