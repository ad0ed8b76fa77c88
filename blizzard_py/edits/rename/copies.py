"""Copying what is named after a source: journals, segments, dead letters.

Each object appears whole, and copying it again makes the same: a death costs the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import BinaryIO

from blizzard_core.errors import BlizzardError
from blizzard_core.limits import LETTER_BYTES
from blizzard_core.storage.failures import wrap_error
from blizzard_core.storage.protocol import Storage, listed
from blizzard_core.threads import ThreadPool
from blizzard_py.edits.rename.documents import letter_for

_TOGETHER = 64
_TEMPORARY = ".moving.tmp"
_BLOCK_BYTES = 256 << 10


def copy_folder(storage: Storage, old: str, new: str, concurrency: int) -> int:
    """Copy every object below ``old`` to ``new``; returns how many."""
    paths = (entry.path for entry in listed(storage, f"{old}/", f"{old}0"))

    def copy(path: str) -> None:
        storage.put_atomic(new + path[len(old) :], storage.read(path))

    count = 0
    with ThreadPool(max_workers=concurrency) as pool:
        while some := list(islice(paths, _TOGETHER)):
            count += sum(1 for _ in pool.map(copy, some))
    return count


def copy_letters(dlq: Storage, old: str, new: str, heads: Sequence[tuple[str, str]]) -> int:
    """Copy the dead letters below ``old`` with their files' URIs rewritten.

    With ``new`` the same as ``old`` they are rewritten in place. Returns how many objects
    there are; holds one line at a time.
    """
    count = 0
    for entry in list(listed(dlq, f"{old}/", f"{old}0")):
        if entry.path.endswith(".ndjson"):
            _copy_object(dlq, entry.path, new + entry.path[len(old) :], heads)
            count += 1
    return count


def _copy_object(dlq: Storage, path: str, target: str, heads: Sequence[tuple[str, str]]) -> None:
    temporary = f"{target}{_TEMPORARY}"
    with closing(dlq.open_input(path)) as source, closing(dlq.open_output(temporary)) as stream:
        try:
            for line in _lines(source):
                stream.write(letter_for(line, heads))
            stream.close()
        except BlizzardError:
            raise
        except Exception as error:  # store clients share no base class
            raise wrap_error(f"{dlq.uri}/{temporary}", error) from error
    dlq.sync(temporary)
    dlq.rename(temporary, target)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their ends; a line that is too long for a letter comes in pieces."""
    held = b""
    while block := stream.read(_BLOCK_BYTES):
        *whole, held = (held + block).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(held) > LETTER_BYTES:
            yield held
            held = b""
    if held:
        yield held


def count_below(storage: Storage, folder: str) -> int:
    """Return how many objects lie below a folder."""
    return sum(1 for _ in _below(storage, folder))


def _below(storage: Storage, folder: str) -> Iterator[str]:
    return (entry.path for entry in listed(storage, f"{folder}/", f"{folder}0"))
