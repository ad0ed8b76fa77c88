"""From staging to the table: rename, and finish what a crash left half done.

Rename is atomic on local disks and copy + delete on object stores, so after a
crash each output is in one of four places:

=============  =============  ===================================================
staged there   final there    what it means, what to do
=============  =============  ===================================================
no             yes            it was published
yes            yes            copied, not yet deleted: finish the delete
yes            no             never appeared: publish it under a fresh name
no             no             published, committed and removed from the table since;
                              or lost: only the table's log shows which
=============  =============  ===================================================

Staging is ``_blizzard/staging/{source id}/{epoch}/{batch}/{attempt}``. Only files of older epochs
are removed, and only if none of them waits to be published. Their writers cannot commit any more,
and a daemon that was replaced knows older epochs only.

A daemon that is replaced after its commit may still publish under the name that it knows, while its
successor publishes under another name. Both files carry one output id, and the committer accepts
one file of an id. A later process finds the output under either name.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Storage, join
from blizzard_core.threads import ThreadPool
from blizzard_py.state.batch import PlannedOutput
from blizzard_py.state.journal_tally import millis_of
from blizzard_py.state.state_paths import StatePaths

T = TypeVar("T")

_EPOCH = re.compile(r"\d{8}")
# Version 7 and the variant of RFC 9562, and the bits behind the version: a counter.
_SHAPE = 7 << 76 | 2 << 62
_COUNTER_BITS = 12


def staging_of(source_id: str, epoch: int, batch: str) -> str:
    """Return where a batch is staged in an epoch of its source's checkpoint."""
    return join(StatePaths(source_id).staging, f"{epoch:08d}", batch)


def clear_older(storage: Storage, source_id: str, epoch: int) -> None:
    """Remove what was staged in epochs before this one."""
    root = StatePaths(source_id).staging
    found = files_of_older(storage, root, epoch)
    for folder in {path[len(root) + 1 :].partition("/")[0] for path in found}:
        storage.delete_tree(join(root, folder))


def files_of_older(storage: Storage, root: str, epoch: int) -> Iterator[str]:
    """Yield the files in the folders below ``root`` of epochs before this one."""
    with suppress(NotFound):  # a local table that nothing was written to yet
        for page in storage.list_range(f"{root}/", f"{root}0"):  # "0" follows "/"
            for entry in page.entries:
                folder = entry.path[len(root) + 1 :].partition("/")[0]
                if _EPOCH.fullmatch(folder) and int(folder) < epoch:
                    yield entry.path


class OutputIdGenerator:
    """Names of outputs: UUIDv7 (RFC 9562), each greater than all earlier ones of the source.

    A committer lists after the names that it has seen. So names use the store's clock: the next
    daemon may run on a machine with another clock. Names increase even if the store's clock is set
    back.
    """

    def __init__(self) -> None:
        self._last = 0  # milliseconds and, in the lowest twelve bits, a counter within each

    def fresh(self, count: int, now: float, last: str = "") -> list[str]:
        """Return ``count`` increasing names above ``last``; ``now`` is in epoch seconds."""
        millis = max(int(now * 1000), millis_of(last) + 1)
        first = max(millis << _COUNTER_BITS, self._last + 1)
        self._last = first + count - 1
        return [_name(first + n) for n in range(count)]


def _name(place: int) -> str:
    millis, counter = place >> _COUNTER_BITS, place & ((1 << _COUNTER_BITS) - 1)
    return str(uuid.UUID(int=_SHAPE | millis << 80 | counter << 64 | _bits()))


def _bits() -> int:
    """62 random bits."""
    return uuid.uuid4().int & ((1 << 62) - 1)


def publish(storage: Storage, outputs: Sequence[PlannedOutput], concurrency: int) -> None:
    """Rename every output, started in name order, several at a time."""
    _each(outputs, concurrency, lambda output: storage.rename(output.staged, output.final))


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Outputs after a crash: those still staged, and those in no place."""

    staged: tuple[PlannedOutput, ...]
    nowhere: tuple[PlannedOutput, ...]


def unpublished(
    storage: Storage, outputs: Sequence[PlannedOutput], concurrency: int
) -> Unpublished:
    """After a crash: the outputs that are not in their place. Finishes half-done renames."""

    def find_output(output: PlannedOutput) -> tuple[bool, bool]:
        staged = storage.stat(output.staged) is not None
        final = any(storage.stat(path) is not None for path in output.finals)
        if staged and final:
            storage.delete(output.staged)
        return staged, final

    found = list(zip(outputs, _each(outputs, concurrency, find_output), strict=True))
    return Unpublished(
        tuple(output for output, where in found if where == (True, False)),
        tuple(output for output, where in found if where == (False, False)),
    )


def _each(
    outputs: Sequence[PlannedOutput],
    concurrency: int,
    action: Callable[[PlannedOutput], T],
) -> list[T]:
    if not outputs:
        return []
    with ThreadPool(max_workers=min(concurrency, len(outputs))) as pool:
        return list(pool.map(action, outputs))
