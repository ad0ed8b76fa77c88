"""A batch of changes against stored rows: which rows leave, and which changes win. Pure.

Of each key the batch has its newest change. A stored row of the key leaves if its sequence is lower
or equal; otherwise the change has lost. A change whose key is not stored may be older than a
delete that was merged before: `bury` takes such deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.keyed import DeleteCondition
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.keyed.deletes import are_deletes
from penguin_py.keyed.order import (
    Order,
    compare,
    complete,
    count_different,
    key_array,
    newest_rows,
)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Keys of a batch by their outcomes; ``tied`` and ``without_key`` count rows."""

    new: int = 0
    changed: int = 0
    deleted: int = 0
    older: int = 0
    tied: int = 0
    without_key: int = 0

    def __add__(self, other: Outcomes) -> Outcomes:
        """Return both together."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Outcomes(*(one + another for one, another in pairs))


@dataclass(frozen=True, slots=True)
class Leaving:
    """The rows of a file that leave, and the places of those with an equal sequence."""

    mask: pa.Array
    equal: pa.Array
    count: int


class Matching:
    """The newest changes of one batch, and what was found out about each. Not thread-safe."""

    def __init__(self, rows: pa.Table, order: Order, deletes: DeleteCondition | None) -> None:
        """``rows`` are in order of arrival."""
        sound = complete(rows, order)
        newest = newest_rows(rows.filter(sound), order)
        self.rows = newest.rows
        self.keys = newest.keys
        self._order = order
        self._sequence = [newest.rows[name].combine_chunks() for name in order.sequence]
        self._deletes = np.asarray(are_deletes(newest.rows, deletes))
        self._stored = np.zeros(len(self.keys), bool)
        self._lost = np.zeros(len(self.keys), bool)
        self._tied = newest.tied
        self._without_key = rows.num_rows - int(pc.sum(sound).as_py() or 0)

    def __len__(self) -> int:
        return len(self.keys)

    def meet(self, stored: pa.Table, sequence: Callable[[], pa.Table]) -> Leaving | None:
        """Compare with the keys of stored rows; None if no row has a key of these.

        ``sequence`` reads the columns of their sequence, which is asked for once a key is found.
        Raises `SchemaMismatch` for types that cannot be compared.
        """
        keys = self._fitting(stored, self._order.keys)
        at = pc.index_in(key_array(keys, self._order.keys), value_set=self.keys)
        places, ours = pc.indices_nonzero(pc.is_valid(at)), at.drop_null()
        if not len(ours):
            return None
        above, equal = self._compare(sequence().take(places), ours)
        leaves = pc.or_(above, equal)
        positions = ours.to_numpy()
        self._stored[positions] = True
        self._lost[positions[~np.asarray(leaves)]] = True
        mask = np.zeros(stored.num_rows, bool)
        mask[places.filter(leaves).to_numpy()] = True
        return Leaving(pa.array(mask), places.filter(equal), int(mask.sum()))

    def count_ties(self, stored: pa.Table) -> None:
        """Count stored rows with an equal sequence and other content; they have all columns."""
        fitting = self._fitting(stored, self._order.columns)
        at = pc.index_in(key_array(fitting, self._order.keys), value_set=self.keys)
        beside = pa.array(range(stored.num_rows), pa.int64())
        self._tied += count_different(fitting, beside, self.rows, at, self._order.sequence)

    def unstored(self) -> pa.Table | None:
        """Return key and sequence of the upserts that met no stored row; None if there are none."""
        fresh = ~(self._stored | self._deletes | self._lost)
        if not fresh.any():
            return None
        return self.rows.select(list(self._order.columns)).filter(pa.array(fresh))

    def bury(self, deletes: pa.Table) -> None:
        """Let the upserts that met no stored row lose to higher deletes of earlier changes."""
        sound = deletes.filter(complete(deletes, self._order))
        sound = self._fitting(sound, self._order.columns)
        at = pc.index_in(key_array(sound, self._order.keys), value_set=self.keys)
        places, ours = pc.indices_nonzero(pc.is_valid(at)), at.drop_null()
        if len(ours):
            above, equal = self._compare(sound.take(places), ours)
            positions = ours.to_numpy()[~np.asarray(pc.or_(above, equal))]
            self._lost[positions[~self._stored[positions]]] = True

    def winners(self) -> pa.Table:
        """Return the upserts that won, sorted by key."""
        return self.rows.filter(pa.array(~(self._lost | self._deletes)))

    def outcomes(self) -> Outcomes:
        """Count how the changes ended, once all stored rows were met."""
        won, upserts = ~self._lost, ~self._deletes
        return Outcomes(
            new=int((won & upserts & ~self._stored).sum()),
            changed=int((won & upserts & self._stored).sum()),
            deleted=int((won & self._deletes & self._stored).sum()),
            older=int(self._lost.sum()),
            tied=self._tied,
            without_key=self._without_key,
        )

    def _compare(self, stored: pa.Table, ours: pa.Array) -> tuple[pa.Array, pa.Array]:
        fitting = self._fitting(stored, self._order.sequence)
        one = [values.take(ours) for values in self._sequence]
        return compare(one, [fitting[name].combine_chunks() for name in self._order.sequence])

    def _fitting(self, stored: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return stored rows with these columns of the types that the changes have."""
        for name in names:
            kind = self.rows.schema.field(name).type
            place = stored.schema.get_field_index(name)
            if stored.schema.field(place).type != kind:
                try:
                    stored = stored.set_column(place, name, stored[name].cast(kind))
                except pa.ArrowException as error:
                    raise SchemaMismatch(f"has {name!r} as another type: {error}") from error
        return stored
