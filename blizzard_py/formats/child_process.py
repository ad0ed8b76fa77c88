"""Calls that may end the process, made in child processes.

`ChildProcess` starts one clean interpreter with pyarrow loaded and a single thread, and that one
forks a child for each call. A fork of the worker itself would inherit locks of its threads, and a
new interpreter for each call takes half a second. A child that dies affects nothing else, and the
caller learns how it died.

Functions and values travel as pickles, through pipes between processes of the same user and code.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import BinaryIO, ParamSpec, Self, TypeVar, cast

import pyarrow as pa


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

_LENGTH = struct.Struct(">Q")
_OK, _RAISED, _DIED = b"ORD"


class Died(Exception):
    """The process of a call ended before it returned; ``how`` says why."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class ChildProcess:
    """Makes calls in child processes, one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return or raise the function's result, or raise `Died`. Functions are found by name."""
        process = self._started()
        stdin, stdout = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
        try:
            _send(stdin, pickle.dumps((function, args, kwargs)))
            answer = _received(stdout)
        except (EOFError, BrokenPipeError):  # the interpreter itself was killed
            self._process = None
            process.communicate()  # closes both pipes; `close` would send the remaining data
            raise Died(_how(process.returncode)) from None
        kind, content = answer[0], memoryview(answer)[1:]
        if kind == _DIED:
            raise Died(bytes(content).decode())
        value = pickle.loads(content)  # noqa: S301  # our own child's
        if kind == _RAISED:
            raise value
        return cast("R", value)

    def close(self) -> None:
        """End the interpreter."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        return self._process


def _how(code: int) -> str:
    """Return an exit code of `subprocess` in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"signal {-code} ({name})"


def _send(stream: BinaryIO, content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def _received(stream: BinaryIO) -> bytes:
    """Return one message. Raises `EOFError` if the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        content = stream.read(length)
        if len(content) == length:
            return content
    raise EOFError


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Serve requests in the interpreter, with a child for each, until there are no more."""
    while True:
        try:
            request = _received(requests)
        except EOFError:
            return
        # Loaded here, so that modules are imported once, not in every child.
        function, args, kwargs = pickle.loads(request)  # noqa: S301  # our own parent's
        read_end, write_end = os.pipe()
        child = os.fork()
        if not child:
            os.close(read_end)
            with open(write_end, "wb") as out:  # noqa: PTH123  # a descriptor
                out.write(_answer(functools.partial(function, *args, **kwargs)))
            os._exit(0)
        os.close(write_end)
        with open(read_end, "rb") as pipe:  # noqa: PTH123  # a descriptor
            answer = pipe.read()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        _send(answers, answer if code == 0 else bytes([_DIED]) + _how(code).encode())


def _answer(call: Callable[[], object]) -> bytes:
    try:
        return bytes([_OK]) + pickle.dumps(call(), protocol=5)
    except Exception as error:  # any error is returned to the caller
        return bytes([_RAISED]) + pickle.dumps(error)


def main() -> None:
    """Serve the parent's requests; all printed text goes to stderr."""
    prepare_process()
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(BrokenPipeError):  # the parent is gone
        _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
