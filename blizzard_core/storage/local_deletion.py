"""Removal of local files: on condition of a version, and of directories.

A file that was written between a comparison and the removal would be lost. So the file gets a
hidden name first, always the same one: after a death the next call finds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from blizzard_core.errors import Conflict
from blizzard_core.storage.local_entries import status_of, sync_directory, versioned, wrapped
from blizzard_core.storage.protocol import Storage


def remove_version(storage: Storage, path: str, at: Callable[[str], Path], version: str) -> bool:
    """Remove a file if it has this version; see `Storage.delete_if`. ``at`` returns its place."""
    try:
        place = at(path)
        aside = place.with_name(f".blizzard-{hashlib.sha256(os.fsencode(place)).hexdigest()}")
        _remove_or_put_back(aside, place, version)
        found = storage.stat(path)
        if found is None:
            return False
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
    found = versioned("", status_of(aside))
    if found is None:
        return False
    is_wanted = found.version == version
    if not is_wanted:
        # If there is a newer file of the name, its writer has replaced this one.
        with contextlib.suppress(FileExistsError):
            os.link(aside, place, follow_symlinks=False)
    aside.unlink()
    sync_directory(place.parent)
    return is_wanted


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
