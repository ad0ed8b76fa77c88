"""Requests as stored documents. Pure.

``_blizzard/requests/{source id}/7f3a9c2e.1.json``::

    {"v": 1, "kind": "mark_units", "select": {"units": ["2024-01-28T00:00:00.000Z/eu"]},
     "options": {}, "config": "sha256:5b1c…", "release": "0.1.0", "by": "ann@ops-3",
     "at": "2026-11-25T09:12:04Z", "why": "corrected day"}

A cancellation (``7f3a9c2e.1.cancel.json``) and an end record (``….ended.json``) lie beside it::

    {"v": 1, "by": "bob@ops-1", "at": "2026-11-25T09:13:00Z", "why": "wrong day"}
    {"v": 1, "kind": "mark_units", "state": "done", "reason": "", "at": 1764061944.0,
     "counts": {"units": 1}, "by": "ann@ops-3"}

Anybody who may write to the table's directory may have written one. So each text has a limit, and
a document that is not understood is refused and never guessed at.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from blizzard_core.limits import REQUEST_FILES, REQUEST_LETTERS, REQUEST_UNITS
from blizzard_py.requests.codec import (
    RequestInvalid,
    Text,
    canonical,
    decode,
    parse,
    unknown,
)
from blizzard_py.requests.progress import Ended

Kind = Literal["mark_units", "advance_watermark", "reingest", "close_letters"]
Mode = Literal["add", "replace", "again"]

T = TypeVar("T")

# Kinds that take several saves; all others take effect in one.
BRINGING: frozenset[Kind] = frozenset({"reingest", "close_letters"})

_LETTER_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")

CANCEL_IT = "cancel it, and give the command again"
_REMEDY = "restore it as it was written"

# The range of a Python datetime: nothing beyond it can be shown.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An operator's order. ``config`` is the fingerprint of the configuration it was made with.

    ``by``, ``at`` (ISO time) and ``why`` are what the author says, and proof of nothing. Rows of
    batches from ``since`` on came after it was made, as far as is known.
    """

    kind: Kind
    select: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Text
    by: Text
    at: Text
    why: Text
    release: Text
    since: Text = ""


@dataclass(frozen=True, slots=True)
class MarkUnits:
    """``select`` of ``mark_units``: keys of the units to read again."""

    units: Annotated[list[str], msgspec.Meta(min_length=1, max_length=REQUEST_UNITS)]


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """``select`` of ``advance_watermark``: the new watermark in epoch milliseconds."""

    to_ms: Annotated[int, msgspec.Meta(ge=_FIRST_MS, le=_LAST_MS)]


@dataclass(frozen=True, slots=True)
class Reingest:
    """``select`` of ``reingest``: exactly one of file paths, a range of names, letters, values.

    Both ends of a range are included and cover all names that begin with them. ``values`` are of
    the watermark column of a table or an API: from the first up to and excluding the second; an
    empty one means the end.
    """

    files: Annotated[list[str], msgspec.Meta(max_length=REQUEST_FILES)] = field(
        default_factory=list
    )
    range: tuple[str, str] | None = None
    letters: Annotated[list[str], msgspec.Meta(max_length=REQUEST_LETTERS)] = field(
        default_factory=list
    )
    values: tuple[Text, Text] | None = None

    def __post_init__(self) -> None:
        if sum(map(bool, (self.files, self.range, self.letters, self.values))) != 1:
            raise ValueError("needs one of files, range, letters and values")
        _check_paths((*self.files, *(self.range or ())))
        _check_ids(self.letters)


@dataclass(frozen=True, slots=True)
class ReingestOptions:
    """``options`` of ``reingest``.

    ``add`` brings what has no rows, ``replace`` takes rows of before out, and ``again`` brings rows
    beside them. Of files of which nobody knows, ``assume_missing`` says that no rows are in, and
    ``assume_named`` that all their rows name their file. ``from_source`` reads records of letters
    from their files. Values are read in pieces of a ``chunk``, all at once without one; with
    ``begin_live_at_end`` a source that has not begun begins where they end.
    """

    mode: Mode = "add"
    assume_missing: bool = False
    assume_named: bool = False
    from_source: bool = False
    chunk: Text = ""
    begin_live_at_end: bool = False


@dataclass(frozen=True, slots=True)
class CloseLetters:
    """``select`` of ``close_letters``: objects of dead letters to close without ingestion."""

    letters: Annotated[list[str], msgspec.Meta(min_length=1, max_length=REQUEST_LETTERS)]

    def __post_init__(self) -> None:
        _check_ids(self.letters)


def _check_paths(paths: Iterable[str]) -> None:
    """Raise `ValueError` for what is no name below a root."""
    for path in paths:
        if path.startswith("/") or not {".", ".."}.isdisjoint(path.split("/")):
            raise ValueError(f"{path!r} is no path below the source's root")


def _check_ids(letters: Iterable[str]) -> None:
    """Raise `ValueError` for what is no id of letters: it becomes a name in their folder."""
    for letter in letters:
        if _LETTER_ID.fullmatch(letter) is None:
            raise ValueError(f"{letter!r} is no id of dead letters; `blizzard dlq list` names them")


@dataclass(frozen=True, slots=True)
class NoOptions:
    """``options`` of a kind that has none: one of a later release is refused, not ignored."""


# What `select` and `options` hold.
_FORMS: Mapping[Kind, tuple[type[Any], type[Any]]] = {
    "mark_units": (MarkUnits, NoOptions),
    "advance_watermark": (AdvanceWatermark, NoOptions),
    "reingest": (Reingest, ReingestOptions),
    "close_letters": (CloseLetters, NoOptions),
}


def inputs(request: Request) -> bytes:
    """Return the part of a request that decides what it does, in a form to compare."""
    return canonical(
        {
            "kind": request.kind,
            "select": request.select,
            "options": request.options,
            "config": request.config,
        }
    )


def digest(request: Request) -> str:
    """Return 8 hex digits of the `inputs`: equal for a command that is given again."""
    return hashlib.sha256(inputs(request)).hexdigest()[:8]


def request_of(raw: bytes, where: str, remedy: str = CANCEL_IT) -> Request:
    """Return the request that stored bytes describe. Raises `RequestInvalid`."""
    head, document = parse(raw, where, remedy)
    if "kind" in document and head.kind not in get_args(Kind):
        raise unknown(f"{where}: kind: {head.kind!r}", head, remedy)
    request = decode(Request, document, where, remedy)
    select, options = _FORMS[request.kind]
    decode(select, request.select, f"{where}: select", remedy)
    decode(options, request.options, f"{where}: options", remedy)
    if not _is_time(request.at):
        raise RequestInvalid(f"{where}: at: {request.at!r} is no ISO time with a zone; {remedy}")
    return request


def _is_time(text: str) -> bool:
    try:
        return dt.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """A cancellation: its author, the ISO time and the reason."""

    by: Text
    at: Text
    why: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The result of a request. ``at`` is the epoch second of the change that ended it.

    All of it comes from the checkpoint and the request, so every writer writes the same bytes.
    """

    kind: str
    state: Ended
    at: float
    reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    by: Text = ""


def record_of(kind: type[T], raw: bytes, where: str) -> T:
    """Return the record that stored bytes describe. Raises `RequestInvalid`."""
    _, document = parse(raw, where, _REMEDY)
    return decode(kind, document, where, _REMEDY)
