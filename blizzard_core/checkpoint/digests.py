"""Sets of names as sorted 16-byte digests: how they are made and looked up. Pure.

What is kept of a name is its BLAKE2b digest, so a million names are 16 MB however long they
are, on disk and in memory alike, and are loaded by reading them. Two names with one digest
would be taken for one: with n names the chance that any two agree is n²/2¹²⁹. Who keeps a set
decides how it is stored (`blizzard_py.state.processed_set`, `penguin_py.delta.output_ids`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

WIDTH = 16

Digests: TypeAlias = npt.NDArray[np.bytes_]

_TYPE = np.dtype(f"S{WIDTH}")  # compares like bytes; all are of full length, so padding is moot


def digested(names: Iterable[bytes]) -> Digests:
    """What is kept of the names, in their order."""
    packed = bytearray()  # grows in place: a million bytes objects would take 60 MB more
    for name in names:
        packed += hashlib.blake2b(name, digest_size=WIDTH).digest()
    return from_bytes(packed)


def from_bytes(content: bytes | bytearray) -> Digests:
    """Digests that lie end to end."""
    return np.frombuffer(content, dtype=_TYPE)


def among(digests: Digests, ordered: Digests) -> npt.NDArray[np.bool_]:
    """Which of the digests are in a sorted set."""
    if not len(ordered):
        return np.zeros(len(digests), dtype=np.bool_)
    at = np.searchsorted(ordered, digests)
    at[at == len(ordered)] = 0
    found: npt.NDArray[np.bool_] = ordered[at] == digests
    return found
