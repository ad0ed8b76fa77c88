"""Candidates of a request: its files, a page at a time.

A request names files by their paths, by a range of names, or by dead letters
(`blizzard_py.selection.letters`). Only the files read decide where a page ends, so every reader
gets the same pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from blizzard_core.errors import Unavailable
from blizzard_core.storage.protocol import Entry, is_bare, is_hidden
from blizzard_core.threads import ThreadPool
from blizzard_core.watermark.name_range import LAST, NameRange
from blizzard_py.dead_letters.reasons import closed_ids
from blizzard_py.requests.document import Request
from blizzard_py.selection.letters import Candidate, LetterFiles
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import accepts_file, can_count, selection_of
from blizzard_py.sources.files.listing import listing_within
from blizzard_py.state.record_names import is_of_records

# Files of a page: the checkpoint lists them until they are done.
PAGE_FILES = 500
# So many letter objects are read for a page.
_PAGE_LETTERS = 100


@dataclass(frozen=True, slots=True)
class CandidatePage:
    """Candidates up to ``cursor``, where the next page begins, if this is not the last one.

    ``letters`` are the objects that it has read to their ends.
    """

    candidates: tuple[Candidate, ...]
    cursor: str
    is_last: bool
    letters: tuple[str, ...] = ()


def read_page(
    parts: SourceContext, request: Request, cursor: str, most: int = PAGE_FILES
) -> CandidatePage:
    """Return the page that begins at ``cursor``, the first at ``""``.

    It has ``most`` files, and more where one letter object tells of more. Raises `StorageError`,
    also where files are not there and the source shows nothing at all.
    """
    page = _page(parts, request, cursor, most)
    gone = [each.path for each in page.candidates if _is_missing(each)]
    is_empty = bool(request.select.get("range")) and not page.candidates
    if parts.has_files and (gone or is_empty) and is_bare(parts.stores.source):
        what = f"{min(gone)} may not be gone" if gone else "the range may not be empty"
        raise Unavailable(
            f"{parts.stores.source.uri} shows nothing at all, so {what}: mount it, or, if all was"
            " removed on purpose, put anything there, such as a hidden file, or cancel the request"
        )
    return page


def _is_missing(candidate: Candidate) -> bool:
    """Return whether a file is missing at the source."""
    in_source = not (candidate.problem or is_of_records(candidate.path))
    return in_source and candidate.entry is None


def _page(parts: SourceContext, request: Request, cursor: str, most: int) -> CandidatePage:
    select = request.select
    if select.get("files"):
        return _files(parts, select["files"], cursor, most)
    if select.get("range"):
        return _range(parts, select["range"], cursor, most)
    from_source = bool(request.options.get("from_source"))
    whole = request.options.get("mode") == "replace"
    closed = closed_ids(parts.stores.dlq, parts.letters_id)
    files = LetterFiles(parts, closed, from_source, whole)
    return _letters(files, select["letters"], cursor, most)


def _files(parts: SourceContext, paths: Sequence[str], cursor: str, most: int) -> CandidatePage:
    first = int(cursor or 0)
    some = paths[first : first + most]
    with ThreadPool(parts.concurrency) as pool:
        entries = list(pool.map(parts.stores.source.stat, some))
    found = tuple(map(Candidate, some, entries))
    end = first + len(some)
    return CandidatePage(found, str(end), end >= len(paths))


def _range(parts: SourceContext, ends: Sequence[str], cursor: str, most: int) -> CandidatePage:
    """Return the next files of a range, both ends included; an end may be a file."""
    first, last = ends
    listed = list(islice(_listed(parts, first, last, cursor), most + 1))
    some = listed[:most]
    found = tuple(Candidate(entry.path, entry) for entry in some)
    return CandidatePage(found, some[-1].path if some else cursor, len(listed) <= most)


def _listed(parts: SourceContext, first: str, last: str, cursor: str) -> Iterator[Entry]:
    source, accept = parts.files, accepts_file(parts.files)
    if not cursor:
        entry = parts.stores.source.stat(first)
        if entry is not None and accept(entry):
            yield entry
    # Claims tell of files outside of the source's range, so they are listed, too.
    listing = listing_within(
        parts.stores.source, NameRange(), selection_of(source), can_count(source)
    )
    for page in listing.list_range(cursor or first, f"{last}{LAST}"):
        for entry in page.entries:
            if accept(entry) and not is_hidden(entry.path):
                yield entry


def _letters(files: LetterFiles, ids: Sequence[str], cursor: str, most: int) -> CandidatePage:
    """Return the files of the next letter objects, each read to its end."""
    index, width = int(cursor or 0), files.parts.concurrency
    found: list[Candidate] = []
    ended: list[str] = []
    with ThreadPool(width) as pool:
        while index < len(ids) and len(found) < most and len(ended) < _PAGE_LETTERS:
            some = ids[index : index + width]
            for candidates in pool.map(files.files_of, some):
                found += candidates
            ended += some
            index += len(some)
    return CandidatePage(tuple(found), str(index), index >= len(ids), tuple(ended))
