"""The proposed watermark column, and the reason. Pure.

The best column is the time of a row's last change, because changed rows are read again. Without an
index on it the server reads the whole table for each window. The next choice is a numeric primary
key: it finds new rows, but not changed ones. Columns that may not grow are never proposed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from blizzard_core.errors import ConfigError
from blizzard_core.settings.query_sources import COLUMN
from blizzard_py.connections.protocol import SourceColumn

_CHANGED = re.compile(r"updat|modif|chang|edited|touched|synced", re.IGNORECASE)
# Text counts where its name says that it is a time: SQLite and files have no type for one.
_TIME_NAME = re.compile(r"(_|\b)(at|on|ts|time|date)$|(At|On|Ts|Time|Date)$|timestamp", re.ASCII)


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Facts about a table: its columns, those that an index gives in order, its key.

    ``indexed`` is None where there are no indexes at all (lakes, APIs). ``text_times``: text
    may be a time, as it is stored.
    """

    columns: Sequence[SourceColumn]
    key: Sequence[str] = ()
    indexed: Collection[str] | None = None
    text_times: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """A column, and the reasons for it, a line each."""

    column: str
    why: tuple[str, ...]


def proposed(facts: ColumnFacts, what: str) -> Proposal:
    """Propose a watermark. Raises `ConfigError` if no column is known to grow."""
    times = _times(facts)
    changed = [name for name in times if _CHANGED.search(name)]
    others = [name for name in times if name not in changed]
    indexed = times if facts.indexed is None else facts.indexed
    reason = "" if facts.indexed is None else ", and an index gives its order"
    for name in changed:
        if name in indexed:
            return Proposal(name, (f"{name}: a time that finds changed rows{reason}.",))
    key = _growing_key(facts)
    if key is not None:
        return Proposal(key, _why_key(key, changed))
    for name in sorted([*changed, *others], key=lambda name: name not in indexed):
        return Proposal(name, _why_other(name, changed, indexed))
    there = ", ".join(f"{column.name} ({column.type})" for column in facts.columns) or "none"
    problem = (
        "no column surely grows with new rows: there is neither a time nor a numeric primary key."
        f" Columns: {there}. Name one with --column"
    )
    raise ConfigError(what, [problem])


def candidates(columns: Sequence[SourceColumn]) -> list[str]:
    """Return the columns for which an index matters."""
    return [c.name for c in columns if c.kind in ("time", "date", "text") and _usable(c.name)]


def _times(facts: ColumnFacts) -> list[str]:
    """Return candidates: times, dates (their windows end yesterday), then text."""
    kinds = ["time", "date"]
    found = [c.name for kind in kinds for c in facts.columns if c.kind == kind]
    if facts.text_times:
        found += [c.name for c in facts.columns if c.kind == "text" and _TIME_NAME.search(c.name)]
    return [name for name in found if _usable(name)]


def _usable(name: str) -> bool:
    return COLUMN.fullmatch(name) is not None and "." not in name


def _growing_key(facts: ColumnFacts) -> str | None:
    numbers = [c.name for c in facts.columns if c.kind == "number"]
    if len(facts.key) != 1 or facts.key[0] not in numbers or not _usable(facts.key[0]):
        return None
    return facts.key[0]


def _why_key(key: str, changed: Sequence[str]) -> tuple[str, ...]:
    reasons = [f"{key}: the primary key finds new rows, but not changed ones."]
    reasons += [
        f"{name} would tell those, too, but no index gives its order: create one, and name it here."
        for name in changed[:1]
    ]
    return tuple(reasons)


def _why_other(name: str, changed: Sequence[str], indexed: Collection[str]) -> tuple[str, ...]:
    reason = (
        "finds changed rows" if name in changed else "finds new rows if it is set when they come"
    )
    cost = () if name in indexed else ("No index gives its order: each window reads everything.",)
    return (f"{name}: a time; it {reason}.", *cost)
