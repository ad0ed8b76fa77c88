"""An engine that reads the files of a source in memory, and the records of its dead letters."""

from __future__ import annotations

from typing import BinaryIO

from blizzard_py.job import FinishedFile, IngestJob, IngestResult
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import LineEngine


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
        lines = [
            line.lstrip("?") for line in self.source.read(path).decode("utf-8-sig").splitlines()
        ]
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
