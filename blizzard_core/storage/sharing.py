"""One client of a store for all who ask for the same.

A client of S3 alone costs 12 MiB and a quarter of a second, and each source has three storages or
four: hundreds of sources would be gigabytes that do nothing.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

# What nobody holds any more is let go of, and with it the credentials in its key.
_clients: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
_one_at_a_time = threading.Lock()
# Another thread may hold it at a fork, of which the child has none that would let go of it.
os.register_at_fork(after_in_child=_one_at_a_time._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001  # as logging does it


def shared(make: partial[T]) -> T:
    """What ``make`` gives, or what the same call has given in this process and is still held."""
    # A process that was forked off has none of the threads that its parent's clients work in.
    key = (os.getpid(), make.func, make.args, _frozen(make.keywords))
    with _one_at_a_time:
        found: T | None = _clients.get(key)
        if found is None:
            found = _clients[key] = make()
        return found


def _frozen(value: Any) -> Any:
    """A value that can be compared and hashed."""
    if isinstance(value, dict):
        return frozenset((name, _frozen(item)) for name, item in value.items())
    return value
