"""A working copy of Spark's checkpoint directory, kept in objects beside our checkpoint.

``_blizzard/state/{source id}/{epoch}/{batch}-{attempt}-{random}/``: new files of at least 1 MiB are
objects of their own, the rest of a batch is one tar. A manifest says which object has which file.
Objects that no saved manifest names do not count.

Files of that directory appear by rename and do not change. Spark removes old ones at any time, so a
file may vanish while it is read. Only parts of a snapshot grow in place, before an archive names
them. A part that was archived incompletely is archived again with the next batch.

The manifest contains each file's digest, and a restored file must match it. Spark would notice
damage only when it reads the file, or not at all, and could not name the object to restore.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from blizzard_core.errors import NotFound, StateError
from blizzard_core.storage.failures import wrap_error
from blizzard_core.storage.protocol import Storage, join
from blizzard_py.ingest.publish import files_of_older
from blizzard_py.state.stream_state import Packed

ALONE_BYTES = 1 << 20

_TAR = ".tar"
# The parts of a state store's snapshot. They appear before the archive that names them.
_MEMBERS = frozenset({"SSTs", "logs"})
_MEMORY_BYTES = 4 << 20


@dataclass(slots=True)
class WorkingCopy:
    """The directory, and its archived files: size and modification time by path."""

    root: Path
    archived: dict[str, tuple[int, int]] = field(default_factory=dict)


class StateArchive:
    """The archived state of one source, below ``folder`` of ``storage``."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def pack(
        self, copy: WorkingCopy, before: Mapping[str, Packed], epoch: int, name: str
    ) -> dict[str, Packed]:
        """Put new files of the directory into new objects; return the manifest of all files.

        ``before`` is the manifest that the copy was restored from or last archived to. The objects
        are durable on return. Raises `StorageError`.
        """
        place = join(self._folder, f"{epoch:08d}", f"{name}-{uuid.uuid4().hex[:8]}")
        manifest: dict[str, Packed] = {}
        known: dict[str, tuple[int, int]] = {}
        with _Tar() as tar:
            for path, mark in _files(copy.root):
                if path in before and copy.archived.get(path) == mark:
                    manifest[path], known[path] = before[path], mark
                    continue
                with contextlib.suppress(FileNotFoundError):
                    manifest[path] = self._put(tar, copy.root / path, path, place, len(manifest))
                    known[path] = mark
            if tar.members:
                tar.finish()
                tar.file.seek(0)
                self._write(join(place, f"rest{_TAR}"), tar.file)
        copy.archived = known
        return manifest

    def restore(self, packs: Mapping[str, Packed], root: Path) -> WorkingCopy:
        """Make the directory ``root`` of a manifest. Raises `StateError` if something is missing.

        Also raises `StorageError`, even for the local disk.
        """
        root.mkdir(parents=True, exist_ok=True)
        objects: dict[str, list[str]] = {}
        for path, packed in packs.items():
            objects.setdefault(packed.object, []).append(path)
        for name, paths in objects.items():
            try:
                with contextlib.closing(self._storage.open_input(name)) as stream:
                    for path, data in _members(name, paths, stream):
                        _write_file(root, path, data)
            except (NotFound, tarfile.TarError, EOFError) as error:
                raise self._lost(name, paths[0]) from error
            for path in paths:
                there = root / path
                if not there.exists() or not _is_complete(there, packs[path]):
                    raise self._lost(name, path)
        return WorkingCopy(root, dict(_files(root)))

    def drop(self, objects: frozenset[str]) -> None:
        """Remove objects that no manifest names any more."""
        for name in objects:
            self._storage.delete(name)

    def sweep(self, named: frozenset[str], epoch: int) -> None:
        """Remove objects of earlier epochs that the manifest does not name.

        Their writers cannot commit any more, and a replaced writer knows only older epochs.
        """
        self.drop(frozenset(files_of_older(self._storage, self._folder, epoch)) - named)

    def _put(self, tar: _Tar, file: Path, path: str, place: str, number: int) -> Packed:
        size = file.stat().st_size
        if size < ALONE_BYTES:
            data = file.read_bytes()
            tar.add(path, data)
            return Packed(join(place, f"rest{_TAR}"), len(data), _digest(io.BytesIO(data)))
        name = join(place, f"{number:05d}")
        with file.open("rb") as stream:
            digested = _DigestStream(stream)
            self._write(name, digested)
        return Packed(name, digested.size, digested.digest.hexdigest())

    def _write(self, name: str, data: BinaryIO | _DigestStream) -> None:
        stream = self._storage.open_output(name)
        try:
            with stream:
                shutil.copyfileobj(data, stream)
        except Exception as error:  # errors of store clients have no common base class
            raise wrap_error(f"{self._storage.uri}/{name}", error) from error
        self._storage.sync(name)

    def _lost(self, name: str, path: str) -> StateError:
        return StateError(
            f"{self._storage.uri}/{name}: holds {path} of the state of an event_time query, and is"
            " missing or incomplete; restore it. Without it the open windows are lost: then either"
            " let the query continue without them (`blizzard checkpoint reset --event-time`), or"
            " use a new pipeline and a new table"
        )


class _Tar:
    """The small files of a batch, in memory while they are few."""

    def __init__(self) -> None:
        self.file: BinaryIO = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # type: ignore[assignment]  # noqa: SIM115  # it is one but by name; closed on exit
        self._tar = tarfile.open(fileobj=self.file, mode="w")  # noqa: SIM115  # closed by `finish`
        self.members = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def add(self, path: str, data: bytes) -> None:
        """Add a file."""
        member = tarfile.TarInfo(path)
        member.size = len(data)
        with _on_the_disk(tempfile.gettempdir()):
            self._tar.addfile(member, io.BytesIO(data))
        self.members += 1

    def finish(self) -> None:
        """End the archive."""
        with _on_the_disk(tempfile.gettempdir()):
            self._tar.close()


def _is_complete(file: Path, packed: Packed) -> bool:
    if file.stat().st_size != packed.size:
        return False
    with file.open("rb") as stream:
        return _digest(stream) == packed.digest


class _DigestStream:
    """A stream with size and digest of all that was read: it may be more than there was."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size = 0
        self.digest = hashlib.blake2b(digest_size=16)

    def read(self, size: int = -1, /) -> bytes:
        """Read as a stream does."""
        data = self._stream.read(size)
        self.size += len(data)
        self.digest.update(data)
        return data


def _digest(stream: BinaryIO) -> str:
    digested = _DigestStream(stream)
    while digested.read(ALONE_BYTES):
        pass
    return digested.digest.hexdigest()


@contextlib.contextmanager
def _on_the_disk(place: str | Path) -> Iterator[None]:
    """Raise errors of the local disk as `StorageError`: a full disk does not end the daemon."""
    try:
        yield
    except OSError as error:
        raise wrap_error(f"{place} (working copy of event_time state)", error) from error


def _files(root: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield every file below with size and time, without temporary files and checksums.

    Parts of a snapshot are listed after the archives that name them, so a manifest never has an
    archive without its parts.
    """
    for path, mark in _walked(root):
        if _MEMBERS.isdisjoint(PurePosixPath(path).parts):
            yield path, mark
    for path, mark in _walked(root):
        if not _MEMBERS.isdisjoint(PurePosixPath(path).parts):
            yield path, mark


def _walked(root: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    found = []
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in names:
            if name.startswith("."):
                continue
            file = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):
                stat = file.stat()
                found.append((file.relative_to(root).as_posix(), (stat.st_size, stat.st_mtime_ns)))
    return iter(sorted(found))


def _members(name: str, paths: list[str], stream: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    if not name.endswith(_TAR):
        yield paths[0], stream
        return
    wanted = set(paths)
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            data = tar.extractfile(member) if member.name in wanted else None
            if data is not None:
                yield member.name, data  # type: ignore[misc]  # a reader of bytes by any name


def _write_file(root: Path, path: str, data: BinaryIO) -> None:
    target = root / path
    if ".." in PurePosixPath(path).parts or root not in target.parents:
        raise StateError(f"{path}: is a file outside of the working copy")
    with _on_the_disk(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            shutil.copyfileobj(data, file)
