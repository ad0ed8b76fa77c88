"""A batch of changes against stored rows: which rows leave, and which changes win. Pure.

Of each key the batch has its newest change. A stored row of the key leaves if its sequence is lower
or equal; otherwise the change has lost. A change whose key is not stored may be older than a
delete that was merged before: `bury` takes such deletes. All rows have the same types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.keyed import DeleteCondition
from penguin_py.keyed.deletes import are_deletes
from penguin_py.keyed.order import (
    Order,
    compare,
    complete,
    count_different,
    key_values,
    newest_rows,
)

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

    def __init__(self, rows: pa.Table, order: Order, deletes: DeleteCondition | None) -> None:
        """``rows`` are in order of arrival."""
        sound = rows.filter(complete(rows, order))
        self.rows, self.keys, self._tied = newest_rows(sound, order)
        self._order = order
        self._deletes = np.asarray(are_deletes(self.rows, deletes))
        self._stored = np.zeros(len(self.keys), bool)
        self._lost = np.zeros(len(self.keys), bool)
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
        above, equal = compare(self.rows.take(ours), sequence().take(places), self._order)
        leaves = np.asarray(pc.or_(above, equal))
        self._stored[ours.to_numpy()] = True
        self._lost[ours.to_numpy()[~leaves]] = True
        if not leaves.any():
            return None
        masks = np.zeros((2, stored.num_rows), bool)
        masks[0, places.to_numpy()] = leaves
        masks[1, places.to_numpy()] = np.asarray(equal)
        return Leaving(pa.array(masks[0]), pa.array(masks[1]))

    def count_ties(self, stored: pa.Table) -> None:
        """Count stored rows with an equal sequence and other content; they have all columns."""
        _, ours = self._found(stored)
        self._tied += count_different(stored, self.rows.take(ours))

    def unstored(self) -> pa.Table | None:
        """Return key and sequence of the upserts that met no stored row; None if there are none."""
        fresh = ~(self._stored | self._deletes | self._lost)
        if not fresh.any():
            return None
        return self.rows.select(list(self._order.columns)).filter(pa.array(fresh))

    def bury(self, deletes: pa.Table) -> None:
        """Let the upserts that met no stored row lose to higher deletes of earlier changes."""
        sound = deletes.filter(complete(deletes, self._order))
        places, ours = self._found(sound)
        above, equal = compare(self.rows.take(ours), sound.take(places), self._order)
        positions = ours.to_numpy()[~np.asarray(pc.or_(above, equal))]
        self._lost[positions[~self._stored[positions]]] = True

    def winners(self) -> pa.Table:
        """Return the upserts that won, sorted by key."""
        return self.rows.filter(pa.array(~(self._lost | self._deletes)))

    def outcomes(self) -> Counter[str]:
        """Count how the changes ended, once all stored rows were met."""
        won, upserts = ~self._lost, ~self._deletes
        masks = (
            won & upserts & ~self._stored,
            won & upserts & self._stored,
            won & self._deletes & self._stored,
            self._lost,
        )
        counts = [*(int(mask.sum()) for mask in masks), self._tied, self._without_key]
        return Counter(dict(zip(OUTCOMES, counts, strict=True)))

    def _found(self, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Return the places of rows with a key of the batch, and the places of their changes."""
        # The keys of a file are copied nowhere, only the places.
        found = pc.index_in(key_values(rows, self._order.keys), value_set=self.keys)
        at = found.combine_chunks()
        return pc.indices_nonzero(pc.is_valid(at)), at.drop_null()
