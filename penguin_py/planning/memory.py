"""Penguin's memory of a table, and its recovery after a restart.

Three places hold it, the most certain first:

1. commitInfo of the Delta version that carries our ``txn``: written in the same entry as the
   files, so it is neither ahead of them nor behind.
2. The mirror ``_penguin/{table}_checkpoint.json``, if it has the same ``txn``. It is written after
   the commit, and also when the watermark passes quarantined files without a commit, so it knows
   at least as much. A restored log may lack that commit; then the mirror is ignored.
3. The log's paths: paths that were added or removed are done, and so are lower ones.

Done names in their grace period could be thousands in each commit. The log has them anyway, except
those of quarantined files. So only these are stored (`drop_logged_names`), and the others are
added from the log (`add_logged_names`).

A mirror that cannot be understood is only a warning while commitInfo exists; without it, it is a
`StateError`: guessing could skip files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import (
    PROGRESS_VERSIONS,
    ProgressDocument,
    check_version,
    progress_document,
    progress_of,
    progress_to_json,
)
from blizzard_core.handover.groups import APPLIED_KEY, BLOCKED_KEY, COMMITTERS_FOLDER
from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.watermark.paths import joined, split
from blizzard_core.watermark.progress import Progress, ScanTimes, expire_grace, mark_done
from penguin_py.intake.naming import movers
from penguin_py.model import TableState

# A file that is a day old when the memory is rebuilt from the log needs no grace.
SETTLED_SECS = 86_400.0

_REMEDY = "restore it as it was saved, or delete it: it is made again from the log"


@dataclass(frozen=True, slots=True)
class Seen:
    """The part of the log that a memory covers, to compare a mirror with the log.

    All output ids up to ``version`` are known (-1: none). ``transactions`` is the newest ``txn`` of
    every application then, our own commit included. ``own_version`` is the expected version of that
    commit. ``anchor`` identifies the commit of ``version``.
    """

    table_id: str
    version: int
    own_version: int
    transactions: Mapping[str, int]
    anchor: str = ""


NOTHING_SEEN = Seen("", -1, -1, {})


@dataclass(frozen=True, slots=True)
class Memory:
    """Progress and output ids as of our commit ``txn_version`` (0: none yet).

    ``output_ids`` are those that are not in segments yet, the newest last. ``updated`` is in epoch
    seconds, None if unknown. ``chores`` has the last time of each chore, in epoch seconds; only the
    mirror stores it, since losing it costs one early chore. ``seen`` is the mirror's view of the
    log. ``groups`` has the number of each source's last known group; output ids show groups
    committed by other instances. ``unreplaced`` has, by source, the ranges that discarded groups
    left and no group has replaced since. ``blocked`` has, by source, why the next group waits; only
    the mirror stores it, for other readers.
    """

    progress: Progress
    txn_version: int = 0
    commit_id: str = ""
    output_ids: tuple[str, ...] = ()
    updated: int | None = None
    chores: Mapping[str, int] = field(default_factory=dict)
    seen: Seen = NOTHING_SEEN
    groups: Mapping[str, int] = field(default_factory=dict)
    blocked: Mapping[str, str] = field(default_factory=dict)
    unreplaced: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table and what is remembered of it; ``state`` is None if there is no table yet."""

    state: TableState | None
    memory: Memory


def mirror_path(state_name: str) -> str:
    """Return where an instance's mirror lies, relative to the table's directory."""
    return f"{COMMITTERS_FOLDER}/{state_name}_checkpoint.json"


def mirror_to_json(memory: Memory, now: float) -> dict[str, Any]:
    """Return the mirror as JSON: the checkpoint format plus what ties it to a commit."""
    return {
        **progress_to_json(memory.progress, now),
        "txn_version": memory.txn_version,
        "commit_id": memory.commit_id,
        "output_ids": list(memory.output_ids),
        "chores": dict(memory.chores),
        "log": asdict(memory.seen),
        **({APPLIED_KEY: dict(memory.groups)} if memory.groups else {}),
        **({BLOCKED_KEY: dict(memory.blocked)} if memory.blocked else {}),
        **_unreplaced_document(memory),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorDocument(ProgressDocument):
    """The mirror as it is read."""

    txn_version: int
    commit_id: str
    output_ids: tuple[str, ...]
    chores: dict[str, int]
    log: Seen
    groups: dict[str, int] | None = None
    blocked: dict[str, str] | None = None
    unreplaced: dict[str, tuple[tuple[str, str], ...]] | None = None


def mirror_from_json(document: Any, where: str) -> Memory:
    """Decode the memory in a mirror. Raises `StateError`."""
    check_version(document, where, PROGRESS_VERSIONS)
    found = decode_document(MirrorDocument, document, where, _REMEDY, open_=True)
    return Memory(
        progress_of(found, where, _REMEDY),
        found.txn_version,
        found.commit_id,
        found.output_ids,
        found.last_update_ts,
        found.chores,
        found.log,
        found.groups or {},
        found.blocked or {},
        found.unreplaced or {},
    )


def commit_document(
    app_id: str, memory: Memory, now: float, output_ids: Sequence[str]
) -> dict[str, Any]:
    """Return the commitInfo: the ``memory`` once this commit is in, and its own output ids.

    The memory's progress is as it is to be stored.
    """
    progress = memory.progress
    return {
        "app_id": app_id,
        "commit_id": memory.commit_id,
        "watermark": progress.value,
        "progress": progress_to_json(progress, now),
        "output_ids": list(output_ids),
        **({"groups": dict(memory.groups)} if memory.groups else {}),
        **_unreplaced_document(memory),
    }


def _unreplaced_document(memory: Memory) -> dict[str, Any]:
    return {"unreplaced": dict(memory.unreplaced)} if memory.unreplaced else {}


@dataclass(frozen=True, slots=True)
class _CommitDocument:
    """The result of `commit_document` as it is read; ``progress`` is decoded by its version."""

    commit_id: str
    output_ids: tuple[str, ...]
    progress: dict[str, Any]
    groups: dict[str, int] | None = None
    unreplaced: dict[str, tuple[tuple[str, str], ...]] | None = None


def memory_of_commit(
    document: Mapping[str, object], txn_version: int, earlier_ids: Sequence[str], where: str
) -> Memory:
    """Decode the memory in one of our commitInfos. Raises `StateError`."""
    found = decode_document(_CommitDocument, document, where, open_=True)
    place = f"{where}: progress"
    progress = progress_document(found.progress, place)
    return Memory(
        progress_of(progress, place),
        txn_version,
        found.commit_id,
        merged_ids(earlier_ids, found.output_ids),
        progress.last_update_ts,
        groups=found.groups or {},
        unreplaced=found.unreplaced or {},
    )


@dataclass(frozen=True, slots=True)
class _Left:
    """The part of a commitInfo that holds for the table, whichever Penguin wrote it."""

    unreplaced: dict[str, tuple[tuple[str, str], ...]] | None = None


def add_commits(
    memory: Memory, output_ids: Sequence[str], document: Mapping[str, object] | None
) -> Memory:
    """Add the output ids and ranges of all Penguins' commits to one memory.

    ``document`` is of the newest of them; no two are made on one version, so it knows all before
    it. Raises `StateError` if it is not understood.
    """
    memory = replace(memory, output_ids=merged_ids(memory.output_ids, output_ids))
    if document is None:
        return memory
    found = decode_document(
        _Left, document, "commitInfo of the newest commit of a Penguin", open_=True
    )
    return replace(memory, unreplaced=found.unreplaced or {})


def merged_ids(earlier: Sequence[str], later: Sequence[str]) -> tuple[str, ...]:
    """Merge both lists in order without repeats."""
    return tuple(dict.fromkeys([*earlier, *later]))


def rebuild_memory(
    known: Sequence[Entry], depth: int, txn_version: int, now: float, grace: float
) -> Memory:
    """Rebuild the memory from the log's paths alone.

    Files of the last day get a new grace period, since their first sighting is unknown. A slower
    writer's file that sorts below an older one is left to the sweep.
    """
    limit = now - max(SETTLED_SECS, grace)
    old = [entry.path for entry in known if entry.modified < limit]
    young = [entry.path for entry in known if entry.modified >= limit]
    moving = movers(now)
    progress = mark_done(Progress(depth=depth), old, 0.0, _nothing_waits, moving)
    progress = expire_grace(progress, ScanTimes(now, now), grace, _nothing_waits, moving)
    return Memory(mark_done(progress, young, now, _nothing_waits, moving), txn_version)


def _nothing_waits(_partition: str) -> None:
    """Return None: no path is pending."""


def drop_logged_names(progress: Progress, refused: Iterable[str]) -> Progress:
    """Drop done names that the log has from the progress; ``refused`` ones stay."""
    partitions = {name: replace(known, done={}) for name, known in progress.partitions.items()}
    for path in refused:
        partition, name = split(path, progress.depth or 0)
        known = progress.partitions.get(partition)
        if known is not None and name in known.done:
            done = {**partitions[partition].done, name: known.done[name]}
            partitions[partition] = replace(known, done=done)
    return replace(progress, partitions=partitions)


def add_logged_names(progress: Progress, known: Iterable[Entry], now: float) -> Progress:
    """Add logged names to the progress: the inverse of `drop_logged_names`.

    Their grace period starts again, since the time they were done is unknown. Names above a
    watermark stay out: something below them is pending.
    """
    passed = [entry.path for entry in known if is_passed(progress, entry.path)]
    done = mark_done(progress, passed, now, _nothing_waits, movers(now))
    return replace(done, state=progress.state)


def done_paths(progress: Progress) -> set[str]:
    """Return all done names as paths."""
    return {
        joined(partition, name)
        for partition, known in progress.partitions.items()
        for name in known.done
    }


def is_passed(progress: Progress, path: str) -> bool:
    """Return whether its partition's watermark is at this file or above it."""
    partition, name = split(path, progress.depth or 0)
    known = progress.partitions.get(partition)
    return (
        known is not None
        and known.watermark is not None
        and order_key(name) <= order_key(known.watermark)
    )
