"""Files of single records that are brought again, below ``{dlq}/{source id}~records/``.

They are of any source, also of a table or an API, and batches of them are alike for all. Each lies
in the folder of the file that its records are of, so that its rows go to the same partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from blizzard_core.storage.protocol import Entry
from blizzard_py.formats.names import format_of
from blizzard_py.job import FinishedFile, IngestResult, IngestSettings, JobFile, Place
from blizzard_py.requests.progress import first_running
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.directories import PartitionError
from blizzard_py.sources.protocol import PlainWork, Requested
from blizzard_py.state.batch import Batch
from blizzard_py.state.record_names import RECORDS, is_of_records
from blizzard_py.state.retries import waiting
from blizzard_py.state.source_state import SourceState


def requested_files(
    state: SourceState, now: float, *, of_records: bool = False
) -> tuple[str, list[Entry]]:
    """Return the id of the running request that was accepted first, and its files to ingest now.

    These are the source's own items, or files ``of_records``.
    """
    first, waits = first_running(state.work.requests), waiting(state.work.retries, now)
    return first, [
        file.entry
        for file in state.work.queue
        if first
        and file.request == first
        and is_of_records(file.path) == of_records
        and file.path not in waits
    ]


def records_of_request(state: SourceState, now: float) -> Requested:
    """Return the files of records of the running request that was accepted first."""
    first, files = requested_files(state, now, of_records=True)
    return Requested(first, PlainWork(files))


def place_files(
    parts: SourceContext, entries: Iterable[Entry], path_of: Callable[[str], str] = str
) -> tuple[list[JobFile], list[FinishedFile]]:
    """Return a job's files with their table directories, and the outcomes of the others.

    ``path_of`` returns a file's path by its name in the state.
    """
    files: list[JobFile] = []
    lost: list[FinishedFile] = []
    for entry in entries:
        path = path_of(entry.path)
        try:
            files.append(JobFile(path, entry.size, parts.folder_of(path)))
        except PartitionError as error:
            lost.append(
                FinishedFile(entry.path, "quarantined", error=str(error), stage="partition")
            )
    return files, lost


def has_records(batch: Batch) -> bool:
    """Return whether a batch is of files of records; one never has both."""
    return bool(batch.files) and is_of_records(batch.files[0].path)


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """The files of records of the source that ``parts`` are of."""

    parts: SourceContext

    @property
    def folder(self) -> str:
        """Return the folder below the dead letters."""
        return f"{self.parts.letters_id}~records"

    @property
    def uri(self) -> str:
        """Return the URI of the folder."""
        return f"{self.parts.stores.dlq.uri}/{self.folder}"

    def name(self, path: str) -> str:
        """Return the name in the state of a file at a path below the folder."""
        return f"{RECORDS}{path}"

    def relative_path(self, name: str) -> str:
        """Return the path below the folder, or that of another file as it is."""
        return name.removeprefix(RECORDS)

    def place(self, name: str) -> str:
        """Return where a file is below the dead letters."""
        return f"{self.folder}/{self.relative_path(name)}"

    def path_of(self, uri: str) -> str | None:
        """Return the name of the file at a URI, None if it is none of these."""
        root = f"{self.uri}/"
        return self.name(uri.removeprefix(root)) if uri.startswith(root) else None

    def uri_of(self, name: str) -> str:
        """Return the URI of a file by its name in the state, of records or of the source."""
        if is_of_records(name):
            return f"{self.uri}/{self.relative_path(name)}"
        return f"{self.parts.stores.source.uri}/{name}"

    def stat(self, name: str) -> Entry | None:
        """Return the file under its name, None if it is gone. Raises `StorageError`."""
        found = self.parts.stores.dlq.stat(self.place(name))
        return None if found is None else replace(found, path=name)

    def put(self, name: str, data: bytes, now: float) -> Entry:
        """Write a file; durable on return. Raises `StorageError`."""
        self.parts.stores.dlq.put_atomic(self.place(name), data)
        return Entry(name, len(data), now)

    def settings(self, settings: IngestSettings) -> IngestSettings:
        """Return what a job is run with that reads such files.

        Good records must not wait for bad ones.
        """
        return replace(
            settings,
            source=Place(self.uri, self.parts.dlq_options),
            format=format_of(settings.format).replay_settings(),
            tolerance=replace(
                settings.tolerance, on_bad_record="quarantine_record", max_bad_fraction=1.0
            ),
        )

    def job_files(self, entries: Sequence[Entry]) -> tuple[list[JobFile], list[FinishedFile]]:
        """Return the job's files with their table directories, and the outcomes of the others."""
        return place_files(self.parts, entries, self.relative_path)

    def restore_names(self, result: IngestResult) -> IngestResult:
        """Return the result of a job with its files under the names of the state."""
        return replace(
            result,
            files=tuple(replace(file, path=self.name(file.path)) for file in result.files),
            letters=tuple(
                replace(each, files=tuple((self.name(path), count) for path, count in each.files))
                for each in result.letters
            ),
        )
