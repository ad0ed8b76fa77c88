"""Removal of the files of a list, each on condition that it is still the one that was ingested.

Every step may be repeated after a death: a copy that is there and equal is not made again, and a
file that is gone was removed. A file of another version is left as it is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from contextlib import closing

from blizzard_core.errors import Conflict, Unavailable
from blizzard_core.storage.protocol import Storage
from blizzard_py.cleaning.eligible import CleanableFile
from blizzard_py.cleaning.lists import CleaningList, Outcome

# The owner looks at its checkpoint once for so many files: one GET, and a replaced process removes
# no more than these. What it removes was ingested all the same. A stop waits for no more, either.
FILES_A_CHECK = 20
_BLOCK_BYTES = 1 << 20
# The folder of the archive for copies that are not complete.
_COPYING = "_blizzard/copying"


def remove_files(
    made: CleaningList,
    source: Storage,
    archive: Storage | None,
    barred: Collection[str],
    check: Callable[[], None],
) -> dict[str, Outcome]:
    """Remove the files of a list, after copying them if there is an archive. Return the outcomes.

    ``barred`` are files that may not be removed any more, since the list was made. ``check`` raises
    `FencedError` if another process owns the source now, or `Cancelled` to stop. Raises
    `StorageError`.
    """
    outcomes: dict[str, Outcome] = {}
    for number, file in enumerate(made.files):
        if not number % FILES_A_CHECK:
            check()
        if file.path in barred:
            outcomes[file.path] = "left"
        else:
            outcomes[file.path] = _remove(file, source, archive)
    return outcomes


def _remove(file: CleanableFile, source: Storage, archive: Storage | None) -> Outcome:
    found = source.stat(file.path)
    if found is not None and found.version != file.version:
        return "changed"
    if found is not None and archive is not None:
        if not copy_file(file.path, source, archive):
            return "archive_differs"
        # The copy may be of a newer object. Where a version may come back, as an ETag with the same
        # bytes does, its time tells.
        again = source.stat(file.path)
        if again is None:
            return "gone"
        if (again.version, again.modified) != (found.version, found.modified):
            return "changed"
    try:
        # Also of a file that seems gone: on a disk a death may have left it aside.
        is_removed = source.delete_if(file.path, file.version)
    except Conflict:
        return "changed"
    return "cleaned" if is_removed else "gone"


def copy_file(path: str, source: Storage, archive: Storage) -> bool:
    """Copy a file to the archive, or back, and read the copy; return whether it is equal.

    False if the archive has another file of that name, which is left. Raises `StorageError`, also
    if what was written does not come back.
    """
    wanted = _digest(source, path)
    # A death may leave a part of it, which is no copy of the file.
    part = f"{_COPYING}/{hashlib.sha256(os.fsencode(path)).hexdigest()}"
    if archive.stat(path) is not None:
        archive.delete(part)  # a rename that was cut off may have left it
        return _digest(archive, path) == wanted
    with (
        closing(source.open_input(path)) as stream,
        closing(archive.open_output(part)) as copy,
    ):
        while block := stream.read(_BLOCK_BYTES):
            copy.write(block)
    archive.sync(part)
    if _digest(archive, part) != wanted:
        raise Unavailable(
            f"{archive.uri}/{path}: the copy differs from {source.uri}/{path}, which stays; it is"
            " copied again in the next run"
        )
    archive.rename(part, path)
    return True


def _digest(storage: Storage, path: str) -> bytes:
    digest = hashlib.sha256()
    with closing(storage.open_input(path)) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.digest()
