"""Documents named after a source, under its new name: checkpoints, journals, segments, letters.

A rename is checked first: the state is the newest, and the new name is unused. Under another name a
stale state could not be detected, and earlier work would count as its own.

Each copied object appears whole, and copying it again makes the same: a death costs the time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import BlizzardError, ColdStartRefused, StateError
from blizzard_core.storage.failures import wrap_error
from blizzard_core.storage.protocol import Storage, listed
from blizzard_core.text import json_value
from blizzard_core.threads import ThreadPool
from blizzard_core.watermark.paths import joined
from blizzard_py.dead_letters.reader import letter_lines
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.sources.cold_start import check_cold_start, work_of
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.stale import current_state
from blizzard_py.state.checkpoint_document import MOVED_DOCUMENT, MOVED_EPOCH, MOVED_TO
from blizzard_py.state.fence_record import FenceFile, FenceRecord, fence_path, with_move
from blizzard_py.state.source_state import Identity, SourceState, checkpoint_path

# No release has ever written or read this one.
_NO_VERSION = 0


def tombstone(
    new_id: str, epoch: int, now: float, document: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the document for the old checkpoint's place; ``document`` is the state while it moves.

    ``epoch`` is that of the rename; the owner of the new id has a higher one.
    """
    found = {
        "schema_version": _NO_VERSION,
        MOVED_TO: new_id,
        MOVED_EPOCH: epoch,
        "moved_ts": int(now),
    }
    return found if document is None else {**found, MOVED_DOCUMENT: document}


@dataclass(frozen=True, slots=True)
class _Buried:
    moved_epoch: int


def tombstone_epoch(document: Any, where: str) -> int:
    """Return the epoch in a tombstone. Raises `StateError`."""
    return decode_document(_Buried, document, where, open_=True).moved_epoch


def move_checkpoint(
    document: Mapping[str, Any], identity: Identity, former: Iterable[str | None]
) -> dict[str, Any]:
    """Return the checkpoint for a new source; ``former`` are places of its rows."""
    kept = without(document, "writer", "complete")  # completions are not those of another source
    roots = dict.fromkeys([*document.get("former", ()), *former])
    known = [root for root in roots if root not in {None, identity.uri}]
    return {**kept, "source": msgspec.to_builtins(identity), **({"former": known} if known else {})}


def without(document: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the checkpoint without these parts."""
    return {key: value for key, value in document.items() if key not in keys}


def newest_done(state: SourceState) -> list[str]:
    """Return the highest path done of every tracked partition, or of all."""
    found = [
        joined(partition, known.watermark)
        for partition, known in state.position.progress.partitions.items()
        if known.watermark is not None
    ]
    return found or (
        [] if state.position.progress.value is None else [state.position.progress.value]
    )


def letter_for(line: bytes, heads: Sequence[tuple[str, str]]) -> bytes:
    """Return a dead letter's line with its URI rewritten, if it begins with a head."""
    try:
        letter = json_value(line)
    except ValueError:  # no letter: it is told of where letters are read
        return line
    path = letter.get("path") if isinstance(letter, dict) else None
    for old, new in heads:
        if isinstance(path, str) and path.startswith(old):
            letter["path"] = new + path[len(old) :]
            text = json.dumps(letter, ensure_ascii=False)
            return text.encode("utf-8", "backslashreplace") + b"\n"
    return line


def move_identity(known: Identity | None, identity: Identity, *, is_moved: bool) -> Identity:
    """Return the identity under the new names and, if it ``is_moved``, a new place.

    The range is the one that was read, even if another one is configured by now.
    """
    if known is None:
        return identity
    identity = replace(identity, range=known.range)
    return identity if is_moved else replace(identity, uri=known.uri, lake=known.lake)


_TOGETHER = 64
_TEMPORARY = ".moving.tmp"


def copy_folder(storage: Storage, old: str, new: str, concurrency: int) -> int:
    """Copy every object below ``old`` to ``new``; returns how many."""
    paths = (entry.path for entry in listed(storage, f"{old}/", f"{old}0"))

    def copy(path: str) -> None:
        storage.put_atomic(new + path[len(old) :], storage.read(path))

    count = 0
    with ThreadPool(max_workers=concurrency) as pool:
        while some := list(islice(paths, _TOGETHER)):
            count += sum(1 for _ in pool.map(copy, some))
    return count


def copy_letters(dlq: Storage, old: str, new: str, heads: Sequence[tuple[str, str]]) -> int:
    """Copy the dead letters below ``old`` with their files' URIs rewritten.

    With ``new`` the same as ``old`` they are rewritten in place. Returns how many objects
    there are; holds one line at a time.
    """
    count = 0
    for entry in list(listed(dlq, f"{old}/", f"{old}0")):
        if entry.path.endswith(".ndjson"):
            _copy_object(dlq, entry.path, new + entry.path[len(old) :], heads)
            count += 1
    return count


def _copy_object(dlq: Storage, path: str, target: str, heads: Sequence[tuple[str, str]]) -> None:
    temporary = f"{target}{_TEMPORARY}"
    with closing(dlq.open_input(path)) as source, closing(dlq.open_output(temporary)) as stream:
        try:
            for line in letter_lines(source):
                stream.write(letter_for(line, heads))
            stream.close()
        except BlizzardError:
            raise
        except Exception as error:  # store clients share no base class
            raise wrap_error(f"{dlq.uri}/{temporary}", error) from error
    dlq.sync(temporary)
    dlq.rename(temporary, target)


def count_below(storage: Storage, folder: str) -> int:
    """Return how many objects lie below a folder."""
    return sum(1 for _ in listed(storage, f"{folder}/", f"{folder}0"))


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
