"""What Penguin asks an object store once, before it acts there: the time, and one refusal.

Files carry the store's times, and the ages that decide (of files of others, of what the
log may have forgotten) are told by these, so a machine's clock that is wrong must not be
what they are compared with. And a commit must never replace another one of the same
version, so a store that ignores the condition of a write is found out before the first.

One small object serves both and stays: to make it where it is already is refused by
every store that honours conditions, and nobody can take it away from a twin that asks
at the same moment.
"""

from __future__ import annotations

from blizzard_core.errors import Conflict, Unavailable
from blizzard_core.storage.clock import StoreClock
from blizzard_core.storage.protocol import Storage
from penguin_py.model import CLOCK_SKEW_SECS


def probe_path(state_name: str) -> str:
    """Where an instance's object lies, relative to the table's directory."""
    return f"_penguin/{state_name}_probe"


def ask(storage: Storage, state_name: str, clock: StoreClock) -> None:
    """Set the clock to the store's; three requests, four the first time. Raises `StorageError`.

    Again before each sweep, which goes by times of files: the store's own clock may have been
    put right since. An hour off is no matter to it, and polls are not to see time jump.
    That is also what a store is told by that ignores conditions; see `Storage.put_if`.
    """
    path = probe_path(state_name)
    try:
        storage.put_if(path, b"", None)
    except Conflict:
        storage.put_atomic(path, b"")
    found = storage.stat(path)
    if found is None:
        raise Unavailable(f"{storage.uri}/{path}: is gone right after it was written")
    clock.put_right(found.modified, CLOCK_SKEW_SECS)
