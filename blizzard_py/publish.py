"""From staging to the table: rename, and finish what a crash left half done.

Rename is atomic on local disks and copy + delete on object stores, so after a
crash each output is in one of three places:

=============  =============  ===================================================
staged there   final there    what it means, what to do
=============  =============  ===================================================
no             (any)          it was published
yes            yes            copied, not yet deleted: finish the delete
yes            no             never appeared: publish it under a fresh name
=============  =============  ===================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from uuid_utils import uuid7

from blizzard_py.core.storage import Storage, join
from blizzard_py.state import STATE_FOLDER, PlannedOutput

T = TypeVar("T")

STAGING_FOLDER = f"{STATE_FOLDER}/staging"


def staging_root(source_id: str) -> str:
    """Where all batches of a source are staged; ``source_id`` is ``{pipeline}_{source}``."""
    return join(STAGING_FOLDER, source_id)


def fresh_names(count: int) -> list[str]:
    """UUIDv7 names, each greater than every one this process made before."""
    return [str(uuid7()) for _ in range(count)]


def publish(storage: Storage, outputs: Sequence[PlannedOutput], concurrency: int) -> None:
    """Rename every output, started in name order, several at a time."""
    _each(outputs, concurrency, lambda output: storage.rename(output.staged, output.final))


def unpublished(
    storage: Storage, outputs: Sequence[PlannedOutput], concurrency: int
) -> list[PlannedOutput]:
    """After a crash: the outputs that never appeared. Finishes half-done renames."""

    def settle(output: PlannedOutput) -> PlannedOutput | None:
        if storage.stat(output.staged) is None:
            return None
        if storage.stat(output.final) is None:
            return output
        storage.delete(output.staged)
        return None

    found = _each(outputs, concurrency, settle)
    return [output for output in found if output is not None]


def _each(
    outputs: Sequence[PlannedOutput],
    concurrency: int,
    action: Callable[[PlannedOutput], T],
) -> list[T]:
    if not outputs:
        return []
    with ThreadPoolExecutor(max_workers=min(concurrency, len(outputs))) as pool:
        return list(pool.map(action, outputs))
