"""What the other daemon has written down of a table, for people: state files as they lie there.

It is read from the table's own directory, which each daemon may read anyway. So neither needs the
other's address, a way through the network to it, or trust in whoever answers there; and what
is shown is what a restart would go on from. Nothing is decided by it: what is odd is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from blizzard_core.bounds import SHOWN_STATE_BYTES
from blizzard_core.errors import NotFound
from blizzard_core.json_text import json_value
from blizzard_core.storage.protocol import Entry, Storage


def source_state_path(source_id: str) -> str:
    """Where a source of Blizzard keeps its state, relative to the table."""
    return f"_blizzard/{source_id}_checkpoint.json"


class StateFiles:
    """State files of one table, each of which is read again only once it has changed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read: dict[Entry, dict[str, Any]] = {}

    def look(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, dict[str, Any]]]:
        """Each with its document, empty where that is none. Raises `StorageError`."""
        known = {}
        for entry in entries:
            document = self._read.get(entry)
            known[entry] = self._document(entry) if document is None else document
            yield entry, known[entry]
        self._read = known

    def _document(self, entry: Entry) -> dict[str, Any]:
        if entry.size > SHOWN_STATE_BYTES:
            return {}
        try:
            document = json_value(self._storage.read(entry.path))
        except (NotFound, ValueError):
            return {}
        return told_of(document) if isinstance(document, dict) else {}


def told_of(document: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a state file of either daemon. Pure."""
    watermark = _block(document, "watermark")
    totals = _block(document, "totals")
    log = _block(document, "log")
    process = _block(_block(document, "writer"), "process")
    in_flight = document.get("in_flight")
    return {
        "state": _text(watermark.get("state")),
        "watermark": _text(watermark.get("value")),
        "updated": _number(document.get("last_update_ts")),
        "version": _version(log),
        "commits": _number(document.get("txn_version")),
        "blocked": {str(source): str(why) for source, why in _block(document, "blocked").items()},
        "files": _number(totals.get("files")),
        "rows": _number(totals.get("rows")),
        "quarantined": _number(totals.get("quarantined")),
        "in_flight": len(in_flight) if isinstance(in_flight, list) else 0,
        "host": _text(process.get("host")),
        "pid": _number(process.get("pid")),
    }


def _block(document: dict[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _version(log: dict[str, Any]) -> float | None:
    """The newest version that a committer knows of; -1 says that there is none."""
    known = [n for key in ("version", "own_version") if (n := _number(log.get(key))) is not None]
    newest = max(known, default=-1)
    return None if newest < 0 else newest
