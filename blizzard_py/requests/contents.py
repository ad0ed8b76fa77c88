"""Names in a mailbox, and what a listing of it says. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from blizzard_core.storage.protocol import Entry
from blizzard_py.requests.codec import RequestInvalid

REQUEST, CANCEL, ENDED = ".json", ".cancel.json", ".ended.json"

# With its endings it stays a name that every store takes.
_ID = re.compile(r"[0-9a-f]{8}\.[1-9][0-9]{0,17}")
_NAME = re.compile(rf"(?P<id>{_ID.pattern})(?P<rest>[./].+)", re.DOTALL)

# Objects by the id of their request and the rest of their name.
Found = dict[str, dict[str, Entry]]


@dataclass(frozen=True, slots=True)
class Contents:
    """Ids in the mailbox, by digest and number.

    ``open`` have no end record, ``ended`` have one, ``cancelled`` are the open ones with a
    cancellation.
    """

    open: tuple[str, ...]
    cancelled: frozenset[str]
    ended: tuple[str, ...]


def check_id(request_id: str) -> str:
    """Return an id that is one: no path can be made of it. Raises `RequestInvalid`."""
    if _ID.fullmatch(request_id) is None:
        raise RequestInvalid(f"{request_id!r} is no id of a request; list the requests")
    return request_id


def number_of(request_id: str) -> int:
    """Return the count at the end of an id."""
    return int(request_id.partition(".")[2])


def group_objects(entries: Iterable[Entry], folder: str) -> Found:
    """Return the objects of each request, ordered by digest and number, without foreign ones."""
    found: Found = {}
    for entry in entries:
        match = _NAME.fullmatch(entry.path.removeprefix(f"{folder}/"))
        if match is not None:
            found.setdefault(match["id"], {})[match["rest"]] = entry
    return {each: found[each] for each in sorted(found, key=_order)}


def contents_of(found: Found) -> Contents:
    """Return which requests are open, cancelled and ended."""
    ended = tuple(each for each, entries in found.items() if ENDED in entries)
    is_open = tuple(
        e for e, entries in found.items() if REQUEST in entries and ENDED not in entries
    )
    return Contents(is_open, frozenset(e for e in is_open if CANCEL in found[e]), ended)


def last_number(found: Found) -> int:
    """Return the highest number in use, 0 if there is none.

    A cancellation uses its number even without a request: it must never meet a new one.
    """
    used = {REQUEST, CANCEL, ENDED}
    return max(
        (number_of(each) for each, entries in found.items() if used & set(entries)), default=0
    )


def _order(request_id: str) -> tuple[str, int]:
    return request_id.partition(".")[0], number_of(request_id)
