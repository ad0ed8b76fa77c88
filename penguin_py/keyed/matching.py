"""A batch of changes against stored rows: which rows leave, and which changes win. Pure.

Of each key the batch has its newest change. A stored row of the key leaves if its sequence is lower
or equal; otherwise the change has lost. A change whose key is not stored may be older than a
delete that was merged before: `bury` takes such deletes. All rows have the same types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penguin_py.keyed import order
from penguin_py.keyed.order import Order

# Keys of a batch by their outcomes; the last two count rows.
OUTCOMES = ("new", "changed", "deleted", "older", "tied", "without_key")


class Leaving(NamedTuple):
    """The rows of a file that leave, and those of them with an equal sequence."""

    mask: pa.Array
    equal: pa.Array

    @property
    def is_complete(self) -> bool:
        """Return whether the file leaves, and no row has to be compared."""
        return bool(pc.all(self.mask).as_py() and not pc.any(self.equal).as_py())


class Matching:
    """The newest changes of one batch, and what was found out about each. Not thread-safe."""

    def __init__(self, rows: pa.Table, by: Order) -> None:
        """``rows`` are in order of arrival."""
        sound = order.complete(rows, by)
        self.rows, self.keys, self._tied = order.newest_rows(sound, by)
        self._order = by
        self._deletes = np.asarray(order.are_deletes(self.rows, by.deletes))
        self._stored, self._lost = np.zeros((2, len(self.keys)), bool)
        self._without_key = rows.num_rows - sound.num_rows

    def __len__(self) -> int:
        return len(self.keys)

    def meet(self, stored: pa.Table, sequence: Callable[[], pa.Table]) -> Leaving | None:
        """Compare with the keys of stored rows; None if none of them leaves.

        ``sequence`` reads the columns of their sequence, which is asked for once a key is found.
        """
        places, ours = self._found(stored)
        if not len(ours):
            return None
        above, equal = order.compare(self.rows.take(ours), sequence().take(places), self._order)
        leaves = np.asarray(pc.or_(above, equal))
        self._stored[ours] = True
        self._lost[ours[~leaves]] = True
        if not leaves.any():
            return None
        masks = np.zeros((2, stored.num_rows), bool)
        masks[0, places], masks[1, places] = leaves, np.asarray(equal)
        return Leaving(pa.array(masks[0]), pa.array(masks[1]))

    def count_ties(self, stored: pa.Table) -> None:
        """Count stored rows with an equal sequence and other content; they have all columns."""
        _, ours = self._found(stored)
        self._tied += order.count_different(stored, self.rows.take(ours))

    def unstored(self) -> pa.Table:
        """Return the upserts that met no stored row."""
        return self.rows.filter(pa.array(~(self._stored | self._deletes | self._lost)))

    def bury(self, deletes: pa.Table) -> None:
        """Let the upserts that met no stored row lose to higher deletes of earlier changes."""
        sound = order.complete(deletes, self._order)
        places, ours = self._found(sound)
        above, equal = order.compare(self.rows.take(ours), sound.take(places), self._order)
        lost = ours[~np.asarray(pc.or_(above, equal))]
        self._lost[lost[~self._stored[lost]]] = True

    def winners(self) -> pa.Table:
        """Return the upserts that won, sorted by key."""
        return self.rows.filter(pa.array(~(self._lost | self._deletes)))

    def outcomes(self) -> Counter[str]:
        """Count how the changes ended, once all stored rows were met."""
        stored, won, gone = self._stored, ~(self._lost | self._deletes), self._deletes & ~self._lost
        masks = (won & ~stored, won & stored, gone & stored, self._lost)
        counts = [*(int(mask.sum()) for mask in masks), self._tied, self._without_key]
        return Counter(dict(zip(OUTCOMES, counts, strict=True)))

    def _found(self, rows: pa.Table) -> tuple[Any, Any]:
        """Return the places of rows with a key of the batch, and the places of their changes."""
        # The keys of a file are copied nowhere, only the places.
        found = pc.index_in(order.key_values(rows, self._order.keys), value_set=self.keys)
        at = found.combine_chunks()
        return np.flatnonzero(pc.is_valid(at)), np.asarray(at.drop_null())
