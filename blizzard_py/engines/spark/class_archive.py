"""Java's archive of the classes that Spark loads. A JVM maps it instead of reading the jars.

Half of the CPU time of a start of Spark goes into reading and checking classes. The image is built
with archives (`blizzard_py.app.class_archive`). On another machine the first JVM that ends by
itself writes one, after its daemon has ended.

A driver that only hands out tasks has an archive of its own. It is 67 MB of memory, and that of a
driver with queries is 170 MB.

Java compares the archive with its own build and with the class path, and ignores one that does not
fit.
It writes the head last, so an unfinished one is recognised. Nothing here is a reason to fail.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from blizzard_py.engines.java import java_path
from blizzard_py.engines.spark.class_path import all_jars

# The classes that a driver loads: those of tasks alone, or of queries as well.
Classes: TypeAlias = Literal["tasks", "queries"]

# The option by which a JVM uses an archive.
ARCHIVE = "SharedArchiveFile"
# Words in a JVM's options by which the user, or a test, decides about archives.
_DECIDED = (ARCHIVE, "ArchiveClassesAtExit", "-Xshare")
# Java says on stdout what does not fit, which may be the result of a command.
_QUIET = "-Xlog:cds*=off"
# Else Java moves the archive to a random address: it writes to every page of 170 MB, which are then
# memory of this process alone.
_IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def archive_options(
    given: str,
    environment: Mapping[str, str],
    classes: Classes = "queries",
    jars: Sequence[Path] | None = None,
) -> list[str]:
    """Return the options by which a JVM uses an archive, or writes one when it ends.

    None if the user's options, ``given``, already say something about it, and if no archive can be
    found or written. ``jars`` are those of `archive_name`.
    """
    is_decided = any(word in given for word in _DECIDED)
    name = None if is_decided else archive_name(environment, classes, jars)
    if name is None:
        return []
    own = _own_folder(environment)
    for folder in (image_folder(), own):
        if is_complete(folder / name):
            return [f"-XX:{ARCHIVE}={folder / name}", *_IN_PLACE, _QUIET]
    try:
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return []
    return [f"-XX:ArchiveClassesAtExit={own / name}", _QUIET] if os.access(own, os.W_OK) else []


def archive_name(
    environment: Mapping[str, str], classes: Classes, jars: Sequence[Path] | None = None
) -> str | None:
    """Return the file name for this Java and the jars of the class path; None if there is no Java.

    Without ``jars`` all of Spark are on it.
    """
    java = java_path(environment)
    if java is None:
        return None
    try:
        files = [java.resolve(strict=True), *(all_jars() if jars is None else jars)]
        # Whole seconds, as in the layers of an image.
        facts = [(str(file), file.stat().st_size, int(file.stat().st_mtime)) for file in files]
    except OSError:
        return None
    return f"spark-{classes}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"


def image_folder() -> Path:
    """Return where the build of an image keeps its archive."""
    return Path(sys.prefix)


def is_complete(archive: Path) -> bool:
    """Return whether it is whole, and no other user can have written it: Java runs what it has."""
    try:
        with archive.open("rb") as file:
            facts = os.fstat(file.fileno())
            is_whole = any(file.read(4))
    except OSError:
        return False
    is_ours = facts.st_uid in {0, os.geteuid()} and not facts.st_mode & _OTHERS_MAY_WRITE
    return is_whole and is_ours


def _own_folder(environment: Mapping[str, str]) -> Path:
    cache = environment.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "blizzard-penguin"
