"""The compiled `scan.c` in a sandbox: WebAssembly, with the artefact beside this module.

The code reaches only its own memory, neither files nor the process. A process compiles it once, in
about 30 ms, with one thread. (A fork of a process that has compiled with several threads waits for
threads that it does not have.) Compiled code is never stored in files, which others might write.

If it cannot be loaded (no package for the machine, an address space too small), `compiled` logs the
reason once and returns None. Lines are then read without it.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib.resources
import logging
import resource
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

ARTEFACT = "scan.wasm"
# With a limit of addresses so much is reserved for a memory, which is slower. Without a limit all
# 32-bit addresses are reserved, so that no access needs a bounds check.
_RESERVED_BYTES = 128 << 20
_GUARD_BYTES = 1 << 16


class Machine(Protocol):
    """One running copy of `scan.c`, for one thread at a time."""

    def call(self, name: str, *arguments: int) -> int:
        """Return a function's result. Raises `Broken` if it ends otherwise."""

    def buffer(self, name: str, size: int) -> Bytes:
        """Return its array of that name, of ``size`` bytes; it always shows the current content."""


class Broken(Exception):
    """The sandbox has ended a call, or its results are inconsistent."""


class Program(Protocol):
    """Compiled code."""

    def machine(self) -> Machine:
        """Return a new machine with its own memory. Raises `Broken` if memory is missing."""


class SandboxedProgram:
    """A `Program` whose machines reach only their own memory."""

    def __init__(self, wasmtime: Any, code: bytes) -> None:
        config = wasmtime.Config()
        config.parallel_compilation = False
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            config.memory_reservation = _RESERVED_BYTES
            config.memory_guard_size = _GUARD_BYTES
        config.memory_reservation_for_growth = 0
        self._wasmtime = wasmtime
        self._engine = wasmtime.Engine(config)
        self._module = wasmtime.Module(self._engine, code)

    def machine(self) -> Machine:
        try:
            return _Sandbox(self._wasmtime, self._engine, self._module)
        except self._wasmtime.WasmtimeError as error:
            raise Broken(f"no memory for the sandbox: {error}") from error


class _Sandbox:
    def __init__(self, wasmtime: Any, engine: Any, module: Any) -> None:
        self._errors = (wasmtime.WasmtimeError, wasmtime.Trap)
        self._store = wasmtime.Store(engine)
        self._exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        memory = self._exports["memory"]
        # The memory never grows, so it is never moved.
        begin = ctypes.addressof(memory.data_ptr(self._store).contents)
        size = memory.data_len(self._store)
        self._memory: Bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(begin))

    def call(self, name: str, *arguments: int) -> int:
        try:
            answer: int = self._exports[name](self._store, *arguments)
        except self._errors as error:
            raise Broken(str(error)) from error
        return answer & 0xFFFFFFFF

    def buffer(self, name: str, size: int) -> Bytes:
        begin = self._exports[name].value(self._store)
        return self._memory[begin : begin + size]


@functools.cache
def compiled() -> Program | None:
    """Return the program, compiled once for the process; on failure log it and return None."""
    try:
        import wasmtime  # noqa: PLC0415  # a machine that it was not made for does without

        code = importlib.resources.files(__package__).joinpath(ARTEFACT).read_bytes()
        # It cannot be released once the interpreter has begun to end.
        atexit.register(compiled.cache_clear)
        return SandboxedProgram(wasmtime, code)
    except Exception as error:  # a loader, a limit, a processor: the fast path is optional
        logging.getLogger(__name__).warning(
            "the fast path cannot be loaded, lines are read without it: %s: %s",
            type(error).__name__,
            error,
        )
        return None
