"""Removal of local files: on condition of a version, and of directories.

A file that was written between a comparison and the removal would be lost. So the file gets a
hidden name first, always the same one: after a death the next call finds it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from blizzard_core.errors import Conflict
from blizzard_core.storage.local_entries import (
    entry_of,
    move_to_free,
    status_of,
    sync_directory,
    wrapped,
)
from blizzard_core.storage.protocol import Storage


def remove_version(storage: Storage, path: str, at: Callable[[str], Path], version: str) -> bool:
    """Remove a file if it has this version; see `Storage.delete_if`. ``at`` returns its place."""
    try:
        place = at(path)
        # By the path below the root, which may be mounted elsewhere after a death.
        aside = place.with_name(f".blizzard-{hashlib.sha256(os.fsencode(path)).hexdigest()}")
        is_removed = _remove_or_put_back(aside, place, version)
        found = storage.stat(path)
        if found is None:
            return is_removed
        if found.version == version:
            place.rename(aside)
            if _remove_or_put_back(aside, place, version):
                return True
    except FileNotFoundError:
        return False
    except OSError as error:
        raise wrapped(storage.uri, path, error) from error
    raise Conflict(f"{storage.uri}/{path}: changed by another writer")


def _remove_or_put_back(aside: Path, place: Path, version: str) -> bool:
    """Remove a file that was moved aside if it has this version; return whether it had it."""
    if not os.path.lexists(aside):
        return False
    found = entry_of("", status_of(aside))
    is_wanted = found is not None and _without_inode_time(found.version) == _without_inode_time(
        version
    )
    if is_wanted:
        aside.unlink()
    else:
        try:
            move_to_free(aside, place)
        except FileExistsError:  # a newer file of the name: its writer has replaced this one
            aside.unlink()
    sync_directory(place.parent)
    return is_wanted


def _without_inode_time(version: str) -> str:
    """Return the part of a version that a move does not change."""
    return version.rpartition("-")[0]


def remove_tree(storage: Storage, prefix: str, folder: Path) -> int:
    """Remove a directory and all below it; return how many files."""
    count = sum(len(files) for _, _, files in os.walk(folder))
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise wrapped(storage.uri, prefix, error) from error
    return count
