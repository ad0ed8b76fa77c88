"""Local disks: pruned ``scandir`` listings, fsync, atomic rename.

Local paths bypass fsspec: its ``open("wb")`` does not fsync, its transactions use the system's
temporary folder and its ``find`` reads the whole tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from errno import EISDIR, ENAMETOOLONG, ENOENT
from itertools import accumulate
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO

from blizzard_core.errors import AccessDenied, Conflict, NotFound, StorageError
from blizzard_core.log import get_logger
from blizzard_core.storage.folder_cache import Child, FolderCache
from blizzard_core.storage.local_deletion import remove_tree, remove_version
from blizzard_core.storage.local_entries import (
    FILE_AS_SOURCE,
    can_be_called,
    entry_of,
    locked,
    move_to_free,
    status_of,
    sync_directory,
    wrap_errors,
    wrapped,
)
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range, is_hidden, order_key
from blizzard_core.storage.ranges import Ranges
from blizzard_core.storage.writeback import EarlyWriteback
from blizzard_core.text import shortened

# Folders for state, dead letters and unpublished outputs in a table.
_OUR_FOLDERS = frozenset({"_blizzard", "_penguin"})
# Before the umask.
_FILE, _FOLDER = 0o666, 0o777
_PRIVATE_FILE, _PRIVATE_FOLDER = 0o660, 0o770


class LocalStorage:
    """A directory as a `Storage`. The first write creates the directory.

    Without ``follow`` linked directories are ignored: the same file would appear under two names.
    So are files whose link leads out of the root: a person who may write there could make this
    process read any file. With ``follow`` a link back to a directory on its own path is not
    followed: two of them would make 2⁴⁰ directories. The root itself may be a link.

    Only regular files are opened, and no opening blocks: a pipe would block for ever.

    Files in our own folders of a table, or all files if ``private``, are readable for this user
    and, by the umask, the group: dead letters and checkpoints contain records. Tables are readable
    as the umask allows.
    """

    def __init__(
        self,
        root: str,
        *,
        follow: bool = True,
        private: bool = False,
        versions: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root = Path(root)
        self._folders = FolderCache(clock)
        self._follow = follow
        self._private = private
        self._versions = versions
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r})"

    @property
    def uri(self) -> str:
        return str(self._root)

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """Yield one page per directory; directories outside the range are not read."""
        return self.list_ranges([Range(after, until)])

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage]:
        """Yield one page per directory, each read once; those outside all ranges are not read."""
        if not self._root.is_dir():
            absent = "no such directory; create it, or correct the path"
            raise NotFound(f"{self.uri}: {FILE_AS_SOURCE if self._root.is_file() else absent}")
        wanted = Ranges(ranges)
        # The directories being read, each inside the previous one. Writers decide the depth, so
        # there is no recursion.
        reading: list[tuple[str, Iterator[Child]]] = []
        waiting: str | None = ""
        entries: list[Entry] = []
        requests = keys = 0
        while reading or waiting is not None:
            if waiting is not None:
                children = self._children(waiting, wanted.start_in(order_key(waiting)))
                requests, keys = requests + 1, keys + len(children)
                if may_be_wanted:
                    children = [c for c in children if c[0][-1] == "/" or may_be_wanted(c[0])]
                reading.append((waiting, iter(children)))
            waiting = self._take(*reading[-1], wanted, entries)
            yield ListingPage(tuple(entries), requests, keys)
            entries, requests, keys = [], 0, 0
            if waiting is None:
                reading.pop()

    def _take(
        self, folder: str, children: Iterator[Child], wanted: Ranges, entries: list[Entry]
    ) -> str | None:
        """Collect files up to the next directory, which is returned; None at the end."""
        for path, child in children:
            key = order_key(path)
            if wanted.end is not None and key >= wanted.end:
                return None
            if path.endswith("/"):
                if child and child.is_symlink() and not self._is_followed(folder, path):
                    self._warn_of_link(path)
                elif wanted.reach_into(key):
                    return path
            elif wanted.has_file(key):
                if child and child.is_symlink() and not self._is_inside(path):
                    self._warn_of_link(path)
                elif (entry := self._entry(path, child)) is not None:
                    entries.append(entry)
        return None

    def _children(self, folder: str, start: bytes) -> list[Child]:
        """Return the children of a directory in order; those below ``start`` may be missing."""
        try:
            return self._folders.children(f"{self._root}/{folder}", folder, start)
        except FileNotFoundError:
            return []  # a directory may be removed while its parent is being read
        except OSError as error:
            if error.errno == ENAMETOOLONG:
                self._warn_of_long_path(folder)
                return []
            raise wrapped(self.uri, folder, error) from error

    def _is_followed(self, folder: str, path: str) -> bool:
        """Return whether to follow a link; never into a directory that is being listed already."""
        if not self._follow:
            return False
        above = ["", *accumulate(folder.split("/")[:-1], "{}/{}".format)]
        target = os.path.realpath(self._root / path)
        return all(os.path.realpath(self._root / at) != target for at in above)

    def _warn_of_link(self, path: str) -> None:
        """Warn once per process of links. Hidden ones are Kubernetes mounts, never data."""
        if "links" not in self._warned and not is_hidden(path):
            self._warned.add("links")
            get_logger(uri=self.uri, first=path).warning(
                "links_not_followed",
                remedy="links to directories and out of the source are not followed; move the"
                " files here, or mount their directory, or give it a source of its own",
            )

    def _warn_of_long_path(self, path: str) -> None:
        """Warn once per process of a path that is too long to open; other files go on."""
        if "long" not in self._warned:
            self._warned.add("long")
            get_logger(uri=self.uri, first=shortened(path)).warning(
                "paths_too_long",
                remedy="the system opens no path that is so long; move the files to a shorter one",
            )

    def _entry(self, path: str, child: os.DirEntry[str] | None) -> Entry | None:
        try:
            status = status_of(child or f"{self._root}/{path}")
        except OSError as error:
            if error.errno == ENAMETOOLONG:
                self._warn_of_long_path(path)
                return None
            raise wrapped(self.uri, path, error) from error
        return entry_of(path, status, versions=self._versions)

    def stat(self, path: str) -> Entry | None:
        """Return size, modification time and version, or None; only regular files are objects."""
        try:
            place = self._at(path)
            if not self._follow and (self._behind_link(path) or not self._is_inside(path)):
                return None
            status = status_of(place)
        except OSError as error:
            if error.errno in (ENAMETOOLONG, ENOENT):
                return None
            raise wrapped(self.uri, path, error) from error
        return entry_of(path, status)

    def _behind_link(self, path: str) -> bool:
        folders = accumulate(path.split("/")[:-1], "{}/{}".format)
        return any((self._root / folder).is_symlink() for folder in folders)

    def _at(self, path: str) -> Path:
        """Return the local path. Raises `AccessDenied` if its text leads out of the root.

        Paths come from dead letters, manifests and tables, which others may write. An impossible
        name raises `FileNotFoundError`, since no such file exists.
        """
        if path.startswith("/") or ".." in path.split("/"):
            raise AccessDenied(f"{self.uri}/{path}: leads out of {self.uri}, and is not followed")
        if not can_be_called(path):
            raise FileNotFoundError(ENOENT, "no file can be called that")
        return self._root / path

    def _is_inside(self, path: str, status: os.stat_result | None = None) -> bool:
        """Return whether a path resolves below the root and, with ``status``, to that file."""
        if self._follow:
            return True
        real = os.path.realpath(self._root / path)
        if not real.startswith(f"{os.path.realpath(self._root).rstrip('/')}/"):
            return False
        return status is None or os.path.samestat(os.lstat(real), status)

    def read(self, path: str) -> bytes:
        with self.open_input(path) as stream:
            return stream.read()

    def read_range(self, path: str, start: int, end: int) -> bytes:
        # Without a stream around it: thousands of footers are read this way.
        with wrap_errors(self.uri, path):
            descriptor = self._open(path)
            try:
                return os.pread(descriptor, end - start, start)
            finally:
                os.close(descriptor)

    def open_input(self, path: str) -> BinaryIO:
        with wrap_errors(self.uri, path):
            return os.fdopen(self._open(path), "rb")

    def _open(self, path: str) -> int:
        """Open the regular file at ``path``; check the descriptor, which cannot change any more."""
        # A writer may put a pipe in a file's place; opening it must not block.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        descriptor = os.open(self._at(path), flags)
        try:
            self._check(path, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, path: str, status: os.stat_result) -> None:
        if S_ISDIR(status.st_mode):
            raise IsADirectoryError(EISDIR, "is a directory")
        if not S_ISREG(status.st_mode):
            raise FileNotFoundError(ENOENT, "is no regular file")
        if not self._is_inside(path, status):
            raise FileNotFoundError(ENOENT, "a link leads out of the source, and is not followed")

    def open_output(self, path: str) -> BinaryIO:
        """Open the file for writing; missing directories are made."""
        target = self._at(path)
        # An output joins the table by its name alone; until then its folder protects it.
        mode = _PRIVATE_FILE if self._private else _FILE
        # Following a link here would truncate its target.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with wrap_errors(self.uri, path):
            self._make_folders(path)
            return io.BufferedWriter(EarlyWriteback(os.open(target, flags, mode)))

    def put_atomic(self, path: str, data: bytes) -> None:
        """Write a temporary file, fsync it, ``os.replace`` the target, fsync the directory."""
        target = self._at(path)
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with wrap_errors(self.uri, path):
            self._make_folders(path)
            try:
                with os.fdopen(os.open(temporary, flags, self._mode(path)), "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(target)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
            sync_directory(target.parent)

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        """Return the whole file and its SHA-256."""
        data = self.read(path)
        return data, hashlib.sha256(data).hexdigest()

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        """Compare and `put_atomic` under an exclusive lock on ``{path}.lock``, which stays.

        The lock is beside the file and not on it, because the file is replaced.
        """
        lock = self._at(f"{path}.lock")
        with wrap_errors(self.uri, f"{path}.lock"):
            self._make_folders(path)
            with locked(lock, self._mode(path)):
                try:
                    found = self.read_versioned(path)[1]
                except NotFound:
                    found = None
                if found != version:
                    raise Conflict(f"{self.uri}/{path}: changed by another writer")
                self.put_atomic(path, data)
        return hashlib.sha256(data).hexdigest()

    def rename(self, source: str, target: str) -> None:
        """Rename with ``os.replace`` and fsync the target's directory."""
        final = self._at(target)
        with wrap_errors(self.uri, source):
            self._make_folders(target)
            self._at(source).replace(final)
            sync_directory(final.parent)

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move by a hard link, which never replaces a file, and fsync the target's directory."""
        final = self._at(target)
        try:
            self._make_folders(target)
            move_to_free(self._at(source), final)
            sync_directory(final.parent)
        except FileExistsError as error:
            raise Conflict(f"{self.uri}/{target}: written by another writer") from error
        except OSError as error:
            raise wrapped(self.uri, source, error) from error

    def _mode(self, path: str) -> int:
        return _PRIVATE_FILE if self._is_private(path) else _FILE

    def _is_private(self, path: str) -> bool:
        return self._private or path.split("/", 1)[0] in _OUR_FOLDERS

    def _make_folders(self, path: str) -> None:
        """Make the directories of the file."""
        folder = self._at(path).parent
        if folder.is_dir():
            return
        mode = _PRIVATE_FOLDER if self._is_private(path) else _FOLDER
        self._root.mkdir(_PRIVATE_FOLDER if self._private else _FOLDER, parents=True, exist_ok=True)
        for part in reversed([folder, *folder.parents]):
            if part.is_relative_to(self._root):
                part.mkdir(mode, exist_ok=True)

    def sync(self, path: str) -> None:
        with wrap_errors(self.uri, path), self._at(path).open("rb") as stream:
            os.fsync(stream.fileno())

    def delete(self, path: str) -> None:
        with wrap_errors(self.uri, path):
            self._at(path).unlink(missing_ok=True)

    def delete_if(self, path: str, version: str) -> bool:
        """Compare inode, size and times, move the file aside, compare again, then remove it."""
        return remove_version(self, path, self._at, version)

    def tag_if(self, path: str, version: str, tag: str) -> bool:  # noqa: ARG002  # the protocol gives it
        """Refuse: files have no tags."""
        raise StorageError(f"{self.uri}/{path}: files on a disk have no tags")

    def delete_tree(self, prefix: str) -> int:
        return remove_tree(self, prefix, self._at(prefix))
