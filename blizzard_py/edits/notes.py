"""Notes on manual changes of a checkpoint: one beside each backup.

``…_checkpoint.json.epoch-{n}.bak.note.json``::

    {"by": "ann@ops-3", "at": 1706450400.0, "why": "the vendor sent a day again", "number": 3}
"""

from __future__ import annotations

import getpass
import json
import socket
from dataclasses import asdict, dataclass
from functools import partial

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import load
from blizzard_core.storage.protocol import Storage

_SUFFIX = ".note.json"


@dataclass(frozen=True, slots=True)
class Note:
    """The person who replaced the checkpoint, the time (epoch seconds) and the reason.

    ``number`` counts the backups; 0 without a count.
    """

    by: str
    at: float
    why: str = ""
    number: int = 0


def current_user() -> str:
    """Return the user and the machine, as far as they have names."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container's user may have none
        return socket.gethostname()


def write_note(sink: Storage, backup: str, note: Note) -> None:
    """Keep it; durable on return. Raises `StorageError`."""
    data = json.dumps(asdict(note), ensure_ascii=False).encode("utf-8", "backslashreplace")
    sink.put_atomic(f"{backup}{_SUFFIX}", data)


def note_of(sink: Storage, backup: str) -> Note | None:
    """Return the note of a copy; None without one. Raises `StateError`."""
    return load(sink, f"{backup}{_SUFFIX}", partial(decode_document, Note))


def drop(sink: Storage, backup: str) -> None:
    """Remove a copy, and its note after it."""
    sink.delete(backup)
    sink.delete(f"{backup}{_SUFFIX}")
