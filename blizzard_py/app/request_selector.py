"""Selection of a request's files, and the closing of its letters."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.errors import NotFound
from blizzard_py.app import value_ranges
from blizzard_py.dead_letters.reader import put_away
from blizzard_py.dead_letters.reasons import write_reason
from blizzard_py.ingest.request_acceptance import PageRequest, RequestRefused, SelectedPage
from blizzard_py.requests.document import Mode, Request
from blizzard_py.requests.report import ReportLine
from blizzard_py.selection.candidates import PAGE_FILES, CandidatePage, read_page
from blizzard_py.selection.choose import Choice, choose
from blizzard_py.selection.claims import Claims
from blizzard_py.selection.ingested_since_request import BroughtSince
from blizzard_py.selection.replacement_rows import Replaceable, find_replaced, find_unsure
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.earlier_batches import Earlier
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.files.source import FileSource
from blizzard_py.sources.protocol import Source
from blizzard_py.state.checkpoint_file import read_ledger
from blizzard_py.state.journal import KEPT_SECS
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.processed_set import Segment
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.source_state import Closing, SourceState, ToReplace, checkpoint_path

# Files that replace rows are looked up together: some may have to come in one commit.
REPLACED_AT_MOST = 10_000
# A partition that is kept apart and will be looked at within this time is the polls' already:
# what is taken now is queued later.
APART_MARGIN_SECS = 3600.0
# Live work waits so long for what is read of a journal, with each look.
_WAIT_SECS = 2.0
_DAY_SECS = 86_400.0


@dataclass(frozen=True, slots=True)
class _JournalSearch:
    """The search for earlier rows of a request's files, in its own thread."""

    batches: EarlierBatches
    done: Future[Any]
    stop: threading.Event


class RequestSelector:
    """Selects pages of requests for the owner of a source. Opens no store by itself.

    During a request its ledger stays in memory, and the journal is read beside live work.
    """

    def __init__(self, parts: SourceContext, source: Source[Any]) -> None:
        self._parts = parts
        self._source = source
        self._since = BroughtSince(parts)
        self._ledger: Ledger | None = None
        self._segments: tuple[Segment, ...] = ()
        # The request that the following is of.
        self._request_id = ""
        self._looking: _JournalSearch | None = None
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, f"request {parts.name}")

    def select(
        self, state: SourceState, request: Request, wanted: PageRequest
    ) -> SelectedPage | None:
        """Return a page of a request's files, None if what it needs is still read.

        ``state`` is saved, and has no batch in flight. Writes files of records alone. Raises
        `RequestRefused`, `StateError`, `StorageError`.
        """
        if request.kind == "close_letters":
            return _closing(self._parts, request)
        self.keep_for(wanted.request_id)
        if request.select.get("values"):
            return value_ranges.select_chunk(self._parts, self._source, state, request, wanted)
        looking = None
        if _mode(request) == "replace":
            looking = self._find_earlier_batches(request)
            if looking is None:
                return None
            page = _still_there(self._parts, request, looking)
        else:
            page = read_page(self._parts, request, wanted.cursor, PAGE_FILES)
        choice = self._choose(state, request, page, wanted, self._current_ledger(state))
        replacing: Mapping[str, ToReplace] = {}
        if looking is not None:
            choice, replacing = _replacing(self._parts, request, page, choice, looking.batches)
            if isinstance(self._source, FileSource):
                self._source.know_earlier(looking.batches)
        if page.is_last:
            self._forget()
        return SelectedPage(
            choice.entries,
            choice.lines,
            page.cursor,
            page.is_last,
            choice.ahead,
            replacing,
            tuple(each for each in page.letters if each not in choice.open_letters),
        )

    def preview(self, state: SourceState, request: Request) -> Iterator[ReportLine]:
        """Yield what a request would do with each file, as things are; raises as `select` does."""
        parts = self._parts
        if request.select.get("values"):
            yield from value_ranges.preview_range(parts, self._source, state, request)
            return
        saved = parts.stores.sink.stat(checkpoint_path(parts.id))
        # A machine's clock may be anywhere: it is not before the last save.
        now = max(parts.clock(), 0.0 if saved is None else saved.modified)
        replaces, cursor, is_last = _mode(request) == "replace", "", False
        ledger = read_ledger(parts.stores.sink, parts.id)
        while not is_last:
            page = (
                _require_full_page(parts, request)
                if replaces
                else read_page(parts, request, cursor, PAGE_FILES)
            )
            choice = self._choose(state, request, page, PageRequest("", cursor, now), ledger)
            if replaces:
                batches = EarlierBatches(parts, [each.path for each in page.candidates])
                choice, _ = _replacing(parts, request, page, choice, batches)
            yield from choice.lines
            cursor, is_last = page.cursor, page.is_last

    def put_away(self, request: Request, letters: tuple[str, ...]) -> None:
        """Close a request's letters. Raises `StorageError`."""
        closed = request.kind == "close_letters"
        reason = Closing(request.why, request.by, request.at) if closed else None
        close_letters(self._parts, letters, reason)
        if self._parts.activity is not None:
            self._parts.activity.closed(letters)

    def keep_for(self, request_id: str) -> None:
        """Let go of what was read for other requests, however these ended."""
        if request_id != self._request_id:
            self._forget()
            self._request_id = request_id

    def close(self) -> None:
        """Stop background reading soon."""
        self._is_closed = True

    def _choose(
        self,
        state: SourceState,
        request: Request,
        page: CandidatePage,
        wanted: PageRequest,
        ledger: Ledger,
    ) -> Choice:
        parts, known = self._parts, None
        if isinstance(self._source, FileSource):
            known = self._source.name_lookup(state, wanted.now + APART_MARGIN_SECS)
        names = [each.path for each in page.candidates if is_of_records(each.path)]
        replaced = find_replaced(parts, state, names)
        unsure = find_unsure(parts, ledger, names)
        claims = Claims(parts, state, ledger, known, wanted.now, replaced, unsure)
        mode, later = _mode(request), set[str]()
        if mode == "again" and request.since:
            _check_age(parts, request, wanted.now)
            cursor = wanted.cursor if request.select.get("range") else ""
            later = self._since.names(request.since, cursor)
        return choose(page.candidates, claims, mode, later, insist=_insists(request))

    def _current_ledger(self, state: SourceState) -> Ledger:
        ledger = self._ledger
        if ledger is None or self._segments != state.names.ledger:
            ledger = Ledger(self._parts.stores.sink, self._parts.id, self._parts.concurrency)
            ledger.load(state.names.ledger)
            ledger.look(state.names.unfolded)
            self._ledger, self._segments = ledger, state.names.ledger
        else:
            ledger.look()
        return ledger

    def _find_earlier_batches(self, request: Request) -> _JournalSearch | None:
        """Read the journal for the files of a request that replaces; None while it is read."""
        looking = self._looking
        if looking is None:
            page = _require_full_page(self._parts, request)
            batches = EarlierBatches(self._parts, [each.path for each in page.candidates])
            stop = threading.Event()
            done = self._thread.submit(batches.look, lambda: not (self._is_closed or stop.is_set()))
            looking = self._looking = _JournalSearch(batches, done, stop)
        try:
            looking.done.result(_WAIT_SECS)
        except TimeoutError:
            return None
        except BaseException:
            self._looking = None  # it is read anew
            raise
        return looking

    def _forget(self) -> None:
        self._ledger, self._segments = None, ()
        if self._looking is not None:
            self._looking.stop.set()
            self._looking = None


def _closing(parts: SourceContext, request: Request) -> SelectedPage:
    """Return the letters that a request closes and that are still open."""
    dlq, lines = parts.stores.dlq, []
    for letter_id in request.select["letters"]:
        if dlq.stat(put_away(parts.letters_id, letter_id)[0]) is None:
            lines.append(ReportLine(letter_id, "missing", "it is not open any more"))
        else:
            lines.append(ReportLine(letter_id, "closed"))
    letters = tuple(line.path for line in lines if line.state == "closed")
    return SelectedPage((), tuple(lines), "", is_last=True, letters=letters)


def _mode(request: Request) -> Mode:
    mode: Mode = request.options.get("mode", "add")
    return mode


def _insists(request: Request) -> bool:
    option = "assume_missing" if _mode(request) == "add" else "assume_named"
    return bool(request.options.get(option))


def _require_full_page(parts: SourceContext, request: Request) -> CandidatePage:
    """Return all files of a request that replaces. Raises `RequestRefused` for too many."""
    page = read_page(parts, request, "", REPLACED_AT_MOST)
    if page.is_last:
        return page
    raise RequestRefused(
        f"{parts.name}: more than {REPLACED_AT_MOST:,} files are chosen, and so many can be"
        " replaced at once; choose partitions or files with --from and --to that have fewer"
    )


def _still_there(parts: SourceContext, request: Request, looking: _JournalSearch) -> CandidatePage:
    """Return the files of a request that replaces, as they are once the journal was read.

    That may take minutes. Without those that have come meanwhile: it was not read for them.
    """
    page = _require_full_page(parts, request)
    known = tuple(each for each in page.candidates if looking.batches.covers([each.path]))
    late = {each.letter for each in page.candidates}.difference(each.letter for each in known)
    letters = tuple(each for each in page.letters if each not in late)
    return replace(page, candidates=known, letters=letters)


def _check_age(parts: SourceContext, request: Request, now: float) -> None:
    """Raise `RequestRefused` if the journal may no longer tell what came since the request."""
    made = dt.datetime.fromisoformat(request.at).timestamp()
    if now - made > KEPT_SECS - _DAY_SECS:
        raise RequestRefused(
            f"{parts.name}: the request was made at {request.at}. The journal keeps thirty days and"
            " cannot tell whether its rows came since; give the command again"
        )


def _replacing(
    parts: SourceContext,
    request: Request,
    page: CandidatePage,
    choice: Choice,
    batches: EarlierBatches,
) -> tuple[Choice, dict[str, ToReplace]]:
    """Return the choice with each file's earlier rows and what it replaces."""
    insist = _insists(request)
    problems = {each.path for each in page.candidates if each.problem}
    refused = [line.path for line in choice.lines if line.state == "refused"]
    unknown = [path for path in refused if path not in problems]
    paths = [entry.path for entry in choice.entries]
    earlier = Replaceable(parts, batches, insist).earlier([*paths, *unknown], unknown)
    lines = tuple(_with_rows(line, earlier.get(line.path), insist=insist) for line in choice.lines)
    return replace(choice, lines=lines), _to_replace(earlier, paths, insist=insist)


def _with_rows(line: ReportLine, earlier: Earlier | None, *, insist: bool) -> ReportLine:
    """Return the line of a file with its earlier ingestion."""
    if line.state != "taken" or earlier is None or not (earlier.batches or insist):
        return line
    found_by = "outputs" if earlier.together else "_source_file"
    return replace(line, before=earlier.rows, found_by=found_by)


def _to_replace(
    earlier: Mapping[str, Earlier], paths: Sequence[str], *, insist: bool
) -> dict[str, ToReplace]:
    found = ((path, earlier[path]) for path in paths)
    return {
        path: ToReplace(tuple(batch.batch for batch in each.batches), each.together, insist)
        for path, each in found
    }


def close_letters(parts: SourceContext, letters: Iterable[str], reason: Closing | None) -> None:
    """Move letters to the closed ones, with the ``reason`` if there is one.

    Letters that were moved before, by a process that died or by a replay, stay as they are. Raises
    `StorageError`.
    """
    dlq, source_id = parts.stores.dlq, parts.letters_id
    for letter_id in letters:
        here, there = put_away(source_id, letter_id)
        if reason is not None and dlq.stat(here) is not None:
            write_reason(dlq, source_id, letter_id, reason)
        with contextlib.suppress(NotFound):  # moved before a crash
            dlq.rename(here, there)
