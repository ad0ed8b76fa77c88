"""Sets of names as sorted 16-byte digests: creation, look-up and storage.

A name is stored as its BLAKE2b digest. A million names take 16 MB however long they are, on disk
and in memory, and loading is reading. Two names with one digest would count as one: with n names
the chance of any such pair is n²/2¹²⁹.

On disk a set is a few immutable *segments*, ``{name}.digests``: magic, count, a checksum over name
and content, then the sorted digests. The set's owner decides which segments count
(`blizzard_py.state.processed_set`, `penguin_py.delta.output_ids`).

numpy is loaded when ``np`` of this module is first used: loading it takes a sixth of ``status``,
and a source that has done nothing has no digests.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from blizzard_core.errors import StateError
from blizzard_core.storage.protocol import Entry, Storage, listed_below

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("numpy"), name)

    np = _Numpy()


if TYPE_CHECKING:
    import numpy.typing as npt

WIDTH = 16
SUFFIX = ".digests"
# Segments shorter than this are merged with what comes: 64 KB are written anyhow.
TAIL = 4096

_MAGIC = b"blzdone1"
_HEADER = struct.Struct("<8sQ16s")  # magic, count, checksum

Digests: TypeAlias = "npt.NDArray[np.bytes_]"

_TYPE = f"S{WIDTH}"  # compares like bytes; all are of full length, so padding is moot


def digested(names: Iterable[bytes]) -> Digests:
    """Return the digests of the names, in their order."""
    packed = bytearray()  # grows in place: a million bytes objects would take 60 MB more
    for name in names:
        packed += hashlib.blake2b(name, digest_size=WIDTH).digest()
    return from_bytes(packed)


def from_bytes(content: bytes | bytearray) -> Digests:
    """Interpret concatenated digests."""
    return np.frombuffer(content, dtype=_TYPE)


def among(digests: Digests, ordered: Digests) -> npt.NDArray[np.bool_]:
    """Return which of the digests are in a sorted set."""
    if not len(ordered):
        return np.zeros(len(digests), dtype=np.bool_)
    at = np.searchsorted(ordered, digests)
    at[at == len(ordered)] = 0
    found: npt.NDArray[np.bool_] = ordered[at] == digests
    return found


def staying(counts: Sequence[int], fresh: int, tail: int = TAIL) -> int:
    """Return how many segments stay, longest first, next to ``fresh`` digests; the rest is merged.

    All but the last then have at least ``tail`` digests and twice as many as the next, so there are
    at most log₂(n / tail) + 2. A digest is rewritten only into a segment half as long again (or
    within the tail), so at most log₁.₅(n / tail) + 1 times beyond the tail.
    """
    place = len(counts)
    while place and counts[place - 1] < max(2 * fresh, tail):
        place -= 1
        fresh += counts[place]
    return place


def segments_in(storage: Storage, folder: str) -> Iterator[Entry]:
    """List the objects of a folder that are named like segments. Raises `StorageError`."""
    return (entry for entry in listed_below(storage, folder) if entry.path.endswith(SUFFIX))


def count_in(entry: Entry) -> int:
    """Return the number of digests in a segment by its size; a torn segment is rounded up.

    Reading a torn segment raises, so it must not count as empty.
    """
    if entry.size < _HEADER.size:
        return 1
    return -(-(entry.size - _HEADER.size) // WIDTH)


def write_segment(storage: Storage, path: str, digests: Digests) -> None:
    """Write a segment of sorted digests, whole or not at all. Raises `StorageError`."""
    content = digests.tobytes()
    header = _HEADER.pack(_MAGIC, len(digests), _checksum(path, content))
    storage.put_atomic(path, header + content)


def read_segment(storage: Storage, path: str, remedy: str) -> Digests:
    """Read the digests of a segment. Raises `NotFound`, or `StateError` if it is damaged."""
    where = f"{storage.uri}/{path}"
    raw = storage.read(path)
    content = raw[_HEADER.size :]
    if len(raw) < _HEADER.size or len(content) % WIDTH:
        raise StateError(f"{where}: is cut short, or no segment of digests; {remedy}")
    magic, count, checksum = _HEADER.unpack_from(raw)
    if magic != _MAGIC:
        raise StateError(
            f"{where}: is not a segment of digests in the form that this release reads; {remedy}"
        )
    if checksum != _checksum(path, content) or count * WIDTH != len(content):
        raise StateError(f"{where}: is damaged, its checksum does not match; {remedy}")
    return from_bytes(content)


def _checksum(path: str, content: bytes) -> bytes:
    """Hash the name as well, so that one segment cannot stand in for another."""
    name = path.rpartition("/")[2].removesuffix(SUFFIX)
    digest = hashlib.blake2b(name.encode(), digest_size=WIDTH)
    digest.update(content)
    return digest.digest()
