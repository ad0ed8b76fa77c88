"""Groups as Blizzard publishes them: files under their names, then the manifest."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from blizzard_core.handover.groups import Group, GroupFile, encode_group, group_path
from penguin_py.pipeline import TablePipeline
from tests.support.table_harness import TableHarness, parquet

Rows = Mapping[str, list[Any]]


@dataclass
class Publisher:
    """One source of a table; numbers its groups."""

    world: TableHarness
    source: str = "p_s"
    seq: int = 0
    _names: Any = field(default_factory=itertools.count)

    def group(
        self,
        files: Mapping[str, Rows | pa.Table] | Sequence[Rows | pa.Table] = (),
        *,
        replace: Sequence[tuple[str, str]] = (),
        source_files: Sequence[str] = (),
        outputs: Sequence[str] = (),
        ids: Sequence[str] = (),
        put: bool = True,
    ) -> Group:
        """Publish the next group; files without a name lie at the table's root."""
        self.seq += 1
        named = files if isinstance(files, Mapping) else {self.name(): rows for rows in files}
        found = []
        for number, (path, rows) in enumerate(named.items()):
            output_id = ids[number] if ids else f"p/s/{self.seq}/1/{number}"
            table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
            data = parquet(table, output_id)
            self.world.put(path, data)
            found.append(GroupFile(path, len(data), table.num_rows, output_id))
        group = Group(
            self.source,
            self.seq,
            1,
            f"batch-{self.seq}",
            tuple(found),
            tuple(replace),
            tuple(source_files),
            tuple(outputs),
        )
        if put:
            self.put(group)
        return group

    def put(self, group: Group) -> None:
        self.world.put(group_path(group.source, group.seq), encode_group(group))

    def name(self, folder: str = "") -> str:
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.source}{next(self._names)}")
        return f"{folder}unit-{name}.parquet"


def unit(source: str, unit_key: str, low: int) -> str:
    """Return a value of `_unit`; numbers are padded so that they sort as text."""
    return f"{source}/{unit_key}/{low:06d}"


def reading(source: str, unit_key: str, low: int) -> tuple[str, str]:
    """Return the range that a reading of a unit from ``low`` on replaces."""
    return unit(source, unit_key, low), f"{source}/{unit_key}0"


S = "p_s"


def rows(key: str, low: int, values: list[int], **more: Any) -> dict[str, list[Any]]:
    return {"id": values, "_unit": [unit(S, key, low)] * len(values), **more}


def ids(world: TableHarness) -> list[int]:
    return sorted(row["id"] for row in world.rows())


def group_states(world: TableHarness, **settings: Any) -> dict[str, Any]:
    penguin = world.penguin(**settings)
    found = penguin.groups(penguin.snapshot())
    return {source: standing.to_json() for source, standing in found.items()}


def once_between(penguin: TablePipeline, does: Callable[[], object]) -> None:
    """Run ``does`` after the next commit is planned and before it is made."""
    log = penguin._view._delta  # noqa: SLF001  # between two of its steps nobody else can get
    commit = log.commit
    todo = [does]

    def late(*arguments: Any) -> None:
        while todo:
            todo.pop()()
        commit(*arguments)

    log.commit = late  # type: ignore[method-assign]  # what is called next
