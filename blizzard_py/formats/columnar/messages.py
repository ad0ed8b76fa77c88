"""Processes of our own modules, and the messages between them and their parent."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from typing import Literal, NamedTuple

# The kinds of answer, and the format of a requested range.
READ, BATCH, DAMAGED, REFUSED, END, MORE = b"R", b"B", b"D", b"L", b".", b"+"
# The kind of what the parent sends: a command, or the bytes that were requested.
GIVEN = b"G"
RANGE = struct.Struct(">QQ")
# Of a message: its kind, and the bytes of its content.
_HEAD = struct.Struct(">cQ")


class DecodeCommand(NamedTuple):
    """The columns to decode of a file, within ``allowed`` bytes.

    ``footer`` and ``groups`` are of Parquet. ``footer`` as the kind asks whether that can be
    decoded, ``ranges`` for its ranges of the one column, ``orc schema`` for a batch without rows.
    """

    footer: bytes
    size: int
    groups: tuple[int, ...]
    columns: tuple[str, ...]
    allowed: int
    kind: Literal["parquet", "footer", "ranges", "orc", "orc schema"] = "parquet"


class Line:
    """One end of the connection between the two processes.

    `multiprocessing.connection` copies a message three times more.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, kind: bytes, content: bytes | memoryview = b"") -> None:
        """Send a message. Raises `OSError` if the other end is gone."""
        head = _HEAD.pack(kind, len(content))
        done = self._end.sendmsg([head, content])
        # Sending nothing fails, too, if the other end has all it needs and is gone by now.
        if rest := memoryview(content)[max(0, done - len(head)) :]:
            self._end.sendall(rest)

    def receive(self) -> tuple[bytes, bytes]:
        """Return the kind of a message and its content.

        Raises `EOFError` if the other end is closed, and `OSError` if it was killed.
        """
        kind, size = _HEAD.unpack(self._exactly(_HEAD.size))
        return kind, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = self._end.recv(size, socket.MSG_WAITALL)
        while len(found) < size:  # a signal, or the end
            rest = self._end.recv(size - len(found), socket.MSG_WAITALL)
            if not rest:
                raise EOFError
            found += rest
        return found

    def close(self) -> None:
        """Close this end."""
        self._end.close()


class OwnProcess:
    """A clean interpreter with ``python -m module``, which gets its end of the line as a number."""

    def __init__(self, module: str, stdout: int, environment: Mapping[str, str]) -> None:
        own_end, theirs = socket.socketpair()
        path = os.pathsep.join(filter(None, sys.path))
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                env={**os.environ, "PYTHONPATH": path, **environment},
            )
        self.line = Line(own_end)

    def kill(self) -> None:
        """End the process."""
        self.line.close()
        self.process.kill()
        self.process.wait()
