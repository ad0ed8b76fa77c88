"""The context and the base class of the parts of a table's pipeline."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Storage
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.settings import Table


@dataclass(frozen=True, slots=True)
class TableContext:
    """One table: its settings, its store and log, and the view that people have of it.

    Requests run at the same time in ``pool``. ``accept`` selects names that may be its files.
    """

    table: Table
    storage: Storage
    log: DeltaLog
    pool: Executor
    accept: Callable[[str], bool]
    clock: Callable[[], float]
    activity: TableActivity


class TablePart:
    """The base of the parts. Not thread-safe."""

    def __init__(self, context: TableContext) -> None:
        self._table = context.table
        self._storage = context.storage
        self._delta = context.log
        self._pool = context.pool
        self._accept = context.accept
        self._clock = context.clock
        self._activity = context.activity
        self._log = get_logger(table=context.table.name)
