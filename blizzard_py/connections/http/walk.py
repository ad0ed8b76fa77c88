"""The pages of one request, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import Raw

from blizzard_core.errors import SourceError, Unavailable
from blizzard_core.text import printable, shortened
from blizzard_py.connections.http.answer_text import AnswerText, Truncated
from blizzard_py.connections.http.calls import Call, with_first_page
from blizzard_py.connections.http.client import Answer, Client, Refused
from blizzard_py.connections.http.model import HttpSource
from blizzard_py.connections.http.paging import ApiPage, RecordTotals, RepeatedPages, following

# Status of a page after the last one.
_NO_SUCH_PAGE = frozenset({400, 404, 416, 422})
_ENDLESS = (
    "the same request as for an earlier page, so reading would never end. If that is how the API"
    " marks its end, set pages.advanced.end_on to repeat, empty or short (see its documentation)"
)
_OTHER_RECORDS = (
    "the same request as for an earlier page has another answer, so rows may be lost or doubled;"
    " pages.advanced.end_on: repeat needs exact repetition; use empty or short"
)


@dataclass(slots=True)
class LoadedPage:
    """A page and its records, which are parts of its text. Invalid once the next one is loaded."""

    page: ApiPage
    records: Sequence[Raw]

    def forget(self) -> None:
        """Release the text even if the page is still referenced, to save memory."""
        self.page, self.records = replace(self.page, text=None), ()

    def lines(self, records: Sequence[Raw]) -> Iterator[bytes]:
        """Yield some of the records as NDJSON, in pieces of whole lines."""
        return self.page.text.lines(records) if self.page.text else iter(())

    def page_lines(self) -> Iterator[bytes]:
        """Yield all records, line by line."""
        return (line for piece in self.lines(self.records) for line in piece.split(b"\n") if line)


def walk(client: Client, source: HttpSource, first: Call) -> Iterator[LoadedPage]:
    """Yield every page; the next one is requested when the previous was used. Holds one at a time.

    Raises `Unavailable` and `AccessDenied` as the client does. Raises `SourceError` for what can
    never succeed: the same request twice, more pages than ``pages.max``, answers without records,
    fewer records than stated.
    """
    call: Call | None = with_first_page(source.pages, first)
    known_calls: set[bytes] = set()
    totals, repeats = RecordTotals(source.pages), RepeatedPages(source.pages)
    number = so_far = 0
    while call is not None:
        number += 1
        what = f"{call.address}, page {number:,}"
        is_repeated = call.digest() in known_calls
        if is_repeated and not repeats.are_the_end:
            raise SourceError(f"{what}: {_ENDLESS}")
        known_calls.add(call.digest())
        try:
            # No variable here may keep the answer: the page releases it.
            turned = _load_page(client.send(call, what), call, source, (number, so_far, what))
        except Refused as refused:
            counts = number > 1 and source.pages.kind in {"offset", "page"}
            if counts and refused.status in _NO_SUCH_PAGE and totals.are_met(so_far):
                return
            raise
        if repeats.is_repeated(
            turned.page, turned.lines(turned.records), is_complete=totals.are_met(so_far)
        ):
            totals.check(so_far, what)
            return
        if is_repeated:
            raise SourceError(f"{what}: {_OTHER_RECORDS}")
        so_far = turned.page.so_far
        totals.see(turned.page)
        yield turned
        call = following(source, turned.page)
        if call is None:
            totals.check(so_far, what)
        turned.forget()


def _load_page(
    answer: Answer, call: Call, source: HttpSource, at: tuple[int, int, str]
) -> LoadedPage:
    number, so_far, what = at
    if answer.is_empty:
        return LoadedPage(
            ApiPage(call, answer.url, None, 0, answer.links, number, so_far, what), ()
        )
    kind = answer.headers.get("content-type", "")
    problem = what if "json" in kind else f"{what} ({shortened(printable(kind), 60) or 'no type'})"
    try:
        text = AnswerText(answer.body, problem)
        records = text.records(source.records)
    except Truncated as cut:
        if answer.framed:
            raise
        raise Unavailable(f"{cut}, and its end was not marked") from None
    count = len(records)
    page = ApiPage(call, answer.url, text, count, answer.links, number, so_far + count, what)
    return LoadedPage(page, records)
