"""The check that the working copy has every file of state that Spark committed.

Executors write these files. Where they are on other machines, a shared file system may show a new
file only a minute later, and a pack made in between would lack it, with nobody to notice before
a restart. Spark's commit log says which there are: since version 2 of the checkpoint's format each
file of state has an id in its name, and each entry has the ids of its micro-batch.

A snapshot comes between micro-batches, as an archive that names its parts in a folder beside it,
and each folder is shown in its own time. So the newest archive of each store has to have all its
parts; older ones may be on their way out.
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

# So long at most a shared file system may keep a list of files; NFS does for a minute.
_SHOWN_SECS = 90.0
_LOOK_SECS = 0.2
_CHANGES, _ARCHIVE = ".changelog", ".zip"
# The folders of an archive's parts, by the key of the list and that of a part's name.
_PARTS = (("SSTs", "sstFiles", "dfsSstFileName"), ("logs", "logFiles", "dfsLogFileName"))


def see_all(
    checkpoint: Path, micro_batch: int, *, is_shared: bool, wait: Callable[[float], None]
) -> None:
    """Wait for files of state that executors have written elsewhere.

    ``wait`` pauses, and raises where nobody wants the batch any more. Raises `EngineError`.
    """
    until = time.monotonic() + (_SHOWN_SECS if is_shared else 0)
    while left := unseen(checkpoint, micro_batch, is_shared=is_shared):
        if time.monotonic() >= until:
            raise EngineError(
                f"{counted(len(left), 'file')} of state that executors have written cannot be seen"
                f" in {checkpoint}; is state_path the same volume there?"
            )
        wait(_LOOK_SECS)


def unseen(checkpoint: Path, micro_batch: int, *, is_shared: bool) -> frozenset[str]:
    """Return what of the state that a micro-batch has committed is not to be seen: ids and files.

    A directory that is not shared shows what there is, so nobody looks into snapshots there.
    """
    entry = (checkpoint / "commits" / str(micro_batch)).read_text().splitlines()[1]
    wanted = frozenset(_leaves(json.loads(entry)["stateUniqueIds"]))
    # Beside each lie checksums of the same name, which are shown in their own time.
    found = (checkpoint / "state").rglob("[0-9]*_*.*")
    paths = [path for path in found if path.suffix in {_CHANGES, _ARCHIVE}]
    ids = wanted - {path.stem.partition("_")[2] for path in paths}
    archives = (path for path in paths if is_shared and path.suffix == _ARCHIVE)
    return ids | frozenset(_missing_parts(archives))


def _leaves(ids: Any) -> Iterator[str]:
    """By operator, partition and store."""
    if isinstance(ids, str):
        yield ids
        return
    for each in ids.values() if isinstance(ids, dict) else ids:
        yield from _leaves(each)


def _missing_parts(archives: Iterator[Path]) -> Iterator[str]:
    """Parts of each store's newest archive that are not there, or the archive if it is cut."""
    newest: dict[Path, Path] = {}
    for path in archives:
        known = newest.get(path.parent)
        if known is None or _version(path) >= _version(known):
            newest[path.parent] = path
    for folder, path in newest.items():
        try:
            with zipfile.ZipFile(path) as archive:
                told = json.loads(archive.read("metadata").partition(b"\n")[2])
        except (zipfile.BadZipFile, OSError, ValueError):
            yield path.name
            continue
        for place, key, name in _PARTS:
            there = {each.name for each in (folder / place).glob("*")}
            yield from {part[name] for part in told.get(key, [])} - there


def _version(archive: Path) -> int:
    """``12_{id}.zip`` is of version 12."""
    return int(archive.name.partition("_")[0])
