"""Outputs that a committer has refused: published by Blizzard, but in no table. Writes nothing.

The committer's record (`blizzard_core.handover.quarantine`) has the files, the journal of a source
their batches. An output counts as long as it is on record and the rows of its batch have not been
replaced since. It counts even if the file is gone: a full VACUUM deletes files that are in no
version of the table, and the rows are missing all the same. Replaced files do not count, nor files
from before an operator's reset. Copies of committed rows do not count either: those rows are in the
table, in another file or compacted with others, or were removed from it.

The journal reaches back thirty days; only `penguin status` shows older ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from blizzard_core.handover.published import first_name
from blizzard_core.handover.quarantine import QuarantineRecord, quarantined, spelled
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.earlier_batches import current
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.state.journal import BatchDocument, Journal, moment_of
from blizzard_py.state.record_names import is_of_records, stem_of
from blizzard_py.state.waiting_outputs import OUTPUT_NAME

# A batch is begun so long before its outputs are named at most.
_LONGEST_BATCH_SECS = 7 * 86_400.0
# The stage of files that were refused because their rows are in the table already.
_SAME_ROWS = "output_id"
# How many are told one by one.
TOLD = 20


@dataclass(frozen=True, slots=True)
class RefusedOutput:
    """An output that is on record as refused, and why; its ``rows`` are in no table.

    ``batch`` has written it, of ``files`` of the source.
    """

    path: str
    output_id: str
    rows: int
    stage: str
    error: str
    timestamp: str
    batch: str
    files: tuple[str, ...]


def refused_outputs(
    parts: SourceContext, records: Mapping[str, QuarantineRecord] | None = None
) -> list[RefusedOutput]:
    """Return the refused outputs of a source, oldest first. ``records`` are the table's, if read.

    Without refused files it costs a LIST. Raises `StateError`, `StorageError`.
    """
    return _refused(parts, records)[0]


def replaced_outputs(parts: SourceContext) -> list[RefusedOutput]:
    """Return the refused outputs whose rows another batch replaces.

    An output that was refused after the commit of that batch was not discarded, and the batch's
    group waits for it. Raises `StateError`, `StorageError`.
    """
    return _refused(parts, None)[1]


def _refused(
    parts: SourceContext, records: Mapping[str, QuarantineRecord] | None
) -> tuple[list[RefusedOutput], list[RefusedOutput]]:
    """Return the refused outputs that count, and those replaced since."""
    sink = parts.stores.sink
    on_record = quarantined(sink) if records is None else records
    files = (OUTPUT_NAME.fullmatch(path.rpartition("/")[2]) for path in on_record)
    names = [named[1] for named in files if named]
    if not names:
        return [], []
    since = first_name(min(map(moment_of, names)) - _LONGEST_BATCH_SECS)
    found = list(_found(parts, on_record, since))
    if not found:
        return [], []
    batches = EarlierBatches(parts, {path for each in found for path in each.files})
    open_ = {batch.batch for known in current(batches.look()).values() for batch in known}
    there = [each for each in found if _counts(parts, each, on_record)]
    counting = [each for each in there if each.batch in open_]
    return counting, [each for each in there if each.batch not in open_]


def _found(
    parts: SourceContext, records: Mapping[str, QuarantineRecord], since: str
) -> Iterator[RefusedOutput]:
    journal = Journal(parts.stores.sink, parts.letters_id, parts.concurrency)
    for document in journal.documents(b for b in journal.batches() if b >= since):
        yield from _of_batch(document, records)


def _of_batch(
    document: BatchDocument, records: Mapping[str, QuarantineRecord]
) -> Iterator[RefusedOutput]:
    paths = [file.path for file in document.files if file.outcome == "ingested"]
    files = tuple(dict.fromkeys(stem_of(p) if is_of_records(p) else p for p in paths))
    for output in document.outputs:
        for path in map(spelled, (output.final, *output.earlier)):
            record = records.get(path)
            if record is not None and record.stage != _SAME_ROWS:
                yield RefusedOutput(
                    path,
                    output.output_id,
                    output.rows,
                    record.stage,
                    record.error,
                    record.timestamp,
                    document.batch,
                    files,
                )


def _counts(
    parts: SourceContext, found: RefusedOutput, records: Mapping[str, QuarantineRecord]
) -> bool:
    """Return false for a file that was replaced since it was refused."""
    entry = parts.stores.sink.stat(found.path)
    return entry is None or records[found.path].is_of(entry)


def refusals(found: Iterable[RefusedOutput], remedy: str) -> dict[str, Any]:
    """``refused`` of ``status --json``: how many files and rows, the newest of them first."""
    told = sorted(found, key=lambda each: each.timestamp, reverse=True)
    return {
        "files": len(told),
        "rows": sum(each.rows for each in told),
        "remedy": remedy if told else "",
        "outputs": [
            {key: value for key, value in asdict(each).items() if key != "files"}
            for each in told[:TOLD]
        ],
    }
