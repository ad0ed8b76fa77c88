"""Completeness of the journal: which batches it must hold that the ledger has not taken in.

A file of a batch whose journal object is gone looks like a file that nobody has ingested. So the
checkpoint counts the batches that were written and not folded yet, and keeps the exclusive or of
their digests. Both agree with a listing if and only if no object was lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Self

from blizzard_core.errors import StateError

_NOTHING = f"{0:032x}"
_REMEDY = (
    "Restore the journal, or accept what the checkpoint has passed with `blizzard checkpoint"
    " rebuild`"
)


@dataclass(frozen=True, slots=True)
class JournalTally:
    """Batches of the journal that are not folded: their lowest id, how many, and their mix.

    ``mix`` is the exclusive or of their digests, in 32 hexadecimal digits.
    """

    first: str = ""
    count: int = 0
    mix: str = _NOTHING

    def with_batch(self, batch: str) -> Self:
        """Return the tally with one more batch."""
        return type(self)(
            min(self.first, batch) if self.count else batch,
            self.count + 1,
            _mixed(self.mix, batch),
        )

    def agrees_with(self, found: Iterable[str]) -> bool:
        """Return whether exactly the batches of the tally were ``found``."""
        there = tally_of(found)
        return (there.count, there.mix) == (self.count, self.mix)


def check_tally(expected: JournalTally, found: Iterable[str], where: str) -> None:
    """Raise `StateError` naming the journal ``where``, unless it holds exactly what it must."""
    batches = list(found)
    if not expected.agrees_with(batches):
        raise StateError(
            f"{where}: holds {len(batches)} batch(es) that are in no segment yet, and not the"
            f" {expected.count} that the checkpoint counts, so files of them would come again."
            f" {_REMEDY}"
        )


def tally_of(batches: Iterable[str]) -> JournalTally:
    """Return the tally of these batches."""
    return reduce(JournalTally.with_batch, batches, JournalTally())


def _mixed(mix: str, batch: str) -> str:
    digest = hashlib.blake2b(batch.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return f"{int(mix, 16) ^ int.from_bytes(digest):032x}"
