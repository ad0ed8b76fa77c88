"""Requests that ingest files: ``blizzard ingest``, ``backfill`` and ``replay``.

A command names files, a range of names or dead letters, and writes a request. The owner of the
source ingests the files as batches of its own (`blizzard_py.ingest.request_runner`). The command
prints the outcome of each file from the request's report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice

from blizzard_core.settings.document import Config
from blizzard_core.signals import INTERRUPTED
from blizzard_py.app.request_selector import RequestSelector
from blizzard_py.app.submit import (
    RequestOrder,
    Waits,
    check_begin,
    request_of_order,
    submit_and_follow,
)
from blizzard_py.app.wiring import context_of, view_of
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestResult
from blizzard_py.requests.report import ReportLine, latest_lines
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.stale import current_state
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.committers import blocked_by
from blizzard_py.state.journal import Journal
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.source_state import SourceState

# What people have to look at.
_FAILED = frozenset({"quarantined", "taken", "open", "refused", "missing", "kept", "retry"})
# So many batches of the journal are read before it is looked whether that is enough.
_BATCHES_AT_ONCE = 256
# So many files of a request are read into memory to be printed; `requests show --files` has all.
LINES_AT_MOST = 20_000


@dataclass(frozen=True, slots=True)
class ReingestResult:
    """The outcomes of a request's files; ``request`` is its end, None for a preview.

    A file is ``ingested``, ``replaced``, ``refused``, ``missing`` or ``quarantined``. It is
    ``present`` if its rows are in the table already, ``left`` if polls will ingest it, and
    ``taken`` while in progress. ``kept`` means that it failed and its old rows stay. ``empty`` is a
    part of a range without rows. ``open`` was not requested, because the command was interrupted.
    ``noun`` names one of them. ``blocked`` is the reason why no group of the source enters the
    table at present.
    """

    files: tuple[ReportLine, ...]
    rows: int = 0
    request: RequestResult | None = None
    blocked: str | None = None
    noun: str = "file"

    @property
    def is_interrupted(self) -> bool:
        """Return whether a signal ended the command before its request was over."""
        return self.request is not None and self.request.exit_code == INTERRUPTED

    @property
    def is_unmended(self) -> bool:
        """Return whether a person has to look at something."""
        return any(file.state in _FAILED for file in self.files) or self.failed_again > 0

    @property
    def failed_again(self) -> int:
        """Return how many records of letters are bad again; bad lines of whole files are not."""
        return sum(file.bad for file in self.files if is_of_records(file.path))


def not_requested(paths: Sequence[str]) -> ReingestResult:
    """Return the outcome of files that a command was interrupted before it had requested."""
    why = "interrupted before it was requested; give the command again"
    return ReingestResult(tuple(ReportLine(path, "open", why) for path in paths))


def bring(
    config: Config, where: tuple[str, str], order: RequestOrder, waits: Waits | None
) -> ReingestResult:
    """Request files, follow the request, and return each file's outcome.

    Without ``waits`` return a preview and write nothing. Raises what `submit_and_follow` raises,
    and `RequestRefused` for a preview.
    """
    parts = context_of(config, where)
    if waits is None:
        lines = list(islice(_previewed(parts, order), LINES_AT_MOST))
        found = _compared(parts, order, lines)
        return ReingestResult(tuple(found), blocked=_blocked(parts, order), noun=_noun(order))
    result = submit_and_follow(config, where, order, waits)
    report = islice(Mailbox(parts.stores.sink, parts.id).report(result.id), 2 * LINES_AT_MOST)
    lines = _compared(parts, order, latest_lines(report))
    named = order.select.get("files", ())
    there = {line.path for line in lines}
    lines += [ReportLine(path, "taken", "not done yet") for path in named if path not in there]
    rows = result.counts.get("rows", 0)
    return ReingestResult(tuple(lines), rows, result, _blocked(parts, order), _noun(order))


def _noun(order: RequestOrder) -> str:
    return "part" if order.select.get("values") else "file"


def _previewed(parts: SourceContext, order: RequestOrder) -> Iterator[ReportLine]:
    """Preview the outcome of each file by the source's state in storage."""
    # A source that replaces rows goes on from an older state.
    replaces = parts.query_spec is not None and parts.query_spec.replaces
    state = read_state(parts.stores.sink, parts.id) if replaces else current_state(parts)
    if state is None:
        check_begin(parts, order)
        state = SourceState()
    would = "would replace" if order.options.get("mode") == "replace" else "would ingest"
    request = request_of_order(parts, order, state, parts.clock())
    with closing(view_of(parts)) as found:
        for line in RequestSelector(parts, found.source).preview(state, request):
            yield replace(line, state=would) if line.state == "taken" else line


def _blocked(parts: SourceContext, order: RequestOrder) -> str | None:
    if order.options.get("mode") != "replace":
        return None
    return blocked_by(parts.stores.sink, parts.letters_id)


def _compared(
    parts: SourceContext, order: RequestOrder, lines: Sequence[ReportLine]
) -> list[ReportLine]:
    """Refuse files whose rows are in the table and that have changed since."""
    if not order.select.get("files"):
        return list(lines)
    present = [line.path for line in lines if line.state == "present"]
    known = _stamps(Journal(parts.stores.sink, parts.id, parts.concurrency), present)
    changed = set()
    for path in present:
        entry = parts.stores.source.stat(path)
        if entry is None or known.get(path) != (entry.size, entry.modified):
            changed.add(path)
    return [_changed(line) if line.path in changed else line for line in lines]


def _changed(line: ReportLine) -> ReportLine:
    return replace(
        line,
        state="refused",
        reason=f"{line.reason}, and it is not known to be the same file still; `blizzard backfill"
        " --replace` with --from and --to of this path reads it in the place of its rows",
    )


def _stamps(journal: Journal, paths: Sequence[str]) -> Mapping[str, tuple[int, float]]:
    """Return size and time of files at their last ingestion, as far as the journal reaches."""
    remaining, found = set(paths), dict[str, tuple[int, float]]()
    batches = sorted(journal.batches(), reverse=True) if remaining else []
    while batches and remaining:
        some, batches = batches[:_BATCHES_AT_ONCE], batches[_BATCHES_AT_ONCE:]
        for record in journal.read(some):
            for file in record.files:
                if file.is_ingested and file.path in remaining:
                    found.setdefault(file.path, (file.size, file.modified))
        remaining.difference_update(found)
    return found
