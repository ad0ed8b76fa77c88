"""What Penguin remembers of a table, and how it is found again after a restart.

Three places hold it, the most certain first:

1. commitInfo of the Delta version that carries our ``txn``: written in the same
   entry as the files, so it can neither be ahead of them nor behind.
2. The mirror ``_penguin/{table}_checkpoint.json``, if it is of the same ``txn``.
   It is written after the commit and also when the watermark passes quarantined
   files without one, so of the same commit it knows at least as much. A log that was
   restored may lack that commit; then the mirror counts for nothing.
3. The log's paths: what was added or removed is done, and so is what sorts below.

The names done within the grace period could be many thousands at each commit. The
log has them anyway, all but those of quarantined files; so only these are stored
(`stored`), and the others are put back from the log (`completed`).

A mirror that cannot be understood is only a warning as long as commitInfo is
there; without it, that is a `StateError`: to guess could skip files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from blizzard_py.core.checkpoint import Fields, progress_from_json, progress_to_json
from blizzard_py.core.errors import StateError
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import order_key
from blizzard_py.core.watermark import Progress, Scanned, finished, joined, settled, split
from penguin_py.model import TableState
from penguin_py.naming import movers

# A file that is a day old when the memory is rebuilt from the log needs no grace.
SETTLED_SECS = 86_400.0
# What is done once in a while; see `penguin_py.chores`.
CHORES = ("reconcile", "optimize", "vacuum")


@dataclass(frozen=True, slots=True)
class Seen:
    """How much of the log a memory is of, so that a mirror can be compared with the log.

    ``version`` is the one up to which all output ids are known (-1: none), and
    ``transactions`` the newest ``txn`` of every application then, our own commit
    included. ``own_version`` is where that commit is thought to be.
    """

    table_id: str = ""
    version: int = -1
    own_version: int = -1
    transactions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Memory:
    """Progress and output ids as of our commit ``txn_version`` (0: none yet).

    ``output_ids`` are those that are not folded into segments yet, the newest last.
    ``updated`` is in epoch seconds, None if nobody knows. ``chores`` tells when each
    of them was done last, in epoch seconds; only the mirror keeps it, since losing it
    costs one chore done early. ``seen`` is what the mirror it comes from has of the log.
    """

    progress: Progress
    txn_version: int = 0
    commit_id: str = ""
    output_ids: tuple[str, ...] = ()
    updated: int | None = None
    chores: Mapping[str, int] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table and what is remembered of it; ``state`` is None if there is no table yet."""

    state: TableState | None
    memory: Memory


def mirror_path(state_name: str) -> str:
    """Where an instance's mirror lies, relative to the table's directory."""
    return f"_penguin/{state_name}_checkpoint.json"


def mirror_to_json(memory: Memory, now: float) -> dict[str, Any]:
    """The mirror: the reference's checkpoint format plus what ties it to a commit."""
    return {
        **progress_to_json(memory.progress, now),
        "txn_version": memory.txn_version,
        "commit_id": memory.commit_id,
        "output_ids": list(memory.output_ids),
        "chores": dict(memory.chores),
        "log": {
            "table_id": memory.seen.table_id,
            "version": memory.seen.version,
            "own_version": memory.seen.own_version,
            "transactions": dict(memory.seen.transactions),
        },
    }


def mirror_from_json(document: Any, where: str) -> Memory:
    """The memory in a mirror. Raises `StateError`."""
    read = Fields(document, where)
    return Memory(
        progress_from_json(document, where),
        read("txn_version", int),
        read("commit_id", str),
        _texts(read("output_ids", list), where),
        read("last_update_ts", int),
        _numbers(read.get("chores", dict) or {}, where),
        _seen(read.get("log", dict), where),
    )


def commit_document(
    app_id: str, progress: Progress, commit_id: str, output_ids: Sequence[str], now: float
) -> dict[str, Any]:
    """What goes into commitInfo: the progress once this commit is in, and its own output ids."""
    return {
        "app_id": app_id,
        "commit_id": commit_id,
        "watermark": progress.value,
        "progress": progress_to_json(progress, now),
        "output_ids": list(output_ids),
    }


def committed(
    document: Mapping[str, object], txn_version: int, earlier_ids: Sequence[str], where: str
) -> Memory:
    """The memory in a commitInfo of ours. Raises `StateError`."""
    read = Fields(document, where)
    progress = read("progress", dict)
    return Memory(
        progress_from_json(progress, where),
        txn_version,
        read("commit_id", str),
        merged_ids(earlier_ids, _texts(read("output_ids", list), where)),
        Fields(progress, where)("last_update_ts", int),
    )


def merged_ids(earlier: Sequence[str], later: Sequence[str]) -> tuple[str, ...]:
    """Both lists in order without repeats."""
    return tuple(dict.fromkeys([*earlier, *later]))


def rebuilt(
    known: Sequence[Entry], depth: int, txn_version: int, now: float, grace: float
) -> Memory:
    """The memory that the log's paths alone give.

    Files of the last day keep their grace period anew, since nobody knows when they
    were first seen; a slower writer's file that sorts below an older one is the sweep's.
    """
    limit = now - max(SETTLED_SECS, grace)
    old = [entry.path for entry in known if entry.modified < limit]
    young = [entry.path for entry in known if entry.modified >= limit]
    moving = movers(now)
    progress = finished(Progress(depth=depth), old, 0.0, _nothing_waits, moving)
    progress = settled(progress, Scanned(now, now), grace, _nothing_waits, moving)
    return Memory(finished(progress, young, now, _nothing_waits, moving), txn_version)


def _nothing_waits(_partition: str) -> None:
    """Every path is done."""


def stored(progress: Progress, refused: Iterable[str]) -> Progress:
    """The progress without the done names that the log has; ``refused`` are the others."""
    partitions = {name: replace(known, done={}) for name, known in progress.partitions.items()}
    for path in refused:
        partition, name = split(path, progress.depth or 0)
        known = progress.partitions.get(partition)
        if known is not None and name in known.done:
            done = {**partitions[partition].done, name: known.done[name]}
            partitions[partition] = replace(known, done=done)
    return replace(progress, partitions=partitions)


def completed(progress: Progress, known: Iterable[Entry], now: float) -> Progress:
    """The inverse of `stored`: ``known`` are the log's paths that the progress lacks.

    Their grace period starts again, since nobody knows when they were done. Those
    above a watermark stay out: something below them is pending.
    """
    passed = [entry.path for entry in known if is_passed(progress, entry.path)]
    done = finished(progress, passed, now, _nothing_waits, movers(now))
    return replace(done, state=progress.state)


def done_paths(progress: Progress) -> set[str]:
    """All done names as paths."""
    return {
        joined(partition, name)
        for partition, known in progress.partitions.items()
        for name in known.done
    }


def is_passed(progress: Progress, path: str) -> bool:
    """Whether its partition's watermark is at this file or above it."""
    partition, name = split(path, progress.depth or 0)
    known = progress.partitions.get(partition)
    return (
        known is not None
        and known.watermark is not None
        and order_key(name) <= order_key(known.watermark)
    )


def _seen(document: Mapping[str, object] | None, where: str) -> Seen:
    if document is None:
        return Seen()  # a mirror of a release that did not write it
    read = Fields(document, where)
    return Seen(
        read("table_id", str),
        read("version", int),
        read("own_version", int),
        _numbers(read("transactions", dict), where),
    )


def _numbers(values: Mapping[str, object], where: str) -> dict[str, int]:
    found = {name: at for name, at in values.items() if isinstance(at, int)}
    if len(found) != len(values):
        raise StateError(f"{where}: holds something that is not a number where one is expected")
    return found


def _texts(values: Sequence[object], where: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise StateError(f"{where}: output_ids holds something that is not a string")
    return tuple(str(value) for value in values)
