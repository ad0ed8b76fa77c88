"""Ids of batches, and the completeness of the journal's batches that are not folded yet.

If a journal object is lost, the files of its batch look new. So the checkpoint has the number of
batches that were written and not folded, and the exclusive or of their digests. Both agree with a
listing if and only if no object was lost.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Self

from blizzard_core.errors import StateError

_MILLIS_SHIFT = 80
_BELOW_MILLIS = (1 << _MILLIS_SHIFT) - 1


def raise_id(made: str, last: str) -> str:
    """Return the new id ``made``, moved above ``last``, the highest so far, if it is not above.

    ``last`` need not be an id, as before the first batch of a source. A stale checkpoint is
    recognised by higher ids in the journal and in the table's log. A machine's clock may have been
    ahead and corrected since; ids that followed it back would hide these batches.
    """
    value = uuid.UUID(made).int
    millis = max(value >> _MILLIS_SHIFT, millis_of(last) + 1)
    return str(uuid.UUID(int=millis << _MILLIS_SHIFT | value & _BELOW_MILLIS))


def millis_of(batch: str) -> int:
    """Return the time in the id of a batch, in milliseconds; 0 if it is no id."""
    try:
        return uuid.UUID(batch).int >> _MILLIS_SHIFT
    except ValueError:
        return 0


_NOTHING = f"{0:032x}"
_REMEDY = (
    "Restore the journal, or accept what the checkpoint has passed with `blizzard checkpoint"
    " rebuild`"
)


@dataclass(frozen=True, slots=True)
class JournalTally:
    """The journal's batches that are not folded: their lowest id, their number and their mix.

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
    """Raise `StateError` naming the journal ``where``, unless it has the expected batches."""
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
