"""The packages of a lock file: names, versions, and the digests that pip checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What runs: in .venv, and in the image. The development packages are on nobody's server.
RUNTIME = ("requirements.lock", "requirements-image.lock", "requirements-build.lock")
DEVELOPMENT = "requirements-dev.lock"

_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)\s*(?:;(?P<marker>[^\\]*))?\\?$"
)
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Package:
    """A line of a lock file. ``marker`` is where it is installed, empty for everywhere."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def packages(lock: Path) -> Iterator[Package]:
    """Return all pins of a lock file. Raises `ValueError` for an unknown line."""
    logical = lock.read_text().replace("\\\n", "")
    for line in logical.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        head = line.partition("--hash")[0].strip()
        found = _PIN.fullmatch(head)
        hashes = tuple(_HASH.findall(line))
        if found is None or not hashes:
            raise ValueError(f"{lock.name}: {head!r} is not pinned with its digests")
        yield Package(found["name"], found["version"], (found["marker"] or "").strip(), hashes)
