"""Messages between the process that decodes files and its parent."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from blizzard_py.formats.columnar.messages import GIVEN, Line
from blizzard_py.formats.columnar.process import _Parent


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


class _HasAllItNeeds(socket.socket):
    """The other end is closed as soon as it has a message."""

    other: socket.socket

    def sendmsg(self, *parts: object) -> int:
        done = super().sendmsg(*parts)  # type: ignore[arg-type]  # as they come
        self.other.close()
        return done


def test_a_message_that_arrived_is_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with _HasAllItNeeds(fileno=ours.detach()) as end:
        end.other = theirs
        Line(end).send(GIVEN, b"rows")
        with pytest.raises(BrokenPipeError):
            Line(end).send(GIVEN, b"rows")


def test_nothing_is_requested_without_memory(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    with pytest.raises(MemoryError):
        _Parent(Line(ours), 1 << 62).read_range(0, 1 << 61)
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
