"""More changes than one merge takes, by the limits of the product, beside a reduction by Arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from blizzard_core.storage.opening import delta_options
from tests.chaos.keyed.delta import KeyedWorld, keyed_table

# Rows of each version; the first is one file with more than a merge holds at once.
_VERSIONS = (1_300_000, 400_000, 400_000)
_KEYS = 900_000


def play_large(uri: str, pool: Executor, options: Mapping[str, str] | None = None) -> Counter[str]:
    """Merge, RESTORE, and merge again; compare. Raises `AssertionError`."""
    chance = np.random.default_rng(41)
    keyed = keyed_table(
        uri, ("id",), ("seq",), deletes_text="op = 'd'", options=dict(options or {})
    )
    world = KeyedWorld(keyed, pool)
    total = sum(_VERSIONS)
    rows = pa.table(
        {
            "id": chance.integers(0, _KEYS, total),
            "seq": chance.permutation(total),
            "op": pa.array(["u", "d"]).take(pa.array((chance.random(total) < 0.3).astype(int))),
        }
    )
    start = 0
    for count in _VERSIONS:
        write_deltalake(
            world.changes.uri,
            rows.slice(start, count),
            mode="append",
            target_file_size=1 << 30,
            storage_options=delta_options(world.changes.uri, world.changes.options, {}),
        )
        start += count
        if start == _VERSIONS[0]:
            world.run()
    newest = rows.take(pc.sort_indices(rows, sort_keys=[("id", "ascending"), ("seq", "ascending")]))
    ids = newest["id"].to_numpy()
    last = newest.filter(pa.array(np.append(ids[1:] != ids[:-1], True)))
    expected = last.filter(pc.equal(last["op"], "u"))
    world.run()
    assert _same(world.current.delta(), expected)
    world.current.delta().restore(0)
    world.run()
    assert _same(world.current.delta(), expected)
    return Counter({"rows of changes": total, "rows of the keyed table": len(expected)})


def _same(table: DeltaTable, expected: pa.Table) -> bool:
    found = pa.table(table.to_pyarrow_dataset().to_table()).select(expected.column_names)
    return bool(found.sort_by("id").equals(expected))
