"""Checks before a rename: the state is the newest, and the new name is unused.

Under another name a stale state could not be detected, and earlier work would count as its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from blizzard_core.errors import BlizzardError, ColdStartRefused, StateError
from blizzard_core.storage.protocol import Storage
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.sources.cold_start import check_cold_start, work_of
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.stale import current_state
from blizzard_py.state.fence_record import FenceFile, FenceRecord, fence_path, with_move
from blizzard_py.state.source_state import checkpoint_path


class RenameRefused(BlizzardError):
    """The rename is refused, without any change. The message has reason and remedy."""


def check_current(parts: SourceContext, old_id: str) -> None:
    """Raise `RenameRefused` for a checkpoint that its daemon would refuse.

    ``parts`` are of the new name. The log and the fence record have later commits under the old
    name.
    """
    old = replace(parts, source=parts.source.model_copy(update={"id": old_id}))
    try:
        check_cold_start(old)
        current_state(old, parts.id)
    except (ColdStartRefused, StateError) as error:
        raise RenameRefused(
            f"{error}. Until then give the source `id: {old_id}`; rename it afterwards"
        ) from error


def check_requests(sink: Storage, old_id: str) -> None:
    """Raise `RenameRefused` while requests of operators are open: they go by the old id."""
    waiting = Mailbox(sink, old_id).contents().open
    if waiting:
        raise RenameRefused(
            f"{old_id} has requests that are not done, {waiting[0]} for one; have it run under the"
            " old names, or cancel them with `blizzard requests cancel`"
        )


def check_free(sink: Storage, old_id: str, new_id: str) -> None:
    """Raise `RenameRefused` if there was work under the new id."""
    if _has_checkpoint(sink, new_id):
        raise RenameRefused(
            f"{sink.uri}/{checkpoint_path(new_id)} exists: that name has a state already; choose"
            f" another name, or keep the state's with `id: {old_id}`"
        )
    record = FenceFile(sink, old_id).read() or FenceRecord()
    moved = with_move(sink, old_id, record) or record
    if moved.moved_to == new_id and not record.moved_to:
        return  # a run has died, and an older checkpoint was put back since
    work = next(_earlier_work(sink, new_id), None)
    if work is not None:
        raise RenameRefused(
            f"there was work under the new name {new_id} before, which would count as this"
            f" source's: {work}; choose another name, or keep the state's with `id: {old_id}`"
        )


def _earlier_work(sink: Storage, source_id: str) -> Iterator[str]:
    """Yield what tells of earlier work under an id."""
    if _has_checkpoint(sink, source_id):
        yield f"{sink.uri}/{checkpoint_path(source_id)} exists"
    record = with_move(sink, source_id, FenceFile(sink, source_id).read())
    if record is not None and (record.moved_to or record.number):
        moved = record.moved_to and f"the state was renamed to {record.moved_to}"
        what = moved or f"batch {record.batch} was committed"
        yield f"{sink.uri}/{fence_path(source_id)} says that {what}"
    yield from work_of(sink, source_id)


def _has_checkpoint(sink: Storage, source_id: str) -> bool:
    """Return whether there is a checkpoint of that id, readable or not."""
    return sink.stat(checkpoint_path(source_id)) is not None
