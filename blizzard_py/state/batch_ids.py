"""Ids of batches: UUIDv7, each of a later millisecond than every one of its source before.

A stale checkpoint is known by the ids of later batches, in the journal and in the table's log. The
clock of a machine may have been ahead, and put right since; ids that went back with it would hide
these batches behind those of before.
"""

from __future__ import annotations

import uuid

_MILLIS_SHIFT = 80
_BELOW_MILLIS = (1 << _MILLIS_SHIFT) - 1


def above(made: str, last: str) -> str:
    """Return the id ``made`` now, moved behind ``last``, the highest so far, where it is not.

    ``last`` may be none, as before the first batch of a source.
    """
    value = uuid.UUID(made).int
    millis = max(value >> _MILLIS_SHIFT, millis_of(last) + 1)
    return str(uuid.UUID(int=millis << _MILLIS_SHIFT | value & _BELOW_MILLIS))


def millis_of(batch: str) -> int:
    """Return the time in the id of a batch, in milliseconds; 0 for what is none."""
    try:
        return uuid.UUID(batch).int >> _MILLIS_SHIFT
    except ValueError:
        return 0
