"""The parent of the process that decodes columnar files (`process`).

It sends the commands and answers the requests for bytes.
"""

from __future__ import annotations

import atexit
import pickle
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_core.limits import (
    TABLE_FOOTER_MEMORY_BYTES,
    TABLE_FOOTER_PER_BYTE,
    TABLE_FOOTER_TRUSTED_BYTES,
    TABLE_READER_BYTES,
    TABLE_READER_MOST_BYTES,
    TABLE_READER_PER_BYTE,
)
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import ReadRange
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_core.table.thrift import STRUCT, skip_value
from blizzard_py.formats.columnar import messages, process
from blizzard_py.formats.protocol import OpenFile


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of which the decoding process requests ranges; ``where`` is its name in errors."""

    read_range: ReadRange
    size: int
    where: str
    kind: str = "Parquet"

    @classmethod
    def of(cls, storage: Storage, path: str, size: int) -> StoredFile:
        """Return a Parquet file of a store."""
        return cls(partial(storage.read_range, path), size, f"{storage.uri}/{path}")

    @classmethod
    def opened(cls, file: OpenFile, kind: str = "Parquet") -> StoredFile:
        """Return a file that is being read."""
        return cls(file.read_range, file.size, file.path, kind)

    def damaged(self, why: str) -> SourceError:
        """Return the error for a file that Arrow cannot read."""
        return SourceError(
            f"{self.where}: cannot be read as {self.kind} ({' '.join(why.split())[:220]});"
            " restore the file, or remove it"
        )

    @contextmanager
    def translate_damage(self) -> Iterator[None]:
        """Turn Arrow's errors into a `SourceError` that names the file, not its rows."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise self.damaged(f"{type(error).__name__}: {error}") from error


class ReaderEnded(Exception):
    """The process ended before it had answered; the text says how."""


class RowReader(messages.OwnProcess):
    """The decoding process and the connection to it."""

    def __init__(self) -> None:
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
        super().__init__(process.__name__, subprocess.DEVNULL, environment)

    def send(self, content: bytes) -> None:
        """Send a command, or the bytes that the process requested."""
        try:
            self.line.send(messages.GIVEN, content)
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> tuple[bytes, bytes]:
        """Return the kind of an answer and its content."""
        try:
            return self.line.receive()
        except (EOFError, OSError) as error:
            raise self._ended() from error

    def _ended(self) -> ReaderEnded:
        try:  # a connection may end shortly before its process does
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return ReaderEnded("and closed the connection")
        return ReaderEnded(f"with signal {-code}" if code < 0 else f"with exit code {code}")


# Starting a process takes a quarter of a second, so it is kept for the next file.
IDLE: list[RowReader] = []


@atexit.register
def end_idle() -> None:
    """End the processes that are not in use."""
    while IDLE:
        IDLE.pop().kill()


def decoded(file: StoredFile, order: messages.DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a command asks for.

    Raises `SourceError` if a row needs more than the limit.
    """
    try:
        yield from answers(file, order)
    except ReaderEnded as error:
        raise SourceError(
            f"{file.where}: the process that read it ended {error}, probably because"
            f" {order.allowed >> 20} MiB of memory are not available; rewrite the file with smaller"
            " row groups and pages, or read fewer columns"
        ) from error


def check_footer(file: StoredFile, footer: bytes) -> None:
    """Raise `SourceError` for a footer that takes too much memory when it is decoded.

    A short one cannot, unless a list claims more items than there are bytes: Arrow makes room for
    all of them first. A longer one is decoded in the other process first.
    """
    if len(footer) <= TABLE_FOOTER_TRUSTED_BYTES:
        try:
            skip_value(footer, 0, STRUCT)
        except (IndexError, SchemaMismatch) as error:
            raise file.damaged("its footer is cut off, or contradicts itself") from error
        return
    most = TABLE_FOOTER_MEMORY_BYTES + TABLE_FOOTER_PER_BYTE * len(footer)
    order = messages.DecodeCommand(footer, file.size, (), (), most, "footer")
    try:
        for _ in answers(file, order):
            pass
    except ReaderEnded as error:
        raise SourceError(f"{file.where}: {process.too_large_footer(order)}") from error


def answers(file: StoredFile, order: messages.DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield the answers of a process; of a second one if the first ends before it is done.

    The system may have ended it for its memory, which no file causes. Raises `ReaderEnded` after
    the second one, and `SourceError` if a process refuses the file.
    """
    done = 0
    try:
        for batch in _answers_of_one(file, order):
            yield batch
            done += batch.num_rows
    except ReaderEnded:
        end_idle()  # for their memory
        yield from process.rows_behind(_answers_of_one(file, order), done)


def _answers_of_one(file: StoredFile, order: messages.DecodeCommand) -> Iterator[pa.RecordBatch]:
    """Yield the answers of one process. Raises `ReaderEnded` and `SourceError`."""
    reader = IDLE.pop() if IDLE else RowReader()
    is_idle = False
    try:
        # As a tuple: the process runs as a script, so there this class is another one.
        reader.send(pickle.dumps(tuple(order)))
        while (answer := reader.receive())[0] != messages.END:
            kind, content = answer
            if kind == messages.READ:
                reader.send(file.read_range(*messages.RANGE.unpack(content)))
            elif kind == messages.BATCH:
                with pa.ipc.open_stream(content) as stream:
                    yield from stream
            elif kind == messages.DAMAGED:
                raise file.damaged(content.decode(errors="replace"))
            else:
                raise SourceError(f"{file.where}: {content.decode(errors='replace')}")
        is_idle = answer[1] == messages.MORE
    finally:
        if is_idle:
            IDLE.append(reader)
        else:
            reader.kill()


def allowed(size: int) -> int:
    """Return how much memory the process may use for a file of so many bytes.

    A small file has a fixed limit, whatever its footer says; a larger file may use more.
    """
    return min(TABLE_READER_MOST_BYTES, TABLE_READER_BYTES + TABLE_READER_PER_BYTE * size)
