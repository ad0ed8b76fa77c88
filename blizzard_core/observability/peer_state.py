"""State files of the other daemon, summarized for people.

They are read from the table's own directory, which each daemon may read anyway. So neither daemon
needs the other's address, a network path to it, or trust in its answers. A restart would continue
from the same state. Nothing depends on the result: unusual content is skipped, and each summary is
short and has the same keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from blizzard_core.errors import NotFound
from blizzard_core.limits import SHOWN_STATE_BYTES
from blizzard_core.redact import clean_text
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.text import json_value

# How many blocked groups are shown with the reason; the others are counted.
BLOCKED_SHOWN = 50
# JavaScript has no exact integers beyond this.
_LARGEST = 2**53
# The last second of the year 9999.
_LAST_MOMENT = 253_402_300_799


def source_state_path(source_id: str) -> str:
    """Return where a source of Blizzard keeps its state, relative to the table."""
    return f"_blizzard/{source_id}_checkpoint.json"


class StateFiles:
    """State files of one table; each is read again only after it changed."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._read: dict[Entry, dict[str, Any]] = {}

    def look(self, entries: Iterable[Entry]) -> dict[Entry, dict[str, Any]]:
        """Return the summary of each entry, ``odd`` if unreadable. Raises `StorageError`."""
        self._read = {
            entry: self._read[entry] if entry in self._read else self._document(entry)
            for entry in entries
        }
        return self._read

    def _document(self, entry: Entry) -> dict[str, Any]:
        if entry.size > SHOWN_STATE_BYTES:
            return summarize_state({}, f"has {entry.size:,} bytes, too many to look into")
        try:
            document = json_value(self.storage.read(entry.path))
        except NotFound:
            return summarize_state({}, "is gone")
        except ValueError:
            return summarize_state({}, "is no JSON")
        if not isinstance(document, dict):
            return summarize_state({}, "is no state")
        return summarize_state(document)


def summarize_state(document: dict[str, Any], odd: str = "") -> dict[str, Any]:
    """Summarize a state file of either daemon; ``odd`` says why it cannot be read.

    Pure.
    """
    watermark = _block(document, "watermark")
    totals = _block(document, "totals")
    log = _block(document, "log")
    process = _block(_block(document, "writer"), "process")
    in_flight = document.get("in_flight")
    blocked = _block(document, "blocked")
    return {
        "odd": odd,
        "state": text_of(watermark.get("state")),
        "watermark": text_of(watermark.get("value")),
        "updated": moment_of(document.get("last_update_ts")),
        "version": _version(log),
        "commits": number_of(document.get("txn_version")),
        "blocked": {
            clean_text(source): text_of(why) or "?"
            for source, why in islice(blocked.items(), BLOCKED_SHOWN)
        },
        "blocked_groups": len(blocked),
        "files": number_of(totals.get("files")),
        "rows": number_of(totals.get("rows")),
        "quarantined": number_of(totals.get("quarantined")),
        "in_flight": len(in_flight) if isinstance(in_flight, list) else 0,
        "host": text_of(process.get("host")),
        "pid": number_of(process.get("pid")),
    }


def _block(document: dict[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def text_of(value: Any) -> str | None:
    """Return a text without credentials, on one line, shortened; None for other values."""
    return clean_text(value) if isinstance(value, str) else None


def number_of(value: Any) -> float | None:
    """Return a number that JavaScript can represent; None for other values."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number and abs(value) <= _LARGEST else None


def moment_of(value: Any) -> float | None:
    """Return epoch seconds within the calendar; None for other values."""
    moment = number_of(value)
    return moment if moment is not None and 0 <= moment <= _LAST_MOMENT else None


def _version(log: dict[str, Any]) -> float | None:
    """Return the newest version that a committer knows; None if it knows none."""
    known = [n for key in ("version", "own_version") if (n := number_of(log.get(key))) is not None]
    newest = max(known, default=-1)
    return None if newest < 0 else newest
