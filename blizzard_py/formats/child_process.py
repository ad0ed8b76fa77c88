"""Calls that may end the process, made in child processes.

`ChildProcess` starts one clean interpreter with pyarrow loaded and a single thread, and that one
forks a child for each call. A fork of the worker itself would inherit locks of its threads, and a
new interpreter for each call takes half a second. A child that dies affects nothing else, and the
caller learns how it died.

Functions and values travel as pickles between processes of the same user and code.
"""

from __future__ import annotations

import functools
import gc
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, Self, TypeVar, cast

import pyarrow as pa

from blizzard_py.formats.columnar.messages import Line, OwnProcess


def prepare_process() -> None:
    """Configure pyarrow for a process that runs one task at a time.

    It uses one thread, since every core has its own task. It uses the C library's allocator: this
    work takes an eighth less time with it than with pyarrow's default.
    """
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


P = ParamSpec("P")
R = TypeVar("R")

# Where printed text goes.
_STDERR = 2
# The kinds of messages: a call, and its answers.
_CALL, _OK, _RAISED, _DIED = b"C", b"O", b"R", b"D"


class Died(Exception):
    """The process of a call ended before it returned; ``how`` says why."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class ChildProcess:
    """Makes calls in child processes, one at a time."""

    def __init__(self) -> None:
        self._started: OwnProcess | None = None

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return or raise the function's result, or raise `Died`. Functions are found by name."""
        if self._started is None:
            self._started = OwnProcess(__name__, _STDERR, {})
        started = self._started
        try:
            started.line.send(_CALL, pickle.dumps((function, args, kwargs)))
            kind, content = started.line.receive()
        except (EOFError, OSError):  # the interpreter itself was killed
            self._started = None
            started.line.close()
            raise Died(_how(started.process.wait())) from None
        if kind == _DIED:
            raise Died(content.decode())
        value = pickle.loads(content)  # noqa: S301  # our own child's
        if kind == _RAISED:
            raise value
        return cast("R", value)

    def close(self) -> None:
        """End the interpreter."""
        started, self._started = self._started, None
        if started is not None:
            started.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _how(code: int) -> str:
    """Return an exit code of `subprocess` in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"signal {-code} ({name})"


def _serve(line: Line) -> None:
    """Serve requests in the interpreter, with a child for each, until there are no more."""
    while True:
        try:
            request = line.receive()[1]
        except EOFError:
            return
        # Loaded here, so that modules are imported once, not in every child.
        function, args, kwargs = pickle.loads(request)  # noqa: S301  # our own parent's
        own_end, theirs = map(Line, socket.socketpair())
        child = os.fork()
        if not child:
            # With it open here, nobody would tell the child that the interpreter has died.
            own_end.close()
            theirs.send(*_answer(functools.partial(function, *args, **kwargs)))
            os._exit(0)
        theirs.close()
        answer = _DIED, b""
        with suppress(EOFError, OSError):
            answer = own_end.receive()
        own_end.close()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        line.send(*(answer if code == 0 else (_DIED, _how(code).encode())))


def _answer(call: Callable[[], object]) -> tuple[bytes, bytes]:
    try:
        return _OK, pickle.dumps(call(), protocol=5)
    except Exception as error:  # any error is returned to the caller
        return _RAISED, pickle.dumps(error)


def main(descriptor: int) -> None:
    """Serve the parent's requests."""
    prepare_process()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as end, suppress(ConnectionError):  # the parent is gone
        _serve(Line(end))


if __name__ == "__main__":
    main(int(sys.argv[1]))
