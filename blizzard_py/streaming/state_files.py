"""The check that the working copy has every file of state that Spark committed.

Executors write these files. If they are on other machines, a shared file system may show a new file
only a minute later. An archive that is made in between would lack it, and nothing would notice
before a restart. Spark's commit log names the files. Since version 2 of the checkpoint format each
state file has an id in its name. Each log entry has the ids of its micro-batch.

A snapshot is made between micro-batches, as an archive that names its parts in a folder beside it.
Each folder becomes visible in its own time. So the newest archive of each store must have all its
parts; older ones may be about to be removed.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from blizzard_core.errors import EngineError
from blizzard_core.text import counted

# The longest time that a shared file system may cache a list of files; NFS: a minute.
_SHOWN_SECS = 90.0
_LOOK_SECS = 0.2
_CHANGES, _ARCHIVE = ".changelog", ".zip"
# The folders of an archive's parts, with the keys of the list and of a part's name.
_PARTS = (("SSTs", "sstFiles", "dfsSstFileName"), ("logs", "logFiles", "dfsLogFileName"))


def see_all(
    checkpoint: Path, micro_batch: int, *, is_shared: bool, wait: Callable[[float], None]
) -> None:
    """Wait for files of state that executors have written elsewhere.

    ``wait`` pauses, and raises if the batch was cancelled. Raises `EngineError`.
    """
    until = time.monotonic() + (_SHOWN_SECS if is_shared else 0)
    while missing := unseen(checkpoint, micro_batch, is_shared=is_shared):
        if time.monotonic() >= until:
            raise EngineError(
                f"{counted(len(missing), 'file')} of state that executors have written are missing"
                f" in {checkpoint}; check that event_time.advanced.state_path is the same volume"
                " there"
            )
        wait(_LOOK_SECS)


def unseen(checkpoint: Path, micro_batch: int, *, is_shared: bool) -> frozenset[str]:
    """Return committed ids and files of a micro-batch's state that are not visible.

    A directory that is not shared shows all files, so its snapshots are not checked.
    """
    entry = (checkpoint / "commits" / str(micro_batch)).read_text().splitlines()[1]
    wanted = frozenset(_leaves(json.loads(entry)["stateUniqueIds"]))
    # Checksum files of the same names become visible in their own time.
    found = (checkpoint / "state").rglob("[0-9]*_*.*")
    paths = [path for path in found if path.suffix in {_CHANGES, _ARCHIVE}]
    ids = wanted - {path.stem.partition("_")[2] for path in paths}
    archives = (path for path in paths if is_shared and path.suffix == _ARCHIVE)
    return ids | frozenset(_missing_parts(archives))


def _leaves(ids: Any) -> Iterator[str]:
    """Yield the ids by operator, partition and store."""
    if isinstance(ids, str):
        yield ids
        return
    for each in ids.values() if isinstance(ids, dict) else ids:
        yield from _leaves(each)


def _missing_parts(archives: Iterator[Path]) -> Iterator[str]:
    """Yield missing parts of each store's newest archive, or the archive if it is cut."""
    newest: dict[Path, Path] = {}
    for path in archives:
        known = newest.get(path.parent)
        if known is None or _version(path) >= _version(known):
            newest[path.parent] = path
    for folder, path in newest.items():
        try:
            with zipfile.ZipFile(path) as archive:
                metadata = json.loads(archive.read("metadata").partition(b"\n")[2])
        except (zipfile.BadZipFile, OSError, ValueError):
            yield path.name
            continue
        for place, key, name in _PARTS:
            there = {each.name for each in (folder / place).glob("*")}
            yield from {part[name] for part in metadata.get(key, [])} - there


def _version(archive: Path) -> int:
    """Return the version of an archive: ``12_{id}.zip`` has version 12."""
    return int(archive.name.partition("_")[0])
