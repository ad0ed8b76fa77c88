"""Records of a committed batch: its object in the journal, its dead letters, a request's report.

Of several sources that share batches each has a journal and letters of its own, and gets its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blizzard_core.log import get_logger
from blizzard_py.dead_letters.writer import DeadLetterWriter
from blizzard_py.job import FinishedFile
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.report import ReportLine, outcomes_name
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.records import RecordFiles
from blizzard_py.state.batch import Batch
from blizzard_py.state.composite_state import of_source, part_of
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import SourceState


class BatchRecords:
    """Journal and dead letters of a source, or of each of several."""

    def __init__(self, parts: SourceContext) -> None:
        self._sink = parts.stores.sink
        self._members = {each.source_name: _Records(each) for each in parts.members}
        self._own = _Records(parts)
        self._mailbox = Mailbox(parts.stores.sink, parts.id)
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def write(self, state: SourceState, batch: Batch) -> None:
        """Write them for a committed batch; every writer writes the same."""
        letters, records = [], []
        for name, each, part in self._each(batch):
            own = of_source(state, name) if name else state
            each.journal.write(part)
            letters.append(each.letters.keep(part, own.work.retries))
            records.append(each.letters.keep_records(part, self._sink))
        for files, lines in zip(letters, records, strict=True):
            if files or lines:
                self._log.info("dead_letters", batch=batch.batch, files=files, records=lines)

        if batch.request:
            self._mailbox.put_report(
                batch.request, outcomes_name(batch.batch), map(_line_of, batch.results.finished)
            )

    def journal_batches(self, flying: Sequence[Batch]) -> list[Batch]:
        """Return the batches that the journal has; with several sources, that of the first.

        Raises `StateError`, `StorageError`.
        """
        each = self._members[min(self._members)] if self._members else self._own
        return list(each.journal.read_committed(batch.batch for batch in flying))

    def records_uri(self, batch: str) -> str:
        """Return where a batch's bad records are kept; of several sources, the first one's."""
        each = self._members[min(self._members)] if self._members else self._own
        return each.letters.records_uri(batch)

    def tidy(self, batch: Batch) -> None:
        """Remove what a crash left of copying the batch's records."""
        for _, each, part in self._each(batch):
            each.letters.tidy(part)

    def _each(self, batch: Batch) -> Iterator[tuple[str, _Records, Batch]]:
        """Yield each part of the batch with its source's name, ``""`` for a single source."""
        if not self._members:
            yield "", self._own, batch
            return
        first = min(self._members)
        for name, each in self._members.items():
            part = part_of(batch, name, is_first=name == first)
            if part is not None:
                yield name, each, part


def _line_of(file: FinishedFile) -> ReportLine:
    return ReportLine(file.path, file.outcome, file.error, file.rows, bad=file.bad_rows)


class _Records:
    """The journal and the dead letters of one source."""

    def __init__(self, parts: SourceContext) -> None:
        self.journal = Journal(parts.stores.sink, parts.id, parts.concurrency)
        self.letters = DeadLetterWriter(
            parts.stores.dlq, parts.letters_id, RecordFiles(parts).uri_of
        )
