"""Cancellations and end records of requests, as stored documents. Pure.

``7f3a9c2e.1.cancel.json`` and ``7f3a9c2e.1.ended.json`` beside ``7f3a9c2e.1.json``::

    {"v": 1, "by": "bob@ops-1", "at": "2026-11-25T09:13:00Z", "why": "wrong day"}
    {"v": 1, "kind": "mark_units", "state": "done", "reason": "", "at": 1764061944.0,
     "counts": {"units": 1}, "by": "ann@ops-3"}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from blizzard_py.requests.codec import Text, decode, parse
from blizzard_py.requests.progress import Ended

T = TypeVar("T")

_REMEDY = "restore it as it was written"


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
