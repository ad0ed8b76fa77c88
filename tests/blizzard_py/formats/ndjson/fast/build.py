"""Makes the artefact of the fast path from its source (`make kernel`), and variants for tests.

The compiler is the locked package `ziglang`, so the same source gives the same bytes on every
machine; `test_artefact` fails where the artefact is not what the source gives.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from blizzard_py.formats.ndjson import fast

SOURCE = Path(fast.__file__).parent / "scan.c"
ARTEFACT = SOURCE.with_suffix(".wasm")
CALLS = ("configure", "scan")
BUFFERS = ("input", "cells", "text", "names", "rows_at", "left", "unknown", "schema", "found")
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_SANDBOXED = (
    *("-target", "wasm32-freestanding", "-O3", "-g0", "-msimd128", "-mbulk-memory", "-nostdlib"),
    *("-fno-sanitize=undefined", "-fvisibility=hidden", "-Wl,--no-entry", "-Wl,--strip-all"),
    *(f"-Wl,--export={name}" for name in (*CALLS, *BUFFERS)),
)
# Undefined behaviour ends the process, and so does a write that would leave its buffer.
_LIBRARY = ("-shared", "-fPIC", "-nostdlib")
_CHECKED = (*_LIBRARY, "-DCHECKED", "-O1", "-fsanitize=undefined", "-fsanitize-trap=all")


def sandboxed(target: Path, source: Path = SOURCE) -> None:
    """WebAssembly, as it is shipped."""
    _compile(_SANDBOXED, target, source)


def checked(target: Path, source: Path = SOURCE) -> None:
    """A library for this machine that ends the process at undefined behaviour."""
    _compile(_CHECKED, target, source)


def native(target: Path) -> None:
    """A library for this machine as fast as it gets, for comparison."""
    _compile((*_LIBRARY, "-O3", "-fno-sanitize=undefined"), target, SOURCE)


def _compile(options: Sequence[str], target: Path, source: Path) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", *options, *_WARNINGS]
    # Nothing may depend on what was compiled before, and each run would leave 60 MB.
    with tempfile.TemporaryDirectory(prefix="blizzard-zig-") as cache:
        caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        subprocess.run(
            [*command, "-o", str(target), str(source)], check=True, env={**os.environ, **caches}
        )


if __name__ == "__main__":
    sandboxed(ARTEFACT)
    ARTEFACT.chmod(0o644)
