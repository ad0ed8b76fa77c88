"""From one answer to the next request, as configured. Pure.

No page counts as the last one if that is uncertain. With ``offset`` and ``page`` only a page
without records ends the pages, since servers may send fewer records than requested. A refusal also
ends them once all stated records have come: some servers have no page after their last one. If a
cursor or a link is missing although the page is full and none was ever seen, the path is probably
wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from blizzard_core.errors import SourceError, Unavailable
from blizzard_core.settings.http_sources import PagesSettings
from blizzard_py.connections.http.answer_text import AnswerText
from blizzard_py.connections.http.calls import Call
from blizzard_py.connections.http.hosts import target
from blizzard_py.connections.http.links import LinkError, links
from blizzard_py.connections.http.model import HttpSource

_MAX_DIGITS = 19
_SECOND = 2


@dataclass(frozen=True, slots=True)
class ApiPage:
    """One answer: its request, its records, and what it says about the next page.

    ``url`` is where it really came from. ``text`` is None for an answer without content. ``number``
    counts from 1. ``so_far`` counts the records up to and with this page.
    """

    call: Call
    url: str
    text: AnswerText | None
    records: int
    links: tuple[str, ...]
    number: int
    so_far: int
    what: str


def following(source: HttpSource, page: ApiPage) -> Call | None:
    """Return the next page's request, None after the last page.

    Raises `SourceError` if the next page cannot be requested, or if there would be more than
    ``pages.max`` pages.
    """
    call = _next(source, page)
    if call is not None and page.number >= source.pages.advanced.max:
        raise SourceError(
            f"{page.what}: there are more than {source.pages.advanced.max:,} pages"
            " (pages.advanced.max); raise it, or split the window into ranges; if the API always"
            " names a next page, set pages.advanced.end_on"
        )
    return call


def _next(source: HttpSource, page: ApiPage) -> Call | None:
    pages = source.pages
    if _ends(pages, page.records):
        return None
    match pages.kind:
        case "none":
            _check_only_page(page)
            return None
        case "offset" | "page":
            first = pages.advanced.first
            value = page.so_far if pages.kind == "offset" else first + page.number
            turned = page.call.with_value(pages.advanced.in_, pages.param or "", value)
            return turned if page.records else None
        case "link_header":
            return _by_header(source, page)
    return None if page.text is None else _stated(source, page, page.text)


def _ends(pages: PagesSettings, records: int) -> bool:
    """Return whether so few records end the pages, even if the answer names a next one."""
    end_on = pages.advanced.end_on
    is_short = "short" in end_on and records < (pages.size or 0)
    return is_short or ("empty" in end_on and records == 0)


def _stated(source: HttpSource, page: ApiPage, text: AnswerText) -> Call | None:
    """Return the next request by the value at ``pages.next``: a cursor or a link."""
    pages = source.pages
    stated = text.value(pages.next or "")
    if stated is None or stated == "":
        _check_end(pages, page, text)
        return None
    if pages.kind == "cursor":
        return page.call.with_value(pages.advanced.in_, pages.param or "", stated)
    return _linked(source, page, str(stated))


def _by_header(source: HttpSource, page: ApiPage) -> Call | None:
    """Return the next request by the ``Link`` headers.

    A link of another resource (``anchor``) is ignored.
    """
    try:
        found = [link for link in links(page.links) if link.has_relation("next")]
    except LinkError as error:
        raise SourceError(
            f"{page.what}: the Link header cannot be read: {error}. It may name a next page, so the"
            " window is not read without it; report this to the API's operator, or use another"
            " pages.kind"
        ) from None
    targets = {link.target for link in found if "anchor" not in link.params}
    if len(targets) == 1:
        return _linked(source, page, targets.pop())
    if found:
        which = (
            f"{len(targets)} different pages" if targets else "the next page of another resource"
        )
        raise SourceError(
            f'{page.what}: rel="next" of the Link header names {which}; use another pages.kind'
        )
    return None


def _check_only_page(page: ApiPage) -> None:
    """Raise `SourceError` if an answer without paging has a link to a next page."""
    try:
        is_followed = any(link.has_relation("next") for link in links(page.links))
    except LinkError:
        return
    if is_followed:
        raise SourceError(
            f"{page.what}: the answer has a Link to a next page, and pages.kind is none; set"
            " pages.kind: link_header, or the kind that the API's documentation names"
        )


def _linked(source: HttpSource, page: ApiPage, link: str) -> Call:
    """Return the request of a link.

    A link contains all its parameters. A relative one is relative to its page.
    """
    there = target(source.api, page.url, link, f"{page.what}: the next page")
    return replace(page.call, url=there.url, params={})


def _check_end(pages: PagesSettings, page: ApiPage, text: AnswerText) -> None:
    full = pages.size is not None and page.records >= pages.size
    if page.number == 1 and full and (why := text.missing(pages.next or "")):
        raise SourceError(
            f"{page.what}: the page is full, but names no next page: pages.next: {why}"
        )


class RepeatedPages:
    """Recognises a repeated page, for ``pages.end_on: [repeat]``.

    A page is a repeat if its records and the next page that it names equal those of an earlier
    page, byte for byte. An API with page numbers names no next page; there the records decide.
    """

    def __init__(self, pages: PagesSettings) -> None:
        self._pages = pages
        self._seen: set[bytes] = set()

    @property
    def are_the_end(self) -> bool:
        """Return whether a repeated page is configured as the end."""
        return "repeat" in self._pages.advanced.end_on

    def is_repeated(self, page: ApiPage, lines: Iterable[bytes], *, is_complete: bool) -> bool:
        """Return whether this page is the end because its records came before.

        A second page that repeats the first looks the same as an API that ignores ``param``. Then
        `SourceError` is raised, unless ``is_complete`` (all stated records came) or no page can
        follow: this one is short, empty, or its cursor is 0, the beginning.
        """
        if not self.are_the_end:
            return False
        mark = self._mark(page, lines)
        if mark not in self._seen:
            self._seen.add(mark)
            return False
        if page.number == _SECOND and not is_complete and self._may_be_unheeded(page):
            raise SourceError(
                f"{page.what}: it repeats the first page, as if the API ignored"
                f" '{self._pages.param}' (pages.param). Correct the name; if this is the end, set"
                " pages.size or pages.advanced.total, so that the last page can be recognised"
            )
        return True

    def _mark(self, page: ApiPage, lines: Iterable[bytes]) -> bytes:
        digest = hashlib.blake2b(repr(self._named(page)).encode(), digest_size=16)
        for piece in lines:
            digest.update(piece)
        return digest.digest()

    def _named(self, page: ApiPage) -> object:
        if self._pages.kind == "link_header":
            return page.links
        return page.text.value(self._pages.next) if page.text and self._pages.next else None

    def _may_be_unheeded(self, page: ApiPage) -> bool:
        if not self._pages.param or page.records == 0 or str(self._named(page)) == "0":
            return False
        return page.records >= (self._pages.size or 0)


class RecordTotals:
    """The check that as many records came as the answers state. Only with ``pages.total``."""

    def __init__(self, pages: PagesSettings) -> None:
        self._path = pages.advanced.total
        self._moves = pages.kind in {"offset", "page"}
        self._stated: int | None = None

    def see(self, page: ApiPage) -> None:
        """Record the total that a page states.

        Raises `SourceError` if the first page has no number. Raises `Unavailable` if a later page
        states another one and pages are counted off: a record that came or went has moved all
        records behind it.
        """
        if not self._path or page.text is None:
            return
        stated = page.text.value(self._path)
        if stated is None and page.number > 1:
            return
        digits = "" if stated is None else str(stated)
        if not (digits.isascii() and digits.isdigit() and len(digits) < _MAX_DIGITS):
            why = page.text.missing(self._path) or f"'{self._path}' is not a number of records"
            raise SourceError(f"{page.what}: pages.advanced.total: {why}")
        now, before = int(digits), self._stated
        if self._moves and page.records and before not in {None, now}:
            raise Unavailable(
                f"{page.what}: the API states {now:,} records, but {before:,} on an earlier page:"
                " records have moved between pages; the window is read again"
            )
        self._stated = max(before or 0, now)

    def are_met(self, so_far: int) -> bool:
        """Return whether a total is stated and as many records came."""
        return self._stated is not None and 0 < self._stated <= so_far

    def check(self, so_far: int, what: str) -> None:
        """Raise `SourceError` if records are missing after the last page."""
        if self._stated is not None and so_far < self._stated:
            raise SourceError(
                f"{what}: it was the last page, but only {so_far:,} of the"
                f" {self._stated:,} records came that the API states"
            )
