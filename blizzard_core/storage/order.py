"""The order of a listing, which every poll relies on and not every server keeps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from blizzard_core.errors import StorageError, Unavailable
from blizzard_core.storage.protocol import Entry, ListingPage, order_key


class Ascending:
    """A check that the keys of one listing ascend in UTF-8 byte order, page by page.

    A poll asks for keys above a name. A server that lists in another order would hide keys that it
    sorts below, and nobody would notice.
    """

    def __init__(self, uri: str, after: str, *, inclusive: bool = False) -> None:
        """Begin at ``after``; with ``inclusive`` it may be the first key."""
        self._uri = uri
        self._last = after
        self._may_repeat = inclusive
        self._token = ""

    def check(self, paths: Iterable[str]) -> None:
        """Raise `StorageError` at the first key that is not above the one before it."""
        last = order_key(self._last)
        for path in paths:
            key = order_key(path)
            if key < last or (key == last and self._last and not self._may_repeat):
                raise StorageError(
                    f"{self._uri}/: this store does not list keys in the order of their bytes: it"
                    f" lists {path!r} behind {self._last!r}, so new files would never be found;"
                    " use a store or a server version that does (docs/reference/guarantees.md)"
                )
            self._last, last, self._may_repeat = path, key, False

    def check_goes_on(self, paths: Sequence[str], token: str) -> None:
        """Raise `Unavailable` if an empty page names itself as the next one, which would never end.

        ``token`` is the page's continuation token.
        """
        if not paths and token == self._token:
            raise Unavailable(
                f"{self._uri}/: the store answers a listing with an empty page that names itself"
                " as the next one, so it would never end. It is tried again; if this stays, check"
                " the store, or a proxy before it"
            )
        self._token = token


def pages_in_order(
    uri: str,
    after: str,
    until: str | None,
    ask: Callable[[str | None], tuple[Sequence[Entry], str | None]],
    *,
    inclusive: bool = False,
) -> Iterator[ListingPage]:
    """Yield the pages of a listing, each checked, up to the first key past ``until``.

    ``ask`` gets the token of a page, None for the first one. It returns the keys and the token of
    the next page: None at the end, empty if the store has left it out. With ``inclusive`` the
    listing may begin with ``after``, which is left out here.
    """
    order = Ascending(uri, after, inclusive=inclusive)
    token: str | None = None
    while True:
        found, token = ask(token)
        paths = [each.path for each in found]
        order.check(paths)
        first = bisect_right(paths, order_key(after), key=order_key)
        end = len(paths) if until is None else bisect_left(paths, order_key(until), key=order_key)
        # A console's folder marker ends with a slash.
        entries = tuple(each for each in found[first:end] if not each.path.endswith("/"))
        yield ListingPage(entries, 1, len(found))
        if end < len(paths) or token is None:
            return
        if not token:
            raise Unavailable(f"{uri}/: a listing was cut off without a way to go on")
        order.check_goes_on(paths, token)
