"""The compiled `scan.c`, in a sandbox: WebAssembly, of which the artefact lies beside this module.

What it is given it cannot leave: it reaches its own memory and nothing else, neither files nor
the process. A process compiles it once, in some 30 ms, with one thread (a fork of a process
that has compiled with several waits for threads that it does not have). Nothing compiled is
kept in files, which somebody else might write.

Where it cannot be loaded (no such package for the machine, an address space too small)
`compiled` says why, once, and is None: lines are then read as they are without it.
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
# Where addresses are scarce that much is reserved for a memory, which then takes longer; without
# a limit all that 32 bits can name, so that no access has to be compared with the end.
_RESERVED_BYTES = 128 << 20
_GUARD_BYTES = 1 << 16


class Machine(Protocol):
    """One running copy of `scan.c`, for one thread at a time."""

    def call(self, name: str, *arguments: int) -> int:
        """A function's answer. Raises `Broken` if it ends otherwise."""

    def buffer(self, name: str, size: int) -> Bytes:
        """Its array of that name, of ``size`` bytes, as it is at any time."""


class Broken(Exception):
    """The sandbox has ended a call, or what it left there cannot be."""


class Program(Protocol):
    """Compiled code."""

    def machine(self) -> Machine:
        """A new machine, with a memory of its own. Raises `Broken` if there is no room for it."""


class SandboxedProgram:
    """A `Program` whose machines reach their own memory only."""

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
        # It never grows, so it stays where it is.
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
    """The program, compiled once for the process; None, after a line in the log, if that fails."""
    try:
        import wasmtime  # noqa: PLC0415  # a machine that it was not made for does without

        code = importlib.resources.files(__package__).joinpath(ARTEFACT).read_bytes()
        # It cannot be let go of once the interpreter has begun to end.
        atexit.register(compiled.cache_clear)
        return SandboxedProgram(wasmtime, code)
    except Exception as error:  # a loader, a limit, a processor: whatever it is, it is not needed
        logging.getLogger(__name__).warning(
            "the fast path cannot be loaded, lines are read without it: %s: %s",
            type(error).__name__,
            error,
        )
        return None
