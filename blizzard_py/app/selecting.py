"""Selection of the files that a request brings, and what is done with its letters, wired."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

from blizzard_core.errors import NotFound
from blizzard_py.dead_letters.reader import put_away
from blizzard_py.dead_letters.reasons import write_reason
from blizzard_py.ingest.request_steps import RequestRefused, Selected, Selection
from blizzard_py.requests.document import Request
from blizzard_py.requests.report import ReportLine
from blizzard_py.selection.candidates import PAGE_FILES, Page, read_page
from blizzard_py.selection.choose import Choice, choose
from blizzard_py.selection.claims import Claims
from blizzard_py.selection.replaced import replaced_since
from blizzard_py.selection.replacing import Replaceable
from blizzard_py.sources.earlier_batches import Earlier
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_file import read_ledger
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.source_state import Closing, SourceState, ToReplace, checkpoint_path

# Files that replace rows are looked up together: some may have to come in one commit.
REPLACED_AT_MOST = 10_000


def select(parts: Parts, state: SourceState, request: Request, wanted: Selection) -> Selected:
    """Return a page of a request's files. ``state`` is saved. Writes files of records alone.

    Raises `RequestRefused`, `StateError`, `StorageError`.
    """
    if request.kind == "close_letters":
        letters = tuple(request.select["letters"])
        lines = tuple(ReportLine(each, "closed") for each in letters)
        return Selected((), lines, "", is_last=True, letters=letters)
    page, choice, replacing = _selected(parts, state, request, wanted)
    return Selected(
        choice.entries,
        choice.lines,
        page.cursor,
        page.is_last,
        choice.ahead,
        replacing,
        tuple(each for each in page.letters if each not in choice.open_letters),
    )


def preview(parts: Parts, state: SourceState, request: Request) -> Iterator[ReportLine]:
    """Yield what a request would do with each file, as things are; raises as `select` does."""
    saved = parts.stores.sink.stat(checkpoint_path(parts.id))
    # A machine's clock may be anywhere: it is not before the last save.
    now = max(parts.clock(), 0.0 if saved is None else saved.modified)
    cursor, is_last = "", False
    while not is_last:
        page, choice, _ = _selected(parts, state, request, Selection(cursor, now))
        yield from choice.lines
        cursor, is_last = page.cursor, page.is_last


def _selected(
    parts: Parts, state: SourceState, request: Request, wanted: Selection
) -> tuple[Page, Choice, dict[str, ToReplace]]:
    options = request.options
    mode = options.get("mode", "add")
    insist = bool(options.get("assume_missing" if mode == "add" else "assume_named"))
    page = read_page(
        parts, request, wanted.cursor, REPLACED_AT_MOST if mode == "replace" else PAGE_FILES
    )
    if mode == "replace" and not page.is_last:
        raise RequestRefused(
            f"{parts.name}: more than {REPLACED_AT_MOST:,} files are chosen, and so many can be"
            " replaced at once; choose partitions or files with --from and --to that have fewer"
        )
    names = [each.path for each in page.candidates if is_of_records(each.path)]
    replaced = replaced_since(parts, state, names)
    ledger = read_ledger(parts.stores.sink, parts.id)
    claims = Claims(parts, state, ledger, wanted.now, replaced)
    choice = choose(page.candidates, claims, mode, wanted.brought, insist=insist)
    if mode != "replace":
        return page, choice, {}
    problems = {each.path for each in page.candidates if each.problem}
    unknown = [
        line.path for line in choice.lines if line.state == "refused" and line.path not in problems
    ]
    paths = [entry.path for entry in choice.entries]
    earlier = Replaceable(parts, insist).earlier([*paths, *unknown], unknown)
    lines = tuple(_with_rows(line, earlier.get(line.path), insist=insist) for line in choice.lines)
    return page, replace(choice, lines=lines), _to_replace(earlier, paths, insist=insist)


def _with_rows(line: ReportLine, earlier: Earlier | None, *, insist: bool) -> ReportLine:
    """The line of a file with what it was ingested as before."""
    if line.state != "taken" or earlier is None or not (earlier.batches or insist):
        return line
    found_by = "outputs" if earlier.together else "_source_file"
    return replace(line, before=earlier.rows, found_by=found_by)


def _to_replace(
    earlier: dict[str, Earlier], paths: list[str], *, insist: bool
) -> dict[str, ToReplace]:
    found = ((path, earlier[path]) for path in paths)
    return {
        path: ToReplace(tuple(batch.batch for batch in each.batches), each.together, insist)
        for path, each in found
    }


def put_letters_away(parts: Parts, request: Request, letters: tuple[str, ...]) -> None:
    """Move a request's letters to those that are dealt with. Raises `StorageError`."""
    closed = request.kind == "close_letters"
    reason = Closing(request.why, request.by, request.at) if closed else None
    close_letters(parts, letters, reason)


def close_letters(parts: Parts, letters: Iterable[str], reason: Closing | None) -> None:
    """Move letters to those that are dealt with, and keep the ``reason`` if there is one.

    Those that were moved before, by whoever died then, stay. Raises `StorageError`.
    """
    dlq, source_id = parts.stores.dlq, parts.letters_id
    for letter_id in letters:
        if reason is not None:
            write_reason(dlq, source_id, letter_id, reason)
        here, there = put_away(source_id, letter_id)
        with contextlib.suppress(NotFound):  # moved before a crash
            dlq.rename(here, there)
