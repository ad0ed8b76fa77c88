"""Bytecode in the zip files from which Spark's Python processes import pyspark.

Python keeps none for a zip file, so each such process compiles what it imports: 0.6 seconds of CPU,
as much again as all the rest of its start. Each start of a query has one of these processes.

    python -m tests.support.compiled_pyspark     adds it, if there is none of this Python's version
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import shutil
import warnings
import zipfile
from pathlib import Path

import pyspark

# A note in the zip file of the bytecode that it has.
_MAGIC = importlib.util.MAGIC_NUMBER
# Nothing compares it with its source: both are in one file.
_UNCHECKED = (1).to_bytes(4, "little")


def main() -> None:
    """Add bytecode to the files of the installed package."""
    for archive in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"):
        with zipfile.ZipFile(archive) as found:
            if _MAGIC not in found.comment:
                _add_bytecode(archive, found)


def _add_bytecode(archive: Path, found: zipfile.ZipFile) -> None:
    """Replace the file by one with more in it; what was there keeps its place in the file.

    A process that runs has read the places of all modules, and opens the file for each.
    """
    made = archive.with_suffix(f".{os.getpid()}")
    shutil.copy(archive, made)
    with zipfile.ZipFile(made, "a") as target:
        for name in found.namelist():
            if name.endswith(".py"):
                target.writestr(f"{name}c", _bytecode(found.read(name), f"{archive}/{name}"))
        target.comment = _MAGIC
    made.replace(archive)


def _bytecode(source: bytes, name: str) -> bytes:
    with warnings.catch_warnings(action="ignore"):
        code = compile(source, name, "exec", dont_inherit=True)
    head = _MAGIC + _UNCHECKED + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


if __name__ == "__main__":
    main()
