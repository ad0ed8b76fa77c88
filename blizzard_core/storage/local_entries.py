"""Entries of a directory on a local disk, and locks.

Links are followed: the target counts.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST, ELOOP
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from blizzard_core.errors import AccessDenied, NotFound, StorageError, Unavailable
from blizzard_core.storage.protocol import Entry

# What is wrong with a source that is one file.
FILE_AS_SOURCE = "is a file, and not a directory; name the one it is in"


@contextmanager
def locked(path: Path, mode: int) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is made; the system releases it at a death."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def status_of(place: os.DirEntry[str] | Path | str) -> os.stat_result | None:
    """Return the status behind links; None if nothing is there, or a link leads nowhere."""
    try:
        return os.stat(place)  # noqa: PTH116  # to make a `Path` takes longer than the call
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == ELOOP:
            return None
        raise


def can_be_called(path: str) -> bool:
    """Return whether a file can have this name anywhere; foreign lists may hold impossible names.

    The locale is not asked: a file may exist under a name that this locale cannot spell.
    """
    try:
        return b"\0" not in path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False


def entry_of(path: str, status: os.stat_result | None, *, versions: bool = True) -> Entry | None:
    """Return the entry of a regular file; None for pipes and devices, which may block for ever."""
    if status is None or not S_ISREG(status.st_mode):
        return None
    # A writer may set the time of the content to what it was, but not that of the inode.
    version = (
        f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"
        if versions
        else ""
    )
    return Entry(path, status.st_size, status.st_mtime, version=version)


def move_to_free(source: Path, target: Path) -> None:
    """Move a file to a name that nothing has. Raises `FileExistsError`."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a directory, or a disk without hard links: there is no better way
        if os.path.lexists(target):
            raise FileExistsError(EEXIST, os.strerror(EEXIST), str(target)) from None
        source.rename(target)
    else:
        source.unlink()


def listed_name(folder: str, entry: os.DirEntry[str]) -> str:
    """Return the path as a store lists it: directories end with ``/`` and sort by it."""
    return f"{folder}{entry.name}/" if is_directory(entry) else f"{folder}{entry.name}"


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether the entry is a directory or a link to one."""
    if not entry.is_symlink():
        return entry.is_dir()
    status = status_of(entry)
    return status is not None and S_ISDIR(status.st_mode)


def sync_directory(folder: Path) -> None:
    """Fsync a directory, so its names are durable. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def wrapped(root: str, path: str, error: OSError) -> StorageError:
    """Convert an error of the system for a path below ``root``."""
    message = f"{root}/{path}: {error.strerror or error}"
    match error:
        case NotADirectoryError():
            return NotFound(f"{message}; a part of the path is a file: choose another directory")
        case FileNotFoundError():
            return NotFound(message)
        case PermissionError():
            return AccessDenied(f"{message}; let this process's user read and write there")
        case _:
            return Unavailable(message)


@contextmanager
def wrap_errors(root: str, path: str) -> Iterator[None]:
    """Convert errors of the system for a path below ``root``."""
    try:
        yield
    except OSError as error:
        raise wrapped(root, path, error) from error
