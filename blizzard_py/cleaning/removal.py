"""Removal or tagging of the files of a list, each on condition that it is the one ingested.

Every step may be repeated after a death: a copy that is there and equal is not made again, a file
that is gone was removed, and one that has the tag keeps it. A file of another version is left as it
is, without the tag.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from contextlib import closing

from blizzard_core.errors import Conflict, StorageError, TagsFull, Unavailable
from blizzard_core.storage.protocol import Storage
from blizzard_py.cleaning.eligible import CleanableFile
from blizzard_py.cleaning.lists import CleaningList, Outcome

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
    """Remove the files of a list, copied first if there is an archive, or tag them.

    Return the outcomes.

    ``barred`` are files that may not be removed any more, since the list was made. ``check`` is
    called before each removal, and raises if it may not be. Raises `StorageError`.
    """
    return {
        file.path: _leave(file, source, made.tag)
        if file.path in barred
        else _tag(file, source, made.tag, check)
        if made.tag
        else _remove(file, source, archive, check)
        for file in made.files
    }


def _leave(file: CleanableFile, source: Storage, tag: str) -> Outcome:
    """Leave a file of a list. A death may have come after its removal, or have moved it aside.

    Or after its tag, which is taken off: its rows may have left the table since.
    """
    try:
        if tag:
            source.tag_if(file.path, "", tag)
        else:
            source.delete_if(file.path, "")
    except Conflict:
        return "left"
    return "gone"


def _tag(file: CleanableFile, source: Storage, tag: str, check: Callable[[], None]) -> Outcome:
    check()
    try:
        is_tagged = source.tag_if(file.path, file.version, tag)
    except Conflict:
        return "changed"
    except TagsFull:
        return "left"
    return "cleaned" if is_tagged else "gone"


def _remove(
    file: CleanableFile, source: Storage, archive: Storage | None, check: Callable[[], None]
) -> Outcome:
    if archive is not None and (found := source.stat(file.path)) is not None:
        if found.version != file.version:
            return "changed"
        if not copy_file(file.path, source, archive):
            return "archive_differs"
    check()  # copying takes time
    try:
        # Also of a file that seems gone: on a disk a death may have left it aside. And the copy may
        # be of a newer object, which has another version.
        is_removed = source.delete_if(file.path, file.version)
    except Conflict:
        return "changed"
    return "cleaned" if is_removed else "gone"


def refuse_same_place(source: Storage, archive: Storage, name: str) -> None:
    """Raise `StorageError` if the archive is the source, by whatever URI, mount or alias.

    Each file would be its own copy then, and be gone.
    """
    probe = f"_blizzard_probe_{name}"
    archive.put_atomic(probe, b"blizzard")
    try:
        is_same = source.stat(probe) is not None
    finally:
        archive.delete(probe)
    if is_same:
        raise StorageError(
            f"{archive.uri}: is the same place as {source.uri}; choose another clean.archive_uri"
        )


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
    try:
        archive.rename_if_absent(part, path)
    except Conflict:  # written while this was copied
        archive.delete(part)
        return _digest(archive, path) == wanted
    return True


def _digest(storage: Storage, path: str) -> bytes:
    digest = hashlib.sha256()
    with closing(storage.open_input(path)) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.digest()
