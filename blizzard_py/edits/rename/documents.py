"""Checkpoints and letters after a rename. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.json_text import json_value
from blizzard_core.watermark.paths import joined
from blizzard_py.state.checkpoint_document import MOVED_DOCUMENT, MOVED_EPOCH, MOVED_TO
from blizzard_py.state.source_state import Identity, SourceState

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
    left_out = {"writer", "complete"}  # completions are not those of another source
    without_writer = {key: value for key, value in document.items() if key not in left_out}
    roots = dict.fromkeys([*document.get("former", ()), *former])
    known = [root for root in roots if root not in {None, identity.uri}]
    return {**without_writer, "source": identity.document(), **({"former": known} if known else {})}


def unnumbered(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkpoint of a source whose groups are numbered under another name."""
    return {key: value for key, value in document.items() if key != "group_seq"}


def without_batches(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkpoint without running batches, whose files are new again."""
    return {key: value for key, value in document.items() if key != "in_flight"}


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
