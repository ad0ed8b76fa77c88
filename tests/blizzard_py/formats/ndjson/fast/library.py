"""`scan.c` as a library of this process, in the sandbox's place: no sandbox, and no hurry."""

from __future__ import annotations

import ctypes
import itertools
import shutil
from pathlib import Path

import numpy as np

from blizzard_py.formats.ndjson.fast.sandbox import Bytes, Machine

_numbers = itertools.count()


class Library:
    """A `Program`; each machine is a copy of the file, since a library has its memory once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def machine(self) -> Machine:
        copy = self._path.with_suffix(f".{next(_numbers)}.so")
        shutil.copy(self._path, copy)
        return _Loaded(ctypes.CDLL(str(copy)))


class _Loaded:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def call(self, name: str, *arguments: int) -> int:
        function = self._library[name]
        function.restype, function.argtypes = ctypes.c_uint32, [ctypes.c_uint32] * len(arguments)
        return function(*arguments)

    def buffer(self, name: str, size: int) -> Bytes:
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).in_dll(self._library, name))
